"""The notices that runs owe, and who takes them.

`notice` of a run is NULL, or 'owed' from its end on, or the token of who took it: the column `token` stays that of who
settled the run. So a notice is told once, and lost only with the node that took it.
"""

from cronledger.ledger.dialect import Value
from cronledger.ledger.run import Run
from cronledger.ledger.runs import COLUMNS, SETTLE_WITHIN, Ledger

_OWED = f"SELECT {COLUMNS} FROM cronledger_runs WHERE namespace = %(namespace)s AND notice = 'owed' LIMIT 200"
# Runs by hand are no part of a job's story: who sits there has seen how they ended.
_BEFORE = (
    "SELECT state FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s"
    " AND started_at < %(started_at)s AND state <> 'running' AND cause <> 'manual'"
    " ORDER BY started_at DESC LIMIT 1"
)
_TAKE = "UPDATE cronledger_runs SET notice = %(token)s, updated_at = %(now)s WHERE id = %(id)s AND notice = 'owed'"
_TAKEN = "SELECT output FROM cronledger_runs WHERE id = %(id)s AND notice = %(token)s"


def owing(ledger: Ledger) -> list[Run]:
    """The runs whose notice nobody took yet, at most 200, those that ended first before the others."""
    rows = ledger.link.send(_OWED, {"namespace": ledger.namespace}, within=SETTLE_WITHIN, tries=2).rows
    return sorted(map(ledger.read, rows), key=lambda run: run.finished_at or run.started_at)


def state_before(ledger: Ledger, run: Run) -> str | None:
    """How the last run before this one ended, of the same job and node: failed or completed. None: there is none."""
    values: dict[str, Value] = {"namespace": run.namespace, "job": run.job, "scope_node": run.scope_node}
    rows = ledger.link.send(_BEFORE, values | {"started_at": run.started_at}, within=SETTLE_WITHIN, tries=2).rows
    return str(rows[0]["state"]) if rows else None


def take(ledger: Ledger, run: Run, token: str) -> str | None:
    """The kept output of the run ("" without one) when its notice is ours, None when it is not.

    May be called again after a LedgerError with the same token, which belongs to this one notice.
    """
    values: dict[str, Value] = {"id": run.id, "token": token, "now": ledger.clock.now()}
    ledger.link.send(_TAKE, values, within=SETTLE_WITHIN, tries=2)
    rows = ledger.link.send(_TAKEN, values, within=SETTLE_WITHIN, tries=2).rows
    return str(rows[0]["output"] or "") if rows else None
