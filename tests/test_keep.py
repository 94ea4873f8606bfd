"""Old runs leave by themselves: a few with each tick, whichever node's, and never one that is still needed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conftest import Database
from deployed import Deployed, said
from recorded import failed, record, running
from test_ledger import Opener, draft, installed, node, settle
from test_trouble import _session, served
from ticks import run_batches

from cronledger.ledger import pruning

__all__ = ["installed", "node", "served"]

KEEP = '[ledger]\nkeep = "2d"'
OK = 'name = "ok"\ncommand = "true"'


@pytest.fixture
def deployed(database: Database, run: Callable[..., CompletedProcess[str]], tmp_path: Path) -> Deployed:
    """A schedule that keeps runs for two days."""
    made = Deployed(tmp_path, database, run).installed()
    made.write(OK, top=KEEP)
    return made


def old(days: float) -> dict[str, object]:
    """The columns of a run that ended so many days ago."""
    at = datetime.now(UTC) - timedelta(days=days)
    return {"namespace": "app", "due_at": at, "started_at": at, "finished_at": at}


def jobs(deployed: Deployed) -> list[object]:
    """Of which jobs runs are left, the oldest first."""
    return [job for (job,) in deployed.rows("job")]


def test_what_is_old_leaves_and_what_is_needed_stays(deployed: Deployed) -> None:
    """Old ones of every job go; the newest of each, a running one, a young one and one that owes a notice stay."""
    number = count()
    for job, days in [("ok", 9), ("ok", 8), ("gone", 7), ("gone", 6), ("gone", 5), ("young", 1.9), ("young", 1.8)]:
        record(deployed.database, next(number), job, **old(days))
    failed(deployed.database, next(number), "owing", **old(4) | {"notice": "owed"})
    record(deployed.database, next(number), "owing", **old(3))
    running(deployed.database, next(number), "runs", namespace="app", owner="elsewhere")
    record(deployed.database, next(number), "ok", **old(9) | {"namespace": "another"})
    deployed.write(f"{OK}\nenabled = false", top=KEEP)
    said(deployed.tick(), status=0)
    left = [job for (job,) in deployed.rows("job", "namespace = 'app'")]
    assert left == ["ok", "gone", "owing", "owing", "young", "young", "runs"]
    assert deployed.rows("job", "namespace = 'another'") == [("ok",)]


def test_without_keep_nothing_leaves(deployed: Deployed) -> None:
    """As ever."""
    for number in range(3):
        record(deployed.database, number, "gone", **old(300 - number))
    deployed.write(OK)
    assert deployed.tick().returncode == 0
    assert jobs(deployed) == ["gone", "gone", "gone", "ok"]


def test_the_run_before_is_there_until_the_next_has_told(deployed: Deployed) -> None:
    """A job that runs less often than runs are kept recovers: its failure is known until then, and goes afterwards."""
    failed(deployed.database, 1, "ok", **old(30))
    deployed.write(f'{OK}\non_recovery = "touch told"', top=KEEP)
    assert deployed.tick("--at", "2026-01-05T10:00").returncode == 0
    assert (deployed.folder / "told").exists()
    assert jobs(deployed) == ["ok", "ok"]
    assert deployed.tick("--at", "2026-01-05T10:00").stderr == ""
    assert jobs(deployed) == ["ok"]


def test_many_ticks_at_once(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """Eight nodes clear the same runs away in one second: no complaint, no run lost, each slot run once."""
    for number in range(40):
        record(deployed.database, number, f"gone{number % 4}", **old(90 - number))
    deployed.write(*(f'name = "job{n}"\ncommand = ["true"]' for n in range(5)), top=KEEP)
    ticks = [["--schedule", f"{deployed.folder}/schedule.toml", "--node", f"web{n}"] for n in range(8)]
    [ended] = run_batches([ticks], cron_environment | {"CRONLEDGER_DSN": deployed.dsn})
    assert {(status, err) for status, _, err in ended} == {(0, "")}
    assert sum(out.count(" ran job") for _, out, _ in ended) == 5 * len(set(deployed.rows("due_at", "job = 'job0'")))
    assert [job for job in jobs(deployed) if str(job).startswith("gone")] == ["gone0", "gone1", "gone2", "gone3"]


@pytest.mark.xdist_group("waiting")
def test_a_row_that_somebody_holds_is_left_to_a_later_tick(served: Deployed) -> None:
    """Nothing is said of it, and what is due runs."""
    held, _ = [record(served.database, number, "gone", **old(90 - number)) for number in range(2)]
    served.write(OK, top=KEEP)
    with _session(served) as execute:
        execute(f"SELECT id FROM cronledger_runs WHERE id = '{held}' FOR UPDATE")
        done = served.tick()
    assert (done.returncode, done.stderr, done.stdout.count("ran ok")) == (0, "", 1)
    assert jobs(served) == ["gone", "gone", "ok"]
    assert served.tick().stderr == ""
    assert jobs(served).count("gone") == 1


def test_what_stays_for_good_is_complained_of(deployed: Deployed) -> None:
    """A ledger that lets nothing be deleted: one line, and what is due runs."""
    for number in range(2):
        record(deployed.database, number, "gone", **old(90 - number))
    for statement in FORBIDDEN[deployed.database.kind]:
        deployed.database.sql(statement)
    done = deployed.tick()
    assert done.stderr.startswith("cronledger: the ledger")
    assert done.stderr.endswith("; runs older than keep stay in the ledger\n")
    assert (done.returncode, done.stdout.count("ran ok"), done.stderr.count("\n")) == (1, 1, 1)


_SIGNAL = ["CREATE TRIGGER kept BEFORE DELETE ON cronledger_runs FOR EACH ROW SIGNAL SQLSTATE '45000'"]
FORBIDDEN = {
    "sqlite": ["CREATE TRIGGER kept BEFORE DELETE ON cronledger_runs BEGIN SELECT RAISE(ABORT, 'kept'); END"],
    "postgres": [
        "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept'; END $$",
        "CREATE TRIGGER kept BEFORE DELETE ON cronledger_runs FOR EACH ROW EXECUTE FUNCTION kept()",
    ],
    "mariadb": _SIGNAL,
    "mysql": _SIGNAL,
}


def test_a_few_at_a_time_the_oldest_first(node: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick deletes one batch; what is never deleted at the head of all does not stand in the way."""
    monkeypatch.setattr(pruning, "_FEW", pruning._FEW.replace("LIMIT 200", "LIMIT 3"))
    ledger = node()
    now = ledger.clock.now()
    for minute in range(12):
        run = draft(ledger, job="gone" + str(minute) if minute < 5 else "job", due_at=now + timedelta(minutes=minute))
        ledger.claim(run)
        settle(ledger, run)
    later = now + timedelta(hours=1)
    assert [pruning.prune_a_few(ledger, finished_before=later) for _ in range(4)] == [3, 3, 0, 0]
    assert pruning.prune_a_few(node(namespace="another"), finished_before=later) == 0
