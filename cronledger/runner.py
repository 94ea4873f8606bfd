"""What a process of this node has in hand: its ledger, its schedule, and the runs that it started or adopted."""

import math
import time
from contextlib import ExitStack
from signal import Signals
from typing import TYPE_CHECKING

from cronledger.clock import elapsed
from cronledger.errors import CronledgerError
from cronledger.ledger import Ledger
from cronledger.ledger.link import HURRIED
from cronledger.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronledger.events import Event, Trouble
    from cronledger.flight import Flight


class Runner:
    """Use as a context manager. `expected`: how many commands may be in flight at once.

    `stays`: for as long as the process lives, so that its connection is kept. `signal_name` is that of the first signal
    that came, after which nothing is claimed; `has_ended_runs`: whether one ended what ran.
    """

    def __init__(self, schedule: Schedule, ledger: Ledger, *, expected: int, stays: bool = False) -> None:
        self.schedule = schedule
        self.ledger = ledger
        self.signal_name: str | None = None
        self.has_ended_runs = False
        self._expected = expected
        self._stays = stays
        self._stopped_by: int | None = None
        self._open = ExitStack()
        self._flight: Flight | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *raised: object) -> None:
        self.ledger.link.meanwhile = time.sleep
        self._open.close()

    @property
    def is_busy(self) -> bool:
        """Whether a run is in flight, or over but not yet recorded, or a notice being told."""
        return self._flight is not None and self._flight.is_busy

    @property
    def ended_by(self) -> str:
        """The signal that came, as the reason of what is not done; "" while none came."""
        return f"ended by {self.signal_name}" if self.signal_name else ""

    def cause(self, error: CronledgerError) -> str:
        """Why something failed: a signal breaks off the statement that waits, and is then the cause of its error."""
        return self.ended_by or str(error)

    def has_lost(self, run_id: str) -> bool:
        """Whether this process knows nothing of a run that the ledger has as its own."""
        return self._flight is None or not self._flight.knows(run_id)

    @property
    def settled(self) -> int:
        """How many runs have been recorded as over here."""
        return 0 if self._flight is None else self._flight.endings.settled

    def flight(self) -> "Flight":
        """What runs here; made, and its modules loaded, when the first run starts."""
        if self._flight is None:
            from cronledger.flight import IDLE, Flight

            idle = math.inf if self._stays else IDLE
            flight = Flight(self.ledger, self.schedule, expected=self._expected, idle=idle)
            self._flight = self._open.enter_context(flight)
            self.ledger.link.meanwhile = flight.collect
            if self._stopped_by is not None:  # it came before there was anything to stop
                flight.stop(self._stopped_by)
        return self._flight

    def attend(self) -> "Iterator[Event | Trouble]":
        """See to what cannot wait while much is asked of the ledger."""
        if self._flight is not None:
            yield from self._flight.attend()

    def follow(self, schedule: Schedule) -> None:
        """Go by this schedule from now on."""
        self.schedule = schedule
        if self._flight is not None:
            self._flight.schedule = schedule

    def drain(self, signum: int) -> None:
        """A signal came: claim nothing more, let run what runs. May be called by a signal handler."""
        self.signal_name = self.signal_name or Signals(signum).name
        self.ledger.link.until = min(self.ledger.link.until, elapsed() + HURRIED)
        if self._flight is not None:
            self.has_ended_runs |= self._flight.drain(signum)

    def owes_notices(self) -> bool:
        """Whether a run was recorded since the last call that owes a notice."""
        return self._flight is not None and self._flight.endings.owe()

    def stop(self, signum: int) -> None:
        """A signal came: claim nothing more, end what runs. May be called by a signal handler."""
        self.signal_name = self.signal_name or Signals(signum).name
        self._stopped_by = signum
        if self._flight is not None:
            self.has_ended_runs |= self._flight.runs > 0
            self._flight.stop(signum)
        else:
            self.ledger.link.hurry()
