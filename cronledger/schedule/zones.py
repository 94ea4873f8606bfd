"""Time zones by name, and "local", the node's own clock."""

import os
from datetime import UTC, datetime, timedelta, tzinfo

from cronledger.cron import Refused, quoted

_SYSTEM_FOLDERS = ("/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo")
_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Local(tzinfo):
    """The zone of the C library: TZ, else /etc/localtime (tzset(3))."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return moment.replace(tzinfo=None).astimezone().utcoffset() if moment else None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return moment.replace(tzinfo=None).astimezone().tzname() if moment else None

    def fromutc(self, moment: datetime) -> datetime:
        seconds = (moment.replace(tzinfo=UTC) - _EPOCH) // _SECOND
        there = datetime.fromtimestamp(seconds)  # the one call that knows fold by the C library's rules
        return there.replace(microsecond=moment.microsecond, tzinfo=self)

    def __str__(self) -> str:
        return "local"


LOCAL = _Local()


def zone(name: str) -> tzinfo:
    """The zone of this name: "local", "UTC", or one of the tz database. `str()` of it is the name.

    Raises Refused for a name that is not known, and for "local" where TZ names no zone: the C library would
    silently take UTC.
    """
    if name == "local":
        _refuse_mistyped(os.environ.get("TZ", ""))
        return LOCAL
    if name == "UTC":
        return UTC
    import zoneinfo  # 4 ms that a schedule in UTC or local time does not need

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        raise Refused(f"unknown time zone {quoted(name)}", _instead(name, '"{}"')) from None


def _refuse_mistyped(variable: str) -> None:
    name = variable.removeprefix(":")
    if name and not _is_file(name) and not _is_rule(name):
        wrong = f"the environment has TZ={variable}, which names no zone and would silently be UTC"
        raise Refused(wrong, _instead(name, "TZ={}"))


def _is_file(name: str) -> bool:
    folders = [folder for folder in (os.environ.get("TZDIR"), *_SYSTEM_FOLDERS) if folder]
    return any(os.path.isfile(os.path.join(folder, name)) for folder in folders)


def _is_rule(name: str) -> bool:
    """Whether it is a rule of POSIX less than a day from UTC: `CET-1CEST,M3.5.0,M10.5.0/3`, `<+0330>-3:30`."""
    import re

    word, offset = r"(<[^>]{3,}>|[A-Za-z]{3,})", r"([+-]?(2[0-2]|[01]?[0-9])|\+?23)(:[0-5]?[0-9]){0,2}(?![0-9:])"
    return re.match(f"{word}{offset}($|{word}({offset}|,|$))", name) is not None


def _instead(name: str, form: str) -> str:
    """What to write for `name`: the zone whose whole name, or whose city, looks most like it.

    An abbreviation, which may mean several zones, is neither taken for another one nor for a city that resembles it.
    """
    import difflib
    import zoneinfo

    names = sorted(one for one in zoneinfo.available_timezones() if not (one.isupper() or one.startswith("Etc/")))
    known = {known.rpartition("/")[2].lower(): known for known in names} | {known.lower(): known for known in names}
    known |= {"utc": "UTC", "localtime": "local"}
    cutoff = 1.0 if name.isupper() or len(name) <= 4 else 0.7
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    return f"write {form.format(known[near[0]])}" if near else f"write a name such as {form.format('Europe/Paris')}"
