"""`run JOB`: by hand, through the ledger, its output as it comes."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Database
from deployed import AT, Deployed, Run, complained

Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database."""
    return Deployed(tmp_path, database, run).installed()


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()


def test_a_job_runs_by_hand(deployed: Deployed) -> None:
    """Its output, then its event; a manual row that takes no slot; exit 0."""
    deployed.write('name = "a"\ncommand = "echo out; echo err >&2"')
    done = deployed.cli("run", "a")
    assert re.fullmatch(rf"out\nerr\n{AT} ran a in \d\.\ds\n", done.stdout)
    assert (done.stderr, done.returncode) == ("", 0)
    assert deployed.rows("cause, state, node") == [("manual", "completed", "web1")]
    assert "ran a in" in deployed.tick().stdout


def test_the_event_begins_a_line(embedded: Deployed) -> None:
    """Whatever the command printed last; and nothing is added where it printed a whole line, or nothing."""
    for printed, shown in (("half", "half\n"), ("whole\\\\n", "whole\n"), ("", "")):
        embedded.write(f'name = "a"\ncommand = "printf \'{printed}\'"')
        assert re.fullmatch(rf"{shown}{AT} ran a in \d\.\ds\n", embedded.cli("run", "a").stdout)
    embedded.write('name = "a"\ncommand = "printf half"')
    assert embedded.cli("run", "a", "--json").stderr == "half\n"


def test_a_failure_by_hand_exits_1(embedded: Deployed) -> None:
    """And its reason is in the line, the object on stdout with --json, the output then on stderr."""
    embedded.write('name = "a"\ncommand = "echo why; exit 3"')
    done = embedded.cli("run", "a", "--json")
    assert (done.stderr, done.returncode) == ("why\n", 1)
    record = json.loads(done.stdout)
    assert (record["event"], record["reason"], record["exit_code"]) == ("failed", "exit 3: why", 3)


def test_output_comes_while_the_command_runs(embedded: Deployed, spawn: Spawn, tmp_path: Path) -> None:
    """The first line is there before the command ends."""
    embedded.write(f'name = "a"\ncommand = "echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo last"')
    running = spawn("run", "a", cwd=tmp_path, env=embedded.env)
    assert running.stdout is not None
    assert select.select([running.stdout], [], [], 30)[0]
    assert os.read(running.stdout.fileno(), 100) == b"first\n"
    (tmp_path / "go").touch()
    assert running.communicate(timeout=30)[0].startswith("last\n")


def test_a_run_that_bars_it_is_named_and_can_be_waited_for(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """Without --wait exit 1 and who holds it; with it the run begins when the other one ends."""
    deployed.write(f'name = "a"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    complained(deployed.cli("run", "a"), r"a does not run now: run of \d\d:\d\d still going on web1 for .*--wait 10m")
    given_up = deployed.cli("run", "a", "--wait", "1s")
    assert re.fullmatch(r"(cronledger: (waiting to run a|a does not run now): run of .*\n){2}", given_up.stderr)
    assert ("--wait" in given_up.stderr, given_up.returncode) == (False, 1)
    waiting = spawn("run", "a", "--wait", "1m", cwd=tmp_path, env=deployed.env)
    (tmp_path / "go").touch()
    assert tick.wait(30) == 0
    out, err = waiting.communicate(timeout=30)
    assert re.fullmatch(rf"{AT} ran a in \d\.\ds\n", out), err
    assert re.fullmatch(r"(cronledger: waiting to run a: run of .* on web1 .*\n)?", err)
    assert sorted(deployed.rows("cause, state")) == [("manual", "completed"), ("schedule", "completed")]


def test_a_terminal_that_stops_does_not_stop_the_run(
    embedded: Deployed, cron_environment: dict[str, str], wait_for: WaitFor, tmp_path: Path
) -> None:
    """Nobody reads any more, as when a connection is stuck: the command's output is lost, and its end recorded."""
    embedded.write('name = "a"\ncommand = "yes | head -c 300000; echo done >done"')
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "cronledger", "run", "a"]
    env = cron_environment | embedded.env
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        wait_for(lambda: embedded.rows("id", "state = 'completed'"), timeout=60)
        assert running.wait(60) == 0
    os.close(theirs)
    assert os.read(ours, 10) == b"y\r\ny\r\ny\r\ny"
    os.close(ours)


def test_an_interrupted_run_is_ended_and_settled(deployed: Deployed, spawn: Spawn, wait_for: WaitFor) -> None:
    """Ctrl-C reaches the command's group, and the ledger knows how it ended."""
    deployed.write('name = "a"\ncommand = "echo up; sleep 300"')
    running = spawn("run", "a", cwd=deployed.folder, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert re.fullmatch(rf"up\n{AT} failed a in \d+\.\ds: ended by SIGINT: up\n", out)
    assert (err, running.returncode) == ("", 1)
    assert deployed.rows("state") == [("failed",)]


PATIENT = "from cronledger.command import ending; from cronledger.__main__ import main; ending.KILL_AFTER = 1e6; main()"


def test_a_second_signal_kills_at_once(embedded: Deployed, cron_environment: dict[str, str]) -> None:
    """Of a command that minds neither; after the first alone this one would be waited for, for days."""
    embedded.write("""name = "a"\ncommand = "trap '' INT TERM; echo up; sleep 300; :\"""")
    command = [sys.executable, "-c", PATIENT, "run", "a"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = cron_environment | embedded.env
    with subprocess.Popen(command, cwd=embedded.folder, env=env, **pipes) as running:  # type: ignore[call-overload]
        assert running.stdout.readline() == "up\n"
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGTERM)  # another, since two of one kind may arrive as one
        out, err = running.communicate(timeout=60)
    assert re.fullmatch(rf"{AT} failed a in \d+\.\ds: ended by SIGINT: up\n", out)
    assert err == ""
    assert embedded.rows("state, failure_reason") == [("failed", "ended by SIGINT: up")]


def test_the_password_is_masked_live(deployed: Deployed) -> None:
    """What the command prints of the DSN is masked as it comes."""
    deployed.write('name = "a"\ncommand = "echo $CRONLEDGER_DSN"')
    secret = deployed.dsn.split("://")[1].split("@")[0].partition(":")[2]
    done = deployed.cli("run", "a")
    assert done.returncode == 0
    assert deployed.database.kind == "sqlite" or ("***" in done.stdout and secret not in done.stdout)


@pytest.mark.parametrize(
    ("words", "pattern", "status"),
    [
        (["report:build"], r"there is no job report:build in .*did you mean reports:build\?", 1),
        (["reports:build", "--wait", "10"], "--wait 10: .*; write", 2),
    ],
)
def test_what_cannot_be_meant_is_answered(embedded: Deployed, words: list[str], pattern: str, status: int) -> None:
    """A near miss with the nearest job, a bare number with a duration."""
    embedded.write('name = "reports:build"\ncommand = "true"')
    complained(embedded.cli("run", *words), pattern, status=status)


def test_who_runs_it_is_told_how_it_ended(embedded: Deployed) -> None:
    """Also of a job whose `report` leaves that out of the ticks' lines."""
    embedded.write('name = "a"\ncommand = "echo hello"\nreport = "problems"')
    assert re.fullmatch(rf"hello\n{AT} ran a in \d\.\ds\n", embedded.cli("run", "a").stdout)
    assert '"event": "ran"' in embedded.cli("run", "a", "--json").stdout


def test_a_command_that_is_not_here_is_not_claimed(embedded: Deployed) -> None:
    """Named with its path, exit 1, no row."""
    embedded.write('name = "a"\ncommand = ["bin/gone"]')
    complained(embedded.cli("run", "a"), "a cannot start on this node: program .*/bin/gone is not there")
    assert embedded.rows("id") == []
