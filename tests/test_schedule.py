"""A schedule file: what it becomes, and every mistake in it at its line."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cronledger import schedule
from cronledger.errors import ScheduleRefused
from cronledger.schedule import Schedule, load

ROOT = Path(__file__).resolve().parent.parent
HEAD = 'timezone = "UTC"\nnamespace = "test"\n'
JOB = '[[job]]\nname = "a"\ncron = "* * * * *"\ncommand = "true"\n'
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TZ", raising=False)
    return tmp_path


def loaded(text: str) -> Schedule:
    Path("schedule.toml").write_text(text)
    return load("schedule.toml")


def mistakes(text: str | bytes) -> list[str]:
    """The lines with which the text is refused, without the path that each begins with."""
    Path("schedule.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ScheduleRefused) as refused:
        load("schedule.toml")
    assert all(line.startswith("schedule.toml:") for line in str(refused.value).split("\n"))
    return [line.removeprefix("schedule.toml:") for line in str(refused.value).split("\n")]


def test_the_example_loads_and_shows_every_key(folder: Path) -> None:
    """The example is a schedule without mistakes, with something due every minute, in which no key is missing."""
    example = ROOT / "schedule.example.toml"
    assert [job.name for job in load(example).due(NOON.replace(minute=1))] == ["heartbeat"]
    written = set(re.findall(r"^(?:# )?\[*(\w+)(?:\]| =)", example.read_text(), re.MULTILINE))
    assert {*schedule._TOP_KEYS, *schedule._LEDGER_KEYS, *schedule._JOB_KEYS} <= written


def test_a_job_has_what_it_says_over_the_defaults_over_what_is_built_in(folder: Path) -> None:
    """A key of the job wins over [defaults]; env is merged name by name; "" drops an inherited lock or catch_up."""
    bare, full = loaded(
        f"""{HEAD}[defaults]
        lock = "db"
        catch_up = "2h"
        env = {{ A = "1", B = "1" }}
        cwd = "sub"
        {JOB}[[job]]
        name = "b"
        cron = "@daily"
        command = ["x", "-y"]
        stale_after = "1h30m"
        lock = ""
        catch_up = ""
        overlap = true
        timezone = "Asia/Tokyo"
        env.B = "2"
        """
    ).jobs
    assert (bare.line, bare.stale_after, bare.zone_name, bare.lock) == (8, timedelta(hours=1), "UTC", "db")
    assert (bare.catch_up, full.catch_up) == (timedelta(hours=2), None)
    assert (bare.cwd, bare.env, bare.argv) == (f"{folder}/sub", {"A": "1", "B": "1"}, ("/bin/sh", "-c", "true"))
    assert (bare.description, bare.enabled, bare.keep_output, bare.report) == ("", True, "failed", "all")
    assert (full.line, full.stale_after, full.zone_name, full.lock) == (12, timedelta(minutes=90), "Asia/Tokyo", None)
    assert (full.overlap, full.env, full.argv) == (True, {"A": "1", "B": "2"}, ("x", "-y"))


def test_a_lease_stands_in_place_of_the_window_that_is_built_in(folder: Path) -> None:
    """Of stale_after only what the job or [defaults] says counts beside a lease; "" drops an inherited one."""
    lines = {
        "": (timedelta(hours=1), None),
        'lease = "5m"': (None, timedelta(minutes=5)),
        'lease = "5m"\nstale_after = "2h"': (timedelta(hours=2), timedelta(minutes=5)),
    }
    inherited = {
        'lease = ""': (timedelta(hours=3), None),
        'stale_after = ""': (None, timedelta(minutes=7)),
        'lease = ""\nstale_after = ""': (timedelta(hours=1), None),
    }
    for head, windows in ((HEAD, lines), (f'{HEAD}[defaults]\nstale_after = "3h"\nlease = "7m"\n', inherited)):
        for line, window in windows.items():
            [job] = loaded(f"{head}{JOB}{line}\n").jobs
            assert (job.stale_after, job.lease) == window


def test_the_jobs_due_are_the_enabled_ones_in_the_order_of_the_file(folder: Path) -> None:
    """Seconds do not matter, each job goes by its own zone, and a naive moment is refused."""
    read = loaded(
        HEAD
        + JOB.replace('"a"', '"z"')
        + JOB.replace("* * * * *", "0 21 * * *")
        + 'timezone = "Asia/Tokyo"\n'
        + JOB.replace('"a"', '"off"')
        + "enabled = false\n"
        + JOB.replace('"a"', '"b"').replace("* * * * *", "1 12 * * *")
    )
    assert [job.name for job in read.due(NOON.replace(second=59, microsecond=999))] == ["z", "a"]
    assert [job.due(NOON) for job in read.jobs] == [True, True, True, False]
    with pytest.raises(ValueError, match="has no time zone"):
        read.due(NOON.replace(tzinfo=None))


TYPES = {
    "timezone = 1": "1: timezone: is a number; write a string in quotes",
    'timezone = "Europe/Pariss"': '1: timezone: unknown time zone "Europe/Pariss"; write "Europe/Paris"',
    'timezone = "CEST"': '1: timezone: unknown time zone "CEST"; write a name such as "Europe/Paris"',
    'timezone = "GMT+2"': '1: timezone: unknown time zone "GMT+2"; write a name such as "Europe/Paris"',
    'timezone = "cest"': '1: timezone: unknown time zone "cest"; write a name such as "Europe/Paris"',
    'timezone = "utc"': '1: timezone: unknown time zone "utc"; write "UTC"',
    'timezone = "PARIS"': '1: timezone: unknown time zone "PARIS"; write "Europe/Paris"',
    'timezone = "Nowhere/City"': '1: timezone: unknown time zone "Nowhere/City"; write a name such as "Europe/Paris"',
    'timezone = "/etc/localtime"': '1: timezone: unknown time zone "/etc/localtime"; write "local"',
    'timezone = "tokyo"': '1: timezone: unknown time zone "tokyo"; write "Asia/Tokyo"',
    'namespace = "a b"': '1: namespace: "a b" is not a name; write ASCII letters, digits and . _ : / -, at most 128, '
    "starting with a letter or digit",
    'env_file = ""': "1: env_file: is empty; write something, or leave the key out",
    "max_running = 0": "1: max_running: is less than 1; write 1 or more, or leave the key out",
    "max_running = 10_001": "1: max_running: is more than 10000; write at most 10000, or leave the key out",
    "max_running = true": "1: max_running: is a boolean; write a whole number, without quotes",
    "max_running = '8'": "1: max_running: is a string; write a whole number, without quotes",
    "ledger = 1": "1: ledger: is a number; write a table",
    "ledger = { keep = '90' }": '1: ledger.keep: "90" is not a duration; write "90d" for days',
    "ledger = { keep = 90 }": '1: ledger.keep: is a number; write "90d"',
    "ledger = { keep = '23h' }": '1: ledger.keep: "23h" is shorter than a day; write at least "1d"',
    "ledger = { dns = 'x' }": "1: ledger.dns: unknown key; write dsn",
    "namespce = 'x'": "1: namespce: unknown key; write namespace",
    "defaults = { every = '5m' }": "1: defaults.every: is not a key of [defaults]; write it in each [[job]]",
    "defaults = { command = 'x' }": "1: defaults.command: is not a key of [defaults]; write it in each [[job]]",
}


@pytest.mark.parametrize(("line", "sentence"), TYPES.items())
def test_a_mistake_above_the_jobs_names_its_key(folder: Path, line: str, sentence: str) -> None:
    """One of each kind, to the letter."""
    assert mistakes(f"{line}\n{JOB}") == [sentence]


KEYS = {
    "name = 5": "name: is a number; write a name in quotes",
    'cron = "0 0 31 2 *"': 'cron: "0 0 31 2 *" can never be due; write a day that one of its months has',
    'cron = "0 0 * *"': 'cron: "0 0 * *" has 4 fields; write five: minute hour day-of-month month day-of-week',
    'command = " "': 'command: is empty; write what is to run, as in "bin/report --all"',
    "command = []": 'command: is an empty array; write the program and its arguments, as in ["bin/report", "--all"]',
    'command = ["", "x"]': "command: names no program; write the program as the first string",
    r'command = "a\u0000b"': "command: holds a NUL character; write it without",
    "retries = 101": "retries: is not between 0 and 100; write 0 to 100",
    f"retries = 0x{'f' * 5000}": "retries: is not between 0 and 100; write 0 to 100",
    "retries = -1": "retries: is not between 0 and 100; write 0 to 100",
    "retries = true": "retries: is a boolean; write a whole number, without quotes, as in 3",
    "retry_delay = '30'": 'retry_delay: "30" is not a duration; write "30s" for seconds',
    "retry_delay = 30": 'retry_delay: is a number; write "30s"',
    "lease = 5": 'lease: is a number; write "5m"',
    'lease = "59s"': 'lease: "59s" is shorter than a minute; write at least "1m"',
    "stale_after = 60": 'stale_after: is a number; write "60m"',
    "stale_after = -5": 'stale_after: is a number; write "5m"',
    "stale_after = true": "stale_after: is a boolean; write whole d, h, m, s in this order, as in "
    '"90s", "10m", "1h30m" or "2d"',
    'stale_after = "59s"': 'stale_after: "59s" is shorter than a minute; write at least "1m"',
    'stale_after = "366d"': 'stale_after: "366d" is longer than 365d; write at most "365d"',
    "catch_up = 120": 'catch_up: is a number; write "120m"',
    'catch_up = "119s"': 'catch_up: "119s" is shorter than two minutes; write at least "2m", or "" for none',
    'enabled = "yes"': "enabled: is a string; write true or false, without quotes",
    "description = 2026-01-01": "description: is a date or time; write a string in quotes",
    "cwd = ''": "cwd: is empty; write something, or leave the key out",
    "env = []": "env: is an array; write a table",
    "env.PORT = 80": "env.PORT: is a number; write a string in quotes",
    "env.CRONLEDGER_JOB = 'x'": "env.CRONLEDGER_JOB: is set by cronledger for each run; leave it out",
    "env.'A=B' = 'x'": 'env."A=B": is not a name for a variable; write one that is not empty and holds neither = nor '
    "NUL",
    "lock = '-x'": 'lock: "-x" is not a name; write ASCII letters, digits and . _ : / -, at most 128, starting with a '
    "letter or digit",
    "keep_output = 'no'": 'keep_output: is "no"; write "failed" or "always" or "never"',
    "report = true": 'report: is a boolean; write "all" or "problems"',
    "on_failure = 1": "on_failure: is a number; write a string for the shell, or an array of strings",
    "on_recovery = []": "on_recovery: is an empty array; write the program and its arguments, as in "
    '["bin/report", "--all"]',
    "env.CRONLEDGER_STATE = 'x'": "env.CRONLEDGER_STATE: is set by cronledger for each run; leave it out",
    'every = "30s"': "every: excludes cron; leave one of the two out",
    "every = '30'": 'every: "30" is not a duration; write "30s" for seconds',
    "every = 30": 'every: is a number; write "30s"',
    'every = "0s"': 'every: "0s" is not between 1s and 24h; write at least "1s" and at most "24h"',
    'every = "25h"': 'every: "25h" is not between 1s and 24h; write at least "1s" and at most "24h"',
    'every = "1.5s"': 'every: "1.5s" is not a duration; write whole d, h, m, s in this order, as in "90s", "10m", '
    '"1h30m" or "2d"',
    "stale_afte = '5m'": "stale_afte: unknown key; write stale_after",
}


@pytest.mark.parametrize(("line", "sentence"), KEYS.items())
def test_a_mistake_in_a_job_names_the_line_the_job_and_the_key(folder: Path, line: str, sentence: str) -> None:
    """One of each kind, to the letter; the key's own line stands before it."""
    key = line.partition(" ")[0]
    replaced = "cron" if key == "every" and "excludes" not in sentence else key
    lines = [kept for kept in JOB.splitlines() if not kept.startswith(f"{replaced} ")]
    text = HEAD + "\n".join([lines[0], *lines[1:], line])
    number = text.count("\n") + 1
    named = "" if key == "name" else "job a: "
    assert mistakes(text) == [f"{number}: {named}{sentence}"]


def test_every_mistake_is_said_at_once_in_the_order_of_the_file(folder: Path) -> None:
    """Mistakes between jobs stand at the second of them, and name the line of the first."""
    first = JOB.replace('"a"', '"job:A"') + 'lock = "DB"\n'
    second = '[[job]]\nname = "job:a"\ncron = "* * * *"\nlock = "db"\noverlap = true\n'
    assert (
        "\n".join(mistakes(HEAD + "nmaespace = 1\n" + first + second))
        == """\
3: nmaespace: unknown key; write namespace
9: job job:a: command: is missing; write command = "bin/prune-sessions"
10: job job:a: name: has the name of job job:A on line 5; write another (case does not tell two names apart)
11: job job:a: cron: "* * * *" has 4 fields; write five: minute hour day-of-month month day-of-week
12: job job:a: lock: "db" differs only in case from "DB" on line 8; write both alike, or names that differ otherwise
13: job job:a: overlap: excludes the lock "db"; write overlap = false, or lock = "" to drop the lock"""
    )


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("comand = 'true'\ncron = '@daily'", "5: job a: comand: unknown key; write command"),
        ("cmd = 'true'\ncron = '@daily'", "5: job a: cmd: unknown key; write command"),
        ("command = 'true'\ncorn = '@daily'", "6: job a: corn: unknown key; write cron"),
    ],
)
def test_a_required_key_that_was_misspelt_is_one_mistake(folder: Path, keys: str, sentence: str) -> None:
    """The misspelt one is told, not also that the right one is missing."""
    assert mistakes(f"{HEAD}[[job]]\nname = 'a'\n{keys}\n") == [sentence]


PLACES = {
    "env_file": "the top: write it above the first [table]",
    "namespace": "the top: write it above the first [table]",
    "max_running": "the top: write it above the first [table]",
    "keep": "[ledger]: write it there",
    "dsn": "[ledger]: write it there",
    "name": "[[job]]: write it there",
    "on_failure": "[[job]] and [defaults]: write it there",
    "stale_after": "[[job]] and [defaults]: write it there",
    "timezone": "the top, [[job]] and [defaults]: write it there",
}


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("", ["keep", "dsn", "name", "on_failure", "stale_after"]),
        ("[ledger]", ["env_file", "namespace", "max_running", "name", "on_failure", "timezone"]),
        ("[defaults]", ["env_file", "namespace", "max_running", "keep", "dsn"]),
        ("[[job]]", ["env_file", "namespace", "max_running", "keep", "dsn"]),
    ],
)
def test_a_key_of_another_table_is_told_where_it_belongs(folder: Path, table: str, keys: list[str]) -> None:
    """And not one of this table that only looks like it."""
    lines = [f"{key} = 'x'" for key in keys]
    head = [table, *lines] if table in ("[ledger]", "[defaults]") else ["", "", *(lines if not table else [])]
    text = HEAD + "\n".join([*head, *JOB.splitlines(), *(lines if table == "[[job]]" else [])])
    named = "job a: " if table == "[[job]]" else "defaults." if table == "[defaults]" else "ledger." if table else ""
    told = [line.partition(": ")[2] for line in mistakes(text)]
    assert told == [f"{named}{key}: unknown key; it is a key of {PLACES[key]}" for key in keys]


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "1: the file is empty; write a [[job]] with name, cron and command"),
    "no job": (HEAD.encode(), "1: there is no job; write a [[job]] with name, cron and command"),
    "one table": (b"[job]\nname = 'a'\n", "1: job: is a table; write it in double brackets, as in [[job]]"),
    "a job that is none": (b"job = [\n\n3]\n", "3: is a number; write a [[job]] with name, cron and command"),
    "latin-1": ("\n# é".encode("latin-1"), "2: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
    "utf-16": ("x".encode("utf-16"), "1: the byte 0xff is not UTF-8; save the file as UTF-8"),
    "syntax": (b"a = 1\nb = \n", "2: not TOML: Invalid value; strings stand in quotes, see https://toml.io/en/v1.0.0"),
    "a table twice": (
        b"[defaults]\n[defaults]\n",
        "2: not TOML: Cannot declare [defaults] twice; write each key and each table once, see https://toml.io/en/v1.0.0",
    ),
    "a job too few brackets": (
        b"[job]\nname = 'a'\n[job]\n",
        "3: not TOML: Cannot declare [job] twice; write each job below a [[job]] of its own, see https://toml.io/en/v1.0.0",
    ),
    "a table within": (
        b"a = {b.'x y' = {}}\n[a.b.'x y'.c]\n",
        """2: not TOML: Cannot declare [a.b."x y".c] twice; write each key and each table once, \
see https://toml.io/en/v1.0.0""",
    ),
    "unclosed": (
        b'\n\nname = "x',
        "3: not TOML: Unterminated string; strings stand in quotes, see https://toml.io/en/v1.0.0",
    ),
    "huge": (
        b"a = 1\nb = " + b"9" * 5000 + b"\nc = 1\n",
        """2: too much for the TOML parser (Exceeds the limit (4300 digits) for integer string conversion); \
write it smaller""",
    ),
    "deep": (
        b"\n\na = " + b"[" * 5000,
        "3: too much for the TOML parser (maximum recursion depth exceeded); write it smaller",
    ),
}


@pytest.mark.parametrize(("data", "sentence"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_schedule_is_refused_with_the_line(folder: Path, data: bytes, sentence: str) -> None:
    """Whatever the parser makes of it, it is a mistake like any other."""
    assert mistakes(data) == [sentence]


def test_a_file_that_cannot_be_read_is_refused_without_a_line(folder: Path) -> None:
    """The path is shown as it was given."""
    with pytest.raises(ScheduleRefused, match=r"^\./x\.toml: cannot be read: No such file or directory; name another"):
        load("./x.toml")


def test_a_byte_order_mark_and_crlf_are_accepted(folder: Path) -> None:
    """What an editor on Windows saves is the same schedule."""
    Path("schedule.toml").write_bytes(b"\xef\xbb\xbf" + (HEAD + JOB).replace("\n", "\r\n").encode())
    assert [(job.line, job.name) for job in load("schedule.toml").jobs] == [(3, "a")]
