"""A Galera cluster of two nodes, from Debian's galera-4, rsync and mariadb-server."""

from pathlib import Path
from urllib.parse import urlsplit

from machine import ProgramMissing, free_port
from servers import OwnMariaDB

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so")


class Node(OwnMariaDB):
    """A node that begins a cluster, or joins that of `other`. The first one alone is a majority."""

    def __init__(self, other: "Node | None" = None) -> None:
        self._other = other
        self.group_port = free_port()
        self._settings = self._wsrep()
        if other is not None:
            self.create_user = ()  # comes with the other one's data
        super().__init__()

    def _wsrep(self) -> list[str]:
        provider = next((path for path in PROVIDERS if Path(path).exists()), None)
        if provider is None:
            raise ProgramMissing(f"{PROVIDERS[0]} is not there: apt-get install galera-4 rsync")
        options = {
            "base_port": self.group_port,
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.group_port}",
            "ist.recv_addr": f"127.0.0.1:{free_port()}",
            "pc.weight": 1 if self._other else 2,
            "gcache.size": "32M",
        }
        settings = {
            "wsrep-on": "ON",
            "wsrep-provider": provider,
            "wsrep-provider-options": ";".join(f"{name}={value}" for name, value in options.items()),
            "wsrep-cluster-name": "cronledger",
            "wsrep-cluster-address": f"gcomm://127.0.0.1:{self._other.group_port}" if self._other else "gcomm://",
            "wsrep-node-address": f"127.0.0.1:{self.group_port}",
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"127.0.0.1:{free_port()}",
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": "2",
        }
        return [f"--{name}={value}" for name, value in settings.items()]

    def _command(self) -> list[str]:
        return [*super()._command(), *self._settings]


class Cluster:
    """Both nodes."""

    def __init__(self) -> None:
        self.first = Node()
        try:
            self.second = Node(self.first)
            assert self.second.sql("SHOW STATUS LIKE 'wsrep_cluster_size'") == [("wsrep_cluster_size", "2")]
        except BaseException:
            self.first.close()
            raise

    def dsn(self, dsn: str, number: int) -> str:
        """The same database by way of a node, 0 or 1."""
        port = (self.first, self.second)[number].port
        parts = urlsplit(dsn)
        return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()

    def kill(self) -> None:
        """End the second node without a word."""
        self.second.stop("immediate")

    def close(self) -> None:
        """End both."""
        for node in (self.second, self.first):
            node.close()
