"""What the ledger remembers beside the runs: one row per job, and one per node under the job "", which is every job."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from cronledger.ledger.runs import Ledger

EVERY_JOB = ""
"""In place of a job's name: what is remembered of all jobs, or with a `scope_node` of all jobs on that node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One row of cronledger_jobs; the columns' names. Instants are UTC.

    `timing`, `timed_at`: expression, zone and enabled state, and since when (catch_up). `paused_at` to `resumes_at`
    (None: until resumed): nothing of it is claimed; of a node, it is drained. `resumed_at`: when the last pause ended.
    `seen_at`: when the node ticked last.
    """

    job: str
    scope_node: str
    stood_down_at: datetime | None
    timing: str | None
    timed_at: datetime | None
    paused_at: datetime | None
    resumes_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    resumed_at: datetime | None
    reminded_at: datetime | None
    seen_at: datetime | None


_REMEMBERED = (
    f"SELECT {', '.join(field.name for field in fields(Remembered))} FROM cronledger_jobs"
    " WHERE namespace = %(namespace)s AND (job = '' OR paused_at IS NOT NULL OR timing IS NOT NULL)"
)


def remembered(ledger: Ledger) -> list[Remembered]:
    """All that a tick asks of the jobs and nodes of its namespace; who only ever stood down is left out."""
    rows = ledger.link.send(_REMEMBERED, {"namespace": ledger.namespace}).rows
    return [Remembered(**{name: _value(ledger, name, value) for name, value in row.items()}) for row in rows]


def _value(ledger: Ledger, name: str, value: object) -> Any:
    return ledger.link.instant(value) if name.endswith("_at") else value
