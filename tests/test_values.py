"""Durations and names: what they may be, and the sentence that says so."""

import re
from datetime import timedelta

import pytest

from cronledger.schedule import is_name, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("1d2h3m4s", 93784), ("365d", 31536000), ("0s", 0)],
)
def test_a_duration_is_whole_days_hours_minutes_and_seconds(text: str, seconds: int) -> None:
    """In this order, each at most once."""
    assert parse_duration(text) == timedelta(seconds=seconds)


RULE = 'write whole d, h, m, s in this order, as in "90s", "10m", "1h30m" or "2d"'


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        *((text, RULE) for text in ["", "m", "1m1h", "1m1m", "1.5h", "1w", "10 m", "10M", "10min", "\u0661m", "1m2"]),
        ("60", 'write "60m" for minutes'),
        ("-10m", 'write "10m"'),
        ("-10", 'write "10m" for minutes'),
    ],
)
def test_what_is_not_a_duration_says_what_to_write(text: str, instead: str) -> None:
    """The command line shows the same sentence."""
    with pytest.raises(
        ValueError, match=f"^{re.escape(f'''{chr(34)}{text}{chr(34)} is not a duration; {instead}''')}$"
    ):
        parse_duration(text)


@pytest.mark.parametrize("text", ["366d", "365d1s", "9999999999s", "0" * 9 + "9999999999m", "9" * 5000 + "d"])
def test_a_duration_is_at_most_365d(text: str) -> None:
    """However many digits it has."""
    with pytest.raises(ValueError, match=r'is longer than 365d; write at most "365d"$'):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a", True),
        ("0:./-_Z", True),
        ("a" * 128, True),
        *((bad, False) for bad in ["", "a" * 129, ".a", "é", "a b", "a\n"]),
    ],
)
def test_a_name_is_ascii_letters_digits_and_five_marks(text: str, right: bool) -> None:
    """One grammar for jobs, locks, namespaces and nodes."""
    assert is_name(text) is right
