"""Throw-away database servers for the tests, made from the packages that the machine has.

    python tests/servers.py [postgres] [mariadb]

starts them by hand, prints a DSN of each and runs until Ctrl-C. CRONLEDGER_TEST_POSTGRES, CRONLEDGER_TEST_MARIADB and
CRONLEDGER_TEST_MYSQL name servers to use instead (MySQL only so): DSNs of a user who may create databases.
"""

import os
import pwd
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from machine import Guard, free_port, listens, program, send, unprivileged, wait_for

PASSWORD = "p@ss/w:rd-æ%"  # awkward on purpose, as the zones of the servers are: nothing may depend on them
ME = pwd.getpwuid(os.geteuid()).pw_name


class ServerFailed(Exception):
    """A server of our own did not start; the text ends with the last lines of its log."""


class Server:
    """A database server that is already there, reached by a DSN whose user may create databases."""

    kind: str
    product: str
    ask_version: str

    def __init__(self, dsn: str) -> None:
        self.dsn = self.admin_dsn = dsn
        self._databases: list[str] = []

    def rows(self, dsn: str, statement: str) -> list[tuple[object, ...]]:
        """What `statement` returns, sent to `dsn` in a connection of its own and committed at once."""
        raise NotImplementedError

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """The same, as administrator."""
        return self.rows(self.admin_dsn, statement)

    @property
    def version(self) -> str:
        """Such as `15.18`."""
        return re.split("[ -]", str(self.sql(self.ask_version)[0][0]))[0]

    @property
    def name(self) -> str:
        """Such as `PostgreSQL 15.18`."""
        return f"{self.product} {self.version}"

    def fresh_database(self) -> str:
        """The DSN of a new, empty database."""
        name = f"cronledger_{secrets.token_hex(6)}"
        self.rows(self.dsn, f"CREATE DATABASE {name}")
        self._databases.append(name)
        return urlsplit(self.dsn)._replace(path=f"/{name}").geturl()

    def close(self) -> None:
        """Drop the databases that were made here."""
        for name in self._databases:
            self.rows(self.dsn, f"DROP DATABASE {name}")


class PostgreSQL(Server):
    kind = "postgres"
    product = "PostgreSQL"
    ask_version = "SHOW server_version"

    def rows(self, dsn: str, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


class MySQL(Server):
    kind = "mysql"
    product = "MySQL"
    ask_version = "SELECT VERSION()"

    def rows(self, dsn: str, statement: str) -> list[tuple[object, ...]]:
        import pymysql

        with pymysql.connect(**self.arguments(dsn)) as connection:
            cursor = connection.cursor()
            while True:
                try:
                    cursor.execute(statement)
                    return list(cursor.fetchall())
                except pymysql.err.OperationalError as error:
                    if error.args[0] != pymysql.constants.ER.LOCK_DEADLOCK:
                        raise  # else as the server asks: again

    def arguments(self, dsn: str) -> dict[str, Any]:
        """What PyMySQL takes in place of a DSN."""
        parts = urlsplit(dsn)
        given: dict[str, Any] = {"unix_socket": dict(parse_qsl(parts.query)).get("unix_socket"), "autocommit": True}
        given |= {"host": parts.hostname, "port": parts.port or 3306, "database": unquote(parts.path[1:]) or None}
        # Bytes, since PyMySQL would send a str in Latin-1.
        return given | {"user": unquote(parts.username or ""), "password": unquote(parts.password or "").encode()}


class MariaDB(MySQL):
    kind = "mariadb"
    product = "MariaDB"


class OwnServer(Server):
    """A server of our own, in a temporary folder that goes with it. `log` is its log, of all its starts."""

    account: str  # whose it is when the tests run as root, which no server likes
    address: str
    admin_address: str
    create_user: tuple[str, ...]
    stop_signals: ClassVar[dict[str, signal.Signals]]

    def __init__(self, *, durable: bool = False) -> None:
        """Make and start it. `durable`: each commit waits for the disk.

        Without, it is handed to the kernel only: it survives the death of the server, which the tests bring about, and
        not that of the machine, which they do not.
        """
        self.durable = durable
        self.folder = Path(tempfile.mkdtemp(prefix=f"cronledger-{self.kind}-"))
        self.log = self.folder / "log"
        self.port = free_port()
        user = f"cronledger:{quote(PASSWORD, safe='')}"
        super().__init__(self.address.format(user=user, port=self.port))
        self.admin_dsn = self.admin_address.format(folder=quote(str(self.folder), safe=""), port=self.port)
        self._guard = Guard(self.folder)
        try:
            self._become = unprivileged(self.account, self.folder)
            self._make()
            self.start()
            for statement in self.create_user:
                self.sql(statement)
        except BaseException:
            self._guard.close()
            raise

    def _make(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    @property
    def is_up(self) -> bool:
        """Whether its process lives, paused or not."""
        return self._process.poll() is None

    def start(self) -> None:
        """Start it on the same data and port, and wait until it answers."""
        self._process = self._popen(self._command())
        wait_for(self._answers, 60, f"{self.product} answers")

    def stop(self, mode: str = "fast") -> None:
        """End it: "fast" breaks off its connections and shuts down, "immediate" leaves it to recover when it starts."""
        self.resume()
        self._process.send_signal(self.stop_signals[mode])
        self._process.wait(60)

    def restart(self, mode: str = "fast") -> None:
        """Stop it by `mode`, and start it."""
        self.stop(mode)
        self.start()

    def pause(self) -> None:
        """Hold all its processes where they are: connections are accepted (by the kernel), and nothing answers."""
        for _ in range(2):  # the second time for what was forked during the first
            send(signal.SIGSTOP, self.folder)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        send(signal.SIGCONT, self.folder)

    def close(self) -> None:
        """End it, and remove all that it left."""
        self._guard.close()
        self._process.wait(10)

    def _complete(self, command: list[str]) -> None:
        if self._popen(command).wait(120) != 0:
            raise self._failed(f"{command[0]} failed")

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
        place: dict[str, Any] = {"cwd": self.folder, "env": environment, "start_new_session": True}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **place, **self._become)

    def _answers(self) -> bool:
        if not self.is_up:
            raise self._failed("the server did not start")
        with suppress(Exception):  # whatever the driver says of a server that is not ready yet
            return listens(self.port) and bool(self.sql("SELECT 1"))
        return False

    def _failed(self, what: str) -> ServerFailed:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return ServerFailed("\n".join([f"{self.product}: {what}; its log ends:", *lines]))


class OwnPostgreSQL(OwnServer, PostgreSQL):
    account = "postgres"
    address = "postgresql://{user}@127.0.0.1:{port}/postgres"
    admin_address = "postgresql://postgres@/postgres?host={folder}&port={port}"
    create_user = (f"CREATE ROLE cronledger LOGIN CREATEDB PASSWORD '{PASSWORD}'",)
    stop_signals: ClassVar = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

    def _make(self) -> None:
        self._server = program("postgres", "postgresql", "CRONLEDGER_TEST_POSTGRES")
        initdb = [str(Path(self._server).resolve().with_name("initdb")), "-D", "data", "-U", "postgres"]
        methods = ["--auth-local=trust", "--auth-host=scram-sha-256"]  # the socket's folder is closed to other users
        self._complete([*initdb, "--encoding=UTF8", "--no-locale", "--no-sync", *methods])

    def _command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "dynamic_shared_memory_type": "mmap",  # in its folder, not in /dev/shm
            "fsync": "on" if self.durable else "off",
            "max_connections": "200",
            "timezone": "Asia/Kathmandu",
        }
        return [self._server, "-D", "data", *(f"--{name}={value}" for name, value in settings.items())]


class OwnMariaDB(OwnServer, MariaDB):
    account = "mysql"
    address = "mariadb://{user}@127.0.0.1:{port}/"
    admin_address = f"mariadb://{ME}@/?unix_socket={{folder}}%2Fsocket"
    create_user = (
        f"CREATE USER cronledger@'%' IDENTIFIED BY '{PASSWORD}'",
        "GRANT ALL ON `cronledger\\_%`.* TO cronledger@'%'",
    )
    stop_signals: ClassVar = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL}

    def _make(self) -> None:
        self._server = program("mariadbd", "mariadb-server", "CRONLEDGER_TEST_MARIADB")
        make = [program("mariadb-install-db", "mariadb-server", "CRONLEDGER_TEST_MARIADB"), "--no-defaults"]
        self._complete([*make, "--skip-test-db", f"--datadir={self.folder}/data", f"--auth-root-socket-user={ME}"])

    def _command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "socket": str(self.folder / "socket"),
            "datadir": str(self.folder / "data"),
            "pid-file": str(self.folder / "pid"),
            "innodb-flush-log-at-trx-commit": "1" if self.durable else "2",
            "innodb-buffer-pool-size": "256M" if self.durable else "64M",
            "max-connections": "200",
            "default-time-zone": "+05:45",
        }
        return [self._server, "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]


GIVEN: dict[str, type[Server]] = {"postgres": PostgreSQL, "mariadb": MariaDB, "mysql": MySQL}
OWN: dict[str, type[OwnServer]] = {"postgres": OwnPostgreSQL, "mariadb": OwnMariaDB}


def server(kind: str, *, durable: bool = False) -> Server:
    """The server that CRONLEDGER_TEST_KIND names, else one of our own."""
    dsn = os.environ.get(f"CRONLEDGER_TEST_{kind.upper()}")
    return GIVEN[kind](dsn) if dsn else OWN[kind](durable=durable)


def main(kinds: list[str]) -> None:
    """Start servers for somebody's own use, until Ctrl-C."""
    started = [OWN[kind]() for kind in kinds or OWN]
    for each in started:
        print(
            f"{each.name}: {each.fresh_database()}\n    administrator: {each.admin_dsn}\n    log: {each.log}",
            flush=True,
        )
    print("Ctrl-C ends them.", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()
    for each in started:
        each.close()


if __name__ == "__main__":
    main(sys.argv[1:])
