"""Databases to keep a ledger in, the program as a real process, and what the run was made with.

Nothing of the outside reaches a test: variables that steer cronledger or a database driver are dropped at once, but
for those of the tests' own (CRONLEDGER_TEST_POSTGRES, _MARIADB, _MYSQL: see servers.py; CRONLEDGER_TEST_CRON=no).
"""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import pytest
import servers

from cronledger.ledger import open_link, schema
from cronledger.ledger.dsn import parse

ROOT = Path(__file__).resolve().parent.parent
KINDS = ["sqlite", "postgres", "mariadb", *(["mysql"] if "CRONLEDGER_TEST_MYSQL" in os.environ else [])]
PACKAGES = {
    "postgres": ("postgres", "postgresql"),
    "mariadb": ("mariadbd", "mariadb-server"),
    "pgbouncer": ("pgbouncer", "pgbouncer"),
    "cron": ("cron", "cron"),
}
NOTES = pytest.StashKey[dict[str, str]]()
"""What is said at the end: the version of each kind of database that was used; what was missing."""
NO_CRON = os.environ.get("CRONLEDGER_TEST_CRON") == "no"

for variable in list(os.environ):
    if variable.startswith(("CRONLEDGER_", "PG", "MYSQL_")) and not variable.startswith("CRONLEDGER_TEST_"):
        del os.environ[variable]

# What the caller ignores, as nohup and a shell's & do, the programs under test would ignore too.
for signum, handler in ((signal.SIGHUP, lambda *_: None), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, handler)


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database for one test. `server` is None for SQLite, which is a file."""

    kind: str
    dsn: str
    server: servers.Server | None

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """What `statement` returns, in a connection of its own and committed at once."""
        if self.server is not None:
            return self.server.rows(self.dsn, statement)
        with closing(sqlite3.connect(self.dsn.removeprefix("sqlite:///"), timeout=10, isolation_level=None)) as file:
            return file.execute(statement).fetchall()

    def install(self) -> None:
        """Make the ledger's tables, without a process: `cronledger install` itself has tests of its own."""
        link = open_link(parse(self.dsn, "/"), install=True)
        with closing(link):
            schema.install(link)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A fresh database of each kind in turn."""
    kind = request.param
    if kind == "sqlite":
        request.config.stash[NOTES]["sqlite"] = f"SQLite {sqlite3.sqlite_version}"
        return Database(kind, f"sqlite:///{tmp_path}/ledger.db", None)
    server = request.getfixturevalue(kind)
    return Database(kind, server.fresh_database(), server)


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[servers.Server]:
    """The session's PostgreSQL."""
    yield from _server(pytestconfig, "postgres")


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Iterator[servers.Server]:
    """The session's MariaDB."""
    yield from _server(pytestconfig, "mariadb")


@pytest.fixture(scope="session")
def mysql(pytestconfig: pytest.Config) -> Iterator[servers.Server]:
    """The MySQL that CRONLEDGER_TEST_MYSQL names."""
    yield from _server(pytestconfig, "mysql")


def _server(config: pytest.Config, kind: str) -> Iterator[servers.Server]:
    server = servers.server(kind)
    config.stash[NOTES][kind] = server.name
    yield server
    server.close()


@pytest.fixture(params=["postgres", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.OwnServer]:
    """The session's servers in turn, for a test that stops or pauses them; up again afterwards, whatever it did."""
    server = request.getfixturevalue(request.param)
    if not isinstance(server, servers.OwnServer):
        variable = f"CRONLEDGER_TEST_{request.param.upper()}"
        pytest.fail(f"this test stops its server, and {variable} names one that is not ours to stop: unset {variable}")
    yield server
    server.resume()
    if not server.is_up:
        server.start()


@pytest.fixture
def cron_environment(tmp_path: Path) -> dict[str, str]:
    """The few variables that cron gives, with a HOME of the test's own."""
    cron = {"HOME": str(tmp_path), "LOGNAME": "nobody", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    return cron | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def spawn(cron_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`spawn(*args, env=…, cwd=…)` starts `python -m cronledger ARGS` under cron's environment, merged with `env`.

    What still works in the test's folder afterwards, jobs of a killed tick included, is killed.
    """
    processes = []

    def spawn(*args: str, env: Mapping[str, str] | None = None, cwd: Path = tmp_path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "cronledger", *args],
            env=cron_environment | dict(env or {}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        process.kill()
        with process:
            pass  # waits for it, and closes its pipes
    machine.send(signal.SIGKILL, tmp_path)


@pytest.fixture
def run(spawn: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run(*args, env=…, cwd=…, timeout=60)` does the same and returns how it ended, with its stdout and stderr."""

    def run(*args: str, timeout: float = 60, **place: object) -> subprocess.CompletedProcess[str]:
        process = spawn(*args, **place)
        stdout, stderr = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    return run


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """`wait_for(condition, timeout=20, what="")` returns as soon as `condition()` is true, and fails the test else."""
    return machine.wait_for


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOTES] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cron daemon out where that was asked for; run nothing where programs are missing, and name them all."""
    left_out = [item for item in items if item.get_closest_marker("cron")] if NO_CRON else []
    items[:] = [item for item in items if item not in left_out]
    given = {kind for kind in PACKAGES if f"CRONLEDGER_TEST_{kind.upper()}" in os.environ}
    needed = {need for item in items for need in _needs(item)} & PACKAGES.keys() - given
    missing = sorted(package for program, package in map(PACKAGES.__getitem__, needed) if not machine.find(program))
    if missing:
        config.stash[NOTES]["missing"] = (
            f"the tests need apt-get install --no-install-recommends {' '.join(missing)}, or servers elsewhere: see"
            " tests/servers.py"
        )
        left_out, items[:] = items[:], []
    config.hook.pytest_deselected(items=left_out)


def _needs(item: pytest.Item) -> set[str]:
    if not isinstance(item, pytest.Function):
        return set()
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    marks = {mark.name for mark in item.iter_markers()}
    return {*item.fixturenames, *marks, *(value for value in values if isinstance(value, str))}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this one, if it is one of several."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = session.config.stash[NOTES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from one of several."""
    node.config.stash[NOTES].update(getattr(node, "workeroutput", {}).get("notes", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which databases the tests used, whether they passed or not, and what was missing."""
    notes = config.stash[NOTES]
    if "missing" in notes:
        terminalreporter.write_line(notes["missing"])
    elif used := [notes[kind] for kind in KINDS if kind in notes]:
        terminalreporter.write_line(f"ledgers: {', '.join(used)}")
    if NO_CRON:
        terminalreporter.write_line("cron daemon: left out, by CRONLEDGER_TEST_CRON=no")
