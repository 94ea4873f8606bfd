"""A cron expression in words: the sentences, and that they say neither more nor less than the expression."""

import calendar
import random
import re

import pytest

from cronledger import cron
from cronledger.words import describe

SENTENCES = {
    "@yearly": "at 00:00 on the 1st of January",
    "@annually": "at 00:00 on the 1st of January",
    "@monthly": "at 00:00 on the 1st of the month",
    "@weekly": "at 00:00 on every Sunday",
    "@daily": "at 00:00 every day",
    "@midnight": "at 00:00 every day",
    "@hourly": "at minute 0 of every hour",
    "* * * * *": "every minute",
    "*/1 0-23 1-31 * 0-7": "every minute",
    "*/15 * * * *": "every 15 minutes",
    "0,30 * * * *": "every 30 minutes",
    "*/7 * * * *": "at minutes 0, 7, 14, ... 56 of every hour",
    "*/40 * * * *": "at minutes 0 and 40 of every hour",
    "5-59/15 * * * *": "at minutes 5, 20, 35 and 50 of every hour",
    "2-30/6 * * * *": "at minutes 2, 8, 14, 20 and 26 of every hour",
    "0-4,9 * * * *": "at minutes 0 to 4 and 9 of every hour",
    "5 * * * *": "at minute 5 of every hour",
    "15 3 * * *": "at 03:15 every day",
    "0,30 9 * * *": "at 09:00 and 09:30 every day",
    "0 9,12,17 * * 1-5": "at 09:00, 12:00 and 17:00 from Monday to Friday",
    "*/10 9-17 * * 1-5": "every 10 minutes from 09:00 to 17:50, Monday to Friday",
    "1,31 0-5 * * *": "every 30 minutes from 00:01 to 05:31 every day",
    "0 9-17 * * 1-5": "every hour from 09:00 to 17:00, Monday to Friday",
    "0 */2 * * *": "every 2 hours from 00:00 to 22:00 every day",
    "30 8-18/5 * * *": "at 08:30, 13:30 and 18:30 every day",
    "0 */7 * * *": "at 00:00, 07:00, 14:00 and 21:00 every day",
    "* 3 * * *": "every minute from 03:00 to 03:59 every day",
    "0-14 9 * * *": "every minute from 09:00 to 09:14 every day",
    "*/7 3 1 * *": ("at 03:00, 03:07, 03:14, 03:21, 03:28, 03:35, 03:42, 03:49 and 03:56 on the 1st of the month"),
    "*/5 1,3 * * *": "every 5 minutes in the hours 1 and 3 every day",
    "1,5 1-11/2 * * *": "at minutes 1 and 5 of the hours 1, 3, 5, 7, 9 and 11 every day",
    "* * * 2 5": "every minute on every Friday in February",
    "0 4 29 2 *": "at 04:00 on the 29th of February",
    "0 4 1-7,22,23 * *": "at 04:00 on the 1st to 7th, 22nd and 23rd of the month",
    "0 4 1 1,7 *": "at 04:00 on the 1st of January and July",
    "0 4 1 3-10 *": "at 04:00 on the 1st of each month from March to October",
    "0 4 * 3-10 *": "at 04:00 from March to October",
    "0 4 * * SAT,SUN": "at 04:00 on every Saturday and Sunday",
    "0 4 * * FRI-SUN,MON": "at 04:00 from Friday to Monday",
    "0 4 * * 1,3,5": "at 04:00 on every Monday, Wednesday and Friday",
    "0 0 1,15 * 1": "at 00:00 on the 1st and 15th of the month and on every Monday (either day field is enough)",
    "0 0 13 1 5": "at 00:00 on the 13th of January and on every Friday in January (either day field is enough)",
    "0 0 1-31 * 1": "at 00:00 every day",
    "0 0 */2 * 1": (
        "at 00:00 on the 1st, 3rd, 5th, ... 31st of the month, if that is a Monday (both day fields must match)"
    ),
    "0 0 11-13 6 */3": (
        "at 00:00 on the 11th to 13th of June, if that is a Sunday, a Wednesday or a Saturday"
        " (both day fields must match)"
    ),
}

FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MONTHS = list(calendar.month_name)[1:]
WEEKDAYS = [calendar.day_name[day - 1] for day in range(7)]
TIME = re.compile(
    r"every (?P<step>\d+ )?(?P<unit>minute|hour)s?"
    r"(?: from (?P<first>\d\d:\d\d) to (?P<last>\d\d:\d\d)| in the hours? (?P<within>LIST))?"
    r"|at minutes? (?P<minutes>LIST) of (?:every hour|the hours? (?P<hours>LIST))"
    r"|at (?P<times>\d\d:\d\d(?:(?:, | and )\d\d:\d\d)*)".replace("LIST", r"\d+(?:(?:, \.\.\. |, | and | to )\d+)*")
)
DAYS = re.compile(
    r"(?:on the (?P<dates>.*?) of .*?(?=$|, if| and on every| and from \w+day))?"
    r"(?P<linked>, if that is| and)? ?(?P<weekdays>.*)"
)


@pytest.mark.parametrize(("expression", "sentence"), SENTENCES.items())
def test_an_expression_is_said_in_one_natural_sentence(expression: str, sentence: str) -> None:
    """Each kind of expression has its sentence, the same from the text and from what was parsed of it."""
    assert describe(expression) == describe(cron.parse(expression)) == sentence


def test_a_text_that_is_no_expression_is_refused() -> None:
    """What cron.parse refuses is not described."""
    with pytest.raises(cron.CronError):
        describe("5/15 * * * *")


@pytest.mark.parametrize("seed", range(20))
def test_a_sentence_says_exactly_when_the_expression_is_due(seed: int) -> None:
    """Read back by somebody who knows English but no cron, a sentence names each due minute and no other."""
    chance = random.Random(seed)
    for _ in range(100):
        expression = " ".join(a_field(chance, low, high) for low, high in FIELDS)
        parsed, sentence = cron.parse(expression), describe(expression)
        times, days = understood(sentence)
        assert times == {(hour, minute) for hour in bits(parsed.hours) for minute in bits(parsed.minutes)}, sentence
        assert days == due_days(parsed), (expression, sentence)


def a_field(chance: random.Random, low: int, high: int) -> str:
    def item() -> str:
        first, last = sorted(chance.choices(range(low, high + 1), k=2))
        step = chance.choice([2, 3, 5, 6, 7, 10, 15, 20])
        return chance.choice([str(first), str(last), f"{first}-{last}", f"{first}-{last}/{step}"])

    step = chance.choice([1, 2, 3, 4, 5, 7, 10, 12, 15, 30])
    return chance.choice(["*", f"*/{step}", item(), item(), f"{low}-{high}", ",".join([item(), item()])])


def bits(mask: int) -> set[int]:
    return {bit for bit in range(60) if mask >> bit & 1}


def due_days(parsed: cron.Cron) -> set[tuple[int, int, int]]:
    days, weekdays = bits(parsed.days), bits(parsed.weekdays)
    enough = any if parsed.both_days else all
    pairs = [
        (day, of_week) for day in range(1, 32) for of_week in range(7) if enough([day in days, of_week in weekdays])
    ]
    return {(month, *pair) for month in bits(parsed.months) for pair in pairs}


def understood(sentence: str) -> tuple[set[tuple[int, int]], set[tuple[int, int, int]]]:
    """The times (hour, minute) and the days (month, day, weekday) that a sentence names."""
    time = TIME.match(sentence)
    assert time is not None, sentence
    return times_of(time), days_of(sentence[time.end() :].strip())


def times_of(said: re.Match[str]) -> set[tuple[int, int]]:
    if said["times"]:
        return {divmod(clock(time), 60) for time in re.split(", | and ", said["times"])}
    hours = numbers(said["hours"] or said["within"] or "0 to 23")
    if said["minutes"]:
        return {(hour, minute) for hour in hours for minute in numbers(said["minutes"])}
    step = int(said["step"] or 1) * (60 if said["unit"] == "hour" else 1)
    first, last = (clock(said["first"]), clock(said["last"])) if said["first"] else (0, 24 * 60 - 1)
    return {divmod(time, 60) for time in range(first, last + 1, step) if time // 60 in hours}


def clock(time: str) -> int:
    hour, minute = time.split(":")
    return int(hour) * 60 + int(minute)


def numbers(said: str) -> set[int]:
    """`1, 2 and 5`, `0 to 5 and 9`, `0, 7, 14, ... 56`, with or without st, nd, rd, th."""
    said = re.sub(r"(?<=\d)(st|nd|rd|th)", "", said)
    if "..." in said:
        first, second, _, last = map(int, re.findall(r"\d+", said))
        return set(range(first, last + 1, second - first))
    ranges = [item.partition(" to ") for item in re.split(", | and ", said)]
    return {number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)}


def days_of(said: str) -> set[tuple[int, int, int]]:
    said = said.replace("every day", "").removeprefix(", ")
    parts = DAYS.fullmatch(said)
    assert parts is not None, said
    either = parts["linked"] == " and"
    assert either == ("(either day field is enough)" in said), said
    assert (parts["linked"] == ", if that is") == ("(both day fields must match)" in said), said
    days, week = numbers(parts["dates"] or "1 to 31"), named(parts["weekdays"], WEEKDAYS)
    enough = any if either else all
    pairs = [(day, of_week) for day in range(1, 32) for of_week in range(7) if enough([day in days, of_week in week])]
    return {(month, *pair) for month in named(said, MONTHS) for pair in pairs}


def named(said: str, names: list[str]) -> set[int]:
    """The names in a text by number, months from 1; all of them where there is none; a range may run over the end."""
    base = 1 if names is MONTHS else 0
    found = [names.index(word) for word in re.findall(r"[A-Z]\w+", said) if word in names]
    if re.search(rf"({'|'.join(names)}) to ", said):
        first, last = found[0], found[1]
        found = [(first + offset) % len(names) for offset in range((last - first) % len(names) + 1)]
    return {base + index for index in found} or set(range(base, base + len(names)))
