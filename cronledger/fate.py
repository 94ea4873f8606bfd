"""What has become of a run that the ledger has as running: dead, and reaped, or orphaned, or nobody's business here."""

import signal
import time
from dataclasses import dataclass

from cronledger import process
from cronledger.clock import elapsed
from cronledger.events import Reaped
from cronledger.ledger import Ledger, Run
from cronledger.notices import owes
from cronledger.schedule import Schedule

CLOCK_MARGIN = 120.0
"""Seconds by which a database's clock may have been set, or be another one since a fail-over, while a run is going."""
DYING = 1.0
"""Seconds that a killed command is given to be gone."""


@dataclass(frozen=True, slots=True)
class Dead:
    """To be reaped, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Its tick died on this node, but something of it lives: to be adopted. See process.lives for `since`."""

    since: int


def fate_of(ledger: Ledger, run: Run, *, is_lost: bool = False) -> Dead | Orphan | None:
    """The fate of a running run, by the database's clock and what this node can see of it.

    Only of a tick of this boot and PID namespace anything can be concluded; of others only `expires_at` counts.
    `is_lost`: if it is a run of this very process, then this process knows nothing of it.
    """
    if run.expires_at <= ledger.clock.now():
        return Dead(f"{run.limit} over")
    theirs, own = process.Owner.parse(run.owner), process.own()
    if theirs is None or own is None or not own.same_machine(theirs):
        return None
    is_lost &= theirs == own
    if theirs.is_alive() and not is_lost:
        return None
    # From the row, not from the owner: that may be an adopter, younger than the command.
    since = process.ticks(ledger.clock.reached(run.started_at) - CLOCK_MARGIN)
    if run.pid is None:
        if ledger.find(run.id) != run:
            return None  # its tick settled it after the row was read, and has ended since
        process.let_start(ledger.clock.reached(run.updated_at))
    if process.lives(run.pid, run.pid_start, run.id, since):
        return Orphan(since)
    return Dead("given up by its tick" if is_lost else "its tick is gone")


def put_down(ledger: Ledger, run: Run) -> None:
    """Kill the command of a run to be reaped, if it lives on this node and its tick, gone or stopped, cannot end it.

    Not when its row is another by now: its tick is well, and renewed its lease since the row was read. What a command
    that has exited left behind is not ended.
    """
    theirs, own = process.Owner.parse(run.owner), process.own()
    if theirs is None or own is None or not own.same_machine(theirs) or run.pid is None or run.pid_start is None:
        return
    if theirs.is_alive() and not theirs.is_stopped():
        return
    command = process.Owner(own.boot, own.pid_namespace, run.pid, run.pid_start)
    if not command.is_alive() or ledger.find(run.id) != run:
        return
    if process.signal_group(run.pid, run.pid_start, run.id, signal.SIGKILL):
        over = elapsed() + DYING
        while command.is_alive() and elapsed() < over:
            time.sleep(0.01)


def reap(ledger: Ledger, schedule: Schedule, run: Run, why: str) -> Reaped | None:
    """Mark a dead run failed, and owe its notice; None: another node did, or it is not dead any more."""
    if not ledger.reap(run, why, owes=owes(schedule, run, "failed")):
        return None
    at, holder = ledger.clock.now(), run.holder()
    return Reaped(at=at, job=run.job, due_at=run.due_at, node=ledger.node, run_id=run.id, holder=holder, why=why)
