"""A PostgreSQL with a streaming standby, which takes its place when it is killed."""

from pathlib import Path
from urllib.parse import urlsplit

from conftest import Database
from machine import wait_for
from servers import OwnPostgreSQL

NAME = "standby"
FOLLOWERS = "SELECT state, sync_state FROM pg_stat_replication"


class Standby(OwnPostgreSQL):
    """A copy of a primary that follows it."""

    create_user = ()

    def __init__(self, primary: OwnPostgreSQL) -> None:
        self._primary = primary
        super().__init__()

    def _make(self) -> None:
        self._server = self._primary._server
        place = f"host={self._primary.folder} port={self._primary.port} user=postgres application_name={NAME}"
        copy = [str(Path(self._server).resolve().with_name("pg_basebackup")), "-D", "data", "-d", place]
        self._complete([*copy, "-R", "-X", "stream", "-c", "fast", "--no-sync"])

    def cut_off(self) -> None:
        """Let nothing of the primary come any more."""
        for statement in ("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"):
            self.sql(statement)
        wait_for(lambda: not self._primary.sql(FOLLOWERS), 60, "the standby is cut off")

    def promote(self) -> None:
        """Let it take the primary's place. Alone, it is not to wait for a standby of its own."""
        for statement in ("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_promote(true, 60)"):
            self.sql(statement)


class Pair:
    """A primary and its standby, which has all that was acknowledged (`synchronous`) or not."""

    def __init__(self, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        self.primary: OwnPostgreSQL = OwnPostgreSQL()
        self._name = urlsplit(self.primary.fresh_database()).path[1:]
        self.standby = self._follow()

    def _follow(self) -> Standby:
        standby, names = Standby(self.primary), NAME if self.synchronous else ""
        for statement in (f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()"):
            self.primary.sql(statement)
        state = "sync" if self.synchronous else "async"
        wait_for(lambda: self.primary.sql(FOLLOWERS) == [("streaming", state)], 60, f"a standby follows: {state}")
        return standby

    @property
    def database(self) -> Database:
        """The same one on both, reached at whichever can be written."""
        user = urlsplit(self.primary.dsn).netloc.rpartition("@")[0]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        dsn = f"postgresql://{user}@{hosts}/{self._name}?target_session_attrs=read-write"
        return Database("postgres", dsn, self.primary)

    def fail_over(self) -> None:
        """Kill the primary at once; its standby takes its place."""
        self.primary.stop("immediate")
        self.standby.promote()

    def renew(self) -> None:
        """Give the one that is left a standby of its own."""
        old, self.primary = self.primary, self.standby
        old.close()
        self.standby = self._follow()

    def close(self) -> None:
        """End both."""
        for server in (self.standby, self.primary):
            server.close()
