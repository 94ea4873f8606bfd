"""What check warns of: the code, the job and the sentence of each kind, and silence where nothing is wrong."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cronledger.check import TEXTS, CheckWarning, warnings
from cronledger.cron import parse
from cronledger.schedule import load
from cronledger.year import first, slots, spans

NOW = datetime(2024, 3, 1, 12, 0, 30, tzinfo=UTC)
PARIS = 'timezone = "Europe/Paris"\nnamespace = "test"\n'


def said(folder: Path, text: str, now: datetime = NOW) -> list[CheckWarning]:
    path = folder / "schedule.toml"
    path.write_text(text)
    path.chmod(0o644)
    return warnings(load(path), now)


def job(cron: str, name: str = "a", more: str = "") -> str:
    return f'[[job]]\nname = "{name}"\ncron = "{cron}"\ncommand = "true"\n{more}\n'


def of_job(folder: Path, text: str) -> list[tuple[str, str]]:
    return [(warning.code, warning.text) for warning in said(folder, PARIS + text)]


def test_a_schedule_in_which_all_is_said_has_no_warnings(tmp_path: Path) -> None:
    """Stars in the hour or minute, and fixed times that no change of the clock touches, are nothing to warn of."""
    text = PARIS + job("*/10 * * * *") + job("15 4 * * MON", "b") + job("0 9-17 1 * *", "c") + job("0,30 * * * *", "d")
    assert said(tmp_path, text) == []


def test_the_example_has_one_warning_which_is_of_its_ledger() -> None:
    """What the example shows is how it should be, but that SQLite serves one machine."""
    example = Path(__file__).parent.parent / "schedule.example.toml"
    assert [warning.code for warning in warnings(load(example), NOW) if warning.code != "schedule-open"] == ["sqlite"]


def test_what_concerns_the_whole_schedule_has_no_job_and_no_line(tmp_path: Path) -> None:
    """Each once, however many jobs there are."""
    text = 'env_file = ".env"\n[ledger]\ndsn = "sqlite:///x.db"\n' + job("@daily") + job("@daily", "b")
    (tmp_path / ".env").touch(0o644)
    (tmp_path / ".env").chmod(0o644)
    tmp_path.chmod(0o777)
    found = said(tmp_path, text)
    assert [warning.code for warning in found] == [
        *("no-timezone", "no-namespace", "sqlite", "env-file-open", "schedule-open")
    ]
    assert {(warning.line, warning.job) for warning in found} == {(0, "")}
    path = f"{tmp_path}/.env"
    assert found[3].text == f"anyone may read {path}, and what it holds is often secret; write chmod o-r {path}"


def test_an_env_file_of_the_owner_or_none_at_all_is_no_warning(tmp_path: Path) -> None:
    """check runs where the deploy repo is, without the environment of the nodes."""
    assert said(tmp_path, f'env_file = ".env"\n{PARIS}{job("@daily")}') == []
    (tmp_path / ".env").touch(0o640)
    assert said(tmp_path, f'env_file = ".env"\n{PARIS}{job("@daily")}') == []


SENTENCES = {
    "0 4 13 * FRI": """both-days: cron "0 4 13 * FRI" restricts both day fields: it is due when either matches, not \
when both do; write * in one of them and, if both must hold, test for the other in the command""",
    "30 2 * 3 *": """dst-skip: 02:30 does not occur on 2024-03-31 in Europe/Paris, where the clock is set forward: \
there is no run then; write a time of day that the change leaves alone""",
    "59 2 27 10 *": """dst-repeat: 02:59 occurs twice on 2024-10-27 in Europe/Paris, where the clock is set back: \
it runs at the first only; write a time of day that the change leaves alone""",
}


@pytest.mark.parametrize(("cron", "sentence"), SENTENCES.items())
def test_a_cron_that_may_not_be_meant_is_said_with_what_to_write(tmp_path: Path, cron: str, sentence: str) -> None:
    """One of each kind, to the letter."""
    assert [f"{code}: {text}" for code, text in of_job(tmp_path, job(cron))] == [sentence]


@pytest.mark.parametrize(
    ("cron", "zone", "instead"),
    [
        ("0,30 1-2 27 10 *", "Europe/Paris", "the minutes as */30"),
        ("0-59 2 27 10 *", "Europe/Paris", "the minutes as *"),
        ("0,59 2 27 10 *", "Europe/Paris", "the minutes as */59"),
        ("10,40 */24,1-23 27 10 *", "Europe/Paris", None),
        ("10,40 0-23 27 10 *", "Europe/Paris", "the hours as *"),
        ("5-55/10 0-22/2 27 10 *", "Europe/Paris", "the hours as */2"),
        *[
            (cron, "Europe/Paris", "hours that the change leaves alone, or allow this warning if the silence is meant")
            for cron in ("10,40 1-3 27 10 *", "5-55/10 2 27 10 *", "0,15,30 2 27 10 *")
        ],
        ("10,40 9-17 * * MON-FRI", "Europe/Paris", None),
        ("0,30 9-17 * * *", "Europe/Paris", None),
        ("10,40 2 26 10 *", "Europe/Paris", None),
        ("10,40 0-23 * * *", "UTC", None),
    ],
)
def test_a_job_that_keeps_silent_while_an_hour_comes_again(
    tmp_path: Path, cron: str, zone: str, instead: str | None
) -> None:
    """Only where one of its own times comes again; what to write means the very same times, but with a star."""
    found = [text for code, text in of_job(tmp_path, job(cron, more=f'timezone = "{zone}"')) if code.startswith("oft")]
    assert [text.partition("; write ")[2] for text in found] == [instead] * (instead is not None)
    if instead and " as *" in instead:
        minute, hour, *days = cron.split()
        star = instead.rpartition(" ")[2]
        meant = parse(" ".join([star, hour, *days] if "minutes" in instead else [minute, star, *days]))
        assert (meant.minutes, meant.hours) == (parse(cron).minutes, parse(cron).hours)


def test_a_silent_hour_is_said_with_its_day(tmp_path: Path) -> None:
    """To the letter; that this time occurs twice is said too."""
    sentence = 'cron "0,30 1-2 27 10 *" is due more than once an hour, but neither its minute nor its hour begins with '
    sentence += "a star: it keeps silent when 02:00 comes again on 2024-10-27 in Europe/Paris, where the clock is set "
    sentence += "back; write the minutes as */30"
    found = of_job(tmp_path, job("0,30 1-2 27 10 *"))
    assert found[0] == ("often-without-star", sentence)
    assert [code for code, _ in found] == ["often-without-star", "dst-repeat"]


def test_a_warning_has_the_line_and_the_name_of_its_job_and_comes_once_for_each(tmp_path: Path) -> None:
    """A time that both changes touch is said for each of them, in the order of the file; a disabled job not at all."""
    text = PARIS + job("0 1-3 * * *", "a") + job("15 2 * * *", "b") + job("15 2 * * *", "c", "enabled = false")
    assert [(warning.line, warning.job, warning.code) for warning in said(tmp_path, text)] == [
        *[(3, "a", "dst-skip"), (3, "a", "dst-repeat"), (8, "b", "dst-skip"), (8, "b", "dst-repeat")]
    ]


@pytest.mark.parametrize(
    ("cron", "zone", "codes"),
    [
        ("0 3 * * *", "Europe/Paris", []),
        ("0 2 * * MON", "Europe/Paris", []),
        ("30 2 * * *", "UTC", []),
        ("30 2 * * *", "Asia/Tokyo", []),
        ("45 1 * * *", "Australia/Lord_Howe", ["dst-repeat"]),
        ("15 2 * * *", "Australia/Lord_Howe", ["dst-skip"]),
        ("@daily", "America/Havana", ["dst-skip", "dst-repeat"]),
        ("30 23 * * *", "America/Santiago", ["dst-repeat"]),
    ],
)
def test_only_a_fixed_time_that_a_change_touches_is_warned_of(
    tmp_path: Path, cron: str, zone: str, codes: list[str]
) -> None:
    """The job's own zone counts, half hours and midnight included."""
    assert [code for code, _ in of_job(tmp_path, job(cron, more=f'timezone = "{zone}"'))] == codes


def lock(cron: str, name: str, zone: str = "Europe/Paris", lock: str = "db") -> str:
    return job(cron, name, f'lock = "{lock}"\ntimezone = "{zone}"')


def test_jobs_that_share_a_lock_and_a_minute_are_said_with_the_first_such_minute(tmp_path: Path) -> None:
    """The later one in the file is named, with the first before it that it meets, in its own zone."""
    text = lock("0 4 1 * *", "a") + lock("0 5 * * *", "b") + lock("0 14 1 4 *", "c", "Asia/Tokyo")
    assert of_job(tmp_path, text + lock("0 4 1 * *", "d", lock="other")) == []
    text = text.replace("0 14", "0 11")
    sentence = "shares the lock db and a minute with job a, first at 11:00 on 2024-04-01 in Asia/Tokyo: "
    sentence += "one of the two stands down each time; write another minute, or another lock"
    assert of_job(tmp_path, text) == [("shared-lock-minute", sentence)]


def test_minutes_that_only_look_shared_are_not_warned_of(tmp_path: Path) -> None:
    """Other days, other months, a disabled job, and a year too far away."""
    text = lock("0 4 * * MON", "a") + lock("0 4 * * TUE", "b") + lock("0 4 3 4 *", "c") + lock("30 4 29 2 *", "d")
    text += lock("30 4 * 2 THU", "e") + lock("0 4 * * *", "f") + "enabled = false\n"
    assert of_job(tmp_path, text) == []


def test_a_lock_on_every_node_is_warned_of(tmp_path: Path) -> None:
    """A job of every node with a lock would stand down on all but one; without one there is nothing to say."""
    node = 'scope = "node"\n'
    text = job("@daily", more=node) + job("@hourly", "b", f'{node}lock = "disk"')
    assert [(one.code, one.job) for one in said(tmp_path, PARIS + text)] == [("node-scope-lock", "b")]


def test_a_lease_that_outlasts_the_window_is_warned_of(tmp_path: Path) -> None:
    """It would never tell anything that the window does not tell sooner."""
    windows = [("2h", "1h"), ("1h", "1h"), ("5m", "1h"), ("2h", "")]
    text = "".join(
        job("@daily", f"j{number}", f'lease = "{lease}"\nstale_after = "{stale_after}"')
        for number, (lease, stale_after) in enumerate(windows)
    )
    sentence = "its lease of 2h0m is longer than its stale_after of 60m0s and so never needed; "
    sentence += 'write a shorter lease, such as lease = "5m", or leave it out'
    assert of_job(tmp_path, text) == [("lease-too-long", sentence)]


def test_retries_that_cannot_all_begin_are_warned_of(tmp_path: Path) -> None:
    """So many, so far apart, against the window; without a window there is nothing to say."""
    keys = ["retries = 3", 'retries = 3\nretry_delay = "20m"', 'retries = 3\nretry_delay = "20m"\nlease = "5m"']
    text = "".join(job("@daily", f"j{number}", key) for number, key in enumerate(keys))
    sentence = "its 3 retries, 20m0s apart, do not fit into its stale_after of 60m0s; "
    sentence += "write fewer retries, a shorter retry_delay, or a longer stale_after"
    assert of_job(tmp_path, text) == [("retries-too-long", sentence)]


def test_every_code_has_a_sentence_that_says_what_to_write() -> None:
    """The table of codes is what --allow takes."""
    assert all("; write " in text for text in TEXTS.values())


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"])
def test_the_minutes_of_a_year_are_those_that_come_up(zone: str) -> None:
    """The number that stands for a year of a cron agrees with upcoming(), through both changes of the clock."""
    chance = random.Random(zone)
    start = datetime(2024, 2, 3, 4, 5, tzinfo=UTC)
    for _ in range(12):
        hour, day = chance.choice(["*/5", "0-3", "0,23", "2"]), chance.choice(["*", "*/3", "5-29"])
        cron = parse(f"{chance.randrange(60)},7 {hour} {day} * {chance.choice(['*', 'SUN', '0-5'])}")
        bits, due = slots(cron, spans(ZoneInfo(zone), start)), []
        for moment in cron.upcoming(start - timedelta(minutes=1), ZoneInfo(zone)):
            if moment >= start + timedelta(days=366):
                break
            due.append(moment)
        assert (bits.bit_count(), start + first(bits)) == (len(due), due[0])
        assert all(bits >> (moment - start) // timedelta(minutes=1) & 1 for moment in due), cron.expression


def test_catch_up_that_makes_nothing_up(tmp_path: Path) -> None:
    """With slots of each node, and with an interval that is due again before a slot is old enough."""
    more = 'catch_up = "1h"\n'
    text = PARIS + job("@daily", "ok", more) + job("@daily", "by-node", f'{more}scope = "node"\n')
    for every in ("90s", "2m"):
        text += f'[[job]]\nname = "{every}"\nevery = "{every}"\ncommand = "true"\n{more}'
    found = said(tmp_path, text)
    assert [(one.code, one.job) for one in found] == [("catch-up-unused", "by-node"), ("catch-up-unused", "90s")]
    assert found[1].text == (
        'catch_up makes nothing up: with every = "90s" it is due again before a slot is two minutes old; write'
        ' catch_up = "", or leave it out'
    )


@pytest.mark.parametrize(
    ("cron", "more", "is_said"),
    [
        ("* * * * *", "", True),
        ("*/1 0-23 1-31 * *", "", True),
        ("* * * * *", "overlap = true", False),
        ("*/2 * * * *", "", False),
        ("0-58 * * * *", "", False),
        ("* 9-17 * * *", "", False),
        ("* * * * MON-FRI", "", False),
    ],
)
def test_catch_up_of_what_is_due_each_minute(tmp_path: Path, cron: str, more: str, is_said: bool) -> None:
    """A missed slot is barred by the job's own new run; where there is a pause the last one before it is made up."""
    found = of_job(tmp_path, job(cron, more=f'catch_up = "1h"\n{more}'))
    sentence = f'catch_up makes nothing up: with cron = "{cron}" it is due again each minute, and that run bars a '
    sentence += 'missed one; write catch_up = "", or leave it out'
    assert found == [("catch-up-unused", sentence)] * is_said
