"""One clock for ages: the database's, read once, carried on by a monotonic clock that counts suspension."""

import time
from datetime import datetime, timedelta

# Elsewhere than on Linux the plain monotonic clock has to do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds on a clock that only runs forward, suspension counted. Its zero means nothing."""
    return time.clock_gettime(_CLOCK)


class Clock:
    """`read` is what the database's clock said, an aware datetime in UTC, and `read_at` when that answer had come.

    The round trip counts against ourselves: this clock is never ahead of the database's.
    """

    # No dataclass: this module is imported before the node's clock is read, and theirs would take its time.
    __slots__ = ("read", "read_at")

    def __init__(self, read: datetime, read_at: float) -> None:
        self.read = read
        self.read_at = read_at

    def now(self) -> datetime:
        """The database's time now."""
        return self.at(elapsed())

    def at(self, moment: float) -> datetime:
        """The database's time at `moment` of `elapsed()`."""
        return self.read + timedelta(seconds=moment - self.read_at)

    def reached(self, instant: datetime) -> float:
        """When this clock reaches `instant`, as a moment of `elapsed()`."""
        return self.read_at + (instant - self.read).total_seconds()
