"""One row per run: claim it, record its pid, settle, reap and adopt it; and who stood down, once."""

import contextlib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta

from cronledger.clock import Clock
from cronledger.errors import LedgerError
from cronledger.ledger.dialect import Duplicate, Row, Unstorable, Value
from cronledger.ledger.link import Link, Sent
from cronledger.ledger.run import (
    MARGIN,
    Barred,
    Claim,
    Claimed,
    ClaimedElsewhere,
    NoPlace,
    Run,
    milliseconds,
    new_token,
    uuid7,
)

SETTLE_WITHIN = 5.0
_LOOKS = 5


COLUMNS = ", ".join(field.name for field in fields(Run) if field.name != "output")

_CLAIMED = (
    *("id", "namespace", "job", "scope_node", "due_at", "state", "active_job", "held_lock", "cause", "node", "owner"),
    *("started_at", "expires_at", "token", "created_at", "updated_at", "place"),
    *("lease_ms", "stale_after_ms", "attempts"),
)
_INSERT = (
    f"INSERT INTO cronledger_runs ({', '.join(_CLAIMED)}) VALUES ({', '.join(f'%({name})s' for name in _CLAIMED)})"
)
# Four looks by four unique indexes; an OR would leave the choice of a plan to the database.
_LOOK = " UNION ALL ".join(
    f"SELECT {COLUMNS} FROM cronledger_runs WHERE {key}"
    for key in (
        "id = %(id)s",
        "namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s AND due_at = %(due_at)s",
        "namespace = %(namespace)s AND scope_node = %(scope_node)s AND active_job = %(active_job)s",
        "namespace = %(namespace)s AND held_lock = %(held_lock)s",
    )
)
_LOOK_PLACE = (
    f" UNION ALL SELECT {COLUMNS} FROM cronledger_runs"
    " WHERE namespace = %(namespace)s AND node = %(node)s AND place = %(place)s"
)
_RUNNING = f"SELECT {COLUMNS} FROM cronledger_runs WHERE namespace = %(namespace)s AND state = 'running'"
_END = (
    "UPDATE cronledger_runs SET state = %(state)s, active_job = NULL, held_lock = NULL, place = NULL,"
    " finished_at = %(finished_at)s,"
    " duration_ms = %(duration_ms)s, exit_code = %(exit_code)s, failure_reason = %(failure_reason)s,"
    " output = %(output)s, pid = %(pid)s, attempts = %(attempts)s, notice = %(notice)s, token = %(token)s,"
    " updated_at = %(finished_at)s"
    " WHERE id = %(id)s AND state = 'running'"
)
# The look's row: of the same tick, and neither its window nor its lease made longer since.
_STILL = " AND owner = %(owner)s AND expires_at <= %(expires_at)s"
_ADOPT = (
    "UPDATE cronledger_runs SET owner = %(adopter)s, expires_at = %(held_until)s, token = %(token)s,"
    " updated_at = %(now)s"
    " WHERE id = %(id)s AND state = 'running'" + _STILL
)
_TOKEN = "SELECT id FROM cronledger_runs WHERE id = %(id)s AND token = %(token)s"

_STAND_DOWN = (
    "UPDATE cronledger_jobs SET stood_down_at = %(due_at)s, token = %(token)s, updated_at = %(now)s"
    " WHERE namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s"
    " AND (stood_down_at IS NULL OR stood_down_at < %(due_at)s)"
)
_REMEMBER = (
    "INSERT INTO cronledger_jobs (namespace, job, scope_node, stood_down_at, token, created_at, updated_at)"
    " VALUES (%(namespace)s, %(job)s, %(scope_node)s, %(due_at)s, %(token)s, %(now)s, %(now)s)"
)
_STOOD_TOKEN = (
    "SELECT job FROM cronledger_jobs"
    " WHERE namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s AND token = %(token)s"
)
_STOOD_DOWN = (
    "SELECT job FROM cronledger_jobs"
    " WHERE namespace = %(namespace)s AND job = %(job)s AND scope_node = %(scope_node)s AND stood_down_at = %(due_at)s"
)


class Ledger:
    """The runs of one namespace, as one process of one node sees and writes them.

    Every statement may be sent again: a claim is known by its run's id, an UPDATE by its writer's token.
    All methods raise LedgerError.
    """

    def __init__(self, link: Link, namespace: str, node: str, owner: str, clock: Clock) -> None:
        self.link = link
        self.clock = clock
        self.namespace = namespace
        self.node = node
        self.owner = owner
        self._settler = new_token()  # one for all settling, so that a later call knows the success of an earlier one

    def running(self) -> list[Run]:
        """Every run of the namespace that is not over, whether or not its job is still in the schedule."""
        return [self.read(row) for row in self.link.send(_RUNNING, {"namespace": self.namespace}).rows]

    def scope_node(self, scope: str) -> str:
        """In whose slots and mutexes a job of this `scope` runs: the whole cluster's, or this node's own."""
        return self.node if scope == "node" else ""

    def draft(
        self,
        job: str,
        *,
        due_at: datetime | None,
        stale_after: timedelta | None,
        lease: timedelta | None = None,
        lock: str | None = None,
        overlap: bool = False,
        scope: str = "cluster",
        cause: str = "schedule",
    ) -> Run:
        """A run of this node that starts now, not yet in the ledger. `due_at` None: by hand, due at its start.

        Without a `lease` it has a window, `stale_after`.
        """
        now = self.clock.now()
        expires_after = lease or (stale_after or timedelta()) + MARGIN
        return Run(
            id=uuid7(now),
            namespace=self.namespace,
            job=job,
            scope_node=self.scope_node(scope),
            due_at=due_at or now,
            state="running",
            active_job=None if overlap else job,
            held_lock=lock,
            cause=cause,
            node=self.node,
            owner=self.owner,
            started_at=now,
            expires_at=now + expires_after,
            token=new_token(),
            created_at=now,
            updated_at=now,
            lease_ms=milliseconds(lease),
            stale_after_ms=milliseconds(stale_after),
            attempts=1,
        )

    def claim(self, run: Run) -> Claim:
        """Take the slot of `run`, a draft: one INSERT, fenced by all unique indexes at once.

        Raises LedgerError when it cannot be decided; the row may then be there, or come to be there.
        """
        values = {name: getattr(run, name) for name in _CLAIMED}
        for _ in range(_LOOKS):
            if self._inserts(_INSERT, values):
                return Claimed()
            if claim := self._look(run, values):
                return claim
        raise LedgerError(
            f"the ledger neither takes nor shows the slot of {run.job}: another unique index, a trigger or a rule of"
            " cronledger_runs is in the way; remove it"
        )

    def _inserts(self, statement: str, values: Mapping[str, Value]) -> bool:
        try:
            return self.link.send(statement + self.link.dialect.insert_guard, values).count == 1
        except Duplicate:
            return False

    def _look(self, run: Run, values: Mapping[str, Value]) -> Claim | None:
        look = _LOOK + ("" if run.place is None else _LOOK_PLACE)
        found = [self.read(row) for row in self.link.send(look, values).rows]
        if any(other.id == run.id and other.state == "running" for other in found):
            return Claimed()
        if any((other.scoped, other.due_at) == (run.scoped, run.due_at) for other in found):
            return ClaimedElsewhere()
        if barring := [other for other in found if other.bars(run)]:
            return Barred(min(barring, key=lambda other: other.scoped != run.scoped))
        return NoPlace() if found else None

    def settle(
        self,
        run: Run,
        *,
        pid: int | None,
        attempts: int = 1,
        duration_ms: int,
        exit_code: int | None,
        failure_reason: str | None,
        output: str | None,
        owes: bool = False,
        within: float = SETTLE_WITHIN,
    ) -> bool:
        """Record how a run ended: completed without a `failure_reason`, else failed. False: it was over already.

        `owes`: the job's operators are to be told of it, by whichever node (see ledger/notices.py).
        One attempt of `within` seconds, so that the caller can look after its other runs between two. It may be called
        again after a LedgerError: an earlier call that took effect though its answer was lost is known as ours.
        """
        values = self._ending(run) | {
            "token": self._settler,
            "state": "completed" if failure_reason is None else "failed",
            "pid": pid,
            "attempts": attempts,
            "duration_ms": duration_ms,
            "exit_code": exit_code,
            "failure_reason": failure_reason,
            "output": output,
            "notice": "owed" if owes else None,
        }
        plain = values | {name: _ascii(values[name]) for name in ("failure_reason", "output")}
        sent = self._send_one_of(values, plain, plain | {"output": None}, within=within)
        return sent.count > 0 or bool(self.link.send(_TOKEN, values, within=within, tries=2).rows)

    def _send_one_of(self, *shorter: Mapping[str, Value], within: float) -> Sent:
        """The first that the database takes: what records a failure must not fail on its text."""
        for values in shorter:
            with contextlib.suppress(Unstorable):
                return self.link.send(_END, values, within=within, tries=2)
        raise LedgerError("the ledger takes no text at all; check the columns of cronledger_runs")

    def reap(self, run: Run, why: str, *, owes: bool = False) -> bool:
        """Mark a dead run failed. False: another node did, or its window or its owner is not what it was."""
        now = self.clock.now()
        values = self._ending(run) | {
            "state": "failed",
            "pid": run.pid,
            "attempts": run.attempts,
            "duration_ms": max(0, round((now - run.started_at) / timedelta(milliseconds=1))),
            "exit_code": None,
            "failure_reason": f"reaped: {why}",
            "output": None,
            "notice": "owed" if owes else None,
            "owner": run.owner,
            "expires_at": run.expires_at,
        }
        return self._wins(_END + _STILL, _TOKEN, values)

    def _ending(self, run: Run) -> dict[str, Value]:
        return {"id": run.id, "finished_at": self.clock.now(), "token": new_token()}

    def adopt(self, run: Run) -> Run | None:
        """Make this process the owner of a run whose tick died, and renew its lease if it has one.

        The run as it then is. None: another one was first, or it is over.
        """
        now = self.clock.now()
        held_until = run.expires_at if run.lease is None else max(run.expires_at, now + run.lease)
        values: dict[str, Value] = {"id": run.id, "owner": run.owner, "expires_at": run.expires_at}
        values |= {"adopter": self.owner, "held_until": held_until, "token": new_token(), "now": now}
        adopted = replace(run, owner=self.owner, expires_at=held_until)
        return adopted if self._wins(_ADOPT, _TOKEN, values) else None

    def stand_down(self, run: Run) -> bool:
        """Whether it is for this node to say that `run`, a draft, stands down from its slot: once for each slot."""
        values: dict[str, Value] = {"namespace": run.namespace, "job": run.job, "scope_node": run.scope_node}
        values |= {"due_at": run.due_at, "token": new_token(), "now": self.clock.now()}
        if self._wins(_STAND_DOWN, _STOOD_TOKEN, values):
            return True
        return (
            self._inserts(_REMEMBER, values)
            or self._wins(_STAND_DOWN, _STOOD_TOKEN, values)
            or self._holds(_STOOD_TOKEN, values)
        )

    def has_stood_down(self, run: Run) -> bool:
        """Whether the slot of `run`, a draft, is the last one that its job stood down from."""
        values: dict[str, Value] = {"namespace": run.namespace, "job": run.job, "scope_node": run.scope_node}
        return self._holds(_STOOD_DOWN, values | {"due_at": run.due_at})

    def _wins(self, update: str, look: str, values: Mapping[str, Value]) -> bool:
        """Whether a conditional UPDATE is ours; one sent again knows its earlier success by its token."""
        sent = self.link.send(update, values)
        return sent.count > 0 or (sent.again and self._holds(look, values))

    def _holds(self, look: str, values: Mapping[str, Value]) -> bool:
        return bool(self.link.send(look, values).rows)

    def find(self, run_id: str) -> Run | None:
        """The run with this whole id."""
        rows = self.link.send(
            f"SELECT {COLUMNS} FROM cronledger_runs WHERE id = %(id)s", {"id": run_id}, within=SETTLE_WITHIN, tries=2
        ).rows
        return self.read(rows[0]) if rows else None

    def read(self, row: Row) -> Run:
        """A row as a Run."""
        return Run(**{name: self._value(name, value) for name, value in row.items()})  # type: ignore[arg-type]

    def _value(self, name: str, value: object) -> object:
        return self.link.instant(value) if name.endswith("_at") else value


def _ascii(value: Value) -> Value:
    return value.encode("ascii", "backslashreplace").decode() if isinstance(value, str) else value
