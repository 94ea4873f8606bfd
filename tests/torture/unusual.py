"""Settings of a server that a program does not expect, and a transaction pooler in between."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import recorded
from machine import Guard, free_port, listens, unprivileged, wait_for

from torture.scene import Scene
from torture.stalled import going_on, own, setting

POSTGRES = (
    "CREATE SCHEMA ahead",
    *(
        f"ALTER DATABASE {{name}} SET {setting}"
        for setting in (
            "search_path = ahead, public",
            "default_transaction_isolation = serializable",
            "default_transaction_deferrable = on",
            "DateStyle = 'SQL, DMY'",
            "IntervalStyle = 'iso_8601'",
            "standard_conforming_strings = off",
            "client_encoding = 'LATIN1'",
            "enable_indexscan = off",
        )
    ),
)
MYSQL = {
    "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES'",
    "init_connect": "'SET autocommit = 0, unique_checks = 0, sql_safe_updates = 1'",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_results": "latin1",
    "tx_isolation": "'SERIALIZABLE'",
    "completion_type": "'CHAIN'",
    "sql_select_limit": "1",
}
SAID = "a\\b 'c' \"d\" % é 😀"


@contextmanager
def unexpected(scene: Scene) -> Iterator[None]:
    """Sessions that begin from now on find all these settings at once."""
    with ExitStack() as settings:
        if scene.database.kind == "postgres":
            name = urlsplit(scene.database.dsn).path[1:]
            for statement in POSTGRES:
                scene.database.sql(statement.format(name=name))
        else:
            for variable, value in MYSQL.items():
                settings.enter_context(setting(own(scene), variable, value))
        yield
        if scene.database.kind == "postgres":
            scene.database.sql(f"ALTER DATABASE {name} RESET ALL")


def unusual(scene: Scene, minutes: int) -> None:
    """Eight nodes at once claim, run, reap, settle, look and prune as they do elsewhere."""
    said = scene.folder / "said"
    said.write_text(SAID)
    old = datetime.now(UTC) - timedelta(hours=3)
    dead = {"started_at": old, "expires_at": old + timedelta(hours=1), "active_job": "ok", "namespace": "app"}
    recorded.running(scene.database, 0, "ok", **dead)
    with unexpected(scene):
        assert "created" not in scene.run("install")
        scene.write("schedule.toml", scene.job("ok"), scene.job("bad", f"cat {said}; exit 3"))
        ended = scene.batches(*([(f"web{node}", back) for node in range(8)] for back in range(minutes, 0, -1)))
        assert {tick.err for tick in ended} == {""}, ended
        assert sum(event["event"] == "reaped" for tick in ended for event in tick.events) == 1
        runs = json.loads(scene.run("history", "bad", "--json"))
        scene.run("prune", "--older-than", "30d")
    assert {run["failure_reason"] for run in runs} == {f"exit 3: {SAID}"}
    ages = [datetime.now(UTC) - datetime.fromisoformat(run["started_at"]) for run in runs]
    assert all(timedelta() <= age < timedelta(minutes=10) for age in ages), ages
    assert {output for (output,) in scene.rows("output", "job = 'bad'")} == {SAID}
    assert len(scene.rows("id")) == 2 * minutes + 1
    scene.count(*ended, inflicted=len(ended))


class Bouncer:
    """A pgbouncer in transaction mode in front of a PostgreSQL, as a user who is not root. Use as a context manager."""

    def __init__(self, program: str, dsn: str) -> None:
        parts = urlsplit(dsn)
        self._program = program
        self._port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="cronledger-pgbouncer-"))
        self.dsn = parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._port}").geturl()
        password = unquote(parts.password or "").replace('"', '""')
        (self._folder / "users").write_text(f'"{unquote(parts.username or "")}" "{password}"\n')
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": self._folder / "users",
            "pool_mode": "transaction",
            "default_pool_size": 2,
            "max_client_conn": 50,
            "server_login_retry": 1,
            "logfile": self._folder / "log",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        text = f"[databases]\n* = host={parts.hostname} port={parts.port}\n[pgbouncer]\n" + "\n".join(lines) + "\n"
        (self._folder / "ini").write_text(text)
        self._guard = Guard(self._folder)
        self._become = unprivileged("postgres", self._folder)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        place = {"cwd": self._folder, "stdin": subprocess.DEVNULL, "start_new_session": True}
        self._process = subprocess.Popen([self._program, "-q", "ini"], **place, **self._become)  # type: ignore[call-overload]
        wait_for(lambda: listens(self._port), 20, "pgbouncer listens")

    def kill(self) -> None:
        """End it with all its connections."""
        self._process.kill()
        self._process.wait(10)

    def __enter__(self) -> "Bouncer":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._guard.close()
        self._process.wait(10)


def pooled(scene: Scene, pgbouncer: str, nodes: int, minutes: int) -> None:
    """Many nodes share two connections; the pooler dies while a job runs, and then the server behind it."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(4)))
    with Bouncer(pgbouncer, scene.dsn) as bouncer:
        batches = ([(f"web{node}", back) for node in range(nodes)] for back in range(10 + minutes, 10, -1))
        ended = scene.batches(*batches, dsn=bouncer.dsn)
        assert {(tick.status, tick.err) for tick in ended} == {(0, "")}, ended
        scene.dsn = bouncer.dsn
        with going_on(scene) as runs:
            bouncer.kill()
            scene.touch("go")
            scene.gate.shut()
            bouncer.start()
            other = scene.tick("web2", 4)
            scene.gate.open()
            ended += [other.wait(), runs.wait()]
        assert (ended[-1].status, ended[-1].err) == (0, ""), ended[-1]
        scene.count(*ended, inflicted=len(ended))
