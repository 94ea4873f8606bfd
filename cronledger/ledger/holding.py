"""What its owner alone writes of a run while it goes on: the pid of its command, its lease, its attempts.

A statement that comes again, or late, changes nothing that a later one has written. All functions raise LedgerError.
"""

from collections.abc import Mapping
from datetime import datetime

from cronledger.ledger.dialect import Value
from cronledger.ledger.run import Run
from cronledger.ledger.runs import SETTLE_WITHIN, Ledger

_PID = (
    "UPDATE cronledger_runs SET pid = %(pid)s, pid_start = %(pid_start)s, updated_at = %(now)s"
    " WHERE id = %(id)s AND state = 'running' AND attempts = %(attempts)s"
)
_RENEW = (
    "UPDATE cronledger_runs SET expires_at = %(expires_at)s, updated_at = %(now)s"
    " WHERE id = %(id)s AND state = 'running' AND owner = %(owner)s AND expires_at < %(expires_at)s"
)
# The pid goes: that of a dead attempt would let others take the living one for dead.
_TRY_AGAIN = (
    "UPDATE cronledger_runs SET attempts = %(attempts)s, pid = NULL, pid_start = NULL, updated_at = %(now)s"
    " WHERE id = %(id)s AND state = 'running' AND owner = %(owner)s AND attempts < %(attempts)s"
)
_OURS = "SELECT id FROM cronledger_runs WHERE id = %(id)s AND state = 'running' AND owner = %(owner)s"


def record_pid(ledger: Ledger, run: Run, pid: int, pid_start: int | None, attempt: int = 1) -> None:
    """Write the pid of an attempt's command and its start time (field 22 of proc(5)'s stat)."""
    values: dict[str, Value] = {"id": run.id, "pid": pid, "pid_start": pid_start, "attempts": attempt}
    ledger.link.send(_PID, values | {"now": ledger.clock.now()}, within=SETTLE_WITHIN, tries=2)


def renew(ledger: Ledger, run: Run, *, expires_at: datetime, now: datetime) -> bool:
    """Let the lease of a run last until `expires_at`. False: the run was reaped, or another process adopted it."""
    values: dict[str, Value] = {"id": run.id, "owner": ledger.owner, "expires_at": expires_at, "now": now}
    return _keeps(ledger, _RENEW, values)


def try_again(ledger: Ledger, run: Run, attempt: int) -> bool:
    """Write that the attempt of this number begins: no pid is known of it. False as for `renew`."""
    values: dict[str, Value] = {"id": run.id, "owner": ledger.owner, "attempts": attempt, "now": ledger.clock.now()}
    return _keeps(ledger, _TRY_AGAIN, values)


def _keeps(ledger: Ledger, update: str, values: Mapping[str, Value]) -> bool:
    """Whether the run is ours still: an UPDATE that met no row may have been ours before."""
    if ledger.link.send(update, values, within=SETTLE_WITHIN, tries=2).count:
        return True
    return bool(ledger.link.send(_OURS, values, within=SETTLE_WITHIN, tries=2).rows)
