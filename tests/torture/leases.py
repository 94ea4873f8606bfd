"""Leases, shortened to seconds: renewed while the command runs, ended before they are over, and found out when dead."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from conftest import ROOT

from torture import machines
from torture.conftest import Tally
from torture.kills import NEXT
from torture.orphans import UNKNOWN
from torture.proxy import Proxy
from torture.stages import FOR_EVER, UNTIL_GO, Stage, Stages, at_once

LEASE = 12.0
"""Seconds: renewed at 4, its command ended at 6, given to others at 12."""
LEASED = 'lease = "1m"'
UNHELD = r"ended: lease not renewable since (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"
AFTER = r"ended \(killed by SIGTERM\) after it was reaped at .*"


def renewed(stage: Stage) -> None:
    """It is renewed while the command runs, which may take as long as it likes."""
    tick = _start(stage, UNTIL_GO)
    _renewed(stage)
    stage.go()
    assert [event["event"] for event in tick.wait().events] == ["ran"], stage.said()
    assert stage.rows("lease_ms, stale_after_ms, state") == [(LEASE * 1000, None, "completed")], stage.said()


def renewed_by_an_adopter(stage: Stage) -> None:
    """Its tick dies, and the next one of the node renews it too, from the adoption on."""
    stage.write(UNTIL_GO, LEASED)
    _kill(stage)
    before = stage.rows("expires_at")
    stage.write(None)
    adopter = stage.start(at=NEXT)
    stage.wait_for(lambda: stage.rows("expires_at") > before, "it is adopted")
    _renewed(stage)
    stage.go()
    assert [event["reason"] for event in adopter.wait().events] == [UNKNOWN], stage.said()


def ended_at_its_window(stage: Stage) -> None:
    """With stale_after that is still the longest that a run may take."""
    stage.write(FOR_EVER, f'{LEASED}\nstale_after = "1m"')
    [event] = stage.start(lease=60.0, window=2.0).wait().events
    assert event["reason"] == "ended after 2.0s, its stale_after", stage.said()


def ended_at_its_window_by_an_adopter(stage: Stage) -> None:
    """The same for an orphan."""
    stage.write(FOR_EVER, f'{LEASED}\nstale_after = "1m"')
    _kill(stage, lease=60.0, window=3.0)
    stage.write(None)
    [event] = stage.tick(at=NEXT).events
    assert (event["reason"], stage.living()) == (UNKNOWN, []), stage.said()


def reaped_when_over(stage: Stage) -> None:
    """A run whose machine died is reaped by any node when its lease is over, and by none before."""
    stage.write(FOR_EVER, LEASED)
    _kill(stage)
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait_for(lambda: not stage.living(), "it is dead")
    stage.change("owner = '00000000-0000-4000-8000-000000000000/1/2/3'")
    stage.write(None)
    assert stage.tick("--node", "web2", at=NEXT).out == "", stage.said()
    [(expires_at,)] = stage.rows("expires_at")
    stage.wait_for(lambda: datetime.now(UTC) > _utc(expires_at), "its lease is over")
    [event] = stage.tick("--node", "web2", at=NEXT).events
    assert event["reason"] == "lease of 12.0s over", stage.said()


def ended_when_reaped(stage: Stage) -> None:
    """A tick that learns that its run was reaped ends the command, and says when that was."""
    tick = _start(stage, FOR_EVER)
    ended = f"state = 'failed', active_job = NULL, finished_at = {stage.instant(0)}, failure_reason = 'reaped: by hand'"
    stage.change(ended)
    [event] = tick.wait().events
    assert re.fullmatch(AFTER, event["reason"]), stage.said()
    assert (stage.living(), stage.rows("failure_reason")) == ([], [("reaped: by hand",)]), stage.said()


def _not_renewable(hinder: Callable[[Proxy], None]) -> Callable[[Stage], None]:
    def ended(stage: Stage) -> None:
        with Proxy(stage.database.dsn) as proxy:
            tick = _start(stage, FOR_EVER, dsn=proxy.dsn)
            hinder(proxy)
            stage.wait_for(lambda: stage.living() == [tick.pid], "its command is ended")
            [(expires_at, state)] = stage.rows("expires_at, state")
            assert (state, datetime.now(UTC) < _utc(expires_at)) == ("running", True), stage.said()
            proxy.let()
            [event] = tick.wait().events
        assert re.fullmatch(UNHELD, event["reason"]), stage.said()
        assert stage.rows("failure_reason") == [(event["reason"],)], stage.said()

    return ended


def kept_over_an_outage(stage: Stage) -> None:
    """While the ledger is away a renewal is tried again; back in time, the run goes on."""
    with Proxy(stage.database.dsn) as proxy:
        tick = _start(stage, UNTIL_GO, dsn=proxy.dsn)
        before = proxy.refused
        proxy.refuse()
        stage.wait_for(lambda: proxy.refused > before, "a renewal fails")
        proxy.let()
        _renewed(stage)
        stage.go()
        assert [event["event"] for event in tick.wait().events] == ["ran"], stage.said()


def _start(stage: Stage, command: str, **options: Any) -> Any:
    stage.write(command, LEASED)
    tick = stage.start(lease=LEASE, **options)
    stage.wait_for_pid()
    return tick


def _kill(stage: Stage, lease: float = LEASE, window: float | None = None) -> None:
    tick = stage.start(lease=lease, window=window)
    stage.wait_for_pid()
    tick.send(signal.SIGKILL)
    tick.wait()


def renewed_by_hand(stage: Stage) -> None:
    """`run JOB` renews the lease of its run too."""
    stage.write(UNTIL_GO, LEASED)
    code = f"import ticks, cronledger.cli.running; ticks.shorten(lease={LEASE}); {machines.PLAIN}"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", "job", "--json", "--dsn", stage.database.dsn],
        cwd=stage.folder,
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/tests", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
    ) as process:
        stage.wait_for_pid()
        _renewed(stage)
        stage.go()
        assert process.wait(60) == 0, stage.said()
    assert stage.rows("lease_ms, cause, state") == [(LEASE * 1000, "manual", "completed")], stage.said()


def _renewed(stage: Stage) -> None:
    before = stage.rows("expires_at")
    stage.wait_for(lambda: stage.rows("expires_at") > before, "it is renewed")


def _utc(value: object) -> datetime:
    instant = datetime.fromisoformat(str(value))  # a text in SQLite
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


KINDS = {
    "renewed": renewed,
    "renewed by hand": renewed_by_hand,
    "renewed by an adopter": renewed_by_an_adopter,
    "ended at its window": ended_at_its_window,
    "ended at its window by an adopter": ended_at_its_window_by_an_adopter,
    "reaped when it is over": reaped_when_over,
    "ended when it was reaped": ended_when_reaped,
}
BEHIND_A_PROXY = {
    "not renewable: frozen": _not_renewable(Proxy.freeze),
    "not renewable: refused": _not_renewable(Proxy.refuse),
    "kept over an outage": kept_over_an_outage,
}


def leased(stages: Stages, tally: Tally, kinds: dict[str, Callable[[Stage], None]], times: int = 1) -> None:
    """So many runs of each kind, all at once."""

    def inflict(kind: str) -> Stage:
        stage = stages.stage()
        try:
            kinds[kind](stage)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from error
        return stage

    at_once(inflict, [kind for kind in kinds for _ in range(times)], tally, width=len(kinds))
