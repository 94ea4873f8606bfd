"""`list`, `history` and `show`, as a person and a script read them."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from conftest import Database
from recorded import DUE, HARMLESS, HOSTILE, KEYS, SCHEDULE, Run, failed, installed, record, running


@pytest.fixture
def ledger(database: Database, tmp_path: Path) -> Database:
    """An installed ledger of each kind beside the schedule, named by its DSN there."""
    return installed(database, tmp_path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    """The same on SQLite alone, where no SQL is at stake."""
    return installed(Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), tmp_path)


def next_year(zone: str) -> int:
    """The year whose first day is next, seen from `zone`."""
    return datetime.now(ZoneInfo(zone)).year + 1


def test_list_shows_each_job_with_its_next_and_its_last_run(ledger: Database, run: Run) -> None:
    """A line for each job: expression, next run with offset in the schedule's zone, last run and how it ended."""
    record(ledger, 0)
    failed(ledger, 1, "reports:build")
    done = run("list")
    paris, york = f"{next_year('Europe/Paris')}-01-01", f"{next_year('America/New_York')}-01-01"
    assert done.stdout.splitlines() == [
        "JOB             CRON                          NEXT                    LAST RUN",
        f"sessions:prune  15 3 1 1 *                    {paris} 03:15+01:00  completed 2026-03-01 03:15+01:00 in 1.4s",
        f"reports:build   0 4 1 1 * (America/New_York)  {york} 10:00+01:00  failed 2026-03-02 03:15+01:00: {HARMLESS}",
        "loads:eu        @hourly                       disabled                never ran",
    ]
    assert (done.stderr, done.returncode) == ("", 0)


def test_list_says_what_runs_now(sqlite: Database, run: Run) -> None:
    """A run in flight is shown with its start and its node."""
    running(sqlite, 0)
    assert re.search(r"running since \d{4}-\d\d-\d\d \d\d:\d\d\+\d\d:00 on web2$", run("list").stdout, re.MULTILINE)


def test_list_as_json(ledger: Database, run: Run) -> None:
    """`list --json` is an array of jobs in the order of the file, each with its last run as `history` shows it."""
    run_id = record(ledger, 0)
    first, second, third = json.loads(run("list", "--json").stdout)
    last = first.pop("last_run")
    year = next_year("Europe/Paris")
    assert first == {
        "name": "sessions:prune",
        "cron": "15 3 1 1 *",
        "every": None,
        "timezone": "Europe/Paris",
        "scope": "cluster",
        "enabled": True,
        "next_at": f"{year}-01-01T02:15:00Z",
        "stood_down_at": None,
        "paused_at": None,
        "resumes_at": None,
        "paused_by": None,
        "pause_reason": None,
        "drained_nodes": [],
    }
    assert (list(last), last["id"], last["state"]) == (KEYS, run_id, "completed")
    assert (second["timezone"], second["last_run"]) == ("America/New_York", None)
    assert (third["enabled"], third["next_at"]) == (False, None)


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("", "no ledger is named"),
        ("postgresql://app:geheim1234@127.0.0.1:1/app", "ledger unreachable"),
        ("sqlite:///not-there.db", "install"),
        ("oracle://app:geheim1234@db/app", "DSN is malformed"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_list_without_a_ledger_is_the_schedule_alone(
    tmp_path: Path, run: Run, dsn: str, why: str, options: list[str]
) -> None:
    """Whatever is wrong with the ledger, `list` shows the schedule, says why in one line on stderr, and exits 0."""
    (tmp_path / "schedule.toml").write_text(SCHEDULE)
    done = run("list", *options, env={"CRONLEDGER_DSN": dsn})
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert "geheim1234" not in done.stderr
    assert done.stderr.endswith("; so this is the schedule alone, without the last runs\n")
    assert all(name in done.stdout for name in ("sessions:prune", "reports:build", "loads:eu"))
    assert "LAST RUN" not in done.stdout


def test_history_is_newest_first(ledger: Database, run: Run) -> None:
    """A line for each run, newest first; the due time with its date where that is not the start's; nothing cut."""
    record(ledger, 0)
    failed(ledger, 1, "reports:build", node="web10", due_at=DUE)
    record(ledger, 2, cause="manual")
    done = run("history")
    assert done.stdout.splitlines() == [
        "STARTED                 JOB             DUE               NODE   TOOK   RUN       STATE",
        "2026-03-03 03:15+01:00  sessions:prune  by hand           web2   1.4s   00000002  completed",
        f"2026-03-02 03:15+01:00  reports:build   2026-03-01 03:15  web10  12.0s  00000001  failed: {HARMLESS}",
        "2026-03-01 03:15+01:00  sessions:prune  03:15             web2   1.4s   00000000  completed",
    ]
    assert (done.stderr, done.returncode) == ("", 0)


def test_history_shows_what_is_asked_for(ledger: Database, run: Run) -> None:
    """One job, only the failed ones, at most N, only those since: each alone and together."""
    record(ledger, 0)
    record(ledger, 1, "reports:build")
    failed(ledger, 2)
    failed(ledger, 3, "gone:job")
    running(ledger, 4)

    def shown(options: str) -> str:
        return "".join(one["id"][-1] for one in json.loads(run("history", "--json", *options.split()).stdout))

    wanted = {"": "43210", "-n 2": "43", "sessions:prune": "420", "sessions:prune --failed": "2", "--failed": "32"}
    wanted |= {"--since 1d": "4", "--since 365d -n1": "4", "gone:job": "3"}
    assert {options: shown(options) for options in wanted} == wanted


def test_history_as_json(ledger: Database, run: Run) -> None:
    """`history --json` is an array of runs: column names as keys, UTC with Z, texts as they are in the ledger."""
    failed(ledger, 0, output="kept")
    [shown] = json.loads(run("history", "--json").stdout)
    assert list(shown) == KEYS
    assert shown["due_at"] == "2026-03-01T02:15:00Z"
    assert shown["finished_at"] == "2026-03-01T02:15:02.400000Z"
    assert (shown["duration_ms"], shown["exit_code"], shown["failure_reason"]) == (12_000, 3, HOSTILE)
    assert (shown["active_job"], shown["held_lock"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "no run in namespace billing yet"),
        (["sessions:prune"], "no run of sessions:prune in namespace billing yet"),
        (["sessions:prune", "--failed"], "no failed run of sessions:prune in namespace billing yet"),
        (["--failed", "--since", "1d"], "no failed run in namespace billing started in the last 1d"),
    ],
)
def test_empty_history_says_so(sqlite: Database, run: Run, options: list[str], line: str) -> None:
    """An empty history is one line for a person, `[]` for a script, and no failure."""
    done = run("history", *options)
    assert (done.stdout, done.stderr, done.returncode) == (f"{line}\n", "", 0)
    assert json.loads(run("history", "--json", *options).stdout) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["sesions:prune"], 1, ["no job sesions:prune", "did you mean sessions:prune?"]),
        (["GONE:JOB"], 1, ["no job GONE:JOB", "did you mean gone:job?"]),
        (["zzz"], 1, ["no job zzz", "`cronledger list` shows the jobs"]),
        (["-n", "0"], 2, ["-n 0: write a number from 1 to 100000"]),
        (["-n", "100001"], 2, ["-n 100001: write a number from 1 to 100000"]),
        (["--since", "5"], 2, ["--since 5: "]),
        (["--dsn", "nonsense"], 2, ["DSN is malformed"]),
        (["--schedule", "nowhere.toml"], 2, ["nowhere.toml: there is no such file", "namespace"]),
    ],
)
def test_history_refuses(sqlite: Database, run: Run, arguments: list[str], status: int, words: list[str]) -> None:
    """What cannot be meant is answered with what is wrong, the nearest name, and the exit status of the contract."""
    record(sqlite, 0, "gone:job")
    done = run("history", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


WHOLE = f"""\
run       0197a0e0-0000-7000-8000-000000000001
job       reports:build
state     failed: {HARMLESS}
due       2026-03-02 03:15+01:00
node      web2, pid 4711
started   2026-03-02 03:15:01+01:00
finished  2026-03-02 03:15:02+01:00
took      12.0s
exit      3

[bold]one\\x1b[31m
\ttwo é
"""


def test_show_tells_all_of_a_run(ledger: Database, run: Run) -> None:
    """A run named by its job or by either end of its id is shown whole, with the output that was kept."""
    run_id = failed(ledger, 1, "reports:build", output="[bold]one\x1b[31m\n\ttwo é\n")
    record(ledger, 2, id=f"02{run_id[2:]}")
    for named in ("reports:build", run_id, "0197A0E0", "0197a0e0-0000-7000-8000-00000000"):
        done = run("show", named)
        assert (done.stdout, done.stderr, done.returncode) == (WHOLE, "", 0)


def test_show_takes_the_end_of_an_id_that_history_shows(sqlite: Database, run: Run) -> None:
    """The short id of `history` names its run."""
    run_id = record(sqlite, 1)
    record(sqlite, 2)
    short = run("history").stdout.splitlines()[-1].split()[-2]
    assert run("show", short).stdout.startswith(f"run       {run_id}\n")


def test_show_as_json(ledger: Database, run: Run) -> None:
    """`show --json` is the run as `history` shows it, and its output as it was kept."""
    run_id = failed(ledger, 1, output="one\n\ttwo é")
    shown = json.loads(run("show", run_id, "--json").stdout)
    assert list(shown) == [*KEYS, "output"]
    assert (shown["id"], shown["output"]) == (run_id, "one\n\ttwo é")


@pytest.mark.parametrize(
    ("write", "columns", "line"),
    [
        (record, {}, 'output    not kept: of a run that completed only keep_output = "always" keeps it'),
        (record, {"output": ""}, "output    none: the command printed nothing"),
        (
            failed,
            {},
            'output    not kept: it was reaped, its tick was gone when it ended, or its job has keep_output = "never"',
        ),
        (running, {}, "output   none yet: it is kept when the run ends, as the job's keep_output says"),
    ],
)
def test_show_says_why_there_is_no_output(
    sqlite: Database, run: Run, write: Callable[..., str], columns: dict[str, object], line: str
) -> None:
    """Instead of output a person reads why there is none."""
    write(sqlite, 0, **columns)
    assert line in run("show", "sessions:prune").stdout.splitlines()


def test_show_says_how_long_a_run_may_still_take(sqlite: Database, run: Run) -> None:
    """A running run shows its age, since and until when, and its lock; one past its window, that it is to be reaped."""
    running(sqlite, 0, held_lock="warehouse")
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+0[12]:00"
    shown = run("show", "sessions:prune").stdout
    assert re.search(r"^state    running for 1m\d+s$", shown, re.MULTILINE)
    assert re.search(rf"^started  {stamp}$", shown, re.MULTILINE)
    assert re.search(rf"^until    {stamp}, its stale_after$", shown, re.MULTILINE)
    assert re.search(rf"^reaped   from {stamp} on, if it should still be running$", shown, re.MULTILINE)
    assert "\nlock     warehouse\n" in shown
    sqlite.sql("UPDATE cronledger_runs SET expires_at = '2026-03-01 00:00:00.000000'")
    assert re.search(
        r"running for .*; its window is over, the next tick reaps it$", run("history").stdout, re.MULTILINE
    )


def test_show_says_that_a_run_is_leased(sqlite: Database, run: Run) -> None:
    """One with a lease has no end of its own but a stale_after that it was given; its lease is said instead."""
    running(sqlite, 0, lease_ms=300_000)
    shown = run("show", "sessions:prune").stdout
    assert "\nlease    5m0s\n" in shown
    assert "until" not in shown
    assert re.search(
        r"^reaped   from .* on, if it should still be running and its lease not renewed$", shown, re.MULTILINE
    )
    sqlite.sql("UPDATE cronledger_runs SET expires_at = '2026-03-01 00:00:00.000000', stale_after_ms = 7200000")
    assert re.search(r"running for .*; its lease is over, the next tick reaps it$", run("history").stdout, re.MULTILINE)
    assert re.search(r"^until    .*, its stale_after$", run("show", "sessions:prune").stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("named", "words"), [("nothing", "no run nothing"), ("0197a0e0", "more than one run"), ("01", "no run 01")]
)
def test_show_refuses_what_is_no_run_or_several(sqlite: Database, run: Run, named: str, words: str) -> None:
    """A name or id that means no run, or more than one, is an error that says so."""
    record(sqlite, 0)
    record(sqlite, 1)
    done = run("show", named)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


TAKES_A_NAME = ["history", "show", "run", "reap --yes", "pause --for 1h", "resume", "explain"]


@pytest.mark.parametrize("words", TAKES_A_NAME)
def test_a_name_that_is_none_is_answered(sqlite: Database, run: Run, words: str) -> None:
    """Bytes that are no UTF-8 name no job; an empty name, often of a variable that is not set, is wrong usage."""
    record(sqlite, 0)
    done = run(*words.split(), "\udcff\udcff\udcff\udcff")
    assert (done.stdout, done.returncode) == ("", 2 if words == "explain" else 1)
    assert len(done.stderr.splitlines()) == 1
    assert "\\udcff" in done.stderr
    done = run(*words.split(), "")
    assert (done.stdout, done.returncode) == ("", 2)
    assert re.fullmatch(r"cronledger: [A-Z-]+ is empty: is a variable of the shell not set\? .*\n", done.stderr)


@pytest.mark.parametrize("words", ["tick --at=", "tick --dry-run --at=", "run nightly --wait=", "list --schedule="])
def test_an_option_that_is_empty_is_wrong_usage(run: Run, words: str) -> None:
    """As of a variable of the shell that is not set: it is not as if it had been left out."""
    done = run(*words.split())
    option = words.split()[-1].removesuffix("=")
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith(f"cronledger: {option} is empty: is a variable of the shell not set? ")


@pytest.mark.parametrize(("typed", "meant"), [("histroy", "history"), ("lst", "list"), ("shw", "show")])
def test_near_miss_of_a_command_names_it(run: Run, typed: str, meant: str) -> None:
    """A mistyped command is answered with the nearest one, and exit status 2."""
    done = run(typed)
    assert done.returncode == 2
    assert f"Did you mean '{meant}'" in done.stderr


@pytest.mark.parametrize("command", ["list", "history", "show"])
def test_help_shows_examples(run: Run, command: str) -> None:
    """The help of each command has examples to copy."""
    shown = run(command, "--help").stdout
    assert re.search(rf"Examples:\n +cronledger {command}", shown)
    assert "--json" in shown
