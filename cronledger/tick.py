"""The story of one tick: reap the dead, find what is due, claim it, run it, settle it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from signal import Signals
from typing import TYPE_CHECKING

from cronledger.clock import elapsed
from cronledger.errors import CannotStart, CronledgerError, LedgerBusy, LedgerError, LedgerUnreachable
from cronledger.events import Event, Reaped, StoodDown, Trouble
from cronledger.fate import Dead, Orphan, fate_of
from cronledger.ledger import Barred, Claim, Claimed, Ledger, Run
from cronledger.schedule import Job, Schedule

if TYPE_CHECKING:
    from datetime import datetime

    from cronledger.flight import Flight

PLACE_WITHIN = 30.0
"""Seconds to wait for a descriptor or a process when no run of this tick is in flight that could give one back."""


class Tick:
    """One tick of one node. `due` are the jobs of the slot `due_at`, a UTC instant cut to the minute.

    `environment` is asked for once, when something starts. `asked`: an operator chose the minute, and is told of
    everything. Use as a context manager.
    """

    def __init__(
        self,
        schedule: Schedule,
        ledger: Ledger,
        environment: Callable[[], Mapping[str, str]],
        *,
        due: Sequence[Job],
        due_at: "datetime",
        asked: bool = False,
    ) -> None:
        self._schedule = schedule
        self._ledger = ledger
        self._environment = environment
        self._unclaimed = list(due)
        self._due_at = due_at
        self._asked = asked
        self._open = ExitStack()
        self._flight: Flight | None = None
        self.signal_name: str | None = None

    def __enter__(self) -> "Tick":
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def events(self) -> Iterator[Event | Trouble]:
        """What is worth a line, as it happens."""
        for run in self._ledger.running():
            yield from self._reap(run)
        while self._unclaimed:
            yield from self._claim(self._unclaimed.pop(0))
        while self._flight is not None and self._flight.is_busy:
            yield from self._flight.events()

    def stop(self, signum: int) -> None:
        """A signal came: claim nothing more, end what runs. May be called by a signal handler."""
        self.signal_name = self.signal_name or Signals(signum).name
        if self._flight is not None:
            self._flight.stop(signum)
        else:
            self._ledger.link.hurry()

    def flight(self) -> "Flight":
        """What runs here; made, and its modules loaded, when the first run starts."""
        if self._flight is None:
            from cronledger.flight import Flight

            flight = Flight(self._ledger, self._schedule, expected=len(self._unclaimed) + 1)
            self._flight = self._open.enter_context(flight)
            if self.signal_name:  # it came before there was anything to stop
                flight.stop(Signals[self.signal_name])
        return self._flight

    def _reap(self, run: Run) -> Iterator[Event | Trouble]:
        whose = f"run {run.id} of {run.job} on {run.node}"
        try:
            yield from self._decide(run)
        except LedgerBusy as error:
            yield Trouble(f"{error}; not reaped here: {whose}")
        except LedgerUnreachable as error:
            raise LedgerUnreachable(f"{error}; whether {whose} was reaped is not known") from None

    def _decide(self, run: Run) -> Iterator[Event]:
        match fate_of(self._ledger, run):
            case Dead(why):
                yield from self._reaped(run, why)
            case Orphan(since) if self._ledger.adopt(run):
                self.flight().adopt(run, since)

    def _reaped(self, run: Run, why: str) -> Iterator[Event]:
        if self._ledger.reap(run, why):
            at, node = self._ledger.clock.now(), self._ledger.node
            yield Reaped(at=at, job=run.job, due_at=run.due_at, node=node, run_id=run.id, holder=run.holder(), why=why)

    def _claim(self, job: Job) -> Iterator[Event | Trouble]:
        """What was due and not claimed is named, whatever the reason."""
        try:
            yield from self._take(job)
        except LedgerBusy as error:
            yield Trouble(f"{error}; not claimed here: {job.name}")
        except CronledgerError as error:
            names = ", ".join(one.name for one in (job, *self._unclaimed))
            self._unclaimed.clear()
            yield Trouble(f"{error}; not claimed here: {names}")

    def _take(self, job: Job) -> Iterator[Event | Trouble]:
        environment, flight = self._environment(), self.flight()
        if why := flight.missing(job, environment):
            yield Trouble(f"{job.name} cannot start on this node: {why}; its slot is left to the other nodes")
            return
        yield from self._wait_for_place()
        if self.signal_name:
            raise CronledgerError(f"ended by {self.signal_name}")
        run = self._ledger.draft(
            job.name, due_at=self._due_at, stale_after=job.stale_after, lock=job.lock, overlap=job.overlap
        )
        match self._claimed(run):
            case Claimed():
                flight.start(run, job, environment)
            case Barred(holder) if self._ledger.stand_down(job.name, self._due_at) or self._asked:
                yield self._stood_down(job, holder)
        flight.collect(0)

    def _wait_for_place(self) -> Iterator[Event | Trouble]:
        flight, begun = self.flight(), elapsed()
        while not flight.has_place() and not self.signal_name:
            if not flight.is_busy and elapsed() - begun > PLACE_WITHIN:
                raise CannotStart("no file descriptor or process is left on this node (ulimit -n, ulimit -u)")
            yield from flight.events()

    def _claimed(self, run: Run) -> Claim:
        try:
            return self._ledger.claim(run)
        except LedgerError:
            self.flight().doubt(run)
            raise

    def _stood_down(self, job: Job, holder: Run) -> StoodDown:
        at, node = self._ledger.clock.now(), self._ledger.node
        return StoodDown(at=at, job=job.name, due_at=self._due_at, node=node, holder=holder.holder(), lock=job.lock)
