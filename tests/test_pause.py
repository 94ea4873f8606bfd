"""Pauses of jobs, drained nodes: obeyed by every tick, over by themselves, and never forgotten."""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Database
from deployed import AT, Deployed, Run, complained, said
from ticks import run_batches
from torture.machines import FEW_DESCRIPTORS, PLAIN, ended, start

from cronledger import pauses
from cronledger.ledger import Ledger, open_link, read_clock
from cronledger.ledger.dialect import Lost, Result, Value
from cronledger.ledger.dsn import parse
from cronledger.ledger.jobs import remembered
from cronledger.schedule import load

Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]

TWO = ('name = "reports:build"\ncommand = "true"', 'name = "ok"\ncommand = "true"')
BY = r"by alice on web1 since \d\d:\d\d"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d\+00:00"
DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d"


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """Two jobs, on each kind of database."""
    made = Deployed(tmp_path, database, run).installed()
    made.write(*TWO)
    return made


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    made = Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()
    made.write(*TWO)
    return made


def done(deployed: Deployed, *arguments: str) -> str:
    """What alice is answered, without the newline."""
    answer = deployed.cli(*arguments, SUDO_USER="alice")
    assert (answer.stderr, answer.returncode) == ("", 0)
    return answer.stdout.rstrip("\n")


def test_a_paused_job_is_claimed_by_no_node_until_it_is_resumed(deployed: Deployed) -> None:
    """Silently; by --at with a line for who asked; `list` and --dry-run tell, `run` warns and runs."""
    why = "the warehouse moves to Zürich, \u2603"
    answer = done(deployed, "pause", "reports:build", "--for", "2h", "--reason", why)
    assert re.fullmatch(rf"paused reports:build until {MOMENT}; `cronledger resume reports:build` ends it", answer)
    said(deployed.tick(), r"ran ok in \d\.\ds", status=0)
    said(deployed.tick(CRONLEDGER_NODE="web2"), status=0)
    because = rf"paused {BY} until (\d{{4}}-\d\d-\d\d )?\d\d:\d\d: the warehouse moves to Zürich, \S+"
    asked = deployed.tick("--at", "2026-01-05T10:00")
    assert re.fullmatch(f"{AT} ran ok in .*\n", asked.stdout)
    assert re.fullmatch(f"cronledger: reports:build is not claimed: {because}\n", asked.stderr)
    assert asked.returncode == 0
    planned = deployed.tick("--dry-run", PYTHONIOENCODING="utf-8").stdout.splitlines()
    assert re.fullmatch(f"would pass over reports:build: {because}", planned[0])
    listed = deployed.cli("list", PYTHONIOENCODING="utf-8").stdout.splitlines()
    assert re.fullmatch(rf"reports:build  \* \* \* \* \*  paused until {MOMENT}  never ran", listed[1])
    assert re.fullmatch(f"paused reports:build {because[7:]}", listed[4])
    [record, other] = json.loads(deployed.cli("list", "--json").stdout)
    assert (record["paused_by"], record["pause_reason"][:30]) == ("alice on web1", why[:30])
    assert record["resumes_at"] > record["paused_at"]
    assert (other["paused_at"], other["drained_nodes"]) == (None, [])
    by_hand = deployed.cli("run", "reports:build")
    assert re.fullmatch(f"cronledger: warning: reports:build is run although {because}\n", by_hand.stderr)
    assert by_hand.returncode == 0
    answer = done(deployed, "resume", "reports:build")
    assert re.match(f"resumed reports:build; ended: paused reports:build {BY} until ", answer)
    said(deployed.tick("--at", "2026-01-05T10:00"), r"ran reports:build in \d\.\ds", status=0)
    assert done(deployed, "resume", "reports:build") == "reports:build is not paused: nothing to do"


def test_a_pause_that_comes_while_a_tick_waits(embedded: Deployed, wait_for: WaitFor) -> None:
    """A tick has no descriptor left for a job for hours; once there is one, somebody has paused that job."""
    until_go = "while [ ! -e go ]; do sleep 0.05; done"
    embedded.write(*(f'name = "j{n}"\ncommand = "{until_go}"' for n in range(30)), 'name = "last"\ncommand = "true"')
    few = start(embedded, PLAIN, before=FEW_DESCRIPTORS)
    wait_for(lambda: len(embedded.rows("id", "state = 'running'")) >= 3, what="some run")
    done(embedded, "pause", "last", "--until-resumed")
    (embedded.folder / "go").touch()
    status, out, err = ended(few)
    assert (status, err, out.count(" ran ")) == (0, "", 30)
    assert embedded.rows("id", "job = 'last'") == []


def test_a_pause_is_over_by_itself(deployed: Deployed) -> None:
    """Once its time has passed the job is claimed, and another pause replaces none."""
    done(deployed, "pause", "--all", "--for", "1m")
    said(deployed.tick(), status=0)
    deployed.database.sql(f"UPDATE cronledger_jobs SET resumes_at = {deployed.ago(seconds=1)}")
    said(deployed.tick(), r"ran reports:build in \d\.\ds", r"ran ok in \d\.\ds", status=0)
    assert done(deployed, "resume", "--all") == "there is no pause of all jobs: nothing to do"
    assert done(deployed, "pause", "--all", "--until-resumed") == (
        "paused all jobs until resumed; `cronledger resume --all` ends it"
    )


def test_a_pause_replaces_the_one_before_and_says_so(deployed: Deployed) -> None:
    """It counts from the beginning of the first; all jobs and one job are paused and resumed apart."""
    done(deployed, "pause", "reports:build", "--for", "2h", "--reason", "one")
    before = deployed.database.sql("SELECT paused_at, resumes_at FROM cronledger_jobs")
    answer = done(deployed, "pause", "reports:build", "--until-resumed")
    assert re.search(rf"; in place of: paused reports:build {BY} until \S+( \S+)?: one$", answer)
    after = deployed.database.sql("SELECT paused_at, resumes_at, pause_reason FROM cronledger_jobs")
    assert after == [(before[0][0], None, "one")]
    done(deployed, "pause", "--all", "--for", "30m")
    answer = done(deployed, "resume", "--all")
    assert answer.endswith("; still paused, each by itself: reports:build")
    done(deployed, "pause", "--all", "--for", "30m")
    answer = done(deployed, "resume", "reports:build")
    assert re.search(f"; but all jobs are paused {BY} until .*: `cronledger resume --all` ends it$", answer)
    said(deployed.tick(), status=0)


def test_a_drained_node_claims_nothing_and_its_runs_end(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The others take its slots; a node that nobody knows is drained with a warning."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    deployed.write(f'name = "slow"\ncommand = "{wait}"')
    slow = spawn("tick", "--at", "2026-01-05T09:00", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    deployed.write(*TWO)
    assert done(deployed, "drain", "web1", "--reason", "new disk") == (
        "drained web1 in namespace app: its ticks there claim nothing until `cronledger undrain web1`"
    )
    said(deployed.tick(), status=0)
    assert re.search(rf"^would pass over ok: web1 is drained {BY}: new disk$", deployed.tick("--dry-run").stdout, re.M)
    assert re.search(rf"^drained web1 {BY}: new disk$", deployed.cli("list").stdout, re.M)
    assert json.loads(deployed.cli("list", "--json").stdout)[0]["drained_nodes"] == ["web1"]
    deployed.write(f"{TWO[0]}\nenabled = false")
    nothing = deployed.tick("--dry-run").stdout.splitlines()[-1]
    assert re.fullmatch(rf"nothing is due at .*; web1 is drained {BY}: new disk", nothing)
    deployed.write(*TWO)
    (tmp_path / "go").touch()
    assert re.fullmatch(rf"{AT} ran slow in .*\n", slow.communicate(timeout=30)[0])
    said(deployed.tick(CRONLEDGER_NODE="web2"), r"ran reports:build in \d\.\ds", r"ran ok in \d\.\ds", status=0)
    assert re.fullmatch(
        f"undrained web1 in namespace app; ended: drained web1 {BY}: new disk", done(deployed, "undrain", "web1")
    )
    assert done(deployed, "undrain", "web1") == "web1 is not drained in namespace app: nothing to do"
    said(deployed.tick("--at", "2026-01-05T10:00"), r"ran reports:build in .*", r"ran ok in .*", status=0)
    unknown = deployed.cli("drain", "Web2")
    assert unknown.stdout == (
        "drained Web2 in namespace app: its ticks there claim nothing until `cronledger undrain Web2`\n"
    )
    assert "warning: no tick of a node Web2 is known in namespace app" in unknown.stderr
    assert unknown.returncode == 0


def test_a_node_is_drained_in_one_namespace(deployed: Deployed) -> None:
    """The others in which it ticks, or is drained, are named on stderr, as long as there is something left to do."""
    deployed.tick()
    schedule = deployed.folder / "schedule.toml"
    schedule.write_text(schedule.read_text().replace('"app"', '"live"'))
    first = deployed.cli("drain", "web1")
    assert "in namespace live: its ticks there claim nothing" in first.stdout
    warned, *left = first.stderr.splitlines()
    assert "warning: no tick of a node web1 is known in namespace live; is that its name?" in warned
    remembers_nodes = deployed.database.kind != "sqlite"  # which serves one machine
    assert left == ["cronledger: web1 also ticks in: app; drain it there too, by that schedule"] * remembers_nodes
    schedule.write_text(schedule.read_text().replace('"live"', '"app"'))
    done(deployed, "drain", "web1")
    undrained = deployed.cli("undrain", "web1", "--json")
    assert undrained.stderr == "cronledger: web1 is drained in: live; undrain it there too, by that schedule\n"
    schedule.write_text(schedule.read_text().replace('"app"', '"live"'))
    done(deployed, "undrain", "web1")


def test_one_tick_a_day_says_what_is_paused(
    deployed: Deployed, cron_environment: dict[str, str], tmp_path: Path
) -> None:
    """From a day on, one of eight ticks at once, and exit 1; a pause that is shorter, or over, is silent."""
    done(deployed, "pause", "reports:build", "--until-resumed", "--reason", "moving")
    done(deployed, "pause", "ok", "--for", "2h")
    done(deployed, "pause", "--all", "--for", "7d")
    assert "drained web9" in deployed.cli("drain", "web9", SUDO_USER="alice").stdout
    options = ["--schedule", f"{tmp_path}/schedule.toml", "--dsn", deployed.dsn]
    batch = [[*options, "--node", f"web{number}"] for number in range(8)]

    def printed() -> tuple[list[str], list[int]]:
        [ended] = run_batches([batch], cron_environment)
        assert {err for _, _, err in ended} == {""}
        lines = sorted(line.partition(" ")[2] for _, out, _ in ended for line in out.splitlines())
        return lines, [status for status, _, _ in ended]

    assert printed() == ([], [0] * 8)
    since = f"by alice on web1 since {DAY}"
    wanted = [f"drained web9 {since}", f"paused all jobs {since} until {DAY}", f"paused reports:build {since}: moving"]
    for column in ("paused_at", "reminded_at"):
        aged = f"UPDATE cronledger_jobs SET {column} = {deployed.ago(hours=25)}"
        deployed.database.sql(f"{aged} WHERE paused_at IS NOT NULL AND job <> 'ok'")
        lines, statuses = printed()
        assert len(lines) == 3, lines
        assert all(re.fullmatch(pattern, line) for pattern, line in zip(wanted, lines, strict=True)), lines
        assert set(statuses) == {0, 1}
        assert sum(statuses) <= 3
        assert printed() == ([], [0] * 8)
    deployed.database.sql(f"UPDATE cronledger_jobs SET reminded_at = {deployed.ago(hours=25)} WHERE job <> 'ok'")
    for words in (["resume", "--all"], ["resume", "reports:build"], ["resume", "ok"], ["undrain", "web9"]):
        done(deployed, *words)
    deployed.write(*(f"{job}\nenabled = false" for job in TWO))
    assert printed() == ([], [0] * 8)


def test_the_reminder_as_json(embedded: Deployed) -> None:
    """Column names as keys; of no slot and no run. A job that is not in the schedule is nobody's business."""
    done(embedded, "pause", "ok", "--until-resumed")
    embedded.database.sql(f"UPDATE cronledger_jobs SET paused_at = {embedded.ago(hours=25)}")
    embedded.write('name = "other"\ncommand = "true"\nenabled = false')
    said(embedded.tick("--json"), status=0)
    assert "paused ok" in done(embedded, "resume", "ok")
    done(embedded, "pause", "--all", "--until-resumed")
    embedded.database.sql(f"UPDATE cronledger_jobs SET paused_at = {embedded.ago(hours=25)}")
    record = json.loads(embedded.tick("--json").stdout)
    assert [record[key] for key in ("event", "job", "due_at", "run_id", "scope_node", "resumes_at", "reason")] == [
        *("paused", "", None, None, "", None, None)
    ]
    assert (record["paused_by"], record["paused_at"][-1]) == ("alice on web1", "Z")


def test_a_pause_is_obeyed_within_a_minute_that_has_begun(
    embedded: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The slots of an interval job that are still to come in a tick's minute are not claimed."""
    jobs = [f'[[job]]\nname = "{name}"\nevery = "1s"\ncommand = "true"\n' for name in ("paused", "other")]
    (tmp_path / "schedule.toml").write_text('timezone = "UTC"\nnamespace = "app"\n' + "".join(jobs))

    def count(job: str) -> int:
        return len(embedded.rows("id", f"job = '{job}'"))

    ticks = []

    def ran(job: str, more: int) -> Callable[[], bool]:
        wanted = count(job) + more

        def so() -> bool:
            if not ticks or ticks[-1].poll() is not None:  # its minute is over
                ticks.append(spawn("tick", cwd=tmp_path, env=embedded.env))
            return count(job) >= wanted

        return so

    wait_for(ran("paused", 1))
    done(embedded, "pause", "paused", "--for", "1h")
    wait_for(ran("other", 2))
    before = count("paused")
    wait_for(ran("other", 2))
    assert count("paused") == before
    ticks[-1].send_signal(signal.SIGTERM)
    ticks[-1].communicate(timeout=30)


REFUSED = {
    "pause ok": r"say how long: either --for 2h \(at most 7d\), or --until-resumed",
    "pause ok --for 1h --until-resumed": "say how long: either --for",
    "pause ok --for 8d": "--for 8d: a pause lasts from 1m to 7d; for longer say --until-resumed",
    "pause ok --for 0s": "--for 0s: a pause lasts from 1m to 7d",
    "pause --for 1h": "say what: either the name of one JOB, or --all",
    "pause ok --all --for 1h": "say what: either",
    "resume": "say what: either",
    f"pause ok --for 1h --reason {'x' * 501}": "--reason is longer than 500 characters",
    "drain .web2": "'.web2' is not a node's name",
    "pause report:build --for 1h": r"there is no job report:build in .*; did you mean reports:build\?",
    "resume report:build": r"there is no job report:build in .*; did you mean reports:build\?",
}


def test_what_cannot_be_meant_is_refused(embedded: Deployed) -> None:
    """Nothing is paused by it; a name that is not there is exit 1, the rest wrong usage."""
    for words, wrong in REFUSED.items():
        complained(embedded.cli(*words.split()), wrong, 1 if "there is no job" in wrong else 2)
    assert embedded.database.sql("SELECT * FROM cronledger_jobs") == []


def test_what_is_sent_again_counts_once(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement that writes takes effect and loses its answer: it knows itself by its token."""
    link = open_link(parse(deployed.dsn, "/"))
    ledger = Ledger(link, "app", "web1", "", read_clock(link))
    execute, lost = link.dialect.execute, set()

    def forget(statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        result = execute(statement, values, seconds)
        if not statement.startswith("SELECT") and values["token"] not in lost:
            lost.add(values["token"])
            raise Lost("the answer got lost")
        return result

    monkeypatch.setattr(link.dialect, "execute", forget)
    first, made = pauses.pause(ledger, "ok", window=None, by="alice on web1", reason=None)
    second, replaced = pauses.pause(ledger, "ok", window=timedelta(hours=1), by="bob on web1", reason=None)
    assert (first.paused_at, second.paused_by, replaced.paused_at) == (None, "alice on web1", made.paused_at)
    deployed.database.sql(f"UPDATE cronledger_jobs SET paused_at = {deployed.ago(hours=25)}")
    paused = pauses.active(remembered(ledger), ledger.clock.now())
    assert [one.job for one in pauses.remind(ledger, load(deployed.folder / "schedule.toml"), paused)] == ["ok"]
    ended = pauses.resume(ledger, "ok")
    assert ended is not None
    assert ended.paused_by == "bob on web1"
    assert len(lost) == 4
    link.close()


def test_the_commands_speak_json(embedded: Deployed) -> None:
    """One document each, the ledger's column names as keys."""
    paused = json.loads(done(embedded, "pause", "ok", "--for", "1h", "--json"))
    resumed = json.loads(done(embedded, "resume", "ok", "--json"))
    assert list(paused) == ["job", "scope_node", "paused_at", "resumes_at", "resumed_at", "paused_by", "pause_reason"]
    assert (paused["job"], paused["resumed_at"], resumed["paused_at"]) == ("ok", None, paused["paused_at"])
    assert resumed["resumed_at"] > resumed["paused_at"]
    assert json.loads(embedded.cli("drain", "web2", "--json").stdout)["scope_node"] == "web2"
    assert json.loads(done(embedded, "undrain", "web2", "--json"))["resumed_at"]
