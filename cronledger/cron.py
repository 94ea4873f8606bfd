"""Cron expressions: the five fields of crontab(5) as Vixie cron reads them, and when they are due.

No clock and no database: whether an expression is due is a question about one local minute.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import NoReturn

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_LONGEST_MONTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_IN_EVERY_MONTH = sum(1 << day for day in range(1, 30))
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_END = datetime(9999, 1, 1, tzinfo=UTC)  # datetime's last year, left out so that no sum passes its end

_FOREIGN = {
    "?": 'write "*"',
    "L": 'write "28-31" as day-of-month, and let the command ask whether tomorrow is the 1st',
    "W": "write the days themselves, and let the command ask for the weekday",
    "#": "write the weekday alone, and let the command ask for the day of the month",
    "day-of-week L": "write the weekday alone, as in 5, and let the command ask whether it is the last of the month",
    "H": "write a value of your own choice",
    "~": "write one value of the range",
}


class Refused(ValueError):
    """A text that cannot be taken: `wrong` says what about it, `instead` what to write."""

    def __init__(self, wrong: str, instead: str) -> None:
        self.wrong = wrong
        self.instead = instead
        super().__init__(f"{wrong}; {instead}")


class CronError(Refused):
    """A cron expression that is not one: names the field, the offending text and the repair."""


def quoted(text: str) -> str:
    """`text` in double quotes for a message: control characters written out, at most 60 characters."""
    return f'"{repr(text[:60])[1:-1]}{"…" if len(text) > 60 else ""}"'


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def refuse(self, text: str, wrong: str, instead: str) -> NoReturn:
        raise CronError(f"{self.name} {quoted(text)} {wrong}", instead)

    def choice(self) -> str:
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"write {self.low} to {self.high}{names}"


_MINUTES = _Field("minute", 0, 59)
_HOURS = _Field("hour", 0, 23)
_DAYS = _Field("day-of-month", 1, 31)
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS = _Field("month", 1, 12, _MONTH_NAMES)
_WEEKDAYS = _Field("day-of-week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_FIELDS = (_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. The masks have bit n set where n matches; in `weekdays` Sunday is bit 0 only.

    `expression` is the text as written. `fixed_time`: neither the minute nor the hour text begins with a star.
    `both_days`: neither day text does, so that either may match.
    """

    expression: str
    fixed_time: bool
    both_days: bool
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int

    def due(self, local: datetime) -> bool:
        """Whether it is due at this local minute, whose `fold` tells the second of two equal times.

        A fixed time that occurs twice is due at the first only (cron(8), daylight saving time).
        """
        if not (self.minutes >> local.minute & 1 and self.hours >> local.hour & 1):
            return False
        return not (local.fold and self.fixed_time) and self.falls_on(local)

    def falls_on(self, day: date) -> bool:
        """Whether it is due at any time of this day (the day rule of crontab(5): with a star both must match)."""
        if not self.months >> day.month & 1:
            return False
        by_month, by_week = self.days >> day.day & 1, self.weekdays >> day.isoweekday() % 7 & 1
        return bool(by_month | by_week if self.both_days else by_month & by_week)

    @property
    def never(self) -> bool:
        """Whether no calendar has a day for it, as with `0 0 31 2 *`. Each date falls on each weekday some year."""
        if self.both_days or self.days & _IN_EVERY_MONTH:
            return False
        first = (self.days & -self.days).bit_length() - 1
        return not any(self.months >> month & 1 and first <= length for month, length in enumerate(_LONGEST_MONTHS))

    def upcoming(self, after: datetime, zone: tzinfo) -> Iterator[datetime]:
        """The instants (UTC, cut to the minute) strictly after the aware `after` at which it is due in `zone`.

        In order, without end but that of datetime.
        """
        moment = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        while moment < _END:
            local = moment.astimezone(zone)
            if self.due(local):
                yield moment
            moment = self._leap(moment, local, zone)

    def _leap(self, moment: datetime, local: datetime, zone: tzinfo) -> datetime:
        """A later moment, with nothing due between."""
        if not self.falls_on(local):
            day = self._next_day(local.date())
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else _END + _DAY
            if midnight - _DAY > moment:  # no zone is a day from UTC, so the day has not begun there
                return midnight - _DAY
        step = self._idle_minutes(local)
        while step > 1 and (moment + step * _MINUTE).astimezone(zone).utcoffset() != local.utcoffset():
            step //= 2  # the clock is changed on the way: come nearer, then cross by a single minute
        return moment + step * _MINUTE

    def _next_day(self, day: date) -> date | None:
        """The first day after `day` that it falls on."""
        while day < _END.date():
            day += _DAY
            if self.falls_on(day):
                return day
            if not self.months >> day.month & 1:
                day = (day.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY  # the last of its month
        return None

    def _idle_minutes(self, local: datetime) -> int:
        """Minutes to the next that may be due, as long as the clock is not changed."""
        if self.falls_on(local):
            minutes = self.minutes >> local.minute + 1
            if minutes and self.hours >> local.hour & 1:
                return (minutes & -minutes).bit_length()
            if hours := self.hours >> local.hour + 1:
                return (hours & -hours).bit_length() * 60 - local.minute
        return (24 - local.hour) * 60 - local.minute


@cache
def parse(expression: str) -> Cron:
    """The expression, five fields or a macro, with blanks and tabs between and around. Raises CronError."""
    if not (expression.isascii() and (expression.isprintable() or expression.replace("\t", " ").isprintable())):
        _refuse_character(expression)
    texts = expression.split()
    if texts and texts[0][0] == "@":
        texts = _macro(expression, texts)
    if len(texts) != 5:
        _refuse_count(expression, len(texts))
    minute, hour, day, _, weekday = texts
    return Cron(
        expression,
        minute[0] != "*" and hour[0] != "*",
        day[0] != "*" and weekday[0] != "*",
        *map(_mask, _FIELDS, texts),
    )


def _macro(expression: str, texts: list[str]) -> list[str]:
    macro, rest = texts[0].lower(), " ".join(texts[1:])
    if rest and (joined := "".join(texts)).lower() in MACROS:
        raise CronError(f"{quoted(expression)} has a blank in its macro", f'write "{joined}"')
    if macro not in MACROS:
        known = f"write one of {' '.join(MACROS)}"
        instead = {"@reboot": f"what runs at boot is a unit of systemd; else {known}"}
        instead["@every"] = f"write every = {quoted(rest or '5m')} in place of cron"
        raise CronError(f"unknown macro {quoted(texts[0])}", instead.get(macro, known))
    if rest:
        raise CronError(f"{quoted(expression)} has something after its macro", f'write "{texts[0]}" alone')
    return MACROS[macro].split()


def _refuse_character(expression: str) -> NoReturn:
    texts = [text for text in expression.replace("\t", " ").split(" ") if text]
    wrong = next(text for text in texts if not (text.isascii() and text.isprintable()))
    name = _FIELDS[texts.index(wrong)].name if len(texts) == 5 else "expression"
    wrong = f'{name} "{ascii(wrong)[1:-1]}" is not printable ASCII'
    raise CronError(wrong, "write digits, names and * , - / with blanks or tabs between")


def _refuse_count(expression: str, count: int) -> NoReturn:
    if not count:
        raise CronError("the expression is empty", 'write five fields, as in "15 3 * * *"')
    extra = " (no seconds, year, user, command or TZ=)" if count > 5 else ""
    wrong = f"{quoted(expression)} has {count} field{'s' if count > 1 else ''}"
    raise CronError(wrong, f"write five: minute hour day-of-month month day-of-week{extra}")


@cache
def _mask(field: _Field, text: str) -> int:
    mask = 0
    for item in text.split(","):
        if not item:
            repaired = ",".join(filter(None, text.split(","))) or "*"
            field.refuse(text, "has an empty list item", f'write "{repaired}"')
        mask |= sum(1 << value for value in _values(field, item))
    return mask & 0x7F | mask >> 7 if field is _WEEKDAYS else mask


def _values(field: _Field, item: str) -> range:
    span, *steps = item.split("/")
    if len(steps) > 1:
        field.refuse(item, "has more than one step", 'write one, as in "*/5"')
    step = _step(field, item, steps[0]) if steps else 1
    if span == "*":
        return range(field.low, field.high + 1, step)
    if "*" in span:
        field.refuse(item, "has a star next to something else", 'write "*" alone, or with a step as in "*/5"')
    first, dash, last = span.partition("-")
    if dash:
        return _range(field, item, first, last, step)
    value = _value(field, item, first)
    if steps:
        field.refuse(item, "puts a step on a single value", f'write "{first}-{field.high}/{step}"')
    return range(value, value + 1)


def _step(field: _Field, item: str, text: str) -> int:
    if not text.isdigit() or len(text) > 9:
        field.refuse(item, f"has the step {quoted(text)}", "write a whole number of at most 9 digits after the /")
    if int(text) == 0:
        field.refuse(item, "has step 0", "write a step of 1 or more")
    return int(text)


def _range(field: _Field, item: str, first: str, last: str, step: int) -> range:
    if not first or not last or "-" in last:
        field.refuse(item, "is not a range", f'write both ends, as in "{field.low}-{field.high}"; there are no signs')
    low, high = _value(field, item, first), _value(field, item, last)
    high = 7 if last.upper() == "SUN" and low > 0 else high
    if low > high:
        field.refuse(item, "runs backwards", f'write "{_wrapped(field, (first, low), (last, high), step)}"')
    return range(low, high + 1, step)


def _wrapped(field: _Field, first: tuple[str, int], last: tuple[str, int], step: int) -> str:
    """The two ranges that a range running backwards must have meant: `FRI-MON` is `FRI-SUN,MON`."""
    top, bottom = field.high, field.low
    top_name, bottom_name = (field.names[-1], field.names[0]) if field.names else ("", "")
    if field is _WEEKDAYS:
        bottom, top_name, bottom_name = 1, "SUN", "MON"
    suffix = f"/{step}" if step > 1 else ""
    ranges = [first[0] if first[1] == top else f"{first[0]}-{top_name if first[0].isalpha() else top}{suffix}"]
    if last[1] == bottom:
        ranges.append(last[0])
    elif last[1] > bottom:
        ranges.append(f"{bottom_name if last[0].isalpha() else bottom}-{last[0]}{suffix}")
    return ",".join(ranges)


def _value(field: _Field, item: str, text: str) -> int:
    if text.upper() in field.names:
        return field.low + field.names.index(text.upper())
    if not text.isdigit():
        _refuse_word(field, item, text.upper())
    if len(text) > 9:
        field.refuse(item, "has a number of more than 9 digits", field.choice())
    if not field.low <= int(text) <= field.high:
        field.refuse(item, f"is out of range {field.low}-{field.high}", field.choice())
    return int(text)


def _refuse_word(field: _Field, item: str, word: str) -> NoReturn:
    marks = [mark for mark in ("?#~" if field is _WEEKDAYS else "?~") if mark in word]
    is_last = word[3:] == "L" and word[:3] in _WEEKDAYS.names
    if not marks and (is_last or word in ("L", "W", "LW", "H") or word[:-1].isdigit() or word.startswith("H(")):
        marks = [mark for mark in "LWH" if mark in word]
    if marks:
        instead = _FOREIGN.get(f"{field.name} {marks[0]}", _FOREIGN[marks[0]])
        field.refuse(item, f"uses {marks[0]}, which cron does not have", instead)
    if word[:3] in field.names:
        field.refuse(item, "is not a name of three letters", f'write "{word[:3]}"')
    field.refuse(item, "is neither a number nor a name" if field.names else "is not a number", field.choice())
