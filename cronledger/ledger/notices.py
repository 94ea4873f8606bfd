"""The notices that runs owe, and who takes them.

`notice` of a run is NULL, or 'owed' from its end on, or the token of who took it: the column `token` stays that of who
settled the run. So a notice is told once, and lost only with the node that took it.
"""

from dataclasses import dataclass

from cronledger.ledger.dialect import Value
from cronledger.ledger.run import Run
from cronledger.ledger.runs import COLUMNS, SETTLE_WITHIN, Ledger

_AT_ONCE = 200
# Runs by hand are no part of a job's story: who sits there has seen how they ended.
_BEFORE = (
    "SELECT earlier.state FROM cronledger_runs earlier"
    " WHERE earlier.namespace = run.namespace AND earlier.job = run.job AND earlier.scope_node = run.scope_node"
    " AND earlier.started_at < run.started_at AND earlier.state <> 'running' AND earlier.cause <> 'manual'"
    " ORDER BY earlier.started_at DESC LIMIT 1"
)
_OWED = (
    f"SELECT {COLUMNS}, ({_BEFORE}) AS state_before FROM cronledger_runs run"
    f" WHERE namespace = %(namespace)s AND notice = 'owed' LIMIT {_AT_ONCE}"
)
_TAKE = "UPDATE cronledger_runs SET notice = %(token)s, updated_at = %(now)s WHERE id = %(id)s AND notice = 'owed'"
_TAKEN = "SELECT id, output FROM cronledger_runs WHERE id = %(id)s AND notice = %(token)s"


@dataclass(frozen=True, slots=True)
class Owed:
    """A run that owes a notice, and how the job's run before it ended: failed, completed, or None for no such run."""

    run: Run
    state_before: str | None


def owed(ledger: Ledger) -> list[Owed]:
    """The notices that nobody took yet, at most 200, the earliest ends first."""
    rows = ledger.link.send(_OWED, {"namespace": ledger.namespace}, within=SETTLE_WITHIN, tries=2).rows
    befores = [row.pop("state_before") for row in rows]
    found = [Owed(ledger.read(row), str(before) if before else None) for row, before in zip(rows, befores, strict=True)]
    return sorted(found, key=lambda one: one.run.finished_at or one.run.started_at)


def take(ledger: Ledger, run: Run, token: str) -> str | None:
    """The kept output of the run ("" without one) when its notice is ours, None when it is not.

    May be called again after a LedgerError with the same token, which belongs to this one notice.
    """
    values: dict[str, Value] = {"id": run.id, "token": token, "now": ledger.clock.now()}
    ledger.link.send(_TAKE, values, within=SETTLE_WITHIN, tries=2)
    rows = ledger.link.send(_TAKEN, values, within=SETTLE_WITHIN, tries=2).rows
    return str(rows[0]["output"] or "") if rows else None
