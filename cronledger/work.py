"""The story of a process that stays: a tick at the start of each minute, until it is told to end."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from cronledger.clock import elapsed
from cronledger.errors import CronledgerError, EnvironmentMissing, UsageError
from cronledger.events import Event, Trouble
from cronledger.ledger import check_skew, checked_clock
from cronledger.ledger.link import BUDGET
from cronledger.runner import Runner
from cronledger.schedule import Schedule, Slot
from cronledger.tick import Tick, not_claimed

AHEAD = 2.0
"""Seconds before a minute at which all is made ready for it, so that at its start only the claims remain."""
RECORDING = 1.0
"""Seconds for which what ended is recorded between two tries of slots that are late already."""
MINUTE = timedelta(minutes=1)
FAR = 120.0

Deployed = tuple[Schedule, Callable[[], Mapping[str, str]]]


class Work:
    """The ticks of one process, and the runs of its `runner`.

    `deployed` gives the schedule to go by and its environment, as they are now. `wall` reads the node's clock: the time
    in UTC, and the moment of `elapsed()` at which it was that. From `ends_at` on, such a moment, nothing is claimed.
    """

    def __init__(
        self,
        runner: Runner,
        deployed: Callable[[], Deployed],
        *,
        wall: Callable[[], tuple[datetime, float]],
        ends_at: float = math.inf,
    ) -> None:
        self._runner, self._ledger, self._link = runner, runner.ledger, runner.ledger.link
        self._flight = runner.flight()
        self._deployed = deployed
        self._wall = wall
        self._ends_at = ends_at
        self._slots: list[Slot] = []
        self._tick: Tick | None = None
        self._last: datetime | None = None

    def events(self) -> Iterator[Event | Trouble]:
        """What is worth a line, as it happens, until a signal came or the time is up."""
        while not self._is_over:
            minute = self._next_minute()
            yield from self._serve(minute, ahead=AHEAD)
            tick = self._prepared(minute)
            yield from self._serve(minute)
            if self._is_now(minute) and not self._is_over:
                yield from self._begin(minute, tick)

    def drain(self) -> Iterator[Event | Trouble]:
        """The same from then on: until nothing is in flight any more."""
        yield from self._tick.end(self._runner.ended_by) if self._tick else ()
        while self._runner.is_busy:
            self._link.until = math.inf  # a signal may come now, too
            yield from self._flight.events()
            self._flight.bury()

    @property
    def _is_over(self) -> bool:
        if self._runner.signal_name is not None:
            return True
        return elapsed() >= self._ends_at and not (self._tick and self._tick.is_amid)

    def _next_minute(self) -> datetime:
        """The minute to tick: the present one, or if that was ticked, the one after the last."""
        now = self._wall()[0].replace(second=0, microsecond=0)
        # Set back by a little, the clock comes to a minute twice; by more, to minutes whose slots the ledger knows.
        if self._last is not None and now <= self._last <= now + MINUTE:
            return self._last + MINUTE
        return now

    def _is_now(self, minute: datetime) -> bool:
        """Whether the node's clock shows this minute: a process that was frozen takes up at the present one."""
        return minute <= self._wall()[0] < minute + MINUTE

    def _moment_of(self, instant: datetime) -> float:
        """When the node's clock reaches an instant, as far as can be known now."""
        now, at = self._wall()
        return at + (instant - now).total_seconds()

    def _serve(self, minute: datetime, ahead: float = 0.0) -> Iterator[Event | Trouble]:
        """See to what runs and to the later slots of the minute that goes on, until `ahead` seconds before `minute`.

        Not when the node's clock was set back so far that another minute comes first.
        """
        while not self._is_over and 0 < (left := self._moment_of(minute) - ahead - elapsed()) <= FAR:
            self._link.until = elapsed() + left + ahead
            now, next_at = elapsed(), self._tick.next_at if self._tick else math.inf
            until = next_at if next_at > now else now + RECORDING
            yield from self._flight.events(min(1.0, left, next_at - now), min(now + left, until))
            yield from self._tick.go_on() if self._tick and not self._is_over else ()
            self._flight.bury()

    def _prepared(self, minute: datetime) -> Tick | None:
        """The tick of `minute`, made ready ahead; None when that did not succeed, so that it is tried again then."""
        self._link.refill(AHEAD)
        with suppress(CronledgerError):
            tick = self._ready(minute) if self._moment_of(minute) > elapsed() and not self._is_over else None
            gc.collect()  # now, rather than amid the claims
            return tick
        return None

    def _ready(self, minute: datetime) -> Tick:
        """The schedule, its slots, its environment, the ledger and its clock: all that a tick needs to claim."""
        schedule, environment = self._deployed()
        self._runner.follow(schedule)
        self._slots = schedule.slots(minute)
        with suppress(EnvironmentMissing):  # is said when something starts
            _ = environment() if self._slots else None
        self._ledger.clock = checked_clock(self._link)
        check_skew(self._ledger.clock, *self._wall())
        self._flight.hasten()
        ends_at = self._moment_of(minute + MINUTE)
        return Tick(self._runner, environment, self._slots, moment_of=self._moment_of, ends_at=ends_at)

    def _begin(self, minute: datetime, tick: Tick | None) -> Iterator[Event | Trouble]:
        """Reap, and claim what is due. What is due and cannot be claimed is named, whatever the reason."""
        before, self._last, self._tick = self._tick, minute, None
        self._link.refill(BUDGET)
        self._link.until = self._moment_of(minute + MINUTE)
        try:
            if before and before.next_at < math.inf:
                yield from before.go_on()  # its minute is over, and it says of what
            if tick is None:
                tick = self._ready(minute)
                yield from self._flight.events(0.0)  # what ended while the ledger was away would bar its next run
            yield from tick.begin()
            self._tick = tick
        except UsageError:
            raise  # of a DSN: no minute would mend it
        except CronledgerError as error:
            yield Trouble(not_claimed(self._runner.cause(error), self._slots))
