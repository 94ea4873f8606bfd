"""Interval jobs: the same slots on every node, claimed by the tick whose minute they are in."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from conftest import Database
from deployed import Deployed, Run, said
from ticks import run_batches

from cronledger.check import TEXTS, warnings
from cronledger.every import Every
from cronledger.schedule import Schedule, load
from cronledger.words import describe

HEAD = 'timezone = "Europe/Paris"\nnamespace = "app"\n'
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATE = 53.5
"""The second of its minute at which a tick starts here."""


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database."""
    return Deployed(tmp_path, database, run).installed()


def late(deployed: Deployed, environment: dict[str, str], ticks: int = 1) -> list[tuple[int, str, str]]:
    """So many ticks at once, near the end of their minute, each of another node."""
    path = str(deployed.folder / "schedule.toml")
    batch = [["--schedule", path, "--dsn", deployed.dsn, "--node", f"web{node}"] for node in range(ticks)]
    return run_batches([batch], environment, second=LATE)[0]


def schedule(folder: Path, *intervals: str, more: str = "") -> Schedule:
    jobs = [f'[[job]]\nname = "{one}"\nevery = "{one}"\ncommand = "true"\n{more}\n' for one in intervals]
    (folder / "schedule.toml").write_text(HEAD + "".join(jobs))
    return load(folder / "schedule.toml")


def test_an_interval_job_is_due_in_the_seconds_that_it_divides(tmp_path: Path) -> None:
    """Whatever zone the moment is given in, and at no other second; microseconds do not matter."""
    read = schedule(tmp_path, "10s", "90s", "24h")

    def due(moment: datetime) -> list[str]:
        return [job.name for job in read.due(moment)]

    assert due(NOON) == ["10s", "90s"]
    assert due(NOON.replace(second=30, microsecond=999_999).astimezone(ZoneInfo("Asia/Tokyo"))) == ["10s"]
    assert due(NOON + timedelta(seconds=9)) == []
    assert due(NOON.replace(hour=0)) == ["10s", "90s", "24h"]


def test_the_slots_of_an_hour_are_the_multiples_of_the_interval(tmp_path: Path) -> None:
    """None is left out or told twice where one minute follows the other, nor where the clock is changed."""
    read = schedule(tmp_path, "1s", "7s", "90s", "1h")
    start = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # Paris goes back at 01:00 UTC
    minutes = [start + timedelta(minutes=number) for number in range(60)]
    slots = [(slot.job.name, slot.due_at) for minute in minutes for slot in read.slots(minute)]
    seconds = [start + timedelta(seconds=number) for number in range(3600)]
    expected = [(job.name, second) for second in seconds for job in read.due(second)]
    assert slots == expected
    assert len(slots) == 3600 + len([s for s in seconds if s.timestamp() % 7 == 0]) + 40 + 1


def test_cron_jobs_and_interval_jobs_are_told_in_the_order_of_their_slots(tmp_path: Path) -> None:
    """Of one instant in the order of the file."""
    (tmp_path / "schedule.toml").write_text(
        HEAD
        + '[[job]]\nname = "b"\nevery = "30s"\ncommand = "true"\n'
        + '[[job]]\nname = "a"\ncron = "* * * * *"\ncommand = "true"\n'
    )
    slots = load(tmp_path / "schedule.toml").slots(NOON)
    assert [(slot.job.name, slot.due_at.second) for slot in slots] == [("b", 0), ("a", 0), ("b", 30)]


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        ("1s", 1, "every second, counted from 00:00 UTC"),
        ("90s", 90, "every 90 seconds, counted from 00:00 UTC"),
        ("1m", 60, "every minute, counted from 00:00 UTC"),
        ("7m", 420, "every 7 minutes, counted from 1970-01-01 00:00 UTC"),
        ("1d", 86400, "every 24 hours, counted from 00:00 UTC"),
    ],
)
def test_an_interval_in_words(text: str, seconds: int, words: str) -> None:
    """How often, and from when it is counted."""
    assert describe(Every(text, seconds)) == words


def test_check_warns_of_an_interval_that_does_not_divide_a_day(tmp_path: Path) -> None:
    """With what is odd about it; a lock shared with others is nothing to warn of, they pass over quietly."""
    read = schedule(tmp_path, "7m", "10m", more='lock = "one"')
    found = [one for one in warnings(read, NOON) if one.job]
    assert [(one.job, one.code) for one in found] == [("7m", "uneven-interval")]
    assert found[0].text == TEXTS["uneven-interval"].format(every="7m")


def test_explain_and_list_show_an_interval(deployed: Deployed) -> None:
    """By itself where a cron job has its expression, the times to the second."""
    deployed.write('name = "poll"\nevery = "30s"\ncommand = "true"')
    explained = json.loads(deployed.cli("explain", "poll", "--json").stdout)
    assert (explained["expression"], explained["words"]) == ("every 30s", "every 30 seconds, counted from 00:00 UTC")
    first, second = (datetime.fromisoformat(at) for at in explained["next_at"][:2])
    assert (second - first, first.timestamp() % 30) == (timedelta(seconds=30), 0)
    assert re.search(r"^every     30s$", deployed.cli("explain", "poll").stdout, re.MULTILINE)
    assert re.search(r"^poll +every 30s +\d{4}-\d\d-\d\d \d\d:\d\d:[03]0", deployed.cli("list").stdout, re.MULTILINE)
    listed = json.loads(deployed.cli("list", "--json").stdout)[0]
    assert (listed["cron"], listed["every"]) == (None, "30s")


def test_a_tick_stays_for_the_slots_of_its_minute(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """Two ticks at once, late in their minute: each slot from the last that has passed on has one run; no line."""
    deployed.write('name = "poll"\nevery = "1s"\ncommand = "true"', 'name = "sweep"\nevery = "2m"\ncommand = "true"')
    ended = late(deployed, cron_environment, 2)
    assert ended == [(0, "", ""), (0, "", "")]
    rows = deployed.rows("due_at, state", "job = 'poll'")
    assert {state for _, state in rows} == {"completed"}
    assert 2 <= len(rows) <= 7  # :53 to :59; a slow machine may come too late for some
    assert len({due_at for due_at, _ in rows}) == len(rows)


def test_a_line_for_each_run_where_it_is_asked_for(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """With report = "all", as of any job."""
    deployed.write('name = "poll"\nevery = "2s"\ncommand = "true"\nreport = "all"')
    ((_, out, _),) = late(deployed, cron_environment)
    assert re.fullmatch(r"(\S+ ran poll in \d\.\ds\n){1,4}", out)


def test_an_overlap_of_an_interval_job_is_passed_over_quietly(
    deployed: Deployed, cron_environment: dict[str, str]
) -> None:
    """The slots that come while its run goes on have neither a run nor a line."""
    deployed.write('name = "slow"\nevery = "1s"\ncommand = "sleep 8"')
    assert late(deployed, cron_environment) == [(0, "", "")]
    assert deployed.rows("state") == [("completed",)]
    assert deployed.database.sql("SELECT COUNT(*) FROM cronledger_jobs WHERE stood_down_at IS NOT NULL") == [(0,)]


def test_a_failure_of_an_interval_job_is_said(deployed: Deployed) -> None:
    """Always."""
    deployed.write('name = "poll"\nevery = "24h"\ncommand = "exit 3"')
    said(deployed.tick("--at", "2026-01-05T00:00+00:00"), r"failed poll in \d\.\ds: exit 3", status=1)


def test_by_hand_the_last_slot_of_the_minute_is_made_up(deployed: Deployed) -> None:
    """Once."""
    deployed.write('name = "poll"\nevery = "20s"\ncommand = "true"')
    for _ in range(2):
        said(deployed.tick("--at", "2026-01-05T10:00+00:00"), status=0)
    ((due_at,),) = deployed.rows("due_at")
    assert str(due_at)[17:19] == "40"
    assert re.search(r" 10:00:40 +web1 ", deployed.cli("history").stdout)
    assert re.search(r"^due +2026-01-05 10:00:40\+00:00$", deployed.cli("show", "poll").stdout, re.MULTILINE)


def test_a_dry_run_tells_the_slot_that_a_tick_would_take(deployed: Deployed) -> None:
    """To the second: of a minute that is over the last one, of one to come the first."""
    deployed.write('name = "poll"\nevery = "30s"\ncommand = "true"')
    for minute, slot in (("2026-01-05 10:00", "2026-01-05 10:00:30"), ("2199-01-05 10:00", "2199-01-05 10:00:00")):
        [line] = deployed.tick("--dry-run", "--at", f"{minute}+00:00").stdout.splitlines()
        assert line == f"would run poll: due at {slot}, its slot is free and nothing bars it"
