"""The minutes at which a cron is due in the months ahead, as one number per cron: quick to compare for all jobs.

Bit n of such a number stands for the minute n after the first.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache

from cronledger.cron import Cron

DAYS = 366

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_NO_MINUTES = bytes(180)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time (UTC, to the minute) in which a zone keeps one offset; `before` is the offset before it."""

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta

    @property
    def skipped(self) -> tuple[datetime, int]:
        """The first local time that its beginning leaves out, and for how many minutes."""
        return _naive(self.start) + self.before, max(0, (self.offset - self.before) // _MINUTE)

    @property
    def repeated(self) -> tuple[datetime, int]:
        """The first local time that occurs a second time at its beginning, and for how many minutes."""
        return _naive(self.start) + self.offset, max(0, (self.before - self.offset) // _MINUTE)


def spans(zone: tzinfo, start: datetime) -> list[Span]:
    """The stretches of the 366 days from `start`, an aware instant cut to the minute."""
    moment, end = start.astimezone(UTC), start.astimezone(UTC) + DAYS * _DAY
    before = _offset(moment, zone)
    found = []
    while moment < end:
        offset = _offset(moment, zone)
        change = _change(moment, end, zone)
        found.append(Span(moment, change, offset, before))
        moment, before = change, offset
    return found


def slots(cron: Cron, year: list[Span]) -> int:
    """The minutes of the year at which it is due, by both rules of a change of the clock."""
    bits = 0
    for span in year:
        due = local_minutes(cron, _naive(span.start) + span.offset, (span.end - span.start) // _MINUTE)
        if cron.fixed_time:
            _, again = span.repeated
            due = due >> again << again
        bits |= due << (span.start - year[0].start) // _MINUTE
    return bits


def local_minutes(cron: Cron, start: datetime, count: int) -> int:
    """The minutes at which it is due among the `count` local ones from the naive `start` on, occur they or not."""
    skip = start.hour * 60 + start.minute
    minutes = _minutes_of_day(cron.minutes, cron.hours)
    only_days = replace(cron, expression="", fixed_time=False, minutes=0, hours=0)
    days = _days(only_days, start.date(), (skip + count + 1439) // 1440)
    data = b"".join([minutes if due else _NO_MINUTES for due in days])
    return int.from_bytes(data, "little") >> skip & (1 << count) - 1


@cache
def _days(cron: Cron, start: date, count: int) -> list[bool]:
    return [cron.falls_on(start + number * _DAY) for number in range(count)]


def first(bits: int) -> timedelta:
    """How long after the beginning the first minute of `bits` is."""
    return ((bits & -bits).bit_length() - 1) * _MINUTE


@cache
def _minutes_of_day(minutes: int, hours: int) -> bytes:
    return sum(minutes << 60 * hour for hour in range(24) if hours >> hour & 1).to_bytes(180, "little")


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _change(moment: datetime, end: datetime, zone: tzinfo) -> datetime:
    """The first minute after `moment` with another offset, at most `end`. Two changes within a day go unseen."""
    offset = _offset(moment, zone)
    while moment < end and _offset(moment + _DAY, zone) == offset:
        moment += _DAY
    minutes = bisect_left(range(1440), True, key=lambda minute: _offset(moment + minute * _MINUTE, zone) != offset)
    return min(moment + minutes * _MINUTE, end)
