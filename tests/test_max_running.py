"""`max_running`: so many runs on a node at once, whichever of its ticks started them, and what becomes of the rest."""

import os
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run, complained, said
from ticks import run_batches

from cronledger.clock import elapsed
from cronledger.events import Event, Trouble
from cronledger.ledger import Claimed, Ledger, open_ledger, open_link
from cronledger.ledger.dsn import parse
from cronledger.ledger.places import Places
from cronledger.runner import Runner
from cronledger.schedule import Slot, load
from cronledger.tick import Tick

MINUTES = [f"2026-01-05T10:{minute:02}" for minute in range(10)]
WEB2 = {"CRONLEDGER_NODE": "web2"}
Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database."""
    return Deployed(tmp_path, database, run).installed()


def limited(deployed: Deployed, *jobs: str, most: int = 1) -> None:
    deployed.write(*jobs, top=f"max_running = {most}")


def until(path: Path) -> str:
    """A command that lasts until a file is there."""
    return f'command = "while [ ! -e {path} ]; do sleep 0.05; done"'


def hold(deployed: Deployed, spawn: Spawn, wait_for: WaitFor, path: Path) -> subprocess.Popen[str]:
    """A tick of web1 whose run takes the only place until `path` is there."""
    limited(deployed, f'name = "long"\n{until(path)}')
    tick = spawn("tick", "--at", MINUTES[0], cwd=deployed.folder, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL AND state = 'running'"))
    return tick


def test_a_node_never_has_more(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """Eight ticks of one node at once, two places and twelve jobs: each job runs once, and never three are alive."""
    log = deployed.folder / "log"
    command = f'command = "echo + >>{log}; sleep 0.1; echo - >>{log}"'
    limited(deployed, *(f'name = "job{number}"\n{command}' for number in range(12)), most=2)
    place = ["--schedule", f"{deployed.folder}/schedule.toml", "--dsn", deployed.dsn, "--node", "web1"]
    [ended] = run_batches([[[*place, "--at", MINUTES[0]]] * 8], cron_environment)
    assert {(status, err) for status, _, err in ended} == {(0, "")}
    assert sorted(deployed.rows("job, state, place")) == sorted(
        (f"job{number}", "completed", None) for number in range(12)
    )
    alive = most = 0
    for sign in log.read_text().split():
        alive += 1 if sign == "+" else -1
        most = max(most, alive)
    assert (alive, most) == (0, 2)


def test_what_finds_no_place_is_left_to_another_node(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """web1 is full and waits; web2 runs the job; then web1 has nothing left to wait for, and nothing to say."""
    held = hold(deployed, spawn, wait_for, tmp_path / "go")
    limited(deployed, 'name = "other"\ncommand = "true"')
    said_here = deployed.tick("--dry-run", "--at", MINUTES[1]).stdout
    assert said_here.startswith("would wait other: no place on web1, 1 of max_running = 1 runs going; it is left to ")
    jobs = [f'name = "other{number}"\ncommand = "true"' for number in range(2)]
    limited(deployed, *jobs, most=2)
    full = "no place on web1, 1 of max_running = 2 runs going and 1 to start before it; it is left to "
    assert f"would wait other1: {full}" in deployed.tick("--dry-run", "--at", MINUTES[1]).stdout
    limited(deployed, 'name = "other"\ncommand = "true"')
    waiting = spawn("tick", "--at", MINUTES[1], cwd=tmp_path, env=deployed.env)
    said(deployed.tick("--at", MINUTES[1], **WEB2), r"ran other in \d\.\ds", status=0)
    assert waiting.communicate(timeout=60) == ("", "")
    assert deployed.rows("node", "job = 'other'") == [("web2",)]
    (tmp_path / "go").touch()
    assert held.wait(30) == 0


def test_a_run_by_hand_is_never_refused_and_counts(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """`run` starts beside what fills the node; while it goes on, a tick finds one place fewer."""
    held = hold(deployed, spawn, wait_for, tmp_path / "go")
    limited(deployed, f'name = "hand"\n{until(tmp_path / "enough")}', 'name = "due"\ncommand = "true"')
    hand = spawn("run", "hand", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "job = 'hand' AND pid IS NOT NULL"))
    (tmp_path / "go").touch()
    assert held.wait(30) == 0
    plan = deployed.tick("--dry-run", "--at", MINUTES[1]).stdout
    assert "would wait due: no place on web1, 1 of max_running = 1 runs going" in plan
    (tmp_path / "enough").touch()
    assert hand.wait(30) == 0
    limited(deployed, 'name = "due"\ncommand = "true"')
    assert "would run due: " in deployed.tick("--dry-run", "--at", MINUTES[1]).stdout


def test_an_orphan_holds_its_place(deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path) -> None:
    """What a killed tick left alive is adopted and counts; what waited for its place starts when it is over."""
    hold(deployed, spawn, wait_for, tmp_path / "go").kill()
    limited(deployed, 'name = "next"\ncommand = "true"')
    waiting = spawn("tick", "--at", MINUTES[1], cwd=tmp_path, env=deployed.env)
    before = deployed.rows("owner")
    wait_for(lambda: deployed.rows("owner") != before)
    assert deployed.rows("job") == [("long",)]
    (tmp_path / "go").touch()
    out, err = waiting.communicate(timeout=60)
    assert [line.split()[1:3] for line in out.splitlines()] == [["failed", "long"], ["ran", "next"]]
    assert (err, waiting.returncode) == ("", 1)


def test_a_tick_that_is_told_to_end_names_what_waits(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """TERM while a due job waits for a place: it is named as not claimed here."""
    hold(deployed, spawn, wait_for, tmp_path / "go")
    limited(deployed, f'name = "first"\n{until(tmp_path / "go")}', 'name = "next"\ncommand = "true"', most=2)
    waiting = spawn("tick", "--at", MINUTES[1], cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "job = 'first' AND pid IS NOT NULL"))
    waiting.send_signal(signal.SIGTERM)
    out, err = waiting.communicate(timeout=60)
    assert out.rstrip().endswith("ended by SIGTERM to the tick")
    assert err == "cronledger: ended by SIGTERM; not claimed here: next\n"


def opened(deployed: Deployed, node: str) -> Ledger:
    link = open_link(parse(deployed.dsn, "/"))
    return open_ledger(link, namespace="app", node=node, owner="elsewhere")


def late(deployed: Deployed, ledger: Ledger) -> list[Event | Trouble]:
    """What a tick says that comes to its slots when their minute is over."""
    schedule = load(deployed.folder / "schedule.toml")
    slots = [Slot(job, datetime(2026, 1, 5, 10, tzinfo=UTC)) for job in schedule.jobs]
    with Runner(schedule, ledger, expected=1) as runner:
        tick = Tick(runner, lambda: os.environ, slots, moment_of=lambda _: elapsed() - 60)
        return list(tick.events())


def test_a_slot_is_given_up_at_the_end_of_its_minute(deployed: Deployed) -> None:
    """One line of all nodes that had no place, none for an interval job, and the ledger remembers it."""
    ledgers = [opened(deployed, node) for node in ("web1", "web2")]
    for ledger in ledgers:
        run = ledger.draft(f"old:{ledger.node}", due_at=None, stale_after=timedelta(hours=1))
        assert ledger.claim(run) == Claimed()
    limited(deployed, 'name = "due"\ncommand = "true"')
    said_by = [[event for event in late(deployed, ledger) if isinstance(event, Event)] for ledger in ledgers]
    assert [len(events) for events in said_by] == [1, 0]
    event = said_by[0][0]
    assert event.sentence(UTC) == "stood down due: no place on web1, 1 of max_running = 1 runs going"
    assert event.record()["reason"] == "no place on web1, 1 of max_running = 1 runs going"
    assert "stood down from 2026-01-05 10:00+00:00" in deployed.cli("list").stdout
    text = (deployed.folder / "schedule.toml").read_text()
    (deployed.folder / "schedule.toml").write_text(text.replace('cron = "* * * * *"', 'every = "30s"'))
    assert [late(deployed, ledger) for ledger in ledgers] == [[], []]
    for ledger in ledgers:
        ledger.link.close()


def test_a_missed_slot_that_finds_no_place_waits_for_the_next_tick(deployed: Deployed) -> None:
    """Catch-up: nothing is said, nothing is waited for, and the slot counts neither as run nor as stood down from."""
    ledger = opened(deployed, "web1")
    limited(deployed, 'name = "due"\ncommand = "true"\ncatch_up = "1h"')
    old = ledger.draft("old", due_at=None, stale_after=timedelta(hours=1))
    assert ledger.claim(old) == Claimed()
    schedule = load(deployed.folder / "schedule.toml")
    with Runner(schedule, ledger, expected=1) as runner:
        tick = Tick(runner, lambda: os.environ, [], moment_of=lambda _: elapsed())
        missed = Slot(schedule.jobs[0], datetime(2026, 1, 5, 10, tzinfo=UTC), "catch_up")
        tick._turns.add([missed])
        assert list(tick.events()) == []
    assert deployed.rows("job") == [("old",)]
    assert deployed.database.sql("SELECT job FROM cronledger_jobs WHERE stood_down_at IS NOT NULL") == []
    ledger.link.close()


def test_places_are_found_whatever_else_runs(deployed: Deployed) -> None:
    """A view that is out of date is put right by a look; runs without a place leave one fewer to take."""
    ledger = opened(deployed, "web1")
    drafts = [ledger.draft(f"job{n}", due_at=None, stale_after=timedelta(hours=1)) for n in range(5)]
    old, new = Places(ledger, 3, []), Places(ledger, 3, [])
    assert [old.claim(drafts[0]), new.claim(drafts[1])] == [Claimed(), Claimed()]
    assert sorted(deployed.rows("place")) == [(1,), (2,)]
    assert ledger.claim(drafts[2]) == Claimed()
    assert type(Places(ledger, 3, ledger.running()).claim(drafts[3])).__name__ == "NoPlace"
    ledger.settle(drafts[0], pid=None, duration_ms=0, exit_code=0, failure_reason=None, output=None)
    assert Places(ledger, 3, ledger.running()).claim(drafts[3]) == Claimed()
    assert sorted(deployed.rows("place", "state = 'running' AND place IS NOT NULL")) == [(1,), (2,)]
    ledger.link.close()


def test_its_mutex_is_missed(deployed: Deployed) -> None:
    """Without its index the limit would be none; the line says so, and not that jobs could run twice."""
    kind, place = deployed.database.kind, "cronledger_runs_place"
    named = f"CONSTRAINT {place}"
    if kind == "sqlite":
        [(ddl,)] = deployed.database.sql("SELECT sql FROM sqlite_master WHERE name = 'cronledger_runs'")
        deployed.database.sql("DROP TABLE cronledger_runs")
        deployed.database.sql(str(ddl).replace(f",\n  {named} UNIQUE (namespace, node, place)", ""))
    else:
        dropped = named if kind == "postgres" else f"INDEX {place}"
        deployed.database.sql(f"ALTER TABLE cronledger_runs DROP {dropped}")
    complained(deployed.tick(), f"{place} .*: without it more jobs could run at once than max_running")
