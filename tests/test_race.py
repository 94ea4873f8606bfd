"""At most one run of a slot, and one in flight of a job and of a lock, whoever ticks at once."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Database
from ticks import BY, run_batches

from cronledger.events import utc

pytestmark = pytest.mark.xdist_group("race")  # each takes the whole machine: one after the other, beside lighter ones

# A run says when it finds another one alive in `held`, and how it went is for the test to read afterwards.
GUARDED = "mkdir {held} || echo twice >>{out}; sleep 0.03; rmdir {held}"


def schedule(folder: Path, name: str, jobs: str) -> Path:
    path = folder / name
    path.write_text(f'timezone = "UTC"\nnamespace = "race"\n{jobs}')
    return path


def minutes(number: int) -> list[str]:
    """The last `number` minutes, the oldest first, as --at takes them."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    return [utc(now - timedelta(minutes=number - minute)) for minute in range(number)]


def arguments(path: Path, database: Database, node: str, minute: str) -> list[str]:
    return ["--schedule", str(path), "--dsn", database.dsn, "--node", node, "--at", minute]


@pytest.mark.parametrize(("by", "slots"), [(None, 60), ("mixed", 6)])
def test_sixteen_nodes_race_for_every_slot(
    database: Database, tmp_path: Path, cron_environment: dict[str, str], by: str | None, slots: int
) -> None:
    """So many slots of 20 jobs, 16 processes at each: one run each, nothing but events, PostgreSQL's log silent."""
    jobs = "".join(
        f'[[job]]\nname = "job{n}"\ncron = "* * * * *"\ncommand = ["true"]\noverlap = true\n' for n in range(20)
    )
    path = schedule(tmp_path, "schedule.toml", jobs)
    database.install()
    log = database.server.log.read_text() if database.kind == "postgres" and database.server else ""
    nodes = [f"web{number}" for number in range(16)]
    batches = [[arguments(path, database, node, minute) for node in nodes] for minute in minutes(slots)]
    ended = [tick for batch in run_batches(batches, cron_environment, by=by) for tick in batch]
    assert {(status, err) for status, _, err in ended} == {(0, "")}
    lines = [line for _, out, _ in ended for line in out.splitlines()]
    assert len(lines) == 20 * slots
    assert all(re.fullmatch(r"\S+ ran job\d+ in \d+\.\ds", line) for line in lines)
    counts = database.sql("SELECT COUNT(*), COUNT(DISTINCT id), MIN(state), MAX(state) FROM cronledger_runs")
    assert counts == [(20 * slots, 20 * slots, "completed", "completed")]
    if database.kind == "postgres" and database.server:
        assert "ERROR" not in database.server.log.read_text()[len(log) :]


@pytest.mark.parametrize("shared", ["job", "lock", "deploy"])
def test_adjacent_minutes_never_have_two_alive(
    database: Database, tmp_path: Path, cron_environment: dict[str, str], shared: str
) -> None:
    """Two ticks of adjacent minutes at once, 100 times: no two copies of a job, or of the jobs of a lock, alive."""
    out = tmp_path / "out"
    command = GUARDED.format(held=tmp_path / "held", out=out)
    job = '[[job]]\nname = "{name}"\ncron = "* * * * *"\ncommand = "{command}"\n{more}'.format
    before = job(name="a", command=command, more="")
    after = before
    if shared == "lock":
        lock = 'lock = "warehouse"\n'
        before = after = job(name="a", command=command, more=lock) + job(name="b", command=command, more=lock)
    elif shared == "deploy":
        after = job(name="a", command=command, more='lock = "new"\n')
    paths = schedule(tmp_path, "before.toml", before), schedule(tmp_path, "after.toml", after)
    database.install()
    pairs = zip(minutes(200)[::2], minutes(200)[1::2], strict=True)
    batches = [
        [arguments(paths[0], database, "web1", early), arguments(paths[1], database, "web2", late)]
        for early, late in pairs
    ]
    ended = [tick for batch in run_batches(batches, cron_environment) for tick in batch]
    assert {(status, err) for status, _, err in ended} == {(0, "")}
    assert not out.exists(), out.read_text()
    lines = "".join(printed for _, printed, _ in ended).splitlines()
    rows = database.sql("SELECT COUNT(*), MIN(state), MAX(state) FROM cronledger_runs")
    ran = [line for line in lines if re.fullmatch(r"\S+ ran [ab] in \d+\.\ds", line)]
    stood_down = [line for line in lines if re.search(r" stood down [ab]: (run of|lock \w+ held by) ", line)]
    assert rows == [(len(ran), "completed", "completed")]
    due = 400 if shared == "lock" else 200
    assert len(ran) + len(stood_down) == len(lines) <= due
    if os.environ.get(BY, "tick") == "tick":  # which, asked for a minute, always says that it stood down
        assert len(lines) == due
    assert len(ran) >= 100
