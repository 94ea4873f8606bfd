"""`check`, `explain` and `import`: what is printed, where, and with which exit status."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

GOOD = """\
timezone = "Europe/Paris"
namespace = "billing"

[[job]]
name = "sessions:prune"
cron = "15 5 * * *"
command = "true"

[[job]]
name = "loads:eu"
cron = "*/10 9-17 * * 1-5"
timezone = "America/New_York"
command = "true"
enabled = false
"""
WARNED = GOOD + '\n[[job]]\nname = "both"\ncron = "0 5 1 * 1"\ncommand = "true"\n'
REFUSED = WARNED.replace("15 5 * * *", "5/15 * * * *").replace("*/10 9-17", "60 9-17")


@pytest.fixture
def schedule(tmp_path: Path) -> Callable[[str], None]:
    """Writes the schedule of the test's folder."""

    def write(text: str) -> None:
        (tmp_path / "schedule.toml").write_text(text)

    return write


def test_check_of_a_good_schedule_is_one_line(schedule: Callable[[str], None], run: Run) -> None:
    """Nothing to complain of is said in one line that counts the jobs; no ledger and no environment is needed."""
    schedule(GOOD + '\n[ledger]\ndsn = "${NOT_SET}"\n')
    done = run("check", "--strict")
    assert (done.stdout, done.stderr, done.returncode) == (
        "schedule.toml: no mistakes, no warnings; 2 jobs, 1 of them disabled\n",
        "",
        0,
    )


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 1), (["--strict", "--allow", "both-days"], 0)])
def test_check_prints_warnings(schedule: Callable[[str], None], run: Run, options: list[str], status: int) -> None:
    """A warning is a line on stdout that names place, job and code; it fails with --strict only, unless allowed."""
    schedule(WARNED)
    done = run("check", *options)
    assert (done.stderr, done.returncode) == ("", status)
    [line] = done.stdout.splitlines()
    assert line.startswith("schedule.toml:16: job both: warning both-days: ") != ("--allow" in options)


def test_check_prints_all_mistakes(schedule: Callable[[str], None], run: Run) -> None:
    """Every mistake is a line on stderr, as it is, and the exit status is 2."""
    schedule(REFUSED)
    done = run("check", "--allow", "both-days")
    assert (done.stdout, done.returncode) == ("", 2)
    assert [line.partition(": minute")[0] for line in done.stderr.splitlines()] == [
        "schedule.toml:6: job sessions:prune: cron",
        "schedule.toml:11: job loads:eu: cron",
    ]


@pytest.mark.parametrize(
    ("dsn", "sentence"),
    [
        ("postgres//app:hunter2@db/app", "it starts with none of the known schemes; write postgresql://, mysql://, "),
        ("mysql://app:hunter2@db", "it names no database; write it behind the host, as in mysql://host/database\n"),
        ("postgres//app:${PASSWORD}@db/app", None),
        ("sqlite:///ledger.db", None),
    ],
)
def test_check_refuses_a_dsn_without_a_variable(
    schedule: Callable[[str], None], run: Run, dsn: str, sentence: str | None
) -> None:
    """That is malformed, at its line and without a word of it; one with a variable only the nodes know."""
    schedule(f'{GOOD}\n[ledger]\ndsn = "{dsn}"\n')
    done = run("check")
    assert (done.returncode, "hunter2" in done.stderr) == (2 if sentence else 0, False)
    if sentence:
        assert done.stderr.startswith(f"schedule.toml:17: ledger.dsn: {sentence}")
        [mistake] = json.loads(run("check", "--json").stdout)["mistakes"]
        assert (mistake["line"], mistake["key"]) == (17, "ledger.dsn")


def test_check_as_json(schedule: Callable[[str], None], run: Run) -> None:
    """`check --json` is one object of the schedule's path, its mistakes and its warnings."""
    schedule(WARNED)
    shown = json.loads(run("check", "--json").stdout)
    [warning] = shown["warnings"]
    assert (list(shown), shown["schedule"], shown["mistakes"]) == (
        ["schedule", "mistakes", "warnings"],
        "schedule.toml",
        [],
    )
    assert list(warning) == ["code", "line", "job", "text"]
    assert (warning["code"], warning["line"], warning["job"]) == ("both-days", 16, "both")
    schedule(REFUSED)
    done = run("check", "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["warnings"]) == (2, [])
    assert shown["mistakes"][0] == {
        "line": 6,
        "job": "sessions:prune",
        "key": "cron",
        "wrong": 'minute "5/15" puts a step on a single value',
        "instead": 'write "5-59/15"',
    }


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_check_tells_no_password(schedule: Callable[[str], None], run: Run, options: list[str]) -> None:
    """A DSN in the wrong place, as a value, a key or a job's name, is masked; each mistake keeps its own words."""
    dsn = "postgresql://app:Secret Pass-1@db/app"
    wrong = GOOD.replace("billing", dsn).replace("loads:eu", dsn).replace("enabled", f'"{dsn}"')
    schedule(wrong.replace("15 5 * * *", "@reboot"))
    done = run("check", *options)
    assert done.returncode == 2
    assert not re.search("Secret|Pass-1", done.stdout + done.stderr)
    assert "postgresql://***@db/app" in (done.stdout or done.stderr)
    assert len(done.stderr.splitlines()) == 4
    if options:
        assert len(json.loads(done.stdout)["mistakes"]) == 4
        assert done.stdout.count("postgresql://***@db/app") >= 4


def test_check_knows_its_codes(schedule: Callable[[str], None], run: Run) -> None:
    """An unknown code is wrong usage, answered with the known ones."""
    schedule(GOOD)
    done = run("check", "--allow", "both_days")
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith("cronledger: --allow both_days: no warning has this code; the codes are ")
    assert "both-days" in done.stderr


def test_explain_tells_a_job(schedule: Callable[[str], None], run: Run) -> None:
    """A job is explained in its own zone: words, the next five times with their offsets, whether it is enabled."""
    schedule(GOOD)
    done = run("explain", "loads:eu")
    head, times = done.stdout.splitlines()[:5], done.stdout.splitlines()[5:]
    assert head == [
        "job       loads:eu",
        "cron      */10 9-17 * * 1-5",
        "in words  every 10 minutes from 09:00 to 17:50, Monday to Friday",
        "timezone  America/New_York",
        "enabled   no: it is not run",
    ]
    assert [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d0-0[45]:00$", "TIME", line) for line in times] == [
        "next      TIME",
        *["          TIME"] * 4,
    ]
    assert (done.stderr, done.returncode) == ("", 0)


def test_explain_as_json(schedule: Callable[[str], None], run: Run) -> None:
    """`explain --json` is one object; the times are UTC."""
    schedule(GOOD)
    shown = json.loads(run("explain", "sessions:prune", "--json").stdout)
    assert list(shown) == ["expression", "words", "timezone", "next_at", "warnings"]
    assert (shown["expression"], shown["words"]) == ("15 5 * * *", "at 05:15 every day")
    assert (shown["timezone"], shown["warnings"]) == ("Europe/Paris", [])
    times = [datetime.fromisoformat(text).astimezone(ZoneInfo("Europe/Paris")) for text in shown["next_at"]]
    assert [(time.hour, time.minute) for time in times] == [(5, 15)] * 5
    assert [(time.date() - times[0].date()).days for time in times] == [0, 1, 2, 3, 4]
    assert times[0] > datetime.now(UTC) - timedelta(minutes=5)
    assert all(text.endswith(":00Z") for text in shown["next_at"])


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("@weekly", "at 00:00 on every Sunday"),
        ("15 3 * * *", "at 03:15 every day"),
        ("\t*/15  * * * *", "every 15 minutes"),
    ],
)
@pytest.mark.parametrize(
    ("text", "zone"),
    [(None, "local: this node's own zone, since there is no schedule here"), (GOOD, "Europe/Paris")],
)
def test_explain_tells_an_expression(
    schedule: Callable[[str], None], run: Run, expression: str, words: str, text: str | None, zone: str
) -> None:
    """An expression is read in the schedule's zone, and without a schedule in the node's own, which is said."""
    if text is not None:
        schedule(text)
    done = run("explain", expression)
    assert f"in words  {words}\n" in done.stdout
    assert f"timezone  {zone}\n" in done.stdout
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ("0 5 1 * 1", ["both-days"]),
        ("30 2 * * *", ["dst-repeat", "dst-skip"]),
        ("0,20 * * * *", []),
        ("0,20 0-23 * * *", ["dst-repeat", "dst-skip", "often-without-star"]),
        ("*/20 * * * *", []),
        ("*/60 */24 * * *", []),
        ("*/90 * * * *", ["long-step"]),
        ("5 */36 * * *", ["long-step"]),
        ("nightly", ["dst-repeat", "dst-skip"]),
    ],
)
def test_explain_warns(schedule: Callable[[str], None], run: Run, asked: str, codes: list[str]) -> None:
    """What `check` has to say of an expression is said of one that is only asked about, and of a job."""
    schedule(GOOD + '\n[[job]]\nname = "nightly"\ncron = "30 2 * * *"\ncommand = "true"\n')
    shown = json.loads(run("explain", asked, "--json").stdout)
    assert sorted(warning["code"] for warning in shown["warnings"]) == codes
    lines = run("explain", asked).stdout.splitlines()
    assert sorted(line.split()[1].rstrip(":") for line in lines if line.startswith("warning")) == codes


def test_explain_says_never(run: Run) -> None:
    """An expression that no calendar has a day for has no next time."""
    done = run("explain", "0 0 31 2 *")
    assert "next      never: no month that it names has such a day\n" in done.stdout
    assert json.loads(run("explain", "0 0 31 2 *", "--json").stdout)["next_at"] == []


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("5/15 * * * *", 2, 'minute "5/15" puts a step on a single value; write "5-59/15"'),
        ("*/5", 2, '"*/5" has 1 field'),
        ("@reboot", 2, '"@reboot"'),
        ("@\x1b[2J", 2, "\\x1b[2J"),
        ("session:prune", 1, "did you mean sessions:prune?"),
        ("LOADS:EU", 1, "did you mean loads:eu?"),
        ("zzz", 1, "`cronledger list` shows the jobs"),
    ],
)
def test_explain_refuses(schedule: Callable[[str], None], run: Run, asked: str, status: int, words: str) -> None:
    """What is neither an expression nor a job is one line that says what is wrong, or names the nearest job."""
    schedule(GOOD)
    done = run("explain", asked)
    assert (done.stdout, done.returncode) == ("", status)
    assert (words in done.stderr, done.stderr.count("\n"), "\x1b" in done.stderr) == (True, 1, False)


@pytest.mark.parametrize("arguments", [["sessions:prune"], ["* * * * *", "--schedule", "nowhere.toml"]])
def test_explain_wants_the_schedule_that_is_meant(run: Run, arguments: list[str]) -> None:
    """A job cannot be explained without the schedule, nor an expression by one that was named and is not there."""
    done = run("explain", *arguments)
    assert (done.stdout, done.returncode) == ("", 2)
    assert ("nowhere.toml" if "--schedule" in arguments else "schedule.toml") in done.stderr


@pytest.mark.parametrize(
    ("options", "source"), [(["tab"], "tab"), (["-"], "stdin"), ([], "stdin"), (["--system", "tab"], "tab")]
)
def test_import_makes_a_schedule(
    tmp_path: Path, cron_environment: dict[str, str], run: Run, options: list[str], source: str
) -> None:
    """A crontab from a file or from stdin becomes a schedule, in UTF-8 whatever the locale, that `check` accepts."""
    user = "deploy " if "--system" in options else ""
    (tmp_path / "tab").write_text(f'MAILTO=ops\n5 4 * * * {user}bin/prune "é"\n*/5 * * * * {user}bin/poll\n')
    with (tmp_path / "tab").open("rb") as stdin, (tmp_path / "schedule.toml").open("wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "cronledger", "import", *options],
            cwd=tmp_path,
            env=cron_environment | {"PYTHONIOENCODING": "ascii"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0
    assert all(re.match(rf"{source}(:\d+)?: .", line) for line in done.stderr.splitlines())
    assert f"\n{source}:1: MAILTO" in f"\n{done.stderr}"
    assert 'bin/prune \\"é\\"' in (tmp_path / "schedule.toml").read_text()
    assert run("check").returncode == 0


@pytest.mark.parametrize(
    ("crontab", "line", "carried"),
    [
        ("@reboot bin/start\n5 4 * * * bin/prune\n", "tab:1: left out", True),
        ("5/15 4 * * * bin/prune\n", "tab:1: left out", False),
        ("", "tab: no job could be carried over", False),
    ],
)
def test_import_fails_when_a_job_is_left_out(tmp_path: Path, run: Run, crontab: str, line: str, carried: bool) -> None:
    """What could not be carried over is a line on stderr with its place, and the exit status is 1."""
    (tmp_path / "tab").write_text(crontab)
    done = run("import", "tab")
    assert (done.returncode, bool(done.stdout)) == (1, carried)
    assert any(said.startswith(line) for said in done.stderr.splitlines())


@pytest.mark.parametrize("file", ["nowhere", "."])
def test_import_says_what_it_cannot_read(run: Run, file: str) -> None:
    """A file that is not there or is a folder is wrong usage, said in one line."""
    done = run("import", file)
    assert (done.stdout, done.returncode) == ("", 2)
    assert re.fullmatch(rf"cronledger: {re.escape(file)}: .*; name a crontab that you may read\n", done.stderr)


def test_import_does_not_wait_for_a_typist(tmp_path: Path, cron_environment: dict[str, str]) -> None:
    """Without a file, on a terminal, it says what to type."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "cronledger", "import"]
    done = subprocess.run(command, cwd=tmp_path, env=cron_environment, stdin=slave, capture_output=True, timeout=60)
    os.close(master)
    os.close(slave)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"crontab -l | cronledger import > schedule.toml" in done.stderr


@pytest.mark.parametrize("command", ["check", "explain", "import"])
def test_help_shows_examples(run: Run, command: str) -> None:
    """The help of each command has examples to copy."""
    assert re.search(rf"Examples:\n +.*cronledger {command}", run(command, "--help").stdout)
