"""Pauses of a job, of all jobs, or of one node's ticks: who is barred by which, and how one begins and ends."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

from cronledger.errors import LedgerBusy
from cronledger.events import Paused
from cronledger.ledger import Ledger
from cronledger.ledger.dialect import Unstorable, Value
from cronledger.ledger.jobs import EVERY_JOB, Remembered, change, remembered_of
from cronledger.schedule import Job, Schedule

REMINDER = timedelta(hours=24)
"""After so long a pause is said, and again after each."""
_TRIES = 5


def end_of(row: Remembered) -> datetime | None:
    """When its last pause ended or will end; None: when somebody resumes it."""
    if row.resumed_at and row.paused_at and row.resumed_at >= row.paused_at:
        return row.resumed_at
    return row.resumes_at


def is_paused(row: Remembered, now: datetime) -> bool:
    """Whether a pause of it goes on. One whose time is over has ended by itself."""
    end = end_of(row)
    return row.paused_at is not None and (end is None or end > now)


def active(rows: Iterable[Remembered], now: datetime) -> list[Remembered]:
    """What is paused now: those of nodes first, then that of all jobs, then those of single jobs."""
    return sorted((row for row in rows if is_paused(row, now)), key=lambda row: (row.job, not row.scope_node))


def barring(paused: Iterable[Remembered], job: str, node: str) -> Remembered | None:
    """Which of these pauses keeps `node` from claiming `job`."""
    return next((row for row in paused if row.job in (EVERY_JOB, job) and row.scope_node in ("", node)), None)


def why_barred(ledger: Ledger, paused: Iterable[Remembered], job: Job, zone: tzinfo) -> str | None:
    """Which of these pauses keeps this node from claiming `job`, as part of a sentence."""
    row = barring(paused, job.name, ledger.node)
    return told(ledger, row).because(zone) if row else None


def remind(ledger: Ledger, schedule: Schedule, paused: Iterable[Remembered]) -> Iterator[Paused]:
    """Those that it is for this tick to say: once a day one of the cluster, of a node or of a job that it knows."""
    known, now = {EVERY_JOB, *(job.name for job in schedule.jobs)}, ledger.clock.now()
    for row in paused:
        said_at = row.reminded_at or row.paused_at
        if row.job in known and said_at and now - said_at >= REMINDER and change(ledger, row, reminded_at=now):
            yield told(ledger, row)


def told(ledger: Ledger, row: Remembered) -> Paused:
    """The pause as an event of this node."""
    assert row.paused_at is not None
    return Paused(
        at=ledger.clock.now(),
        job=row.job,
        due_at=None,
        node=ledger.node,
        scope_node=row.scope_node,
        paused_at=row.paused_at,
        resumes_at=row.resumes_at,
        paused_by=row.paused_by or "somebody",
        reason=row.pause_reason,
    )


def pause(
    ledger: Ledger, job: str, scope_node: str = "", *, window: timedelta | None, by: str, reason: str | None
) -> tuple[Remembered, Remembered]:
    """Pause it, for `window` or until it is resumed; the row before and afterwards. Raises LedgerError.

    It ends with a minute, so that it is plain which slots are in it. One that goes on is replaced, counts from its
    beginning, and keeps its reason when there is no other. Where one has ended, nothing from before that end is
    made up any more: only the last pause is remembered.
    """
    reason = reason and ledger.link.mask.text(reason)
    for _ in range(_TRIES):
        before, now = remembered_of(ledger, job, scope_node), ledger.clock.now()
        goes_on = is_paused(before, now)
        after = replace(
            before,
            paused_at=before.paused_at if goes_on else now,
            resumes_at=None if window is None else _next_minute(now + window),
            paused_by=by,
            pause_reason=before.pause_reason if goes_on and reason is None else reason,
            resumed_at=None,
            reminded_at=None,
            timed_at=before.timed_at if goes_on else max(filter(None, (before.timed_at, end_of(before))), default=None),
        )
        if _write(ledger, before, after):
            return before, after
    raise _busy(job, scope_node)


def _next_minute(moment: datetime) -> datetime:
    return (moment + timedelta(minutes=1, microseconds=-1)).replace(second=0, microsecond=0)


def resume(ledger: Ledger, job: str, scope_node: str = "") -> Remembered | None:
    """End its pause; what was ended, None when it was not paused. Raises LedgerError."""
    for _ in range(_TRIES):
        before, now = remembered_of(ledger, job, scope_node), ledger.clock.now()
        if not is_paused(before, now):
            return None
        # Not before it began, as another clock may have had it: else it would not be over.
        if change(ledger, before, resumed_at=max(now, before.paused_at or now)):
            return before
    raise _busy(job, scope_node)


def _write(ledger: Ledger, before: Remembered, after: Remembered) -> bool:
    columns: dict[str, Value] = {
        "paused_at": after.paused_at,
        "resumes_at": after.resumes_at,
        "paused_by": after.paused_by,
        "pause_reason": after.pause_reason,
        "resumed_at": after.resumed_at,
        "reminded_at": after.reminded_at,
        "timed_at": after.timed_at,
    }
    try:
        return change(ledger, before, **columns)
    except Unstorable:  # the database's encoding does not have a character of the reason
        reason = (after.pause_reason or "").encode("ascii", "backslashreplace").decode()
        return change(ledger, before, **columns | {"pause_reason": reason})


def _busy(job: str, scope_node: str) -> LedgerBusy:
    whose = scope_node or job or "all jobs"
    return LedgerBusy(f"ledger busy (the row of {whose} is written again and again); try again")
