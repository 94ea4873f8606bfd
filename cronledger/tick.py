"""The story of one tick: reap the dead, find what is due, claim it unless paused, run it, settle it, tell of it."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cronledger import catchup, pauses
from cronledger.claiming import drafted, stood_down
from cronledger.clock import elapsed
from cronledger.errors import CannotStart, CronledgerError, LedgerBusy, LedgerError, LedgerUnreachable
from cronledger.events import Crowded, Event, Trouble
from cronledger.every import Every
from cronledger.fate import Dead, Orphan, fate_of, put_down, reap
from cronledger.ledger import Barred, Claim, Claimed, NoPlace, Run
from cronledger.ledger.jobs import Remembered, make_known, remembered
from cronledger.ledger.look import run_of_slot
from cronledger.ledger.places import Places
from cronledger.notices import owed
from cronledger.runner import Runner
from cronledger.schedule import Slot
from cronledger.turns import Turns, ticking

if TYPE_CHECKING:
    from datetime import datetime

MINUTE = 60.0
LAST = 1.0
"""Seconds before the end of its minute at which a slot that found no place is given up."""
PLACE_WITHIN = 30.0
"""Seconds to wait for a descriptor or a process when no run of this tick is in flight that could give one back."""
LULL = 0.5
"""Seconds to the next slot from which on there is time for what can wait."""


class Tick:
    """One tick of one node: the `slots` of its minute, each claimed when it is due, and the runs of the `runner`.

    `moment_of` tells when the node's clock reaches an instant, as a moment of `elapsed()`. `environment` is asked for
    once, when something starts. `asked`: an operator chose the minute, and is told of everything; `watched`: and sits
    at a terminal, for what was said before. Nothing is claimed from `ends_at` on, a moment of `elapsed()`.
    """

    def __init__(
        self,
        runner: Runner,
        environment: Callable[[], Mapping[str, str]],
        slots: Sequence[Slot],
        *,
        moment_of: "Callable[[datetime], float]",
        asked: bool = False,
        watched: bool = False,
        ends_at: float = math.inf,
    ) -> None:
        self._runner = runner
        self._ledger = runner.ledger
        self._environment = environment
        minutes = [slot.due_at.replace(second=0, microsecond=0) for slot in slots]
        until = elapsed() + MINUTE if asked else max((moment_of(one) + MINUTE for one in minutes), default=0.0)
        due = [(moment_of(slot.due_at), slot) for slot in slots]
        self._turns = Turns(self._ledger, due, until=min(until, ends_at) - LAST)
        self._places: Places | None = None
        self._crowded_at: int | None = None
        self._lacking: set[str] = set()
        self._rows: list[Remembered] | None = None
        self._asked = asked
        self._watched = watched
        self._shares = self._ledger.link.dialect.is_shared and not asked
        self._ends_at = ends_at
        self._keep = runner.schedule.keep

    def events(self) -> Iterator[Event | Trouble]:
        """What is worth a line, as it happens, until nothing is to come and nothing in flight."""
        try:
            yield from self.begin()
        except CronledgerError as error:
            if not self._runner.is_busy:
                raise
            yield Trouble(not_claimed(self._runner.cause(error), self._given_up()))
        while self._runner.is_busy or (self._turns and not self._runner.signal_name):
            yield from self._runner.flight().events(min(1.0, self.next_at - elapsed()))
            yield from self.go_on()
        yield from self.end(self._runner.ended_by)

    def begin(self) -> Iterator[Event | Trouble]:
        """Reap the dead, claim what is due or was missed, tell of what is over, wherever it ran, and of long pauses."""
        running = self._ledger.running()
        for run in running:
            yield from self._reap(run)
            yield from self._runner.attend()
        if most := self._runner.schedule.max_running:
            self._places = Places(self._ledger, most, running)
        known = self._remembered()
        if self._shares:
            self._turns.share(ticking(self._ledger, known))
        yield from self._claim_due()
        yield from self._make_up()
        if self._runner.is_busy:
            yield from self._runner.flight().events(0.0, self.next_at)  # pids are recorded before what can wait
        if self._shares:
            make_known(self._ledger, known)
        yield from self._tell()
        yield from self._remind()
        yield from self._prune()

    def go_on(self) -> Iterator[Event | Trouble]:
        """Claim what has become due, tell of what is over here, and let old runs go when there is time."""
        if self._crowded_at not in (None, self._runner.settled):
            self._turns.hasten()
            self._crowded_at = None
        if self.next_at <= elapsed():
            self._rows = None
        yield from self._claim_due()
        if self._runner.owes_notices():
            yield from self._tell()
        yield from self._prune()

    def _claim_due(self) -> Iterator[Event | Trouble]:
        self._turns.gather()
        while slot := self._turns.next():
            yield from self._claim(slot)
            yield from self._runner.attend()

    def end(self, why: str) -> Iterator[Trouble]:
        """Name what was due and left to the other nodes, and will not be tried again here."""
        if left := self._turns.not_taken(self._turns.left):
            yield Trouble(not_claimed(why, left))

    def _given_up(self) -> list[Slot]:
        """What will not be tried here; after a signal what is not due yet is nobody's loss."""
        return self._turns.give_up(elapsed() if self._runner.signal_name else math.inf)

    @property
    def is_amid(self) -> bool:
        """Whether something that is due was left to the other nodes and is to be tried again here."""
        return bool(self._turns.left)

    @property
    def next_at(self) -> float:
        """When the next slot is to be tried, as a moment of `elapsed()`; infinity when none is left."""
        return self._turns.next_at

    def _reap(self, run: Run) -> Iterator[Event | Trouble]:
        whose = f"run {run.id} of {run.job} on {run.node}"
        try:
            yield from self._decide(run)
        except LedgerBusy as error:
            yield Trouble(f"{error}; not reaped here: {whose}")
        except LedgerUnreachable as error:
            raise LedgerUnreachable(f"{error}; whether {whose} was reaped is not known") from None

    def _decide(self, run: Run) -> Iterator[Event]:
        match fate_of(self._ledger, run, is_lost=self._runner.has_lost(run.id)):
            case Dead(why):
                put_down(self._ledger, run)
                yield from filter(None, [reap(self._ledger, self._runner.schedule, run, why)])
            case Orphan(since) if adopted := self._ledger.adopt(run):
                self._runner.flight().adopt(adopted, since)

    def _claim(self, slot: Slot) -> Iterator[Event | Trouble]:
        """What was due and not claimed is named, whatever the reason."""
        try:
            yield from self._take(slot)
        except LedgerBusy as error:
            yield Trouble(f"{error}; not claimed here: {slot.job.name}")
        except CronledgerError as error:
            yield Trouble(not_claimed(self._runner.cause(error), [slot, *self._given_up()]))

    def _take(self, slot: Slot) -> Iterator[Event | Trouble]:
        if (yield from self._is_paused(slot)):
            return
        job, environment, flight = slot.job, self._environment(), self._runner.flight()
        if why := flight.missing(job, environment):
            if slot.cause == "schedule" and job.name not in self._lacking:
                self._lacking.add(job.name)  # once for all slots of an interval job
                yield Trouble(f"{job.name} cannot start on this node: {why}; its slot is left to the other nodes")
            return
        yield from self._wait_for_place()
        if self._runner.signal_name:
            raise CronledgerError(self._runner.ended_by)
        if self._rows is None and (yield from self._is_paused(slot)):
            return
        if elapsed() >= self._ends_at:
            raise CronledgerError("the minute is over")
        run = drafted(self._ledger, job, slot.due_at, slot.cause)
        match self._claimed(run):
            case Claimed():
                flight.start(run, job, environment)
            case Barred() | NoPlace() if slot.cause == "catch_up":
                pass  # a later tick tries again
            case Barred(holder):
                yield from self._stand_down(slot, run, holder)
            case NoPlace():
                yield from self._leave(slot, run)

    def _remembered(self) -> list[Remembered]:
        """What the ledger knows of jobs and nodes, looked up once for all slots that become due together."""
        if self._rows is None:
            self._rows = remembered(self._ledger)
        return self._rows

    def _is_paused(self, slot: Slot) -> Generator[Trouble, None, bool]:
        """A pause is silent, but to who asked for this minute."""
        # By the slot: at its very beginning the database's clock may still show the minute before.
        paused = pauses.active(self._remembered(), max(slot.due_at, self._ledger.clock.now()))
        why = pauses.why_barred(self._ledger, paused, slot.job, self._runner.schedule.zone)
        if why and self._asked:
            yield Trouble(f"{slot.job.name} is not claimed: {why}", is_failure=False)
        return why is not None

    def _make_up(self) -> Iterator[Event | Trouble]:
        """Claim what no node ran, for the jobs with catch_up. Who chose the minute chose it alone."""
        if self._asked or self._runner.signal_name:
            return
        try:
            self._turns.add(catchup.missed(self._ledger, self._runner.schedule, self._remembered()))
            catchup.note(self._ledger, self._runner.schedule, self._remembered())
        except LedgerError as error:
            yield Trouble(f"{self._runner.cause(error)}; what was missed is left to the next tick")
        yield from self._claim_due()

    def _remind(self) -> Iterator[Event | Trouble]:
        try:
            if not self._runner.signal_name:
                paused = pauses.active(self._remembered(), self._ledger.clock.now())
                yield from pauses.remind(self._ledger, self._runner.schedule, paused)
        except LedgerError as error:
            yield Trouble(
                f"{self._runner.cause(error)}; whether something has been paused for a day is left to the next tick"
            )

    def _wait_for_place(self) -> Iterator[Event | Trouble]:
        flight, begun = self._runner.flight(), elapsed()
        while not flight.has_place() and not self._runner.signal_name:
            if elapsed() >= self._ends_at or (not flight.is_busy and elapsed() - begun > PLACE_WITHIN):
                raise CannotStart("no file descriptor or process is left on this node (ulimit -n, ulimit -u)")
            yield from flight.events()
            self._rows = None  # it may take hours, and somebody may pause the job meanwhile

    def _claimed(self, run: Run) -> Claim:
        try:
            return self._places.claim(run) if self._places else self._ledger.claim(run)
        except LedgerError:
            self._runner.flight().doubt(run)
            raise

    def _stand_down(self, slot: Slot, run: Run, holder: Run) -> Iterator[Event | Trouble]:
        down = stood_down(self._ledger, run, holder)
        if self._is_to_say(slot, run):
            yield down
        elif self._watched:
            yield Trouble(f"{run.job} is not claimed: {down.because(self._runner.schedule.zone)}", is_failure=False)

    def _is_to_say(self, slot: Slot, run: Run) -> bool:
        """Once for each slot, of an interval job to who asked only; of a slot before the last one to who asked."""
        is_said = self._asked or not isinstance(slot.job.timing, Every)
        if not is_said and slot.job.catch_up is None:
            return False
        return (self._ledger.stand_down(run) and is_said) or (self._asked and not self._ledger.has_stood_down(run))

    def _leave(self, slot: Slot, run: Run) -> Iterator[Event]:
        """No place: left to the other nodes, and tried again, at once when a run ends here, while its minute lasts."""
        assert self._places is not None
        self._crowded_at = self._runner.settled
        if self._turns.leave(slot) or run_of_slot(self._ledger, run):
            return
        if self._is_to_say(slot, run):
            at, node, here = self._ledger.clock.now(), self._ledger.node, self._places
            yield Crowded(at=at, job=run.job, due_at=run.due_at, node=node, running=here.running, places=here.most)

    def _tell(self) -> Iterator[Trouble]:
        """Take the notices that are owed; those that cannot be had now stay owed, and the next tick looks again."""
        try:
            for notice in [] if self._runner.signal_name else owed(self._runner.schedule, self._ledger):
                self._runner.flight().tell(notice, self._environment())
        except LedgerBusy:
            return
        except CronledgerError as error:
            yield Trouble(f"{self._runner.cause(error)}; on_failure and on_recovery are left to the next tick")

    def _prune(self) -> Iterator[Trouble]:
        """Once, let a few of the runs go that are older than `keep`; what cannot be had is left to a later tick."""
        if self._keep is None or self._runner.signal_name or self.next_at - elapsed() < LULL:
            return
        finished_before, self._keep = self._ledger.clock.now() - self._keep, None
        from cronledger.ledger.pruning import prune_a_few

        try:
            prune_a_few(self._ledger, finished_before=finished_before)
        except (LedgerBusy, LedgerUnreachable):
            return
        except LedgerError as error:
            yield Trouble(f"{error}; runs older than keep stay in the ledger")


def not_claimed(why: str, slots: Iterable[Slot]) -> str:
    """Why, and the names of what was due here and is not claimed because of it."""
    names = dict.fromkeys(slot.job.name for slot in slots)
    return f"{why}; not claimed here: {', '.join(names)}" if names else why
