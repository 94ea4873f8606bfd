"""The tests' own tools: servers that are real and leave nothing, and a program that runs as cron would run it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import machine
import pytest
import servers
from conftest import Database

HERE = Path(__file__).parent


def test_database_is_empty_and_its_own(database: Database) -> None:
    """Each test gets a database of its own, in which its user may create tables."""
    database.sql("CREATE TABLE t (n INTEGER)")
    database.sql("INSERT INTO t VALUES (7)")
    assert database.sql("SELECT n FROM t") == [(7,)]


def test_password_is_asked_for(own_server: servers.OwnServer) -> None:
    """Over TCP a server of ours lets nobody in without the password."""
    wrong = own_server.dsn.replace("p%40ss", "pass")
    with pytest.raises(Exception, match=r"password|denied"):
        own_server.rows(wrong, "SELECT 1")
    assert own_server.rows(own_server.dsn, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_commits_survive_a_restart(own_server: servers.OwnServer, mode: str) -> None:
    """What was committed is there after the server was shut down or killed, under the same DSN."""
    dsn = own_server.fresh_database()
    own_server.rows(dsn, "CREATE TABLE t (n INTEGER)")
    own_server.rows(dsn, "INSERT INTO t VALUES (7)")
    own_server.restart(mode)
    assert own_server.rows(dsn, "SELECT n FROM t") == [(7,)]


def test_paused_server_is_silent(own_server: servers.OwnServer) -> None:
    """A paused server still takes connections and answers nothing; the next test finds it going again."""
    own_server.pause()

    def states() -> set[str]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in machine.processes(own_server.folder)]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    machine.wait_for(lambda: states() == {"T"}, what="all of its processes are stopped")


def test_nothing_remains_of_killed_tests(tmp_path: Path) -> None:
    """When the process that started the servers is killed, they end and their folders go."""
    command = [sys.executable, str(HERE / "servers.py")]
    environment = os.environ | {"TMPDIR": "/tmp"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as starter:
        assert starter.stdout is not None
        lines = [starter.stdout.readline() for _ in range(7)]
        folders = [Path(line.split()[-1]).parent for line in lines if "log: " in line]
        assert all(machine.processes(folder) for folder in folders)
        starter.send_signal(signal.SIGKILL)
    machine.wait_for(lambda: not any(folder.exists() for folder in folders))
    assert not any(machine.processes(folder) for folder in folders)


def test_missing_server_says_what_to_do() -> None:
    """Where a server is not installed, the error names the package and the variable."""
    with pytest.raises(machine.ProgramMissing, match="apt-get install no-server, or let CRONLEDGER_TEST_NO be the DSN"):
        machine.program("no-serverd", "no-server", "CRONLEDGER_TEST_NO")


def test_program_runs_as_under_cron(
    run: Callable[..., subprocess.CompletedProcess[str]],
    cron_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the shell around the tests sets does not reach the program."""
    monkeypatch.setenv("CRONLEDGER_DSN", "sqlite:////elsewhere.db")
    assert "CRONLEDGER_DSN" not in cron_environment
    assert run("--version").returncode == 0
