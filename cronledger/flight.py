"""The runs in flight in this process: started, watched, and settled whatever the ledger does meanwhile."""

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cronledger.clock import elapsed
from cronledger.command import Commands, Outcome, missing
from cronledger.errors import LedgerBusy, LedgerError
from cronledger.events import Event, Failed, Ran, Trouble, duration, local, tail, utc
from cronledger.ledger import Ledger, Run
from cronledger.ledger.runs import SETTLE_WITHIN
from cronledger.notices import Notice, Notices, owes
from cronledger.schedule import Job, Schedule

SETTLE_FOR = 600.0
"""Seconds after its end for which a run that cannot be recorded is tried again; after a signal it is STOPPED_FOR."""
STOPPED_FOR = 3.0
IDLE = 5.0
LONGEST_PAUSE = 30.0


@dataclass(slots=True)
class _Flying:
    run: Run
    keep_output: str
    pid: int | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class _Ending:
    """A run that is over and not yet recorded. `doubtful`: its claim was never answered, so it may have no row."""

    run: Run
    outcome: Outcome
    ended: float
    keep_output: str = "never"
    pid: int | None = None
    doubtful: bool = False


class Flight:
    """Use as a context manager. Yields Ran and Failed once each, when the ledger has them; never raises LedgerError.

    `idle`: seconds without a word to the ledger after which the connection is closed.
    """

    def __init__(self, ledger: Ledger, schedule: Schedule, *, expected: int, idle: float = IDLE) -> None:
        self.schedule = schedule
        self._ledger = ledger
        self._idle = idle
        self._commands = Commands(mask=ledger.link.mask, expected=expected)
        self._notices = Notices(ledger, self._commands)
        self._flying: dict[str, _Flying] = {}
        self._endings: list[_Ending] = []
        self._troubles: list[Trouble] = []
        self._owes = False
        self._pause = 0.0
        self._again_at = 0.0
        self._stopping = False

    def __enter__(self) -> "Flight":
        self._commands.__enter__()
        signal.set_wakeup_fd(self._commands.wakeup_fd, warn_on_full_buffer=False)
        return self

    def __exit__(self, *raised: Any) -> None:
        signal.set_wakeup_fd(-1)
        self._commands.__exit__(*raised)

    @property
    def is_busy(self) -> bool:
        """Whether a run is in flight, or over but not yet recorded, or a notice being told."""
        recorded = not any(not ending.doubtful for ending in self._endings)
        return bool(self._flying or self._notices.is_busy or not recorded)

    @property
    def runs(self) -> int:
        """How many are in flight."""
        return len(self._flying)

    def knows(self, run_id: str) -> bool:
        """Whether this run is in flight here, or over and not yet recorded."""
        return run_id in self._flying or any(ending.run.id == run_id for ending in self._endings)

    def missing(self, job: Job, environment: Mapping[str, str]) -> str | None:
        """Why this node cannot start the job, as part of a sentence; None when it can."""
        return missing(job.argv, job.cwd, {**environment, **job.env})

    def has_place(self) -> bool:
        """Whether this node can start one more command now."""
        return self._commands.has_place()

    def start(
        self, run: Run, job: Job, environment: Mapping[str, str], live: Callable[[bytes], None] | None = None
    ) -> None:
        """Start the command of a run that was claimed; one that cannot start ends like any other."""
        env = self._env(run, job, environment)
        deadline = self._ledger.clock.reached(run.started_at + run.window)
        if elapsed() >= deadline:  # frozen since the claim: others may have reaped it, and started the next one
            why = f"not started: its window of {duration(round(run.window.total_seconds() * 1000))} was over"
            self._endings.append(_Ending(run, Outcome(None, why, 0, ""), elapsed(), job.keep_output))
            return
        flying = self._flying[run.id] = _Flying(run, job.keep_output)
        flying.pid = self._commands.start(
            run.id, job.argv, job.cwd, env, deadline=deadline, window=run.window, live=live
        )
        flying.is_new = flying.pid is not None

    def _env(self, run: Run, job: Job, environment: Mapping[str, str]) -> dict[str, str]:
        named = {"CRONLEDGER_JOB": job.name, "CRONLEDGER_RUN_ID": run.id, "CRONLEDGER_NODE": run.node}
        # The schedule too, so that a job such as `cronledger prune` means this one, wherever it runs.
        named |= {"CRONLEDGER_DUE_AT": utc(run.due_at), "CRONLEDGER_SCHEDULE": self.schedule.path}
        return {**environment, **job.env, **named}

    def adopt(self, run: Run, since: int) -> None:
        """Watch a run whose tick died: wait for its end, or end it at its window. See process.lives for `since`."""
        self._flying[run.id] = _Flying(run, "never", run.pid)
        self._commands.adopt(
            run.id,
            run.pid,
            run.pid_start,
            run.id,
            since=since,
            deadline=self._ledger.clock.reached(run.started_at + run.window),
            window=run.window,
        )

    def doubt(self, run: Run) -> None:
        """A claim was never answered: if its row is there, it is settled as failed."""
        outcome = Outcome(None, "not started: the ledger did not answer while it was claimed", 0, "")
        self._endings.append(_Ending(run, outcome, elapsed(), doubtful=True))

    def tell(self, notice: Notice, environment: Mapping[str, str]) -> None:
        """Take a notice that is owed, and tell it if that succeeds."""
        job = notice.job
        self._notices.add(notice, self._env(notice.run, job, environment) if job else {})

    def owes(self) -> bool:
        """Whether a run was recorded since the last call that owes a notice."""
        owes, self._owes = self._owes, False
        return owes

    def stop(self, signum: int, because: str | None = None) -> None:
        """This process was told to end: so is every run. May be called by a signal handler, and again."""
        self._stopping = True
        self._again_at = 0.0
        self._notices.stop()
        self._commands.stop(signum, because)
        self._ledger.link.hurry()

    def collect(self, timeout: float) -> None:
        """Wait `timeout` seconds at most for something to end; what ended is remembered, the ledger not spoken to."""
        for run_id, outcome in self._commands.wait(timeout):
            if flying := self._flying.pop(run_id, None):
                self._endings.append(_Ending(flying.run, outcome, elapsed(), flying.keep_output, flying.pid))
            elif trouble := self._notices.ended(run_id, outcome):
                self._troubles.append(trouble)

    def bury(self) -> None:
        """Wait for what died in this process's care and is none of its commands."""
        self._commands.bury()

    def events(self, timeout: float = 1.0, until: float = math.inf) -> Iterator[Event | Trouble]:
        """One pass: wait `timeout` seconds at most for something to end, and record what ended and what started.

        After `until`, a moment of `elapsed()`, at most one thing is recorded.
        """
        pending = bool(self._steps())
        self.collect(min(timeout, max(0.0, self._again_at - elapsed())) if pending else timeout)
        self._ledger.link.rest(self._idle)
        if elapsed() >= self._again_at:
            yield from self._record(until)
        troubles, self._troubles = self._troubles, []
        yield from troubles

    def _record(self, until: float) -> Iterator[Event | Trouble]:
        """One statement at a time, with a look at what is in flight after each: a slow ledger holds up no window."""
        trouble: LedgerError | None = None
        for step in self._steps():
            try:
                event = step()
            except LedgerBusy as error:
                trouble = error  # of one row: the others need not wait for it
            except LedgerError as error:
                trouble = error
                break
            else:
                yield from [event] if event else []
            self.collect(0)
            if elapsed() >= until:
                break
        if trouble is None:
            self._pause = 0.0
            return
        self._pause = min(LONGEST_PAUSE, 2 * self._pause or 0.5)
        self._again_at = elapsed() + (0.2 if self._stopping else self._pause)
        yield from self._give_up(trouble)

    def _steps(self) -> list[Callable[[], Event | Trouble | None]]:
        """After the starts, so that a slow ledger holds up none of them: the new pids, what ended, what to tell of."""
        pids = [partial(self._record_pid, flying) for flying in self._flying.values() if flying.is_new]
        return [*pids, *(partial(self._settle, ending) for ending in self._endings), *self._notices.steps()]

    def _record_pid(self, flying: _Flying) -> None:
        if flying.run.id in self._flying and flying.pid is not None:
            self._ledger.record_pid(flying.run, flying.pid, self._commands.start_of(flying.run.id))
            flying.is_new = False

    def _settle(self, ending: _Ending) -> Event | Trouble | None:
        said = self._survivor(ending) if ending.outcome.survives else self._settled(ending)
        self._endings.remove(ending)
        return said

    def _survivor(self, ending: _Ending) -> Trouble:
        run = ending.run
        return Trouble(
            f"{run.job}: run {run.id} survives SIGKILL here (process group {ending.pid or 'unknown'}), so it is not"
            " settled and still bars its job; end it by hand, before it is reaped a minute after its window"
        )

    def _settled(self, ending: _Ending) -> Event | None:
        outcome, keep = ending.outcome, ending.keep_output
        reason = outcome.reason if keep != "never" else _bare(outcome)
        kept = keep == "always" or (keep == "failed" and reason is not None)
        owing = owes(self.schedule, ending.run, "completed" if reason is None else "failed")
        settled = self._ledger.settle(
            ending.run,
            pid=ending.pid,
            duration_ms=self._duration(ending),
            exit_code=outcome.exit_code,
            failure_reason=reason,
            output=outcome.output if kept else None,
            owes=owing,
            within=STOPPED_FOR if self._stopping else SETTLE_WITHIN,
        )
        if settled:
            self._owes |= owing
            return self._event(ending, outcome.reason)
        return None if ending.doubtful else self._event(ending, self._too_late(ending))

    def _event(self, ending: _Ending, reason: str | None) -> Event:
        run, node, at, ms = ending.run, self._ledger.node, self._ledger.clock.at(ending.ended), self._duration(ending)
        if reason is None:
            return Ran(at=at, job=run.job, due_at=run.due_at, node=node, run_id=run.id, cause=run.cause, duration_ms=ms)
        return Failed(
            at=at,
            job=run.job,
            due_at=run.due_at,
            node=node,
            run_id=run.id,
            cause=run.cause,
            duration_ms=ms,
            exit_code=ending.outcome.exit_code,
            reason=reason,
        )

    def _too_late(self, ending: _Ending) -> str:
        row = self._ledger.find(ending.run.id)
        how = _bare(ending.outcome) or "exit 0"
        if row is None or row.finished_at is None:
            return f"ended ({how}) after its row had gone from the ledger"
        at = local(row.finished_at, self.schedule.zone, self._ledger.clock.at(ending.ended))
        return f"ended ({how}) after it was reaped at {at}"

    def _duration(self, ending: _Ending) -> int:
        """Of an adopted run only its start is known."""
        if ending.run.owner == self._ledger.owner:
            return ending.outcome.duration_ms
        return round((ending.ended - self._ledger.clock.reached(ending.run.started_at)) * 1000)

    def _give_up(self, error: LedgerError) -> Iterator[Event | Trouble]:
        patience = STOPPED_FOR if self._stopping else SETTLE_FOR
        yield from self._notices.give_up(error, patience)
        for ending in [one for one in self._endings if elapsed() - one.ended >= patience]:
            self._endings.remove(ending)
            if ending.doubtful:
                continue
            yield self._event(ending, ending.outcome.reason)
            yield Trouble(
                f"{error}; not recorded: the end of {ending.run.job}, run {ending.run.id}"
                f" ({ending.outcome.reason or 'exit 0'}); its row stays running until the next tick of this node, or"
                " the end of its window, reaps it"
            )


def _bare(outcome: Outcome) -> str | None:
    """How it ended, without what it printed last."""
    return outcome.reason and outcome.reason.removesuffix(f": {tail(outcome.output)}")
