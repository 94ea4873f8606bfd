"""The runs in flight in this process: started, watched, and settled whatever the ledger does meanwhile."""

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from cronledger.clock import elapsed
from cronledger.command import Commands, Outcome, missing
from cronledger.endings import Ending, Endings
from cronledger.errors import LedgerBusy, LedgerError
from cronledger.events import Event, Trouble, local
from cronledger.flying import Flying, variables
from cronledger.leases import Leases
from cronledger.ledger import Ledger, Run
from cronledger.ledger.holding import record_pid, try_again
from cronledger.ledger.runs import SETTLE_WITHIN
from cronledger.notices import Notice, Notices
from cronledger.schedule import Job, Schedule

SETTLE_FOR = 600.0
"""Seconds after its end for which a run that cannot be recorded is tried again."""
STOPPED_FOR = 3.0
"""The same after a signal, and after the end."""
IDLE = 5.0
LONGEST_PAUSE = 30.0


class Flight:
    """Use as a context manager. Yields Ran and Failed once each, when the ledger has them; never raises LedgerError.

    `idle`: seconds without a word to the ledger after which the connection is closed. `endings`: what is over here.
    """

    def __init__(self, ledger: Ledger, schedule: Schedule, *, expected: int, idle: float = IDLE) -> None:
        self.schedule = schedule
        self._ledger = ledger
        self._idle = idle
        self._commands = Commands(mask=ledger.link.mask, expected=expected)
        self._leases = Leases(ledger)
        self._notices = Notices(ledger, self._commands)
        self._flying: dict[str, Flying] = {}
        self._waiting: dict[str, Flying] = {}
        self.endings = Endings(ledger)
        self._troubles: list[Trouble] = []
        self._pause = 0.0
        self._again_at = 0.0
        self._stopped_at = math.inf
        self._drained: str | None = None

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
        return bool(self.runs or self._notices.is_busy or self.endings.is_busy)

    @property
    def runs(self) -> int:
        """How many are in flight, those included that wait for their next attempt."""
        return len(self._flying) + len(self._waiting)

    def knows(self, run_id: str) -> bool:
        """Whether this run is in flight here, or over and not yet recorded."""
        in_flight = run_id in self._flying or run_id in self._waiting
        return in_flight or any(ending.run.id == run_id for ending in self.endings)

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
        flying = Flying(run, self._deadline(run), elapsed(), job)
        self._leases.take(run)
        # If this node was frozen since the claim, others may have started the next run.
        if why := flying.too_late(self._leases.of(run), elapsed()):
            self._end(flying, Outcome(None, why, 0, ""))
            return
        env = variables(run, job, environment, self.schedule.path)

        def launch(attempt: int) -> int | None:
            return self._commands.start(
                run.id,
                job.argv,
                job.cwd,
                env | {"CRONLEDGER_ATTEMPT": str(attempt)},
                deadline=flying.deadline,
                window=run.window,
                live=live,
            )

        flying.launch = launch
        self._start(flying, 1)

    def _start(self, flying: Flying, attempt: int) -> None:
        self._flying[flying.run.id] = flying
        flying.start(attempt)
        self._hold(flying.run)
        self._again_at = 0.0  # the ledger has just answered

    def adopt(self, run: Run, since: int) -> None:
        """Watch a run whose tick died: wait for its end, or end it at its window. See process.lives for `since`."""
        begun, attempt = self._ledger.clock.reached(run.started_at), run.attempts or 1
        flying = Flying(run, self._deadline(run), begun, pid=run.pid, attempt=attempt)
        self._flying[run.id] = flying
        self._commands.adopt(
            run.id, run.pid, run.pid_start, run.id, since=since, started=flying.begun, deadline=flying.deadline
        )
        self._leases.take(run)
        self._hold(run)

    def _deadline(self, run: Run) -> float:
        return math.inf if run.window is None else self._ledger.clock.reached(run.started_at + run.window)

    def _hold(self, run: Run) -> None:
        if lease := self._leases.of(run):
            since = local(lease.since, self.schedule.zone, self._ledger.clock.at(lease.until), seconds=True)
            self._commands.hold(run.id, lease.until, f"ended: lease not renewable since {since}")

    def doubt(self, run: Run) -> None:
        """A claim was never answered: if its row is there, it is settled as failed."""
        outcome = Outcome(None, "not started: the ledger did not answer while it was claimed", 0, "")
        self.endings.add(Ending(run, outcome, elapsed(), doubtful=True))

    def tell(self, notice: Notice, environment: Mapping[str, str]) -> None:
        """Take a notice that is owed, and tell it if that succeeds."""
        job = notice.job
        self._notices.add(notice, variables(notice.run, job, environment, self.schedule.path) if job else {})

    def drain(self, signum: int) -> bool:
        """A signal came: none is tried again. Whether one waited for its next attempt."""
        self._drained = f"ended by {signal.Signals(signum).name} to the tick"
        return bool(self._waiting)

    def stop(self, signum: int, because: str | None = None) -> None:
        """This process was told to end: so is every run. May be called by a signal handler, and again."""
        self._stopped_at = min(self._stopped_at, elapsed())
        self._again_at = 0.0
        self._notices.stop()
        self._commands.stop(signum, because)
        self._ledger.link.hurry()

    def hasten(self) -> None:
        """The ledger answers again: what waits to be recorded need not wait longer."""
        self._again_at = 0.0

    def collect(self, timeout: float) -> None:
        """Wait `timeout` seconds at most for something to end; what ended is remembered, the ledger not spoken to."""
        for run_id, outcome in self._commands.wait(timeout):
            if flying := self._flying.pop(run_id, None):
                self._landed(flying, outcome)
            elif trouble := self._notices.ended(run_id, outcome):
                self._troubles.append(trouble)
        for flying in list(self._waiting.values()):
            if self._told or flying.too_late(self._leases.of(flying.run), elapsed()):
                self._end_waiting(flying)

    def _landed(self, flying: Flying, outcome: Outcome) -> None:
        if not self._told and flying.tries_again(outcome, elapsed()):
            self._waiting[flying.run.id] = flying
        else:
            self._end(flying, outcome)

    def _end(self, flying: Flying, outcome: Outcome) -> None:
        self._leases.drop(flying.run)
        self.endings.add(flying.ending(outcome, elapsed()))

    def _end_waiting(self, flying: Flying) -> None:
        """There is no further attempt: it ended as the last one did."""
        del self._waiting[flying.run.id]
        outcome = flying.failed
        assert outcome is not None
        self._end(flying, replace(outcome, reason=f"{self._told} after {outcome.reason}") if self._told else outcome)

    @property
    def _stopping(self) -> bool:
        return self._stopped_at < math.inf

    @property
    def _told(self) -> str | None:
        """Why nothing is started any more."""
        return self._commands.stopped or self._drained

    def bury(self) -> None:
        """Wait for what died in this process's care and is none of its commands."""
        self._commands.bury()

    def events(self, timeout: float = 1.0, until: float = math.inf) -> Iterator[Event | Trouble]:
        """One pass: wait `timeout` seconds at most for something to end, and record what ended and what started.

        After `until`, a moment of `elapsed()`, at most one thing is recorded.
        """
        self.collect(max(0.0, min(timeout, self._next_at() - elapsed())))
        self._ledger.link.rest(self._idle)
        if elapsed() >= self._again_at:
            yield from self._record(until)
        troubles, self._troubles = self._troubles, []
        yield from troubles

    def _next_at(self) -> float:
        """When there is something to tell the ledger, as far as is known."""
        attempts = min((flying.again_at for flying in self._waiting.values()), default=math.inf)
        return self._again_at if self._steps() else max(self._again_at, min(self._leases.next_at, attempts))

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
        self._again_at = elapsed() + (0.2 if self._stopping else min(self._pause, self._leases.patience))
        yield from self._give_up(trouble)

    def attend(self) -> Iterator[Event | Trouble]:
        """See to what cannot wait while much is asked of the ledger: to what ends, and to a lease that is due."""
        self.collect(0)
        if self._leases.due() and elapsed() >= self._again_at:
            yield from self._record(elapsed())

    def _steps(self) -> list[Callable[[], Event | Trouble | None]]:
        """After the starts, so that a slow ledger holds up none of them.

        Leases first, then the new pids, the next attempts, what ended, what to tell of.
        """
        now = elapsed()
        leases = [partial(self._renew, run) for run in self._leases.due()]
        pids = [partial(self._record_pid, flying) for flying in self._flying.values() if flying.is_new]
        attempts = [partial(self._try_again, flying) for flying in self._waiting.values() if flying.again_at <= now]
        within = STOPPED_FOR if self._stopping else SETTLE_WITHIN
        endings = [partial(self.endings.settle, ending, self.schedule, within) for ending in self.endings]
        return [*leases, *pids, *attempts, *endings, *self._notices.steps()]

    def _renew(self, run: Run) -> None:
        if self._leases.of(run) is None:
            return  # it has ended meanwhile
        if not self._commands.is_seen(run.id):
            self._leases.put_off(run)  # what may be anybody's bars the job no longer than the lease
        elif self._leases.renew(run):
            self._hold(run)
        elif waiting := self._waiting.get(run.id):  # reaped, or adopted
            self._end_waiting(waiting)
        else:
            self._commands.end(run.id)

    def _record_pid(self, flying: Flying) -> None:
        if flying.run.id in self._flying and flying.pid is not None:
            start = self._commands.start_of(flying.run.id)
            record_pid(self._ledger, flying.run, flying.pid, start, flying.attempt)
            flying.is_new = False

    def _try_again(self, flying: Flying) -> None:
        """The ledger first: an attempt that it does not know of could be taken for dead while it lives."""
        run = flying.run
        if not self.has_place():
            flying.put_off(elapsed())
            return
        is_ours = try_again(self._ledger, run, flying.attempt + 1)
        if run.id not in self._waiting:
            return  # a signal came, or its window is over
        if not is_ours or self._told or flying.too_late(self._leases.of(run), elapsed()):
            self._end_waiting(flying)
        else:
            del self._waiting[run.id]
            self._start(flying, flying.attempt + 1)

    def _give_up(self, error: LedgerError) -> Iterator[Event | Trouble]:
        before = elapsed() - (STOPPED_FOR if self._stopping else SETTLE_FOR)
        if self._stopped_at <= before or not self._stopping:
            yield from self._notices.give_up(error, before)
            yield from self.endings.give_up(error, before)
