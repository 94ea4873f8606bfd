"""Ticks killed while their commands live on: who may conclude what, and who may be signalled."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

from torture.conftest import Tally
from torture.kills import NEXT
from torture.stages import FOR_EVER, GUARDED, UNTIL_GO, Stage, Stages, account, at_once

NOBODY = 65534
UNKNOWN = "its tick died; how it ended is unknown"
ROOT_HERE = () if os.geteuid() == 0 else ("--map-root-user",)
OTHER_NAMESPACE = ("unshare", *ROOT_HERE, "--pid", "--fork", "--mount-proc")
WITHOUT_PROC = ("unshare", *ROOT_HERE, "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
HIDING = ("unshare", *ROOT_HERE, "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec "$@"', "sh")

# It notes each signal but KILL, and that it is there still is for the test to see.
DAEMON = "trap 'echo signalled >>signalled' TERM INT HUP; echo $$ >daemon; while sleep 0.1; do :; done"
LEAVES = f'(setsid sh -c "{DAEMON.replace("$$", chr(92) + "$$")}" 9>&- >/dev/null 2>&1 &); '
LEAVES += "while [ ! -s daemon ]; do sleep 0.02 9>&-; done; "


def ended_at_its_window(stage: Stage) -> None:
    """One of eight ticks at once adopts it, ends its group at the window, says so and settles it."""
    stage.orphan(FOR_EVER, window=3.0)
    stage.write(None)
    _adopted_by_one(stage, lambda: None)
    stage.wait_for(lambda: not stage.living(), "its group is ended")


def adopters_die(stage: Stage) -> None:
    """Three adopters are killed, each a moment after it came; one of eight more settles it; it never ran twice."""
    stage.orphan(UNTIL_GO, recorded=bool(int(stage.folder.name) % 2))
    chance = random.Random(stage.folder.name)
    for _ in range(3):
        adopter = stage.start(at=NEXT)
        time.sleep(chance.uniform(0, 0.2))
        adopter.send(signal.SIGKILL)
        adopter.wait()
    assert [state for (state,) in stage.rows("state")] == ["running"], stage.said()
    stage.write(None)
    _adopted_by_one(stage, stage.go)


def _adopted_by_one(stage: Stage, then: Callable[[], None]) -> None:
    before = stage.rows("owner")
    adopters = [stage.start("--node", f"web{number}") for number in range(8)]
    stage.wait_for(lambda: stage.rows("owner") != before or not stage.living(), "it is adopted")
    then()
    ended = [adopter.wait() for adopter in adopters]
    reasons = [event["reason"] for one in ended for event in one.events]
    assert reasons == [UNKNOWN], stage.said()
    assert [one.err for one in ended] == [""] * 8, stage.said()
    assert stage.rows("state, failure_reason") == [("failed", UNKNOWN)], stage.said()


def leaves_a_daemon(stage: Stage) -> None:
    """The run ends at its window; what had left its session by then lives, and was never signalled."""
    stage.orphan(GUARDED + LEAVES + "sleep 300 9>&-; true", window=3.0)
    stage.write(None)
    _adopted_by_one(stage, lambda: None)
    _daemon_lives(stage)


def daemon_of_a_dead_run(stage: Stage) -> None:
    """Tick and command are dead, and a daemon is left: reaped at once, the daemon not signalled."""
    stage.orphan(GUARDED + LEAVES + "sleep 300 9>&-; true")
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait_for(lambda: not os.path.exists(f"/proc/{stage.pid}"), "its shell is gone")
    _reaped(stage, "its tick is gone")
    _daemon_lives(stage)


def _daemon_lives(stage: Stage) -> None:
    daemon = int((stage.folder / "daemon").read_text())
    assert daemon in stage.living(), stage.said()
    assert not (stage.folder / "signalled").exists(), stage.said()
    os.kill(daemon, signal.SIGKILL)


def seen_from_elsewhere(stage: Stage) -> None:
    """Dead as it is, neither another PID namespace, nor a tick without /proc, nor another boot reaps it early."""
    stage.orphan(FOR_EVER)
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait_for(lambda: not stage.living(), "it is dead")
    stage.write(None)
    _nothing_concluded(stage, OTHER_NAMESPACE)
    _nothing_concluded(stage, WITHOUT_PROC)
    [(owner,)] = stage.rows("owner")
    _, rest = str(owner).split("/", 1)
    stage.change(f"owner = '00000000-0000-4000-8000-000000000000/{rest}'")
    _nothing_concluded(stage)
    stage.change(f"expires_at = {stage.instant(-1)}")
    _reaped(stage, "window of ")


def seen_by_its_own(stage: Stage) -> None:
    """A tick of another PID namespace, or without /proc, is killed: its run is left alone, until it is overdue."""
    prefix = WITHOUT_PROC if int(stage.folder.name) % 2 else OTHER_NAMESPACE
    stage.write(UNTIL_GO)
    tick = stage.spawn(*prefix)
    stage.wait_for_pid()
    os.killpg(tick.pid, signal.SIGKILL)
    tick.wait()
    stage.write(None)
    _nothing_concluded(stage)
    stage.go()
    stage.wait_for(lambda: not stage.living(), "it is over")
    stage.change(f"expires_at = {stage.instant(-1)}")
    _reaped(stage, "window of ")


def pids_given_again(stage: Stage) -> None:
    """The pids of a dead tick and of its command are another's by now: reaped, and the other is not signalled."""
    stage.orphan(FOR_EVER)
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait_for(lambda: not stage.living(), "it is dead")
    with bystander(stage) as other:
        [(owner, start)] = stage.rows("owner, pid_start")
        boot, namespace, _, born = str(owner).split("/")
        stage.change(f"owner = '{boot}/{namespace}/{other}/{born}', pid = {other}, pid_start = {start}")
        _reaped(stage, "its tick is gone")
        assert not (stage.folder / "signalled").exists(), stage.said()


@contextlib.contextmanager
def bystander(stage: Stage) -> Iterator[int]:
    """The pid of a process in a session of its own that notes the signals it gets."""
    with subprocess.Popen(["sh", "-c", DAEMON], cwd=stage.folder, start_new_session=True) as process:
        stage.wait_for(lambda: (stage.folder / "daemon").exists(), "it is there")
        yield process.pid
        assert process.poll() is None, stage.said()
        process.kill()


def unseen_by_a_plain_user(stage: Stage, hidden: bool) -> None:
    """What a plain user may not look into counts as alive: adopted at most, and never reaped before its window."""
    for folder in stage.folder.parents[:3]:
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)  # pytest's own, closed to others
    stage.orphan(UNTIL_GO, recorded=False)
    stage.write(None)
    before = stage.rows("owner")
    tick = stage.start(uid=NOBODY if os.geteuid() == 0 else 0)
    if hidden:
        assert (tick.wait().events, tick.wait().err) == ([], ""), stage.said()
        assert stage.rows("owner, state") == [(*before[0], "running")], stage.said()
    else:
        stage.wait_for(lambda: stage.rows("owner") != before, "it is adopted")
        assert stage.rows("state") == [("running",)], stage.said()
        tick.send(signal.SIGKILL)
        tick.wait()
    stage.go()
    stage.wait_for(lambda: not stage.living(), "it is over")
    _reaped(stage, "its tick is gone")


def _nothing_concluded(stage: Stage, prefix: tuple[str, ...] = ()) -> None:
    before = stage.rows("owner, state")
    ended = stage.spawn(*prefix).wait()
    assert (ended.status, ended.out, ended.err) == (0, "", ""), stage.said()
    assert stage.rows("owner, state") == before, stage.said()


def _reaped(stage: Stage, why: str) -> None:
    stage.write(None)
    [event] = stage.tick().events
    assert event["event"] == "reaped", stage.said()
    assert why in event["reason"], stage.said()
    assert stage.tick().events == [], stage.said()


def stopped(stage: Stage) -> None:
    """Its tick is stopped until its window is over: the next one on its node ends its command, and then reaps it."""
    stage.write(FOR_EVER)
    tick = stage.start()
    stage.wait_for_pid()
    tick.send(signal.SIGSTOP)
    stage.change(f"expires_at = {stage.instant(-1)}")
    _reaped(stage, "window of ")
    assert stage.living() == [tick.pid], stage.said()
    tick.send(signal.SIGKILL)  # else it would tell of the same run, which ended after it was reaped


KINDS = {
    "ended at its window": ended_at_its_window,
    "adopters killed in turn": adopters_die,
    "leaves a daemon": leaves_a_daemon,
    "dead but for a daemon": daemon_of_a_dead_run,
    "seen from another namespace, boot, without /proc": seen_from_elsewhere,
    "its tick in another namespace, without /proc": seen_by_its_own,
    "pids given again": pids_given_again,
    "its tick stopped": stopped,
    "seen by a plain user": partial(unseen_by_a_plain_user, hidden=False),
}


def orphaned(stages: Stages, name: str, tally: Tally, times: int) -> None:
    """So many orphans of one kind."""

    def inflict(stage: Stage) -> Stage:
        KINDS[name](stage)
        return stage

    at_once(inflict, [stages.stage() for _ in range(times)], tally, width=4)
    assert tally.inflicted == times, tally


def hidden(stages: Stages, tally: Tally, times: int) -> None:
    """A plain user's tick where /proc hides the processes of others: `stages` forks its ticks there, by HIDING."""
    assert os.geteuid() == 0, "only root can mount a /proc that hides"
    for _ in range(times):
        stage = stages.stage()
        unseen_by_a_plain_user(stage, hidden=True)
        account(stage, tally)
