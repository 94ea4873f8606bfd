"""A ledger that cannot be used: one line that names the repair and what was due, exit 1, no password, no traceback."""

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from urllib.parse import quote, urlsplit

import pytest
from conftest import ROOT, Database
from deployed import AT, Deployed, Run, complained, said
from servers import PASSWORD, OwnServer, Server

from cronledger.ledger.schema import RUNS

Spawn = Callable[..., Popen[str]]


@pytest.fixture
def uninstalled(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule whose ledger has no tables yet."""
    return Deployed(tmp_path, database, run)


@pytest.fixture
def served(own_server: OwnServer, run: Run, tmp_path: Path) -> Deployed:
    """On a server that may be stopped."""
    database = Database(own_server.kind, own_server.fresh_database(), own_server)
    return Deployed(tmp_path, database, run).installed()


NOT_CLAIMED = "; not claimed here: ok$"
NO_GREETINGS = (
    b"\x05\0\0\0\x0b\x08\x05\x1a\0",  # of MySQL's other protocol
    b"\x4a\0\0\0\x0a8.0.1\0\x01\0\0\0abcdefgh\0\xff\xff\xff\x02\0\xff\xdf\x15"
    + bytes(10)
    + b"a" * 12
    + b"\0\xff\xfe\x80\0",
    b"\0\0\0\0",
    b"SSH-2.0-OpenSSH_9.2\r\n",
)
"""What no database says first."""


def test_before_install(uninstalled: Deployed) -> None:
    """The command that makes the tables is named."""
    complained(uninstalled.tick(), "run `cronledger install`" + NOT_CLAIMED)


@pytest.mark.parametrize("table", ["cronledger_runs", "cronledger_jobs", "cronledger_meta"])
def test_with_a_table_dropped(uninstalled: Deployed, table: str) -> None:
    """The same, and install mends it."""
    uninstalled.installed().database.sql(f"DROP TABLE {table}")
    complained(uninstalled.tick(), "run `cronledger install`" + NOT_CLAIMED)
    assert "created table " + table in uninstalled.cli("install").stdout
    said(uninstalled.tick(), r"ran ok in \d\.\ds", status=0)


@pytest.mark.parametrize("column", ["output", "duration_ms"])
def test_with_a_column_dropped(uninstalled: Deployed, column: str) -> None:
    """One that is needed only when a run is over is missed before anything is claimed; install adds it again."""
    uninstalled.installed().database.sql(f"ALTER TABLE cronledger_runs DROP COLUMN {column}")
    done = uninstalled.tick()
    complained(done, rf"has lost a column.*\bcronledger_runs\.{column}\b.*; run `cronledger install`{NOT_CLAIMED}")
    assert done.stderr.count("cronledger install") == 1
    assert uninstalled.rows("id") == []
    assert f"added column cronledger_runs.{column}" in uninstalled.cli("install").stdout
    said(uninstalled.tick(), r"ran ok in \d\.\ds", status=0)


@pytest.mark.parametrize("mutex", [name for name, _ in RUNS.mutexes])
def test_with_a_mutex_dropped(served: Deployed, mutex: str) -> None:
    """Without a mutex jobs could run twice: nothing runs until install has made it again."""
    kind = "CONSTRAINT" if served.database.kind == "postgres" else "INDEX"
    served.database.sql(f"ALTER TABLE cronledger_runs DROP {kind} {mutex}")
    complained(served.tick(), f"lost a mutex.*{mutex}.*run `cronledger install`{NOT_CLAIMED}")
    assert served.database.sql("SELECT COUNT(*) FROM cronledger_runs") == [(0,)]
    assert f"made mutex {mutex}" in served.cli("install").stdout
    said(served.tick(), r"ran ok in \d\.\ds", status=0)


def test_with_a_wrong_password(served: Deployed) -> None:
    """Or with none: the server's word, and where to look; at once, since trying again could lock the account."""
    right = quote(PASSWORD, safe="")
    for wrong in (quote(PASSWORD[::-1], safe=""), ""):
        complained(
            served.tick(CRONLEDGER_DSN=served.dsn.replace(right, wrong)),
            "refuses the connection .*; check the user, the password and the database in the DSN" + NOT_CLAIMED,
        )


def test_with_a_database_that_is_not_there(served: Deployed) -> None:
    """Refused at once."""
    served.dsn = urlsplit(served.dsn)._replace(path="/cronledger_none").geturl()
    complained(served.tick(), "refuses the connection|may not do this")


@contextmanager
def _answering(server: socket.socket, says: bytes) -> Iterator[None]:
    """Whoever connects to `server` is told this, and nothing more."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(says)
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield
    server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.xdist_group("waiting")
def test_with_a_server_that_is_down_or_says_nothing(spawn: Spawn, run: Run, tmp_path: Path) -> None:
    """Refused, accepted in silence, or answered by something else: each tick ends in time and names what was due."""
    with ExitStack() as opened:
        silent, gone, *babbling = (
            opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2 + len(NO_GREETINGS))
        )
        for server, says in zip(babbling, NO_GREETINGS, strict=True):
            opened.enter_context(_answering(server, says))
        ports = [server.getsockname()[1] for server in (silent, gone, *babbling)]
        gone.close()
        secret = quote(PASSWORD, safe="")
        dsns = [f"{kind}://app:{secret}@127.0.0.1:{port}/app" for kind in ("postgresql", "mysql") for port in ports]
        deployed = Deployed(tmp_path, Database("", "", None), run)
        ticks = [spawn("tick", cwd=tmp_path, env=deployed.env | {"CRONLEDGER_DSN": dsn}) for dsn in dsns]
        for tick in ticks:
            out, err = tick.communicate(timeout=120)
            done = subprocess.CompletedProcess(tick.args, tick.returncode, out, err)
            complained(done, r"ledger unreachable \(.*\)" + NOT_CLAIMED)


def test_list_with_the_server_down(served: Deployed) -> None:
    """The schedule alone, and why in one line; exit 0."""
    served.database.server.stop()  # type: ignore[union-attr]
    listed = served.cli("list")
    assert listed.returncode == 0
    assert "ok" in listed.stdout
    assert re.search(r"ledger unreachable \(.*\); so this is the schedule alone", listed.stderr)
    assert len(listed.stderr.splitlines()) == 1


def test_with_a_server_that_comes_back_in_time(served: Deployed, spawn: Spawn) -> None:
    """A restart of a few seconds costs nothing: the tick tries again within its budget."""
    served.database.server.stop()  # type: ignore[union-attr]
    tick = spawn("tick", cwd=served.folder, env=served.env)
    served.database.server.start()  # type: ignore[union-attr]
    out, err = tick.communicate(timeout=60)
    assert re.fullmatch(rf"{AT} ran ok in \d\.\ds\n", out), err
    assert err == ""


def test_with_a_read_only_server(served: Deployed) -> None:
    """A standby is named as such; nothing is claimed."""
    server = served.database.server
    assert server is not None
    name = urlsplit(served.dsn).path[1:]
    postgres = served.database.kind == "postgres"
    server.sql(
        f"ALTER DATABASE {name} SET default_transaction_read_only = on" if postgres else "SET GLOBAL read_only = 1"
    )
    try:
        complained(served.tick(), "the ledger's server is read-only .*; point the DSN at the primary" + NOT_CLAIMED)
    finally:
        if not postgres:
            server.sql("SET GLOBAL read_only = 0")


@pytest.mark.parametrize("command", ["tick", "history", "show x", "reap x --yes", "run ok", "prune --older-than 30d"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_malformed_dsn_never_shows_its_password(run: Run, tmp_path: Path, scheme: str, command: str) -> None:
    """An unencoded @ in the password is refused by our own sentence, by every command."""
    deployed = Deployed(tmp_path, Database(scheme, f"{scheme}://app:{PASSWORD}@127.0.0.1/app", None), run)
    complained(deployed.cli(*command.split()), "DSN is malformed: .*%40", status=2)


def test_with_an_env_file_that_is_not_there(uninstalled: Deployed) -> None:
    """Named when it is needed, exit 1."""
    uninstalled.installed().write('name = "ok"\ncommand = "true"', top='env_file = "gone.env"')
    complained(uninstalled.tick(), rf"{uninstalled.folder}/gone\.env")


def test_with_a_variable_that_is_not_there(uninstalled: Deployed) -> None:
    """The ${NAME} of the dsn is named, and where it was looked for."""
    uninstalled.write('name = "ok"\ncommand = "true"', top='[ledger]\ndsn = "${NO_SUCH_NAME}"')
    complained(uninstalled.tick(CRONLEDGER_DSN=""), "NO_SUCH_NAME")


@pytest.mark.xdist_group("waiting")
def test_with_one_row_held_by_somebody_else(served: Deployed) -> None:
    """A session that locks a dead run's row keeps no other job from running; what was not reaped is named."""
    served.tick("--at", "2026-01-05T10:00")
    utc = "+00" if served.database.kind == "postgres" else ""
    served.database.sql(
        "UPDATE cronledger_runs SET state = 'running', active_job = 'ok', finished_at = NULL, owner = 'elsewhere',"
        f" expires_at = '2026-01-05 11:01:01{utc}'"
    )
    [(run_id,)] = served.rows("id")
    served.write('name = "other"\ncommand = "true"')
    with _session(served) as execute:
        execute(f"SELECT id FROM cronledger_runs WHERE id = '{run_id}' FOR UPDATE")
        done = served.tick()
    assert re.fullmatch(rf"{AT} ran other in \d\.\ds\n", done.stdout)
    assert re.fullmatch(r"cronledger: ledger busy \(.*\); not reaped here: run \S+ of ok on web1\n", done.stderr)
    assert done.returncode == 1
    assert re.search(r"reaped ok: .* window of .* over", served.tick().stdout)


@contextmanager
def _session(served: Deployed) -> Iterator[Callable[[str], object]]:
    """A transaction of somebody else's, rolled back at the end."""
    if served.database.kind == "postgres":
        import psycopg

        with psycopg.connect(served.dsn) as postgres:
            yield postgres.execute
            postgres.rollback()
        return
    import pymysql

    with pymysql.connect(**served.database.server.arguments(served.dsn) | {"autocommit": False}) as mariadb:  # type: ignore[union-attr]
        yield mariadb.cursor().execute
        mariadb.rollback()


def test_a_password_that_libpq_finds_by_itself_is_masked(postgres: Server, run: Run, tmp_path: Path) -> None:
    """PGPASSWORD is the ledger's password as much as one in the DSN."""
    dsn = postgres.fresh_database().replace(f":{quote(PASSWORD, safe='')}@", "@")
    deployed = Deployed(tmp_path, Database("postgres", dsn, postgres), run)
    deployed.write('name = "leak"\ncommand = "echo it is $PGPASSWORD; exit 1"')
    assert deployed.cli("install", PGPASSWORD=PASSWORD).returncode == 0
    done = deployed.tick(PGPASSWORD=PASSWORD)
    assert re.fullmatch(rf"{AT} failed leak in \d\.\ds: exit 1: it is \*\*\*\n", done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["tick", "postgresql://app:hunter22xx@db/app"],
        ["tick", "--at", "postgresql://app:hunter22xx@db/app"],
        ["run", "postgresql://app:hunter22xx@db/app"],
        ["list", "--node", "postgresql://app:hunter22xx@db/app"],
        ["history", "--schedule", "postgresql://app:hunter22xx@db/app"],
        ["postgresql://app:hunter22xx@db/app"],
    ],
)
def test_a_dsn_in_the_wrong_place_is_not_repeated(run: Run, tmp_path: Path, words: list[str]) -> None:
    """Whatever word it was taken for, the error masks its password."""
    deployed = Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()
    done = deployed.cli(*words)
    assert done.returncode in (1, 2)
    assert done.stderr
    assert "hunter22xx" not in done.stdout + done.stderr


def test_a_dsn_between_braces_is_not_repeated(uninstalled: Deployed) -> None:
    """What is no variable's name is not shown: it may be the DSN itself."""
    uninstalled.write('name = "ok"\ncommand = "true"', top='[ledger]\ndsn = "${postgresql://app:hunter22xx@db/app}"')
    done = uninstalled.tick(CRONLEDGER_DSN="")
    complained(done, r"write \$\{NAME\}")
    assert "hunter22xx" not in done.stderr


def test_an_env_file_that_is_a_pipe_does_not_hang(uninstalled: Deployed) -> None:
    """It is no regular file, and is refused as such."""
    os.mkfifo(uninstalled.folder / "fifo")
    uninstalled.installed().write('name = "ok"\ncommand = "true"', top='env_file = "fifo"')
    complained(uninstalled.tick(), "it is not a regular file")


def test_with_the_current_folder_gone(uninstalled: Deployed) -> None:
    """With absolute paths nothing needs it: cron may have started the tick in a folder that a deploy removed."""
    if uninstalled.database.kind == "sqlite":
        uninstalled.dsn = f"sqlite:///{uninstalled.folder}/ledger.db"
    uninstalled.installed()
    gone = uninstalled.folder / "gone"
    gone.mkdir()
    words = [sys.executable, "-m", "cronledger", "tick", "--schedule", str(uninstalled.folder / "schedule.toml")]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)} | uninstalled.env
    line = f"cd {gone} && rmdir {gone} && exec {shlex.join(words)}"
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
    said(done, r"ran ok in \d\.\ds", status=0)


@pytest.mark.parametrize("at", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-05:00", "0001-01-01T00:00"])
def test_a_minute_at_the_end_of_time_is_refused(uninstalled: Deployed, at: str) -> None:
    """Without a traceback."""
    path = uninstalled.folder / "schedule.toml"
    path.write_text(path.read_text().replace("UTC", "America/New_York"))
    complained(uninstalled.tick("--at", at), f"--at {at[:4]}", status=2)
