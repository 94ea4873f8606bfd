"""Cron expressions: the cases, the exact sentences of what is refused, and both rules of a change of the clock."""

import json
import random
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronledger.cron import MACROS, Cron, CronError, parse

CASES = Path(__file__).parent / "cases" / "cron"
MINUTE = timedelta(minutes=1)


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]


DUE, ODD, REFUSED = cases("due"), cases("odd"), cases("refused")
ZONES = sorted({case["tz"] for case in DUE})


def instants(case: dict[str, Any]) -> tuple[datetime, datetime, list[datetime]]:
    start, end, *due = (datetime.fromisoformat(text) for text in [case["from"], case["to"], *case["due"]])
    return start, end, due


def minutes(start: datetime, end: datetime) -> list[datetime]:
    return [start + number * MINUTE for number in range((end - start) // MINUTE)]


def upcoming(cron: Cron, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    found = []
    for moment in cron.upcoming(start - MINUTE, zone):
        if moment >= end:
            break
        found.append(moment)
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_an_expression_is_due_exactly_at_the_instants_of_its_case(zone: str) -> None:
    """Every case of a zone holds, asked minute by minute in windows of up to ten days, and by upcoming() in all."""
    for case in (case for case in DUE if case["tz"] == zone):
        start, end, due = instants(case)
        cron = parse(case["expr"])
        assert upcoming(cron, ZoneInfo(zone), start, end) == due, case["expr"]
        if end - start <= timedelta(days=10):
            asked = [moment for moment in minutes(start, end) if cron.due(moment.astimezone(ZoneInfo(zone)))]
            assert asked == due, case["expr"]


@pytest.mark.parametrize("case", ODD, ids=lambda case: case["expr"])
def test_what_looks_wrong_and_is_right_means_what_its_reason_says(case: dict[str, Any]) -> None:
    """An odd form is due at the instants of its case."""
    start, end, due = instants(case)
    assert upcoming(parse(case["expr"]), ZoneInfo(case["tz"]), start, end) == due


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: ascii(case["expr"]))
def test_what_is_not_an_expression_is_refused(case: dict[str, Any]) -> None:
    """A refusal says what is wrong and what to write instead, in printable characters on one line."""
    with pytest.raises(CronError) as refused:
        parse(case["expr"])
    assert str(refused.value) == f"{refused.value.wrong}; {refused.value.instead}"
    assert refused.value.wrong
    assert refused.value.instead
    assert str(refused.value).isprintable()


SENTENCES = {
    "": 'the expression is empty; write five fields, as in "15 3 * * *"',
    "0 0 * *": '"0 0 * *" has 4 fields; write five: minute hour day-of-month month day-of-week',
    "0 0 1 1 * 2026": '"0 0 1 1 * 2026" has 6 fields; write five: minute hour day-of-month month day-of-week '
    "(no seconds, year, user, command or TZ=)",
    "@reboot": 'unknown macro "@reboot"; what runs at boot is a unit of systemd; else write one of '
    "@yearly @annually @monthly @weekly @daily @midnight @hourly",
    "@daily @hourly": '"@daily @hourly" has something after its macro; write "@daily" alone',
    "@ Daily": '"@ Daily" has a blank in its macro; write "@Daily"',
    "@every 5m": 'unknown macro "@every"; write every = "5m" in place of cron',
    "@EVERY": 'unknown macro "@EVERY"; write every = "5m" in place of cron',
    "@dayly 5": 'unknown macro "@dayly"; write one of @yearly @annually @monthly @weekly @daily @midnight @hourly',
    "60 * * * *": 'minute "60" is out of range 0-59; write 0 to 59',
    "0 0 * * 8": 'day-of-week "8" is out of range 0-7; write 0 to 7, or SUN to SAT',
    "0000000005 * * * *": 'minute "0000000005" has a number of more than 9 digits; write 0 to 59',
    "0 22-2 * * *": 'hour "22-2" runs backwards; write "22-23,0-2"',
    "0 0 * * FRI-MON": 'day-of-week "FRI-MON" runs backwards; write "FRI-SUN,MON"',
    "0 0 * * 5-0": 'day-of-week "5-0" runs backwards; write "5-7"',
    "*/0 * * * *": 'minute "*/0" has step 0; write a step of 1 or more',
    "*/x * * * *": 'minute "*/x" has the step "x"; write a whole number of at most 9 digits after the /',
    "5/15 * * * *": 'minute "5/15" puts a step on a single value; write "5-59/15"',
    "*/2/3 * * * *": 'minute "*/2/3" has more than one step; write one, as in "*/5"',
    "1,,2 * * * *": 'minute "1,,2" has an empty list item; write "1,2"',
    "1--5 * * * *": 'minute "1--5" is not a range; write both ends, as in "0-59"; there are no signs',
    "5* * * * *": 'minute "5*" has a star next to something else; write "*" alone, or with a step as in "*/5"',
    "0 0 1 JANUARY *": 'month "JANUARY" is not a name of three letters; write "JAN"',
    "0 JAN * * *": 'hour "JAN" is not a number; write 0 to 23',
    "0 0 1 MON *": 'month "MON" is neither a number nor a name; write 1 to 12, or JAN to DEC',
    "+5 * * * *": 'minute "+5" is not a number; write 0 to 59',
    "0 0 ? * *": 'day-of-month "?" uses ?, which cron does not have; write "*"',
    "0 0 * * 5#2": 'day-of-week "5#2" uses #, which cron does not have; write the weekday alone, and let the command '
    "ask for the day of the month",
    "0 0 L * *": 'day-of-month "L" uses L, which cron does not have; write "28-31" as day-of-month, and let the '
    "command ask whether tomorrow is the 1st",
    **{
        f"0 0 * * {last}": f'day-of-week "{last}" uses L, which cron does not have; write the weekday alone, as in 5, '
        "and let the command ask whether it is the last of the month"
        for last in ("L", "5L", "friL", "WEDL")
    },
    "0 0 * * FRIDAY": 'day-of-week "FRIDAY" is not a name of three letters; write "FRI"',
    "0 0 * * Thur": 'day-of-week "Thur" is not a name of three letters; write "THU"',
    "0 0 15W * *": 'day-of-month "15W" uses W, which cron does not have; write the days themselves, and let the '
    "command ask for the weekday",
    "¹ * * * *": 'minute "\\xb9" is not printable ASCII; write digits, names and * , - / with blanks or tabs between',
    "0 0 * * *\n": 'day-of-week "*\\n" is not printable ASCII; write digits, names and * , - / with blanks or tabs '
    "between",
    "0\u00a00 * * *": 'expression "0\\xa00" is not printable ASCII; write digits, names and * , - / with blanks or '
    "tabs between",
}


@pytest.mark.parametrize(("expression", "sentence"), SENTENCES.items(), ids=map(ascii, SENTENCES))
def test_a_refusal_names_the_field_the_text_and_the_repair(expression: str, sentence: str) -> None:
    """One of each kind, to the letter."""
    with pytest.raises(CronError, match=f"^{re.escape(sentence)}$"):
        parse(expression)


@pytest.mark.parametrize("low", range(8))
@pytest.mark.parametrize("high", ["0", "3", "7", "SUN", "MON", "SAT"])
def test_the_repair_of_a_range_running_backwards_parses(low: int, high: str) -> None:
    """Whatever is written in place of a refused range of weekdays is itself an expression."""
    try:
        parse(f"0 0 * * {low}-{high}")
    except CronError as refused:
        parse(f"0 0 * * {refused.instead.split(chr(34))[1]}")


@pytest.mark.parametrize(
    ("range_", "days"), [("FRI-SUN", "5,6,0"), ("SUN-SUN", "0"), ("0-SUN", "0"), ("SUN-7", "*"), ("7-SUN", "0")]
)
def test_a_range_may_begin_or_end_in_sunday(range_: str, days: str) -> None:
    """SUN ends a range as 7, unless it begins there."""
    assert parse(f"0 0 * * {range_}").weekdays == parse(f"0 0 * * {days}").weekdays


@pytest.mark.parametrize(("macro", "fields"), MACROS.items())
def test_a_macro_is_its_five_fields_in_any_case_and_is_kept_as_written(macro: str, fields: str) -> None:
    """A macro differs from its fields only in the text that it keeps."""
    cron, same = parse(f" {macro.upper()}\t"), parse(fields)
    assert cron.expression == f" {macro.upper()}\t"
    assert (cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays) == (
        (same.minutes, same.hours, same.days, same.months, same.weekdays)
    )
    assert (cron.fixed_time, cron.both_days) == (same.fixed_time, same.both_days)


@pytest.mark.parametrize(
    ("expression", "never"),
    [
        ("0 0 31 2 *", True),
        ("0 0 30,31 FEB *", True),
        ("0 0 31 4,6,9,11 */2", True),
        ("0 0 30 2 MON", False),
        ("0 0 29 2 *", False),
        ("0 0 29 2 */3", False),
        ("0 0 31 * *", False),
        ("0 0 */31 2 *", False),
    ],
)
def test_an_expression_without_a_day_in_any_year_is_never_due(expression: str, never: bool) -> None:
    """Never means never: no instant is coming up, and where it is not never there is one."""
    assert parse(expression).never is never
    assert (next(parse(expression).upcoming(datetime(2026, 1, 1, tzinfo=UTC), UTC), None) is None) is never


def test_a_leap_day_is_found_over_the_years_that_lack_it() -> None:
    """2100 is no leap year."""
    coming = parse("0 0 29 2 *").upcoming(datetime(2095, 1, 1, tzinfo=UTC), UTC)
    assert [next(coming).year for _ in range(3)] == [2096, 2104, 2108]


def test_upcoming_is_strictly_after_and_cut_to_the_minute() -> None:
    """The minute of `after` itself does not come up again."""
    coming = parse("* * * * *").upcoming(datetime(2026, 1, 1, 0, 0, 59, 999, tzinfo=UTC), UTC)
    assert next(coming) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@cache
def changes(zone: str) -> list[datetime]:
    """Days (UTC) on which the zone's clock is changed, 1985 to 2030."""
    days = [datetime(1985, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(46 * 365)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    return [day for day, one, other in zip(days, offsets, offsets[1:], strict=False) if one != other]


def random_expression(chance: random.Random) -> str:
    """Five fields of numbers, ranges, stars and steps, with something due at most times of day."""
    minute = chance.choice(["*", "*/10", "1-59/7", f"{chance.randrange(60)}", "0,30"])
    hour = chance.choice(["*", "*/3", "0-4", "22-23", f"{chance.randrange(4)}", "0,1,2,3,23"])
    day = chance.choice(["*", "*", "*/2", f"{chance.randint(1, 31)}", "1-15"])
    weekday = chance.choice(["*", "*", "SUN", "*/2", "FRI-SUN", "0-3"])
    return f"{minute} {hour} {day} * {weekday}"


@pytest.mark.parametrize("zone", ZONES)
def test_upcoming_agrees_with_due_around_every_change_of_the_clock(zone: str) -> None:
    """In four days around a change, upcoming() gives what due() says of each minute, whatever the expression."""
    chance = random.Random(zone)
    days = changes(zone) or [datetime(2026, 3, 28, tzinfo=UTC)]
    for day in chance.sample(days, min(8, len(days))):
        cron = parse(random_expression(chance))
        start, end = day - timedelta(days=1), day + timedelta(days=3)
        due = [moment for moment in minutes(start, end) if cron.due(moment.astimezone(ZoneInfo(zone)))]
        assert upcoming(cron, ZoneInfo(zone), start, end) == due, (cron.expression, day)
