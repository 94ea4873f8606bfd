"""Old runs leave the ledger: many at once by `prune`, a few with each tick by `keep`."""

from collections.abc import Iterator
from datetime import datetime

from cronledger.ledger.dialect import Value
from cronledger.ledger.look import last_run
from cronledger.ledger.runs import SETTLE_WITHIN, Ledger

BATCH = 1000
A_FEW = 200

_PRUNABLE = (
    "SELECT id, job, finished_at FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND finished_at < %(finished_before)s"
    " AND (finished_at > %(after)s OR (finished_at = %(after)s AND id > %(after_id)s))"
    f" ORDER BY finished_at, id LIMIT {BATCH}"
)
# Whether there is a newer one is asked row by row, and stops at the first: nothing that a planner could make a join or
# a sort of. One that owes a notice does not count: its notice still depends on the run before it.
_FEW = (
    "SELECT run.id FROM cronledger_runs run"
    " WHERE run.namespace = %(namespace)s AND run.finished_at < %(finished_before)s"
    " AND run.state <> 'running' AND (run.notice IS NULL OR run.notice <> 'owed')"
    " AND (SELECT 1 FROM cronledger_runs newer"
    " WHERE newer.namespace = run.namespace AND newer.job = run.job AND newer.started_at > run.started_at"
    " AND newer.state <> 'running' AND (newer.notice IS NULL OR newer.notice <> 'owed') LIMIT 1) = 1"
    f" ORDER BY run.finished_at, run.id LIMIT {A_FEW}"
)


def prune(ledger: Ledger, *, finished_before: datetime) -> int:
    """Delete the settled runs that finished before an instant, in batches; returns how many.

    Never a running one, never the newest of a job.
    """
    newest: dict[str, str] = {}
    deleted = 0
    for batch in _prunable(ledger, finished_before):
        for job in {job for _, job in batch} - newest.keys():
            last = last_run(ledger, job)
            newest[job] = last.id if last else ""
        deleted += _delete(ledger, [run_id for run_id, job in batch if newest[job] != run_id], within=30.0)
    return deleted


def _prunable(ledger: Ledger, finished_before: datetime) -> Iterator[list[tuple[str, str]]]:
    after: dict[str, Value] = {"after": datetime(1970, 1, 1, tzinfo=finished_before.tzinfo), "after_id": ""}
    while True:
        values: dict[str, Value] = {"namespace": ledger.namespace, "finished_before": finished_before, **after}
        rows = ledger.link.send(_PRUNABLE, values, within=30.0).rows
        if not rows:
            return
        after = {"after": ledger.link.instant(rows[-1]["finished_at"]), "after_id": str(rows[-1]["id"])}
        yield [(str(row["id"]), str(row["job"])) for row in rows]


def _delete(ledger: Ledger, ids: list[str], *, within: float, tries: int = 10_000) -> int:
    """One batch. The state is asked for again: a row that came back to life is never deleted."""
    if not ids:
        return 0
    named: dict[str, Value] = {f"id{number}": run_id for number, run_id in enumerate(sorted(ids))}
    places = ", ".join(f"%({name})s" for name in named)
    statement = f"DELETE FROM cronledger_runs WHERE id IN ({places}) AND state <> 'running'"
    return ledger.link.send(statement, named, within=within, tries=tries).count


def prune_a_few(ledger: Ledger, *, finished_before: datetime) -> int:
    """The same for a tick: the oldest few, none that owes a notice, by two short statements. Raises LedgerError."""
    values: dict[str, Value] = {"namespace": ledger.namespace, "finished_before": finished_before}
    rows = ledger.link.send(_FEW, values, within=SETTLE_WITHIN, tries=1).rows
    return _delete(ledger, [str(row["id"]) for row in rows], within=SETTLE_WITHIN, tries=1)
