"""Runs that are over, until the ledger knows it: each is settled, and told once."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from cronledger.command import Outcome
from cronledger.errors import LedgerError
from cronledger.events import Event, Failed, Ran, Trouble, local, tail
from cronledger.ledger import Ledger, Run
from cronledger.notices import owes
from cronledger.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Ending:
    """A run that is over and not yet recorded. `doubtful`: its claim was never answered, so it may have no row."""

    run: Run
    outcome: Outcome
    ended: float
    keep_output: str = "never"
    pid: int | None = None
    doubtful: bool = False
    attempts: int = 1


class Endings:
    """Those of this process. `settled`: how many were recorded so far."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._endings: list[Ending] = []
        self.settled = 0
        self._owes = False

    def __iter__(self) -> Iterator[Ending]:
        return iter(list(self._endings))

    def add(self, ending: Ending) -> None:
        """One more."""
        self._endings.append(ending)

    @property
    def is_busy(self) -> bool:
        """Whether one of them has a row for certain."""
        return any(not ending.doubtful for ending in self._endings)

    def owe(self) -> bool:
        """Whether one was recorded since the last call that owes a notice."""
        owes, self._owes = self._owes, False
        return owes

    def settle(self, ending: Ending, schedule: Schedule, within: float) -> Event | Trouble | None:
        """Record one; what is to be said of it. Raises LedgerError, and is then to be called again."""
        said = self._survivor(ending) if ending.outcome.survives else self._settled(ending, schedule, within)
        self._endings.remove(ending)
        self.settled += 1
        return said

    def _survivor(self, ending: Ending) -> Trouble:
        run, why = ending.run, f"survives SIGKILL here (process group {ending.pid})"
        if ending.pid is None:
            why = "cannot be ended here, since its tick died before it had recorded the pid"
        return Trouble(
            f"{run.job}: run {run.id} {why}, so it is not settled and still bars its job; end it by hand, before it is"
            f" reaped {_reaped_when(run)}"
        )

    def _settled(self, ending: Ending, schedule: Schedule, within: float) -> Event | None:
        outcome, keep = ending.outcome, ending.keep_output
        reason = outcome.reason if keep != "never" else _bare(outcome)
        kept = keep == "always" or (keep == "failed" and reason is not None)
        owing = owes(schedule, ending.run, "completed" if reason is None else "failed")
        settled = self._ledger.settle(
            ending.run,
            pid=ending.pid,
            attempts=ending.attempts,
            duration_ms=outcome.duration_ms,
            exit_code=outcome.exit_code,
            failure_reason=reason,
            output=outcome.output if kept else None,
            owes=owing,
            within=within,
        )
        if settled:
            self._owes |= owing
            return self._event(ending, outcome.reason)
        return None if ending.doubtful else self._event(ending, self._too_late(ending, schedule))

    def _event(self, ending: Ending, reason: str | None) -> Event:
        run, outcome = ending.run, ending.outcome
        kind = Ran if reason is None else partial(Failed, exit_code=outcome.exit_code, reason=reason)
        return kind(
            at=self._ledger.clock.at(ending.ended),
            job=run.job,
            due_at=run.due_at,
            node=self._ledger.node,
            run_id=run.id,
            cause=run.cause,
            duration_ms=outcome.duration_ms,
            attempts=ending.attempts,
        )

    def _too_late(self, ending: Ending, schedule: Schedule) -> str:
        row = self._ledger.find(ending.run.id)
        how = _bare(ending.outcome) or "exit 0"
        if row is None or row.finished_at is None:
            return f"ended ({how}) after its row had gone from the ledger"
        at = local(row.finished_at, schedule.zone, self._ledger.clock.at(ending.ended))
        return f"ended ({how}) after it was reaped at {at}"

    def give_up(self, error: LedgerError, before: float) -> Iterator[Event | Trouble]:
        """Let go of those that ended before this moment of `elapsed()` and could not be recorded."""
        for ending in self:
            if ending.ended > before:
                continue
            self._endings.remove(ending)
            if ending.doubtful:
                continue
            yield self._event(ending, ending.outcome.reason)
            yield Trouble(
                f"{error}; not recorded: the end of {ending.run.job}, run {ending.run.id}"
                f" ({ending.outcome.reason or 'exit 0'}); its row may stay running until the next tick of this node"
                f" reaps it, or another's {_reaped_when(ending.run)}"
            )


def _reaped_when(run: Run) -> str:
    return "when its lease is over" if run.lease else "a minute after its window"


def _bare(outcome: Outcome) -> str | None:
    """How it ended, without what it printed last."""
    return outcome.reason and outcome.reason.removesuffix(f": {tail(outcome.output)}")
