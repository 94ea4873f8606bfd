"""Runs are brought to their end: at their window, when their tick is told to stop, and when it died."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from launching import PATH, ROOT, finish, group_alive, in_child, outcome, start

from cronledger import process
from cronledger.clock import elapsed
from cronledger.command import Commands, Outcome, ending
from cronledger.masking import Mask

RUN = "0190b6d2-ending"


@pytest.fixture
def commands() -> Iterator[Commands]:
    with Commands(mask=Mask(None), expected=1) as commands:
        yield commands


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """KILL comes soon after TERM."""
    monkeypatch.setattr(ending, "KILL_AFTER", 0.2)


@pytest.fixture
def for_ever(tmp_path: Path) -> str:
    """A script that waits for ever without a child."""
    os.mkfifo(tmp_path / "never")
    return f"while :; do read -r _ <>{tmp_path / 'never'}; done"


@pytest.fixture
def deaf(for_ever: str) -> str:
    """The same, ignoring TERM, INT and HUP; it says "deaf" when it does."""
    return f"trap '' TERM INT HUP; echo deaf; {for_ever}"


def until(commands: Commands, printed: bytearray, text: bytes) -> None:
    while text not in printed:
        commands.wait(1)


# At the window


def test_the_window_ends_the_whole_group(commands):
    """At its deadline the group gets TERM, and the sentence says whose window it was."""
    start(commands, "sleep 1000 & echo working; wait", deadline=elapsed() + 0.1, window=timedelta(minutes=10))
    ended = finish(commands)["job"]
    assert (ended.exit_code, ended.reason) == (None, "ended after 10m0s, its stale_after: working")


def test_what_exits_when_told_keeps_its_status(commands, for_ever):
    """A command that ends in good order at its deadline has failed all the same."""
    ended = outcome(commands, f"trap 'echo bye; exit 0' TERM; {for_ever}", deadline=elapsed() + 0.5)
    assert (ended.exit_code, ended.reason) == (0, "ended after 1m0s, its stale_after: bye")


def test_what_does_not_hear_is_killed(commands, soon, deaf):
    """KILL follows where TERM is ignored."""
    ended = outcome(commands, deaf, deadline=elapsed() + 0.5)
    assert ended.reason == "ended after 1m0s, its stale_after: deaf"
    assert ended.exit_code is None


def test_what_is_long_past_its_deadline_is_killed_at_once(commands, monkeypatch):
    """When the machine was suspended past the deadline there is no time left for TERM."""
    monkeypatch.setattr(ending, "KILL_AFTER", 1000.0)
    start(commands, "exec sleep 1000", deadline=elapsed() - 1001)
    assert finish(commands)["job"].reason == "ended after 1m0s, its stale_after"


def test_an_ended_run_is_over_when_its_whole_group_is(commands, soon, deaf):
    """While a member lives that ignores TERM the run is not over, and its pid is not given again."""
    printed = bytearray()
    pid = start(commands, f"({deaf}) & exec sleep 1000", live=printed.extend)
    until(commands, printed, b"deaf")
    commands.stop(signal.SIGTERM)
    while process.Owner("", 0, pid, process.start_time(pid)).is_alive():
        assert commands.wait(0.01) == []
    assert group_alive(pid)
    assert process.start_time(pid) is not None
    assert finish(commands)["job"].reason == "ended by SIGTERM to the tick: deaf"
    assert not group_alive(pid)
    assert process.start_time(pid) is None


def test_what_survives_even_kill_is_given_up(commands, soon, monkeypatch):
    """A group that no signal reaches, as under sudo, is not waited for without end."""
    monkeypatch.setattr(ending, "GIVE_UP_AFTER", 0.5)
    pid = start(commands, "exec sleep 1000", deadline=elapsed())
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: (_ for _ in ()).throw(PermissionError))
        ended = finish(commands)["job"]
    assert (ended.exit_code, ended.reason) == (None, "ended after 1m0s, its stale_after")
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_what_ended_in_time_was_not_ended(commands):
    """A command that exited before its deadline keeps its own end, however late that is noticed."""
    pid = start(commands, "exit 3", deadline=elapsed() + 0.2)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    commands.stop(signal.SIGTERM)
    assert finish(commands)["job"].reason == "exit 3"


@pytest.mark.parametrize("missing", [True, False])
def test_without_pidfds_ends_are_seen_too(commands, monkeypatch, missing):
    """Where the system has no pidfd_open, or forbids it, commands are looked at instead."""
    if missing:
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(PermissionError))
    assert outcome(commands, "exec >&- 2>&-; exit 5").reason == "exit 5"


# When the tick is told to stop


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_forwarded_to_every_group(commands, for_ever, signum):
    """Each run gets the very signal, and its end is named after it."""
    printed = bytearray()
    for key in "ab":
        script = f"trap 'echo got {key}; exit 0' {signum.name[3:]}; echo ready; {for_ever}"
        start(commands, script, key, live=printed.extend)
    while printed.count(b"ready") < 2:
        commands.wait(1)
    commands.stop(signum)
    assert {key: one.reason for key, one in finish(commands).items()} == {
        key: f"ended by {signum.name} to the tick: got {key}" for key in "ab"
    }


def test_a_second_signal_is_forwarded_too(commands, for_ever):
    """Later signals are forwarded as well; the first one names the end."""
    printed = bytearray()
    start(commands, f"trap 'echo no' HUP; echo ready; {for_ever}", live=printed.extend)
    until(commands, printed, b"ready")
    commands.stop(signal.SIGHUP)
    until(commands, printed, b"no")
    commands.stop(signal.SIGTERM)
    assert finish(commands)["job"].reason.startswith("ended by SIGHUP to the tick: no")


def test_what_does_not_heed_the_signal_is_killed(commands, soon, deaf):
    """What is still there 7 s after the signal is killed."""
    printed = bytearray()
    start(commands, deaf, live=printed.extend)
    until(commands, printed, b"deaf")
    commands.stop(signal.SIGTERM)
    assert finish(commands)["job"].reason == "ended by SIGTERM to the tick: deaf"


def test_nothing_is_started_after_a_signal(commands):
    """A job that was claimed when the signal came is not started any more, and says why."""
    commands.stop(signal.SIGTERM)
    assert start(commands, "true") is None
    assert finish(commands) == {"job": Outcome(None, "ended by SIGTERM to the tick", 0, "")}


def test_a_real_signal_wakes_the_wait():
    """A signal to the process reaches `stop` and wakes `wait` at once, through the wake-up descriptor."""
    code = """
import os
with Commands(mask=Mask(None), expected=1) as commands:
    signal.set_wakeup_fd(commands.wakeup_fd)
    signal.signal(signal.SIGTERM, lambda signum, frame: commands.stop(signum))
    start(commands, f"kill -TERM {os.getpid()}; exec sleep 1000")
    print(finish(commands)["job"].reason)
    signal.set_wakeup_fd(-1)
"""
    assert in_child(code) == "ended by SIGTERM to the tick\n"


# When its tick died


@pytest.fixture
def orphan() -> Iterator[Callable[[str], tuple[int, int, int]]]:
    """`orphan(script)` is what a killed parent left: pid and start time of its command, and its own start time."""
    pids = []

    def orphan(script: str) -> tuple[int, int, int]:
        code = f"""
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from launching import *
from cronledger import process
with Commands(mask=Mask(None), expected=1) as commands:
    env = {{"PATH": {PATH!r}, "CRONLEDGER_RUN_ID": {RUN!r}}}
    pid = start(commands, {script!r}, env=env)
    print(pid, commands.start_of("job"), process.own().start, flush=True)
    finish(commands)
"""
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
            pid, started, since = map(int, parent.stdout.readline().split())
            parent.kill()
        pids.append((pid, started))
        return pid, started, since

    yield orphan
    for pid, started in pids:
        process.signal_group(pid, started, RUN, signal.SIGKILL)


def adopt(commands: Commands, pid: int | None, start: int | None, since: int, deadline: float = 60) -> None:
    end = elapsed() + deadline
    commands.adopt("job", pid, start, RUN, since=since, started=end - 600, deadline=end)


def test_an_orphan_is_waited_for(commands, orphan, tmp_path):
    """A run whose tick was killed is in flight until nothing of it lives; how it ended nobody knows."""
    os.mkfifo(tmp_path / "go")
    pid, started, since = orphan(f"read -r _ <{tmp_path / 'go'}; exit 0")
    adopt(commands, pid, started, since)
    assert commands.wait(0) == []
    assert commands.keys() == ["job"]
    (tmp_path / "go").write_text("\n")
    ended = finish(commands)["job"]
    assert (ended.exit_code, ended.reason, ended.output) == (None, ending.UNKNOWN, "")
    assert ended.duration_ms >= timedelta(minutes=9).total_seconds() * 1000  # it began when its window did


def test_an_orphan_is_ended_at_its_window(commands, orphan, soon, deaf):
    """At its deadline the recorded group gets TERM, and KILL where that does not help."""
    pid, started, since = orphan(deaf)
    adopt(commands, pid, started, since, deadline=0.1)
    assert finish(commands)["job"].reason == ending.UNKNOWN
    assert not group_alive(pid)


def test_an_orphan_is_told_of_a_signal_too(commands, orphan):
    """A signal to the tick is forwarded to what it adopted."""
    pid, started, since = orphan("exec sleep 1000")
    adopt(commands, pid, started, since)
    assert commands.wait(0) == []
    commands.stop(signal.SIGTERM)
    assert finish(commands)["job"].reason == "ended by SIGTERM to the tick"
    assert not group_alive(pid)


def test_a_dead_orphan_is_over_at_once(commands, orphan):
    """A pid that was given to another process is no orphan, and that process is left alone."""
    pid, started, since = orphan("exec sleep 1000")
    adopt(commands, pid, started + 1, since, deadline=-100)
    assert finish(commands)["job"].reason == ending.UNKNOWN
    assert group_alive(pid)


def test_an_orphan_that_may_not_be_signalled_is_given_up(commands, orphan, soon, monkeypatch):
    """Where no pid was recorded nothing is signalled, and it is not waited for without end."""
    monkeypatch.setattr(ending, "GIVE_UP_AFTER", 0.3)
    pid, _, since = orphan("exec sleep 1000")
    adopt(commands, None, None, since, deadline=0)
    assert finish(commands)["job"].reason == ending.UNKNOWN
    assert group_alive(pid)
