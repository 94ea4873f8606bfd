"""From a job to the run that is to be claimed, and from what bars it to the event that says so."""

from datetime import datetime

from cronledger.events import StoodDown
from cronledger.ledger import Ledger, Run
from cronledger.schedule import Job


def drafted(ledger: Ledger, job: Job, due_at: datetime | None, cause: str) -> Run:
    """A run of the job for its slot, or by hand without one: nothing is in the ledger yet."""
    return ledger.draft(
        job.name,
        due_at=due_at,
        stale_after=job.stale_after,
        lease=job.lease,
        lock=job.lock,
        overlap=job.overlap,
        scope=job.scope,
        cause=cause,
    )


def stood_down(ledger: Ledger, run: Run, holder: Run) -> StoodDown:
    """That `holder` bars `run`, now and on this node."""
    at, held = ledger.clock.now(), holder.holder()
    return StoodDown(at=at, job=run.job, due_at=run.due_at, node=ledger.node, holder=held, lock=run.held_lock)
