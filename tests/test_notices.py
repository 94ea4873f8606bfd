"""on_failure and on_recovery: told once of each change, by whichever node, and without any harm to what runs."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, complained
from recorded import failed, running
from test_ledger import Opener, draft, installed, node, settle
from test_race import minutes
from ticks import run_batches
from torture import machines

from cronledger.ledger import notices
from cronledger.notices import is_news

__all__ = ["installed", "node"]

TELL = 'echo "$CRONLEDGER_STATE: $CRONLEDGER_REASON" >>told; cat >>told'
BAD = 'name = "bad"\ncommand = "echo oh no; exit 3"\n'
HOOKS = f"on_failure = '''{TELL}'''\non_recovery = '''{TELL}'''\n"


@pytest.fixture
def deployed(database: Database, run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Deployed:
    """A schedule of one job that fails and tells."""
    made = Deployed(tmp_path, database, run).installed()
    made.write(BAD + HOOKS)
    return made


@pytest.fixture
def embedded(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()


def told(deployed: Deployed) -> list[str]:
    """The lines that the notices wrote so far."""
    path = deployed.folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def notice(deployed: Deployed) -> object:
    """What the one run there is says of its notice."""
    [(value,)] = deployed.rows("notice")
    return value


def ticked(
    deployed: Deployed, environment: dict[str, str], number: int = 1, within: float | None = None
) -> list[tuple[int, str, str]]:
    """So many ticks at once, each of another node."""
    nodes = [["--schedule", f"{deployed.folder}/schedule.toml", "--node", f"web{n}"] for n in range(number)]
    return run_batches([nodes], environment | {"CRONLEDGER_DSN": deployed.dsn}, notice=within)[0]


@pytest.mark.parametrize(
    ("state", "before", "report", "news"),
    [
        ("failed", None, "problems", True),
        ("failed", "completed", "problems", True),
        ("failed", "failed", "problems", False),
        ("failed", "failed", "all", True),
        ("completed", "failed", "problems", True),
        ("completed", "completed", "all", False),
        ("completed", None, "all", False),
    ],
)
def test_what_is_news(state: str, before: str | None, report: str, news: bool) -> None:
    """From ok to failing and back; with report = "all" each failure."""
    assert is_news(state, before, report) == news


@pytest.mark.parametrize(
    ("report", "wanted"),
    [
        ("problems", ["failed: exit 3", "completed: ", "failed: exit 4"]),
        ("all", ["failed: exit 3", "failed: exit 3", "completed: ", "failed: exit 4"]),
    ],
)
def test_changes_are_told_once(deployed: Deployed, report: str, wanted: list[str]) -> None:
    """Five runs in a row: a failure, the same again, well, well again, a failure. Nothing is owed afterwards."""
    deployed.write(f'name = "job"\ncommand = "exit $CODE"\nreport = "{report}"\n{HOOKS}')
    for minute, code in zip(minutes(5), "33004", strict=True):
        done = deployed.tick("--at", minute, CODE=code)
        assert (done.returncode, done.stderr) == (int(code != "0"), "")
    assert told(deployed) == wanted
    assert deployed.rows("id", "notice IS NULL OR notice = 'owed'") == []


def test_a_notice_describes_the_run(deployed: Deployed) -> None:
    """CRONLEDGER_* of the run and of how it ended, the kept output on stdin; cwd, env and shell are the job's."""
    (deployed.folder / "place").mkdir()
    hook = "pwd; echo ${BASH_VERSION:+bash} $OWN; cat; env | grep ^CRONLEDGER_"
    keys = f'cwd = "place"\nenv.OWN = "mine"\nshell = "/bin/bash"\non_failure = "({hook}) >../told"'
    deployed.write(BAD + keys)
    assert deployed.tick().stderr == ""
    assert told(deployed)[:3] == [f"{deployed.folder}/place", "bash mine", "oh no"]
    row = json.loads(deployed.cli("show", "bad", "--json").stdout)
    columns = ["job", "due_at", "node", "state", "duration_ms", "exit_code", "started_at", "finished_at"]
    wanted = {name: str(row[name]) for name in columns} | {"run_id": row["id"], "reason": row["failure_reason"]}
    wanted |= {"attempt": "1", "schedule": f"{deployed.folder}/schedule.toml", "dsn": deployed.dsn}
    described = dict(line.removeprefix("CRONLEDGER_").split("=", 1) for line in told(deployed)[3:])
    assert described == {name.upper(): value for name, value in wanted.items()}


def test_a_run_that_another_node_lost_is_told_of(deployed: Deployed) -> None:
    """A reaped run owes a notice like any other; it has no output and no exit code."""
    deployed.write(
        BAD + f'enabled = false\non_failure = """echo code=$CRONLEDGER_EXIT_CODE $CRONLEDGER_NODE; {TELL}"""'
    )
    over = datetime.now(UTC) - timedelta(seconds=1)
    running(deployed.database, 1, "bad", namespace="app", expires_at=over)
    done = deployed.tick()
    assert (done.stdout.count("reaped bad"), done.stderr, done.returncode) == (1, "", 1)
    assert [re.sub(r"of .* over", "over", line) for line in told(deployed)] == ["failed: reaped: window over"]
    assert deployed.rows("notice")[0][0] not in (None, "owed")


def test_a_run_reaped_by_hand_is_told_of_by_the_next_tick(deployed: Deployed) -> None:
    """`reap` tells nothing itself: the notice is owed."""
    deployed.write(BAD + f"enabled = false\n{HOOKS}")
    run = running(deployed.database, 1, "bad", namespace="app")
    assert deployed.cli("reap", run, "--yes").returncode == 0
    assert (told(deployed), notice(deployed)) == ([], "owed")
    deployed.tick()
    assert told(deployed) == ["failed: reaped: by hand on web1"]


def test_what_a_dead_node_owed_is_told_once_by_the_others(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """A node died after it recorded a failure: of eight ticks at once, one tells it."""
    deployed.write(BAD + f"enabled = false\n{HOOKS}")
    failed(deployed.database, 1, "bad", namespace="app", reason="exit 9", output="its last words\n", notice="owed")
    assert ticked(deployed, cron_environment, 8) == [(0, "", "")] * 8
    assert told(deployed) == ["failed: exit 9", "its last words"]


def test_a_hook_that_hangs_is_ended(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """One line says so, the run's row is what it was, and another job ran meanwhile."""
    hang = 'on_failure = "echo waiting; sleep 1000 & wait"'
    deployed.write(BAD + hang, 'name = "ok"\ncommand = "true"')
    [(status, out, err)] = ticked(deployed, cron_environment, within=0.5)
    why = "ended after 0.5s, the longest that a notice may take: waiting"
    assert (status, err) == (1, f"cronledger: on_failure of bad failed: {why}\n")
    assert (out.count("failed bad"), out.count("ran ok")) == (1, 1)
    assert deployed.rows("failure_reason", "job = 'bad'") == [("exit 3: oh no",)]


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        ('["nothing-there"]', "cannot start: No such file or directory: nothing-there"),
        ('"echo bye; exit 7"', "exit 7: bye"),
        ('"kill -9 $$"', "killed by SIGKILL"),
    ],
)
def test_a_hook_that_fails_is_one_line(embedded: Deployed, hook: str, why: str) -> None:
    """And nothing else changes: neither the run nor what is said of it."""
    embedded.write(f"{BAD}on_failure = {hook}")
    done = embedded.tick()
    assert done.stderr == f"cronledger: on_failure of bad failed: {why}\n"
    assert (done.returncode, done.stdout.count("failed bad in")) == (1, 1)
    assert embedded.rows("state, failure_reason") == [("failed", "exit 3: oh no")]
    embedded.write(f'name = "bad"\ncommand = "true"\non_recovery = {hook}')
    done = embedded.tick("--at", f"{datetime.now(UTC) - timedelta(minutes=1):%Y-%m-%dT%H:%M}")
    assert done.stderr == f"cronledger: on_recovery of bad failed: {why}\n"
    assert (done.returncode, done.stdout.count("ran bad in")) == (0, 1)
    complained(embedded.tick("--dsn", "sqlite:///none.db"), "not installed")  # no traceback hides in the above


def test_a_hook_need_not_read(embedded: Deployed) -> None:
    """64 KiB of output hold up neither a hook that reads nothing nor one that reads all."""
    loud = 'command = "yes 0123456789abcdef | head -c 1000000; exit 3"\n'
    embedded.write(f'name = "a"\n{loud}on_failure = ["true"]', f'name = "b"\n{loud}on_failure = "cat >told"')
    assert embedded.tick().stderr == ""
    text = (embedded.folder / "told").read_text()
    assert text.endswith("f\n012345678")
    assert len(text) == len("[934,464 bytes cut]\n") + 65_536


def test_no_password_is_told(database: Database, deployed: Deployed) -> None:
    """What a hook prints is masked in the line that says that it failed."""
    deployed.write(BAD + 'on_failure = "echo $CRONLEDGER_DSN; exit 1"')
    done = deployed.tick()
    assert "on_failure of bad failed: exit 1" in done.stderr
    assert not re.search(r"p@ss|p%40ss", done.stderr)


def test_runs_by_hand_owe_nothing_and_count_for_nothing(deployed: Deployed) -> None:
    """Who starts one sees how it ends. A recovery is told by the next run that was due."""
    deployed.write(f'name = "job"\ncommand = "exit $CODE"\n{HOOKS}')
    first, second = minutes(2)
    assert deployed.tick("--at", first, CODE="3").returncode == 1
    assert deployed.cli("run", "job", CODE="4").returncode == 1
    assert deployed.cli("run", "job", CODE="0").returncode == 0
    assert deployed.tick("--at", second, CODE="0").returncode == 0
    assert told(deployed) == ["failed: exit 3", "completed: "]
    assert deployed.rows("notice", "cause = 'manual'") == [(None,), (None,)]


def test_a_signal_to_the_tick_ends_a_hook(
    embedded: Deployed, spawn: Callable[..., subprocess.Popen[str]], wait_for: Callable[..., None]
) -> None:
    """The tick does not wait for it any longer, and says so."""
    embedded.write(BAD + 'on_failure = "touch begun; exec sleep 1000"')
    tick = spawn("tick", cwd=embedded.folder, env=embedded.env)
    wait_for((embedded.folder / "begun").exists)
    tick.send_signal(signal.SIGTERM)
    _, err = tick.communicate(timeout=30)
    assert (tick.returncode, err) == (1, "cronledger: on_failure of bad failed: ended by SIGTERM to the tick\n")


def test_more_than_a_handful_are_told_some_at_a_time(embedded: Deployed) -> None:
    """Of twenty failures in one tick each is told, never more than eight at the same time."""
    hook = 'on_failure = "mkdir -p in; touch in/$$; ls in | wc -l >>told; sleep 0.1; rm in/$$"'
    embedded.write(*(f'name = "job{n}"\ncommand = ["false"]\n{hook}' for n in range(20)))
    assert embedded.tick().stderr == ""
    assert len(told(embedded)) == 20
    assert max(map(int, told(embedded))) <= 8


def test_what_this_schedule_does_not_know_is_left_to_newer_ones_for_an_hour(deployed: Deployed) -> None:
    """A notice of a job that is not in the schedule, or tells nothing now, is dropped when it is an hour old."""
    now = datetime.now(UTC)
    for number, (job, age) in enumerate([("gone", 50), ("gone", 70), ("mute", 50), ("mute", 70)]):
        ended = now - timedelta(minutes=age)
        times = {"started_at": ended, "finished_at": ended}
        failed(deployed.database, number, job, namespace="app", notice="owed", **times)
    deployed.write(f"{BAD}enabled = false\n{HOOKS}", 'name = "mute"\ncommand = ["true"]\nenabled = false')
    assert deployed.tick().stderr == ""
    kept = deployed.rows("job, finished_at", "notice = 'owed'")
    assert [job for job, _ in kept] == ["gone", "mute"]
    assert told(deployed) == []


def test_what_cannot_be_told_here_is_left_to_the_others_for_an_hour(deployed: Deployed) -> None:
    """Of a run of another node, whose folder this one lacks: a node that has it tells it, or this one complains."""
    now = datetime.now(UTC)
    for number, age in enumerate([50, 70]):
        ended = now - timedelta(minutes=age)
        times = {"started_at": ended, "finished_at": ended}
        failed(deployed.database, number, "bad", namespace="app", notice="owed", **times)
    deployed.write(f'{BAD}enabled = false\ncwd = "here"\non_failure = "echo told >told"')
    assert re.search(r"on_failure of bad failed: cannot start: .*/here\n$", deployed.tick().stderr)
    assert len(deployed.rows("id", "notice = 'owed'")) == 1
    (deployed.folder / "here").mkdir()
    assert deployed.tick().stderr == ""
    assert (deployed.folder / "here/told").read_text() == "told\n"
    assert deployed.rows("id", "notice = 'owed'") == []


def test_a_notice_without_a_place_stays_owed(embedded: Deployed) -> None:
    """No descriptor is left for it all the time: a tick does not stay for it, and the next one tells it."""
    ended = datetime.now(UTC)
    failed(embedded.database, 1, "bad", namespace="app", notice="owed", started_at=ended, finished_at=ended)
    embedded.write(f"{BAD}enabled = false\n{HOOKS}")
    code = f"import cronledger.notices; cronledger.notices.PLACE_WITHIN = 1.0\n{machines.PLAIN}"
    none_left = ("sh", "-c", 'ulimit -n 14; exec "$@"', "sh")
    assert machines.ended(machines.start(embedded, code, before=none_left)) == (0, "", "")
    assert (told(embedded), notice(embedded)) == ([], "owed")
    assert embedded.tick().stderr == ""
    assert told(embedded)[0].startswith("failed: exit 3: ")


def test_inherited_and_dropped(embedded: Deployed) -> None:
    """[defaults] may say it for all jobs, and "" drops it for one."""
    embedded.write(
        BAD, 'name = "mute"\ncommand = "exit 4"\non_failure = ""', top=f"[defaults]\non_failure = '''{TELL}'''"
    )
    embedded.tick()
    assert told(embedded) == ["failed: exit 3: oh no", "oh no"]
    assert embedded.rows("notice", "job = 'mute'") == [(None,)]


def test_taking_is_settled_by_the_row(node: Opener) -> None:
    """Sent again after a lost reply it is known as ours; another one's is not; and settling still knows its own."""
    ledger, other = node("web1"), node("web2")
    run = draft(ledger)
    ledger.claim(run)
    ending = {"pid": 1, "duration_ms": 1, "exit_code": 3, "failure_reason": "exit 3", "output": "o", "owes": True}
    assert ledger.settle(run, **ending)
    [found] = notices.owing(other)
    assert (found.id, found.failure_reason) == (run.id, "exit 3")
    assert [notices.take(other, run, "theirs"), notices.take(other, run, "theirs")] == ["o", "o"]
    assert notices.take(ledger, run, "ours") is None
    assert ledger.settle(run, **ending)
    assert notices.owing(ledger) == []


def test_the_run_before_is_the_last_that_was_due(node: Opener) -> None:
    """By its start, of the same job and node, over, and not by hand."""
    ledger = node()
    for minute, (job, reason, cause) in enumerate(
        [("job", None, "schedule"), ("job", "exit 1", "schedule"), ("job", None, "manual"), ("other", None, "schedule")]
    ):
        run = draft(ledger, job=job, due_at=datetime.now(UTC) + timedelta(minutes=minute), cause=cause)
        ledger.claim(run)
        settle(ledger, run, reason)
        time.sleep(0.001)
    assert notices.state_before(ledger, draft(ledger, job="job")) == "failed"
    assert notices.state_before(ledger, draft(ledger, job="job", scope="node")) is None
    assert notices.state_before(ledger, draft(ledger, job="new")) is None
