"""Retries: attempts of one run, one after the other, whatever happens to its tick and its ledger in between."""

import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from conftest import ROOT

from torture.kills import NEXT
from torture.orphans import UNKNOWN
from torture.proxy import Proxy
from torture.stages import Stage

# As GUARDED of the stages, with a line for each attempt beside that of the run.
TRIED = "exec 9>>held; flock -n 9 || echo twice >>twice; echo $CRONLEDGER_ATTEMPT $$ >>attempts; "
TRIED += "[ $CRONLEDGER_ATTEMPT -gt 1 ] || echo $CRONLEDGER_DUE_AT $CRONLEDGER_RUN_ID $$ >>started; "
FAILS = f"{TRIED}echo try $CRONLEDGER_ATTEMPT; exit 3"
SECOND_WORKS = f"{TRIED}[ $CRONLEDGER_ATTEMPT = 2 ]"
UNTIL_GO = "while [ ! -e go ]; do sleep 0.02 9>&-; done; "
TERM = "ended by SIGTERM to the tick after exit 3: try 1"


def second_works(stage: Stage) -> None:
    """The run has completed, and says on which attempt."""
    [event] = _start(stage, SECOND_WORKS).wait().events
    assert (event["event"], event["attempts"]) == ("ran", 2), stage.said()
    assert stage.rows("state, attempts, exit_code, failure_reason") == [("completed", 2, 0, None)], stage.said()


def none_works(stage: Stage) -> None:
    """It failed as the last one did, whose output alone is kept; its time is that of all."""
    [event] = _start(stage, f"{TRIED}sleep 0.2 9>&-; echo try $CRONLEDGER_ATTEMPT; exit 3").wait().events
    assert (event["attempts"], event["reason"], event["exit_code"]) == (4, "exit 3: try 4", 3), stage.said()
    assert event["duration_ms"] >= 800, stage.said()
    assert stage.rows("state, attempts, output") == [("failed", 4, "try 4\n")], stage.said()


def killed(stage: Stage) -> None:
    """One that somebody killed is followed by another."""
    [event] = _start(stage, f"{TRIED}[ $CRONLEDGER_ATTEMPT = 2 ] || kill -9 $$").wait().events
    assert (event["event"], event["attempts"]) == ("ran", 2), stage.said()


def cannot_start(stage: Stage) -> None:
    """One that cannot start is followed by another."""
    stage.write(None)
    (stage.folder / "odd").write_text("\0")
    (stage.folder / "odd").chmod(0o755)
    text = (stage.folder / "schedule.toml").read_text()
    text = text.replace('command = "true"\nenabled = false', 'command = ["./odd"]\nretries = 1\nretry_delay = "0s"')
    (stage.folder / "schedule.toml").write_text(text)
    [event] = stage.start().wait().events
    assert (event["attempts"], event["reason"]) == (2, "cannot start: Exec format error: ./odd"), stage.said()


def no_time_left(stage: Stage) -> None:
    """None begins that would not within the window."""
    [event] = _start(stage, FAILS, delay="1h").wait().events
    assert (event["attempts"], event["reason"]) == (1, "exit 3: try 1"), stage.said()
    assert stage.rows("attempts") == [(1,)], stage.said()


def ended_at_its_window(stage: Stage) -> None:
    """What was ended is not tried again."""
    [event] = _start(stage, f"{TRIED}sleep 300 9>&-; true", window=2.0).wait().events
    assert (event["attempts"], event["reason"]) == (1, "ended after 2.0s, its stale_after"), stage.said()


def signalled_between(stage: Stage) -> None:
    """A signal to the tick ends the wait for the next attempt, and the run with it."""
    tick = _waiting(stage)
    tick.send(signal.SIGTERM)
    [event] = tick.wait().events
    assert (event["reason"], event["attempts"], tick.wait().status) == (TERM, 1, 1), stage.said()
    assert stage.rows("state, failure_reason") == [("failed", TERM)], stage.said()


def killed_between(stage: Stage) -> None:
    """The next tick of the node reaps it: there is no further attempt."""
    tick = _waiting(stage)
    tick.send(signal.SIGKILL)
    tick.wait()
    stage.write(None)
    assert [event["reason"] for event in stage.tick(at=NEXT).events] == ["its tick is gone"], stage.said()


def killed_after_a_start(stage: Stage) -> None:
    """The command of the second attempt kills its tick at once: the next one finds it alive, and adopts it."""
    tick = _start(stage, f"{TRIED}[ $CRONLEDGER_ATTEMPT = 1 ] && exit 3; kill -9 $PPID; {UNTIL_GO}")
    assert tick.wait().status == -signal.SIGKILL, stage.said()
    [(attempts, pid, owner)] = stage.rows("attempts, pid, owner")
    assert attempts == 2, stage.said()
    assert pid in (None, _attempts(stage)[1]), stage.said()
    stage.write(None)
    adopter = stage.start(at=NEXT)
    stage.wait_for(lambda: stage.rows("owner") != [(owner,)], "it is adopted")
    assert stage.rows("state") == [("running",)], stage.said()
    (stage.folder / "go").touch()
    assert [event["reason"] for event in adopter.wait().events] == [UNKNOWN], stage.said()


def reaped_between(stage: Stage) -> None:
    """The ledger is asked before an attempt begins: a run that was reaped meanwhile has none."""
    tick = _waiting(stage, delay="3s")
    reaped = (
        f"state = 'failed', active_job = NULL, finished_at = {stage.instant(0)}, failure_reason = 'reaped: by hand'"
    )
    stage.change(reaped)
    [event] = tick.wait().events
    assert re.fullmatch(r"ended \(exit 3\) after it was reaped at .*", event["reason"]), stage.said()
    assert len(_attempts(stage)) == 1, stage.said()


def leased_between(stage: Stage) -> None:
    """Its lease is renewed while the next attempt is waited for."""
    tick = _waiting(stage, lease=12.0)
    before = stage.rows("expires_at")
    stage.wait_for(lambda: stage.rows("expires_at") > before, "it is renewed")
    tick.send(signal.SIGTERM)
    assert [event["reason"] for event in tick.wait().events] == [TERM], stage.said()


def by_hand(stage: Stage) -> None:
    """`run JOB` tries again too, with the output of each attempt as it comes."""
    stage.write(f"{TRIED}echo try $CRONLEDGER_ATTEMPT; [ $CRONLEDGER_ATTEMPT = 2 ]", _keys("0s"))
    done = subprocess.run(
        [sys.executable, "-m", "cronledger", "run", "job", "--dsn", stage.database.dsn],
        cwd=stage.folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.fullmatch(r"try 1\ntry 2\n\S+ ran job in 0\.\ds on attempt 2\n", done.stdout), done


def away_between(stage: Stage) -> None:
    """While the ledger is away the next attempt waits; then it begins."""
    with Proxy(stage.database.dsn) as proxy:
        tick = _start(stage, f"{TRIED}{UNTIL_GO}[ $CRONLEDGER_ATTEMPT = 2 ]", dsn=proxy.dsn)
        stage.wait_for(lambda: stage.rows("id", "pid IS NOT NULL"), "it runs")
        _refuse(stage, proxy)
        assert len(_attempts(stage)) == 1, stage.said()
        proxy.let()
        assert [event["attempts"] for event in tick.wait().events] == [2], stage.said()


def away_too_long(stage: Stage) -> None:
    """A ledger that is away until the window is over: there is none."""
    with Proxy(stage.database.dsn) as proxy:
        tick = _start(stage, f"{TRIED}{UNTIL_GO}echo try $CRONLEDGER_ATTEMPT; exit 3", dsn=proxy.dsn, window=4.0)
        stage.wait_for(lambda: stage.rows("id", "pid IS NOT NULL"), "it runs")
        _refuse(stage, proxy)
        stage.wait_for(lambda: stage.rows("id", f"expires_at <= {stage.instant(60)}"), "its window is over")
        proxy.let()
        [event] = tick.wait().events
    assert event["attempts"] == 1, stage.said()
    assert event["reason"] in ("exit 3: try 1", "ended after 4.0s, its stale_after"), stage.said()


def _refuse(stage: Stage, proxy: Proxy) -> None:
    before = proxy.refused
    proxy.refuse()
    (stage.folder / "go").touch()
    stage.wait_for(lambda: proxy.refused > before, "the ledger is asked")


def _waiting(stage: Stage, delay: str = "5m", **options: Any) -> Any:
    """A tick whose run has failed once."""
    tick = _start(stage, FAILS, delay, **options)
    stage.wait_for(lambda: _attempts(stage) and stage.living() == [tick.pid], "it has failed once")
    time.sleep(0.5)  # that the tick knows of it by now shows nowhere
    return tick


def _start(stage: Stage, command: str, delay: str = "0s", **options: Any) -> Any:
    stage.write(command, _keys(delay) + ('lease = "1m"\n' if "lease" in options else ""))
    return stage.start(**options)


def _keys(delay: str) -> str:
    return f'retries = 3\nretry_delay = "{delay}"\n'


def _attempts(stage: Stage) -> list[int]:
    """The pid of each."""
    path = stage.folder / "attempts"
    return [int(line.split()[1]) for line in path.read_text().splitlines()] if os.path.exists(path) else []


KINDS = {
    "second works": second_works,
    "none works": none_works,
    "killed": killed,
    "cannot start": cannot_start,
    "no time left": no_time_left,
    "ended at its window": ended_at_its_window,
    "signalled between": signalled_between,
    "killed between": killed_between,
    "killed after a start": killed_after_a_start,
    "reaped between": reaped_between,
    "leased between": leased_between,
    "by hand": by_hand,
}
BEHIND_A_PROXY = {"away between": away_between, "away too long": away_too_long}
