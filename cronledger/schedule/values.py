"""What the values of a schedule's keys may be. Each reader takes what tomllib gave and raises Refused."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from cronledger.cron import Cron, Refused, parse, quoted
from cronledger.every import DAY, Every
from cronledger.schedule.zones import zone

Reader = Callable[[Any], Any]

_DIGITS = "0123456789"
_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-"
_NAME_RULE = "ASCII letters, digits and . _ : / -, at most 128, starting with a letter or digit"
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION_RULE = 'write whole d, h, m, s in this order, as in "90s", "10m", "1h30m" or "2d"'
_LONGEST = timedelta(days=365)
_MOST_AT_ONCE = 10_000
_MOST_RETRIES = 100
_SHORTEST_WINDOW = timedelta(minutes=1)
_SHORTEST_CATCH_UP = timedelta(minutes=2)
_SHORTEST_KEPT = timedelta(days=1)
_OURS = {f"CRONLEDGER_{name}" for name in ("JOB", "RUN_ID", "DUE_AT", "NODE", "SCHEDULE", "ATTEMPT")}
_OURS |= {f"CRONLEDGER_{name}" for name in ("STATE", "REASON", "DURATION_MS", "EXIT_CODE", "STARTED_AT", "FINISHED_AT")}


def is_name(text: str) -> bool:
    """Whether it is a name for a job, a lock, a namespace or a node (ASCII letters, digits, . _ : / -; at most 128)."""
    return 0 < len(text) <= 128 and not text.strip(_NAME) and text[0] not in "._:/-"


@cache
def parse_duration(text: str, unit: str = "m") -> timedelta:
    """A duration of whole d, h, m, s in this order, each at most once: `90s`, `1h30m`. From 0s to 365d.

    Raises Refused, a ValueError whose text is `wrong; instead`, where a bare number is taken to mean `unit`.
    """
    seconds, number, units = 0, "", "dhms"
    for character in text:
        if character in _DIGITS:
            number += character
        elif number and character in units:
            seconds += int(number[-9:]) * _SECONDS[character] if len(number.lstrip("0")) <= 9 else 10**9
            number, units = "", units.partition(character)[2]
        else:
            break
    else:
        if text and not number:
            return _at_most_a_year(text, seconds)
    raise Refused(f"{quoted(text)} is not a duration", _unit_missing(text, unit) or _DURATION_RULE)


def _at_most_a_year(text: str, seconds: int) -> timedelta:
    if seconds > _LONGEST.total_seconds():
        raise Refused(f"{quoted(text)} is longer than 365d", 'write at most "365d"')
    return timedelta(seconds=seconds)


def _unit_missing(text: str, unit: str) -> str:
    """What to write instead of a bare or negative number."""
    number = text.lstrip("+-")
    if not number.strip(_DIGITS):
        return f'write "{number}{unit}" for {_UNITS[unit]}' if 0 < len(number) <= 9 else ""
    return f'write "{number}"' if number != text and not number.strip(_DIGITS + "dhms") else ""


def described(value: object) -> str:
    """What kind of value it is, for a message. Never the value: it may be secret, or too large to show."""
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "a string", int: "a number", float: "a number", list: "an array", dict: "a table"}
    return kinds.get(type(value), "a date or time")


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"is {described(value)}", "write a string in quotes")
    if "\0" in value:
        raise Refused("holds a NUL character", "write it without")
    return value


def some_text(value: Any) -> str:
    if not text(value).strip():
        raise Refused("is empty", "write something, or leave the key out")
    return str(value)


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"is {described(value)}", "write true or false, without quotes")
    return value


def count(value: Any) -> int:
    if type(value) is not int:
        raise Refused(f"is {described(value)}", "write a whole number, without quotes")
    if value < 1:
        raise Refused("is less than 1", "write 1 or more, or leave the key out")
    if value > _MOST_AT_ONCE:
        raise Refused(f"is more than {_MOST_AT_ONCE}", f"write at most {_MOST_AT_ONCE}, or leave the key out")
    return value


def table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"is {described(value)}", "write a table")
    return value


def array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"is {described(value)}", "write it in double brackets, as in [[job]]")
    return value


def not_shared(value: Any) -> None:
    raise Refused("is not a key of [defaults]", "write it in each [[job]]")


def name(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"is {described(value)}", "write a name in quotes")
    if not is_name(value):
        raise Refused(f"{quoted(value)} is not a name", f"write {_NAME_RULE}")
    return value


def timezone(value: Any) -> Any:
    return zone(some_text(value))


def cron(value: Any) -> Cron:
    if not isinstance(value, str):
        raise Refused(f"is {described(value)}", 'write a string of five fields, as in "15 3 * * *"')
    parsed = parse(value)
    if parsed.never:
        raise Refused(f"{quoted(value)} can never be due", "write a day that one of its months has")
    return parsed


def every(value: Any) -> Every:
    seconds = int(_duration(value, "s").total_seconds())
    if not 1 <= seconds <= DAY:
        raise Refused(f"{quoted(value)} is not between 1s and 24h", 'write at least "1s" and at most "24h"')
    return Every(value, seconds)


def command(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        if not text(value).strip():
            raise Refused("is empty", 'write what is to run, as in "bin/report --all"')
        return value
    if not isinstance(value, list):
        raise Refused(f"is {described(value)}", "write a string for the shell, or an array of strings")
    if not value:
        raise Refused("is an empty array", 'write the program and its arguments, as in ["bin/report", "--all"]')
    if not all(isinstance(word, str) for word in value):
        raise Refused("is an array, but not of strings", 'write each word in quotes, as in ["bin/report", "--all"]')
    if not value[0].strip():
        raise Refused("names no program", "write the program as the first string")
    return tuple(text(word) for word in value)


def keep(value: Any) -> timedelta:
    duration = _duration(value, "d")
    if duration < _SHORTEST_KEPT:
        raise Refused(f"{quoted(value)} is shorter than a day", 'write at least "1d"')
    return duration


def window(value: Any) -> timedelta:
    duration = _duration(value, "m")
    if duration < _SHORTEST_WINDOW:
        raise Refused(f"{quoted(value)} is shorter than a minute", 'write at least "1m"')
    return duration


def catch_up(value: Any) -> timedelta:
    duration = _duration(value, "m")
    if duration < _SHORTEST_CATCH_UP:
        raise Refused(f"{quoted(value)} is shorter than two minutes", 'write at least "2m", or "" for none')
    return duration


def retries(value: Any) -> int:
    if type(value) is not int:
        raise Refused(f"is {described(value)}", "write a whole number, without quotes, as in 3")
    if not 0 <= value <= _MOST_RETRIES:
        raise Refused(f"is not between 0 and {_MOST_RETRIES}", f"write 0 to {_MOST_RETRIES}")
    return value


def retry_delay(value: Any) -> timedelta:
    return _duration(value, "s")


def _duration(value: Any, unit: str) -> timedelta:
    """A duration; who wrote a bare number meant `unit`."""
    if isinstance(value, str):
        return parse_duration(value, unit)
    number = abs(value) if type(value) is int else 0
    fits = 0 < number * _SECONDS[unit] <= _LONGEST.total_seconds()
    raise Refused(f"is {described(value)}", f'write "{number}{unit}"' if fits else _DURATION_RULE)


def droppable(read: Reader) -> Reader:
    """The same, and "" for none, which drops what [defaults] say."""
    return lambda value: None if value == "" else read(value)


def one_of(*choices: str) -> Reader:
    """A reader of these words."""
    rule = "write " + " or ".join(f'"{choice}"' for choice in choices)

    def read(value: Any) -> str:
        if value not in choices:
            raise Refused(f"is {quoted(value) if isinstance(value, str) else described(value)}", rule)
        return str(value)

    return read


def variable(name: str, value: Any) -> str:
    """One variable of an env table."""
    if not name or "=" in name or "\0" in name:
        raise Refused("is not a name for a variable", "write one that is not empty and holds neither = nor NUL")
    if name in _OURS:
        raise Refused("is set by cronledger for each run", "leave it out")
    return text(value)
