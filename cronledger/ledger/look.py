"""Looks at runs that are over or not, by people and their scripts."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cronledger.errors import CronledgerError
from cronledger.ledger.dialect import Value
from cronledger.ledger.run import Run
from cronledger.ledger.runs import COLUMNS, Ledger

ASKED_AT_ONCE = 100
KEPT_FOR = timedelta(hours=23)
"""A run that finished so lately has its row: what is younger than a day is never pruned."""
_SHORTEST = 4
RECENTLY = timedelta(seconds=150)
"""A minute, and how far apart the clocks of two nodes may be."""

_LAST = (
    f"SELECT {COLUMNS} FROM cronledger_runs WHERE namespace = %(namespace)s AND job = %(job)s"
    " ORDER BY started_at DESC LIMIT 1"
)
_ENDS = (
    f"SELECT {COLUMNS} FROM cronledger_runs WHERE namespace = %(namespace)s"
    " AND (id LIKE %(start)s OR id LIKE %(end)s) ORDER BY started_at DESC LIMIT 4"
)
_OUTPUT = f"SELECT {COLUMNS}, output FROM cronledger_runs WHERE id = %(id)s"
_SLOT = (
    f"SELECT {COLUMNS} FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s AND due_at = %(due_at)s"
)
_TAKEN = (
    "SELECT job, scope_node, due_at FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND started_at >= %(started_after)s"
)
_STOOD_DOWN = (
    "SELECT job, scope_node, stood_down_at FROM cronledger_jobs"
    " WHERE namespace = %(namespace)s AND stood_down_at IS NOT NULL ORDER BY stood_down_at"
)
_OF_NODE = "SELECT id FROM cronledger_runs WHERE namespace = %(namespace)s AND node = %(node)s LIMIT 1"
_RAN = (
    "SELECT {number} AS number FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND job = %(job{number})s AND scope_node = '' AND {column} %(at{number})s"
)


def last_run(ledger: Ledger, job: str) -> Run | None:
    """The newest run of `job`, by its start."""
    rows = ledger.link.send(_LAST, {"namespace": ledger.namespace, "job": job}).rows
    return ledger.read(rows[0]) if rows else None


class LastDown(NamedTuple):
    """The slot from which a job stood down last; of which node, where each has slots of its own."""

    due_at: datetime
    scope_node: str


def stood_down(ledger: Ledger) -> dict[str, LastDown]:
    """The slot from which each job stood down last, on whatever node, by the job's name."""
    rows = ledger.link.send(_STOOD_DOWN, {"namespace": ledger.namespace}).rows
    instant = ledger.link.dialect.instant
    return {str(row["job"]): LastDown(instant(row["stood_down_at"]), str(row["scope_node"])) for row in rows}


def slots_taken(ledger: Ledger) -> set[tuple[str, str, datetime]]:
    """Job, scope_node and due_at of the runs that began in the last minutes: of this minute's slots, all taken ones."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "started_after": ledger.clock.now() - RECENTLY}
    rows = ledger.link.send(_TAKEN, values).rows
    instant = ledger.link.dialect.instant
    return {(str(row["job"]), str(row["scope_node"]), instant(row["due_at"])) for row in rows}


def run_of_slot(ledger: Ledger, run: Run) -> Run | None:
    """The run that took the slot of `run`, a draft, whichever node's."""
    values: dict[str, Value] = {"namespace": run.namespace, "job": run.job}
    rows = ledger.link.send(_SLOT, values | {"scope_node": run.scope_node, "due_at": run.due_at}).rows
    return ledger.read(rows[0]) if rows else None


def ran(ledger: Ledger, slots: Sequence[tuple[str, datetime]], *, now: datetime) -> set[tuple[str, datetime]]:
    """Which of these slots (a job, an instant) of the whole cluster were run.

    The row of an older one may have been pruned, but never the newest of a job: it was run if the job started since.
    """
    found = set()
    for first in range(0, len(slots), ASKED_AT_ONCE):
        asked = slots[first : first + ASKED_AT_ONCE]
        values: dict[str, Value] = {"namespace": ledger.namespace}
        parts = []
        for number, (job, due_at) in enumerate(asked):
            is_kept = now - due_at < KEPT_FOR
            values |= {f"job{number}": job, f"at{number}": due_at if is_kept else due_at - timedelta(minutes=1)}
            parts.append(_RAN.format(number=number, column="due_at =" if is_kept else "started_at >="))
        rows = ledger.link.send(" UNION ALL ".join(parts), values).rows
        found |= {asked[int(str(row["number"]))] for row in rows}
    return found


def has_run(ledger: Ledger, node: str) -> bool:
    """Whether a run of this node is kept."""
    return bool(ledger.link.send(_OF_NODE, {"namespace": ledger.namespace, "node": node}).rows)


def history(
    ledger: Ledger,
    *,
    job: str | None = None,
    limit: int = 20,
    failed: bool = False,
    started_after: datetime | None = None,
) -> list[Run]:
    """The last `limit` runs, newest first: of one job, only the failed ones, only those started since an instant."""
    conditions = ["namespace = %(namespace)s"]
    conditions += ["job = %(job)s"] if job is not None else []
    conditions += ["state = 'failed'"] if failed else []
    conditions += ["started_at >= %(started_after)s"] if started_after is not None else []
    values: dict[str, Value] = {
        "namespace": ledger.namespace,
        "job": job,
        "started_after": started_after,
        "limit": limit,
    }
    where = " AND ".join(conditions)
    statement = f"SELECT {COLUMNS} FROM cronledger_runs WHERE {where} ORDER BY started_at DESC LIMIT %(limit)s"
    return [ledger.read(row) for row in ledger.link.send(statement, values).rows]


def find_run(ledger: Ledger, named: str) -> Run:
    """The run that `named` means: a job's name (its last run), or enough of an id, from either end.

    Raises CronledgerError when there is none or more than one.
    """
    if run := last_run(ledger, named):
        return run
    found = _by_id(ledger, named.lower())
    if not found:
        raise CronledgerError(
            f"no run {named} in namespace {ledger.namespace}: neither has a job of this name run, nor does an id begin"
            f" or end so, of which at least {_SHORTEST} characters are needed; `cronledger history` lists the last ones"
        )
    if len(found) > 1:
        raise CronledgerError(
            f"{named} means more than one run: {', '.join(run.id for run in found)}; write more of the id"
        )
    return found[0]


def _by_id(ledger: Ledger, part: str) -> list[Run]:
    if len(part) < _SHORTEST or not set(part) <= set("0123456789abcdef-"):
        return []
    values: dict[str, Value] = {"namespace": ledger.namespace, "start": f"{part}%", "end": f"%{part}"}
    return [ledger.read(row) for row in ledger.link.send(_ENDS, values).rows]


def whole_run(ledger: Ledger, run: Run) -> Run:
    """The run with its kept output. Raises CronledgerError when it has just been pruned."""
    rows = ledger.link.send(_OUTPUT, {"id": run.id}).rows
    if not rows:
        raise CronledgerError(f"run {run.id} of {run.job} was pruned in this moment")
    return ledger.read(rows[0])
