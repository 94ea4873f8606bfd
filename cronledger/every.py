"""Intervals: due at each multiple of so many seconds since the epoch, so that every node computes the same slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

DAY = 86_400
_END = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Every:
    """`every = "30s"` of a schedule; `text` as it is written there. No zone and no clock change matters to it."""

    text: str
    seconds: int

    @property
    def expression(self) -> str:
        """How it is named where a cron job has its expression."""
        return f"every {self.text}"

    @property
    def divides_a_day(self) -> bool:
        """Whether it is due at the same times each day (UTC)."""
        return DAY % self.seconds == 0

    def due(self, moment: datetime) -> bool:
        """Whether it is due in the second of the aware `moment`."""
        return int(moment.timestamp()) % self.seconds == 0

    def upcoming(self, after: datetime, zone: tzinfo) -> Iterator[datetime]:
        """The instants (UTC) strictly after the aware `after` at which it is due; the zone does not matter."""
        moment = datetime.fromtimestamp((int(after.timestamp()) // self.seconds + 1) * self.seconds, UTC)
        while moment < _END:
            yield moment
            moment += timedelta(seconds=self.seconds)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Those from `start`, an aware instant cut to the second, up to but not `end`."""
        for moment in self.upcoming(start - timedelta(seconds=1), UTC):
            if moment >= end:
                return
            yield moment
