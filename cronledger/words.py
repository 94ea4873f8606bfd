"""A cron expression in words: one exact English sentence. Whoever prints it names the time zone."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from cronledger import cron
from cronledger.every import Every

_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_FEW = 3  # so many times of day are listed rather than said by their distance
_MANY = 10  # more are not listed


def describe(expression: cron.Cron | Every | str) -> str:
    """When `expression` is due, as in `every 10 minutes from 09:00 to 17:50, Monday to Friday`.

    Raises CronError for a text that is no cron expression.
    """
    if isinstance(expression, Every):
        return _interval(expression)
    parsed = cron.parse(expression) if isinstance(expression, str) else expression
    hours, weekdays = _set_bits(parsed.hours), _set_bits(parsed.weekdays)
    time = _time(_set_bits(parsed.minutes), hours)
    days = _days(_set_bits(parsed.days), weekdays, _set_bits(parsed.months), either=parsed.both_days)
    if not days:
        return time if len(hours) == 24 else f"{time} every day"
    if " from " in time and days.startswith("from "):
        return f"{time}, {days.removeprefix('from ')}"
    return f"{time} {days}"


def _interval(every: Every) -> str:
    """`every 90 seconds, counted from 00:00 UTC`, whatever the zone."""
    units = ((3600, "hour"), (60, "minute"), (1, "second"))
    size, unit = next((size, unit) for size, unit in units if every.seconds % size == 0)
    count = every.seconds // size
    often = f"every {count} {unit}s" if count > 1 else f"every {unit}"
    return f"{often}, counted from {'00:00 UTC' if every.divides_a_day else '1970-01-01 00:00 UTC'}"


def _time(minutes: list[int], hours: list[int]) -> str:
    """The times of a day."""
    step = _step_round_the_hour(minutes)
    every = _every(step) if 0 < step < 60 and minutes[0] == 0 else ""
    if len(hours) == 24:
        return every or f"at {_numbered('minute', minutes)} of every hour"
    times = [f"{hour:02}:{minute:02}" for hour in hours for minute in minutes]
    step = _step_between(minutes, hours)
    if len(times) > _FEW and step:
        return f"{_every(step)} from {times[0]} to {times[-1]}"
    if len(times) <= _MANY:
        return f"at {_joined(times)}"
    where = f"the {_numbered('hour', hours)}"
    return f"{every} in {where}" if every else f"at {_numbered('minute', minutes)} of {where}"


def _days(days: list[int], weekdays: list[int], months: list[int], *, either: bool) -> str:
    """The days, "" for every day; `either`: of two restricted day fields one is enough (crontab(5))."""
    all_days, all_weekdays = len(days) == 31, len(weekdays) == 7
    within = _within(months)
    if (all_days and all_weekdays) or (either and (all_days or all_weekdays)):
        return within
    if all_days:
        return f"{_on_weekdays(weekdays)} {within}".rstrip()
    dates = f"on the {_listed(days, _ordinal)} {_of(months)}"
    if all_weekdays:
        return dates
    if either:
        return f"{dates} and {f'{_on_weekdays(weekdays)} {within}'.rstrip()} (either day field is enough)"
    if_day = _joined([f"a {_WEEKDAYS[day]}" for day in weekdays], "or")
    return f"{dates}, if that is {if_day} (both day fields must match)"


def _within(months: list[int]) -> str:
    if len(months) == 12:
        return ""
    return _run(months, _MONTHS) or f"in {_joined([_MONTHS[month] for month in months])}"


def _of(months: list[int]) -> str:
    if len(months) == 12:
        return "of the month"
    run = _run(months, _MONTHS)
    return f"of each month {run}" if run else f"of {_joined([_MONTHS[month] for month in months])}"


def _on_weekdays(weekdays: list[int]) -> str:
    """Weekdays in a row, also over the week's end, as a range; else by name, Monday first."""
    for first in weekdays:
        row = [(first + offset) % 7 for offset in range(len(weekdays))]
        if len(row) > 2 and sorted(row) == weekdays:
            return f"from {_WEEKDAYS[row[0]]} to {_WEEKDAYS[row[-1]]}"
    return f"on every {_joined([_WEEKDAYS[day] for day in sorted(weekdays, key=lambda day: day or 7)])}"


def _run(values: list[int], names: Sequence[str]) -> str:
    """`from March to October` for three or more in a row, else ""."""
    in_a_row = len(values) > 2 and _step(values) == 1
    return f"from {names[values[0]]} to {names[values[-1]]}" if in_a_row else ""


def _step_between(minutes: list[int], hours: list[int]) -> int:
    """The minutes from each time of day to the next, when they are equal and not cut short by midnight; else 0."""
    step = _step_round_the_hour(minutes)
    if step and (len(hours) == 1 or _step(hours) == 1):
        return step
    if len(minutes) == 1:
        return 60 * _step_within(hours, 24)
    return _step_within(minutes, 60) if len(hours) == 1 else 0


def _step_round_the_hour(minutes: list[int]) -> int:
    """The step with which `minutes` go round the hour evenly, 60 for a single one; 0 when they do not."""
    step = 60 // len(minutes)
    return step if minutes == list(range(minutes[0], 60, step)) and step * len(minutes) == 60 else 0


def _step_within(values: list[int], length: int) -> int:
    """The step of `values`; 0 when there is none, or when it fills `length` unevenly, as `*/7` does an hour."""
    step = _step(values)
    uneven = step and values[0] < step and values[-1] + step >= length and length % step
    return 0 if uneven else step


def _step(values: list[int]) -> int:
    """What each of `values` adds to the one before, 0 when that differs."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def _every(minutes: int) -> str:
    count, unit = (minutes // 60, "hour") if minutes % 60 == 0 else (minutes, "minute")
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def _numbered(unit: str, values: list[int]) -> str:
    return f"{unit} {values[0]}" if len(values) == 1 else f"{unit}s {_listed(values, str)}"


def _listed(values: list[int], name: Callable[[int], str]) -> str:
    """`1, 2 and 5`, `0 to 5 and 9`, `0, 7, 14, ... 56`: every value is named or lies on a line that is."""
    if len(values) > 6 and _step(values) > 1:
        return f"{', '.join(map(name, values[:3]))}, ... {name(values[-1])}"
    rows: list[list[int]] = []
    for value in values:
        if rows and value == rows[-1][-1] + 1:
            rows[-1].append(value)
        else:
            rows.append([value])
    return _joined([item for row in rows for item in _row(row, name)])


def _row(row: list[int], name: Callable[[int], str]) -> list[str]:
    return [f"{name(row[0])} to {name(row[-1])}"] if len(row) > 2 else list(map(name, row))


def _joined(items: list[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _ordinal(number: int) -> str:
    suffix = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _set_bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
