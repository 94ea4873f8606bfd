"""Many histories of ticks that are interleaved statement by statement."""

from torture.conftest import Tally
from torture.model import histories, made_up


def test_histories(tally: Tally) -> None:
    """Kills, lost answers and hours that pass between any two statements of two to four ticks.

    The protocol as the real Tick, Flight and Ledger send it. A violation of any promise raises.
    """
    tally.database = "model"
    with made_up():
        for first in range(1_000_000, 1_006_000, 1000):
            started = histories(range(first, first + 1000))
            tally.inflicted += 1000
            tally.expected += started
            tally.seen += started
    tally.holds()
