"""What the ledger remembers beside the runs: one row per job, and one per node under the job "", which is every job."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from cronledger.errors import LedgerError
from cronledger.ledger.dialect import Duplicate, Row, Value
from cronledger.ledger.run import new_token
from cronledger.ledger.runs import Ledger

GONE = timedelta(days=30)
"""After so long without a tick nothing is remembered of a node, unless it is drained."""
KNOWN_WITHIN = 1.0

EVERY_JOB = ""
"""In place of a job's name: what is remembered of all jobs, or with a `scope_node` of all jobs on that node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One row of cronledger_jobs; the columns' names. Instants are UTC.

    `timing`, `timed_at`: expression, zone and enabled state, and since when (catch_up). `paused_at` to `resumes_at`
    (None: until resumed): nothing of it is claimed; of a node, it is drained. `resumed_at`: when the last pause ended.
    `seen_at`: when the node ticked last. `token`: who wrote it last; None: there is no row yet.
    """

    job: str
    scope_node: str
    stood_down_at: datetime | None = None
    timing: str | None = None
    timed_at: datetime | None = None
    paused_at: datetime | None = None
    resumes_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    resumed_at: datetime | None = None
    reminded_at: datetime | None = None
    seen_at: datetime | None = None
    token: str | None = None


_COLUMNS = ", ".join(field.name for field in fields(Remembered))
_ROWS = f"SELECT {_COLUMNS} FROM cronledger_jobs WHERE namespace = %(namespace)s"
_REMEMBERED = f"{_ROWS} AND (job = '' OR paused_at IS NOT NULL OR timing IS NOT NULL)"
_KEY = "namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s"
_OF = f"SELECT {_COLUMNS} FROM cronledger_jobs WHERE {_KEY}"
_TOKEN = f"SELECT job FROM cronledger_jobs WHERE {_KEY} AND token = %(token)s"
_SEEN = (
    "UPDATE cronledger_jobs SET seen_at = %(now)s, updated_at = %(now)s"
    " WHERE namespace = %(namespace)s AND job = '' AND scope_node = %(node)s"
)
_FIRST_SEEN = (
    "INSERT INTO cronledger_jobs (namespace, job, scope_node, seen_at, token, created_at, updated_at)"
    " VALUES (%(namespace)s, '', %(node)s, %(now)s, '', %(now)s, %(now)s)"
)
_ELSEWHERE = (
    "SELECT namespace FROM cronledger_jobs WHERE job = '' AND scope_node = %(node)s AND namespace <> %(namespace)s"
    " AND {which} ORDER BY namespace"
)
_IS_DRAINED = "paused_at IS NOT NULL AND resumed_at IS NULL"
_FORGET = (
    "DELETE FROM cronledger_jobs WHERE namespace = %(namespace)s AND scope_node = %(gone)s AND paused_at IS NULL"
    " AND (seen_at IS NULL OR seen_at < %(seen_before)s)"
)


def remembered(ledger: Ledger) -> list[Remembered]:
    """All that a tick asks of the jobs and nodes of its namespace; who only ever stood down is left out."""
    rows = ledger.link.send(_REMEMBERED, {"namespace": ledger.namespace}).rows
    return [_read(ledger, row) for row in rows]


def remembered_of(ledger: Ledger, job: str, scope_node: str = "") -> Remembered:
    """The row of a job, of a node or of all jobs; an empty one without a token where there is none yet."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "job": job, "scope_node": scope_node}
    rows = ledger.link.send(_OF, values).rows
    return _read(ledger, rows[0]) if rows else Remembered(job=job, scope_node=scope_node)


def drained_elsewhere(ledger: Ledger, node: str) -> list[str]:
    """The other namespaces of the database in which a node is drained."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "node": node}
    rows = ledger.link.send(_ELSEWHERE.format(which=_IS_DRAINED), values).rows
    return [str(row["namespace"]) for row in rows]


def ticking_elsewhere(ledger: Ledger, node: str) -> list[str]:
    """The other namespaces of the database in which a node has ticked lately and is not drained."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "node": node, "gone": ledger.clock.now() - GONE}
    which = f"seen_at >= %(gone)s AND NOT ({_IS_DRAINED})"
    rows = ledger.link.send(_ELSEWHERE.format(which=which), values).rows
    return [str(row["namespace"]) for row in rows]


def change(ledger: Ledger, row: Remembered, **columns: Value) -> bool:
    """Write these columns of a row. False: somebody wrote it, or made it, since it was read. Raises LedgerError."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "job": row.job, "scope_node": row.scope_node}
    values |= {**columns, "token": new_token(), "read_token": row.token, "updated_at": ledger.clock.now()}
    names = (*columns, "token", "updated_at")
    if row.token is None:
        return _inserts(ledger, ("namespace", "job", "scope_node", "created_at", *names), values)
    written = ", ".join(f"{name} = %({name})s" for name in names)
    sent = ledger.link.send(f"UPDATE cronledger_jobs SET {written} WHERE {_KEY} AND token = %(read_token)s", values)
    return sent.count > 0 or (sent.again and _holds(ledger, values))


def _inserts(ledger: Ledger, names: tuple[str, ...], values: dict[str, Value]) -> bool:
    places = ", ".join(f"%({name})s" for name in names)
    statement = f"INSERT INTO cronledger_jobs ({', '.join(names)}) VALUES ({places}){ledger.link.dialect.insert_guard}"
    try:
        if ledger.link.send(statement, values | {"created_at": values["updated_at"]}).count > 0:
            return True
    except Duplicate:
        pass  # perhaps by an earlier copy of this very statement
    return _holds(ledger, values)


def _holds(ledger: Ledger, values: dict[str, Value]) -> bool:
    return bool(ledger.link.send(_TOKEN, values).rows)


def _read(ledger: Ledger, row: Row) -> Remembered:
    return Remembered(**{name: _value(ledger, name, value) for name, value in row.items()})


def make_known(ledger: Ledger, rows: Iterable[Remembered]) -> None:
    """Tell the other nodes that this one ticks, and forget one that has gone for good. `rows`: what is remembered.

    These are hints only: trouble with them is nobody's.
    """
    now = ledger.clock.now()
    values: dict[str, Value] = {"namespace": ledger.namespace, "node": ledger.node, "now": now}
    nodes = [row for row in rows if row.job == EVERY_JOB]
    known = any(row.scope_node == ledger.node for row in nodes)
    gone = (row.scope_node for row in nodes if row.seen_at and now - row.seen_at > GONE and not row.paused_at)
    with suppress(LedgerError, Duplicate):
        statement = _SEEN if known else _FIRST_SEEN + ledger.link.dialect.insert_guard
        ledger.link.send(statement, values, within=KNOWN_WITHIN, tries=1)
        if node := next((node for node in gone if node != ledger.node), None):
            values |= {"gone": node, "seen_before": now - GONE}
            ledger.link.send(_FORGET, values, within=KNOWN_WITHIN, tries=1)


def _value(ledger: Ledger, name: str, value: object) -> Any:
    return ledger.link.instant(value) if name.endswith("_at") else value
