"""Catch-up: the slots that no node ran and that are still to be made up, for the jobs that have `catch_up`.

Only the last slot of a job, once it is two minutes old; never one from before the ledger knew the job with its present
times, one from a pause, or one from which the job stood down. That it was not run is looked up; the claim decides.
"""

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import takewhile

from cronledger import pauses
from cronledger.every import Every
from cronledger.ledger import Ledger, look
from cronledger.ledger.jobs import EVERY_JOB, Remembered, change, remembered_of
from cronledger.schedule import Job, Schedule, Slot

OLD_ENOUGH = timedelta(minutes=2)
"""Before that, the node that is to run it may only be late."""
_MINUTE = timedelta(minutes=1)


def no_effect(job: Job) -> str | None:
    """Why `catch_up` makes nothing up of this job, None when it does."""
    if job.scope == "node":
        return 'with scope = "node" the slots of a node that is down are nobody else\'s'
    if isinstance(job.timing, Every) and job.timing.seconds < OLD_ENOUGH.total_seconds():
        return f'with every = "{job.timing.text}" it is due again before a slot is two minutes old'
    return None


def note(ledger: Ledger, schedule: Schedule, rows: Iterable[Remembered]) -> None:
    """Let the ledger know since when each job has its present times, and forget those of jobs without catch-up.

    A job that is disabled or has left the schedule begins anew when it comes back. Raises LedgerError.
    """
    times, known, now = {job.name: _times(job) for job in _jobs(schedule)}, _by_job(rows), ledger.clock.now()
    for row in known.values():
        if row.timing is not None and row.job not in times:
            change(ledger, row, timing=None)
    for name, timing in times.items():
        if name not in known or known[name].timing != timing:
            row = known.get(name) or remembered_of(ledger, name)
            change(ledger, row, timing=timing, timed_at=now)


def missed(ledger: Ledger, schedule: Schedule, rows: Iterable[Remembered]) -> list[Slot]:
    """The slots to make up now. Raises LedgerError."""
    known, now, found = _by_job(rows), ledger.clock.now(), []
    paused = pauses.active(rows, now)
    for job in _jobs(schedule):
        row = known.get(job.name)
        if row and row.timing == _times(job) and not pauses.barring(paused, job.name, ledger.node):
            found.append((job, _recent(job, [row, *filter(None, [known.get(EVERY_JOB)])], now)))
    asked = [(job.name, due_at) for job, recent in found for due_at in recent]
    ran = look.ran(ledger, asked, now=now) if asked else set()
    free = [(job, recent[0]) for job, recent in found if recent and not _is_made_up(job, recent, ran)]
    return [Slot(job, due_at, "catch_up") for job, due_at in free]


def _is_made_up(job: Job, recent: list[datetime], ran: set[tuple[str, datetime]]) -> bool:
    """Whether the slot was run, or is not the last one missed: a younger one waits until it is old enough."""
    slot, *younger = recent
    return (job.name, slot) in ran or any((job.name, one) not in ran for one in younger)


def _jobs(schedule: Schedule) -> list[Job]:
    return [job for job in schedule.jobs if job.enabled and job.catch_up and not no_effect(job)]


def _times(job: Job) -> str:
    """What makes its slots: a job in which this changes is another one."""
    return f"{' '.join(job.timing.expression.split())} {job.zone_name}"


def _by_job(rows: Iterable[Remembered]) -> dict[str, Remembered]:
    return {row.job: row for row in rows if not row.scope_node}


def _recent(job: Job, rows: list[Remembered], now: datetime) -> list[datetime]:
    """The last slot that is old enough, if it may be made up, and those after it up to this minute that may be."""
    assert job.catch_up is not None
    slot = latest(job, until=now - OLD_ENOUGH, since=now - job.catch_up)
    if slot is None or not _may_be_made_up(slot, rows):
        return []
    minute = now.replace(second=0, microsecond=0)
    younger = takewhile(minute.__gt__, job.timing.upcoming(slot, job.zone))
    return [slot, *(one for one in younger if _may_be_made_up(one, rows))]


def latest(job: Job, *, until: datetime, since: datetime) -> datetime | None:
    """The last of its slots from `since` to `until`, both included: looked for in ever larger spans, the last first."""
    span = OLD_ENOUGH
    while True:
        start = max(since, until - span)
        upcoming = job.timing.upcoming(start - timedelta(microseconds=1), job.zone)
        if found := deque(takewhile(until.__ge__, upcoming), maxlen=1):
            return found[0]
        if start == since:
            return None
        span *= 4


def _may_be_made_up(slot: datetime, rows: list[Remembered]) -> bool:
    """By what the ledger remembers of the job and of all jobs."""
    return not any(_forbids(row, slot) for row in rows)


def _forbids(row: Remembered, slot: datetime) -> bool:
    if any(since is not None and slot <= since for since in (row.timed_at, row.stood_down_at)):
        return True
    end = pauses.end_of(row)
    # A slot of the minute in which the pause began: its ticks may have come after that.
    return row.paused_at is not None and row.paused_at - _MINUTE < slot and (end is None or slot < end)
