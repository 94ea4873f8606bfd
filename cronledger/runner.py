"""What a process of this node has in hand: its ledger, its schedule, and the runs that it started or adopted."""

from contextlib import ExitStack
from signal import Signals
from typing import TYPE_CHECKING

from cronledger.ledger import Ledger
from cronledger.schedule import Schedule

if TYPE_CHECKING:
    from cronledger.flight import Flight


class Runner:
    """Use as a context manager. `expected`: how many commands may be in flight at once."""

    def __init__(self, schedule: Schedule, ledger: Ledger, *, expected: int) -> None:
        self.schedule = schedule
        self.ledger = ledger
        self.signal_name: str | None = None
        self._expected = expected
        self._open = ExitStack()
        self._flight: Flight | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    @property
    def is_busy(self) -> bool:
        """Whether a run is in flight, or over but not yet recorded, or a notice being told."""
        return self._flight is not None and self._flight.is_busy

    def flight(self) -> "Flight":
        """What runs here; made, and its modules loaded, when the first run starts."""
        if self._flight is None:
            from cronledger.flight import Flight

            flight = Flight(self.ledger, self.schedule, expected=self._expected)
            self._flight = self._open.enter_context(flight)
            if self.signal_name:  # it came before there was anything to stop
                flight.stop(Signals[self.signal_name])
        return self._flight

    def owes_notices(self) -> bool:
        """Whether a run was recorded since the last call that owes a notice."""
        return self._flight is not None and self._flight.owes()

    def stop(self, signum: int) -> None:
        """A signal came: claim nothing more, end what runs. May be called by a signal handler."""
        self.signal_name = self.signal_name or Signals(signum).name
        if self._flight is not None:
            self._flight.stop(signum)
        else:
            self.ledger.link.hurry()
