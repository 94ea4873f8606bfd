"""Histories of a few ticks, and what must hold in each of them at every step."""

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronledger.clock import Clock
from cronledger.events import Crowded, Failed, Ran, Reaped, StoodDown, Trouble
from cronledger.ledger import Ledger, schema
from cronledger.ledger.link import Link
from cronledger.ledger.sqlite import Sqlite
from cronledger.masking import Mask
from cronledger.runner import Runner
from cronledger.schedule import Slot
from cronledger.tick import Tick
from torture.world import PROCESS, WINDOW, ZERO, Actor, Choose, Commands, SharedSqlite, Violation, World, here

JOBS = (
    *(("a", "warehouse", ""), ("b", "warehouse", ""), ("c", "", ""), ("d", "", "overlap")),
    *(("leased", "", "leased"), ("leased too", "", "leased"), ("retried", "", "retried")),
)
"""Name, lock, and what else there is to it."""
Jobs = tuple[tuple[str, str, str], ...]
Plan = tuple[str, int, Jobs]
"""The node and the minute of a tick, and what is due then."""
LATE = "after it was reaped"
MINUTE = timedelta(minutes=1)
LEASE = timedelta(minutes=30)
KILL_AFTER = 7.0
COLUMNS = ("id", "namespace", "job", "due_at", "state", "active_job", "held_lock", "owner", "expires_at", "pid")
COLUMNS += ("attempts", "lease_ms", "pid_start", "updated_at", "token", "failure_reason")
ROWS = f"SELECT {', '.join(COLUMNS)} FROM cronledger_runs"
FOREIGN = """
INSERT INTO cronledger_runs (id, namespace, job, scope_node, due_at, state, active_job, held_lock, cause, node, owner,
    started_at, expires_at, token, created_at, updated_at)
    VALUES ('foreign', 'else', 'c', '', '2026-11-30 02:15:00.000000', 'running', 'c',
    'warehouse', 'schedule', 'web9', 'web9/1/9/9', '2026-11-30 02:15:00.000000',
    '2199-01-01 00:00:00.000000', 't', '', '');
INSERT INTO cronledger_jobs (namespace, job, scope_node, stood_down_at, token, created_at, updated_at)
    VALUES ('else', 'c', '', '2026-01-01 00:00:00.000000', 't', '', ''),
    ('app', 'e', '', '2026-01-01 00:00:00.000000', 't', '', ''),
    ('app', 'c', 'web9', '2026-01-01 00:00:00.000000', 't', '', ''), ('app', 'b', '', NULL, '', '', '')
"""
"""What others, and later programs, may keep there; and a job of ours that never stood down."""
OTHERS = "SELECT * FROM cronledger_jobs WHERE token = 't' ORDER BY namespace, job, scope_node"


def empty(without: str = "") -> bytes:
    """A ledger as SQLite keeps it, without one of its mutexes."""
    connection = sqlite3.connect(":memory:")
    for statement in schema.statements(Sqlite.__new__(Sqlite)):
        lines = [line for line in statement.split("\n") if not line.strip().startswith(f"CONSTRAINT {without} ")]
        connection.execute("\n".join(lines).replace(",\n)", "\n)"))
    connection.executescript(FOREIGN)
    connection.commit()
    return connection.serialize()


@contextmanager
def made_up() -> Iterator[None]:
    """Commands, /proc and time are the world's; nothing waits."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("clock", "flight", "leases", "ledger", "tick", "turns"):
            patch.setattr(f"cronledger.{module}.elapsed", lambda: here.actor.world.time)
        patch.setattr("cronledger.flight.Commands", Commands)
        patch.setattr("cronledger.flight.missing", lambda *_: None)
        patch.setattr("cronledger.flight.signal.set_wakeup_fd", lambda *_, **__: -1)
        patch.setattr("cronledger.ledger.link.Link._wait", lambda *_: None)
        patch.setattr("cronledger.fate.process", PROCESS)
        yield


class Audit:
    """Looks at all rows after each statement that wrote."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows: dict[str, tuple[object, ...]] = {}
        self._others = connection.execute(OTHERS).fetchall()
        self.endings: Counter[str] = Counter()

    def __call__(self, world: World) -> None:
        rows = {str(row[0]): row for row in world.connection.execute(ROWS)}
        if world.connection.execute(OTHERS).fetchall() != self._others:
            raise Violation("a row of another job, namespace or scope was written")
        changed = [(run_id, before) for run_id, before in self._rows.items() if rows[run_id] != before]
        written = COLUMNS.index("updated_at")
        if sum(rows[run_id][written] != before[written] for run_id, before in changed) > 1:
            raise Violation("one statement wrote several runs")
        for run_id, before in changed:
            self._step(world, before, rows[run_id])
        self._rows = rows
        for what in ("job, due_at", "active_job", "held_lock"):
            query = (
                f"SELECT COUNT(*) FROM cronledger_runs WHERE namespace = 'app' GROUP BY {what} HAVING COUNT(*) > 1"
                f" AND COALESCE({what.split(', ')[0]}, '') <> ''"
            )
            if world.connection.execute(query).fetchall():
                raise Violation(f"two rows of one {what}")

    def _step(self, world: World, *rows: tuple[object, ...]) -> None:
        old, new = (dict(zip(COLUMNS, row, strict=True)) for row in rows)
        run_id, why = str(old["id"]), str(new["failure_reason"]).removeprefix("reaped: ")
        if old["state"] != "running" or run_id == "foreign":
            raise Violation(f"a row that is over, or another namespace's, was written: {rows}")
        expired = str(old["expires_at"]) <= world.now().replace(tzinfo=None).isoformat(" ", "microseconds")
        owned = any(one.owner == old["owner"] and not one.killed and not one.done for one in world.actors)
        command = world.living(run_id)
        if why.startswith(("window of", "lease of")) and (not expired or command is not None):
            raise Violation("a run was reaped within its window, or its lease")
        if why == "its tick is gone" and (owned or command is not None):
            raise Violation("a run that goes on was reaped")
        if owned and new["owner"] != old["owner"]:
            raise Violation("a run was taken from a tick that lives")
        if world.values.get("owner", old["owner"]) != old["owner"]:
            raise Violation("a run was written by whom it is not, or as whose it was no longer")
        self.endings[run_id] += new["state"] != "running"
        if new["state"] == "running":
            self._go_on(world, old, new)

    def _go_on(self, world: World, old: dict[str, Any], new: dict[str, Any]) -> None:
        command = world.living(new["id"])
        ends_at = world.now() + timedelta(seconds=command.ends_at + KILL_AFTER - world.time) if command else ZERO
        if new["expires_at"] < max(old["expires_at"], ends_at.replace(tzinfo=None).isoformat(" ", "microseconds")):
            raise Violation("a run may be reaped while its command lives")
        if new["pid"] is None and old["pid"] is not None and new["attempts"] == old["attempts"]:
            raise Violation("an attempt lost its pid")
        recorded = world.commands.get(new["pid"])
        if recorded and (recorded.run_id, recorded.attempt) != (new["id"], new["attempts"]):
            raise Violation("a pid of another run, or of another attempt, was recorded")


def ticking(node: str, slot: int, jobs: Jobs) -> Any:
    """What an actor does: one tick."""

    def act(actor: Actor) -> None:
        world = actor.world
        link = Link(SharedSqlite(world), Mask(None), budget=3600.0)
        ledger = Ledger(link, "app", node, actor.owner, Clock(ZERO, 0.0))
        slots = [Slot(_job(*job), ZERO + slot * MINUTE) for job in jobs]
        path = "/srv/app/schedule.toml"
        schedule = SimpleNamespace(zone=ZoneInfo("UTC"), path=path, jobs=(), keep=None, max_running=world.places)
        with Runner(schedule, ledger, expected=1) as runner:  # type: ignore[arg-type]
            for event in Tick(runner, dict, slots, moment_of=lambda _: -60.0).events():
                world.said.append(event)

    return act


def _job(name: str, lock: str, kind: str) -> Any:
    return SimpleNamespace(
        name=name,
        timing=None,
        argv=(name, lock, kind),
        cwd="/",
        env={},
        lock=lock or None,
        overlap=kind == "overlap",
        scope="cluster",
        stale_after=None if kind == "leased" else WINDOW,
        lease=LEASE if kind == "leased" else None,
        retries=2 if kind == "retried" else 0,
        retry_delay=timedelta(),
        keep_output="never",
    )


def history(
    choose: Choose,
    ledger: bytes,
    ticks: list[Plan],
    *,
    faults: int = 0,
    line_only: bool = False,
    orphans: Jobs = (),
    places: int = 0,
) -> World:
    """One history of these ticks, to its end, with what a dead tick left of `orphans`. Raises Violation.

    `places`: what max_running is on each node; a slot that finds none is given up at once, for its minute is over.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(ledger)
    connection.create_function("now", 0, lambda: world.now().replace(tzinfo=None).isoformat(" ", "microseconds"))
    audit = Audit(connection)
    world = World(choose, 0, connection, audit=audit, places=places, line_only=line_only)
    try:
        if orphans:
            _orphan(world, orphans)
        world.faults = faults
        for plan in ticks:
            Actor(world, plan[0], ticking(*plan))
        world.run()
        world.time += 100_000
        world.faults = 0
        Actor(world, "web9", ticking("web9", 9, ()))
        world.run()
        _check(world, audit, [*ticks, *([("web1", 0, orphans)] if orphans else [])])
    finally:
        connection.close()
    return world


def _orphan(world: World, jobs: Jobs) -> None:
    """A tick that was killed while its commands went on."""
    actor = Actor(world, "web1", ticking("web1", 0, jobs))
    while not actor.blocked():
        actor.step()
    world.kill(actor)
    world.kills = 0
    world.connection.execute("UPDATE cronledger_runs SET expires_at = MAX(expires_at, '2026-11-30 03:16:01.000000')")


def _check(world: World, audit: Audit, ticks: list[Plan]) -> None:
    """At the end: every run over, each end said once, by a sentence that the row bears out."""
    rows = world.connection.execute("SELECT id, state, failure_reason FROM cronledger_runs WHERE namespace = 'app'")
    ends = {run_id: (state, why) for run_id, state, why in rows}
    if troubles := [event.text for event in world.said if isinstance(event, Trouble)]:
        raise Violation(f"a tick was in trouble: {troubles}")
    said = [event for event in world.said if isinstance(event, Ran | Failed | Reaped)]
    counts = Counter(event.run_id for event in said if not (isinstance(event, Failed) and LATE in event.reason))
    for run_id, (state, _) in ends.items():
        if state == "running" or audit.endings[run_id] != 1:
            raise Violation(f"{state} at the end, ended {audit.endings[run_id]} times")
        if counts[run_id] > 1 or (counts[run_id] == 0 and not world.kills):
            raise Violation(f"its end was said {counts[run_id]} times")
    for event in said:
        state, why = ends[str(event.run_id)]
        reaped = why is not None and why.startswith("reaped: ")
        if isinstance(event, Ran) != (state == "completed") and not reaped:
            raise Violation(f"the ledger has {state}, a tick said {event}")
        if reaped != (isinstance(event, Reaped) or LATE in getattr(event, "reason", "")):
            raise Violation(f"the ledger has {why}, a tick said {event}")
    _check_stood_down(world, ticks)


def _check_stood_down(world: World, ticks: list[Plan]) -> None:
    """At most once for each slot; what was due was run or stood down from, then or later."""
    said = Counter((event.job, event.due_at) for event in world.said if isinstance(event, StoodDown | Crowded))
    if said and max(said.values()) > 1:
        raise Violation(f"a stand-down was said more than once: {said}")
    ran = world.connection.execute("SELECT job, due_at FROM cronledger_runs WHERE namespace = 'app'").fetchall()
    for _, slot, jobs in ticks if not world.kills else ():
        for job, *_ in jobs:
            due_at = ZERO + slot * MINUTE
            later = [one for one in said if one[0] == job and one[1] >= due_at]
            if not later and (job, f"{due_at:%Y-%m-%d %H:%M:%S.%f}") not in ran:
                raise Violation(f"nothing was said of {job}")


def at_random(seed: int) -> Choose:
    """Choices of a seed."""
    return random.Random(seed).randrange


def every(run: Any) -> int:
    """Call `run(choose)` once for each sequence of choices that there is; how many."""
    prefix: list[int] = []
    taken: list[tuple[int, int]] = []
    count = 0

    def choose(options: int) -> int:
        choice = prefix[len(taken)] if len(taken) < len(prefix) else 0
        taken.append((choice, options))
        return choice

    while True:
        taken.clear()
        run(choose)
        count += 1
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return count
        prefix[:] = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]


def histories(seeds: Iterable[int], ledger: bytes = b"") -> int:
    """A history of each seed, of two to four ticks and up to four faults; how many commands started.

    In each second one a dead tick has left commands alive. A node has one place, or two, or as many as it likes.
    Raises Violation.
    """
    ledger = ledger or empty()
    started = 0
    for seed in seeds:
        choose = at_random(seed)
        jobs = tuple(job for job in JOBS if choose(2)) or JOBS
        orphans = tuple(job for job in JOBS[2:] if choose(2)) or JOBS[2:3] if seed % 2 else ()
        ticks = [("web1", 1, ())] * 2 if orphans else []
        ticks += [(f"web{1 + choose(2)}", choose(2), jobs) for _ in range(choose(2) if orphans else 2 + choose(3))]
        faults, places, bad_line = choose(5), seed % 3, seed % 4 == 2
        if bad_line:
            ticks, faults, places = [("web1", 0, JOBS[-3 + choose(2) :])], faults + 4, 0
        world = history(choose, ledger, ticks, faults=faults, line_only=bad_line, orphans=orphans, places=places)
        started += len(world.commands)
    return started
