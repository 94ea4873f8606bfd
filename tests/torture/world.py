"""One history of a few ticks, chosen step by step: the real Tick, Flight and Ledger; commands and /proc made up.

Each tick is a thread that stands still before each of its statements until it is its turn. In between ticks die, with
and without their commands, answers get lost, statements arrive late, commands end or fail, minutes and hours pass.
"""

import math
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

from cronledger import process
from cronledger.command.ending import Outcome
from cronledger.events import Holder, Reaped
from cronledger.ledger.dialect import Duplicate, Lost, Result, Value
from cronledger.ledger.dsn import Dsn
from cronledger.ledger.sqlite import Sqlite

ZERO = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
WINDOW = timedelta(hours=1)
Choose = Callable[[int], int]
WELL = Outcome(0, None, 1, "")


class Killed(BaseException):
    """kill -9 of a tick: nothing of ours catches it."""


class Violation(Exception):
    """What must never be was."""


def _taken() -> Any:
    """A lock to wait at until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Actor(threading.Thread):
    """A tick as one process of a node; `blocked` until what it waits for is there."""

    def __init__(self, world: "World", node: str, act: Callable[["Actor"], None]) -> None:
        super().__init__(daemon=True)
        self.world, self.node, self._act = world, node, act
        self.pid = 100 + len(world.actors)
        self.owner = f"{node}/1/{self.pid}/7"
        self.killed = self.done = False
        self.spared = False  # what is sent again gets there
        self.blocked: Callable[[], bool] = lambda: False
        self.wakes_at = 0.0
        self._turn = _taken()
        world.actors.append(self)
        self.start()

    def run(self) -> None:
        here.actor = self
        self._turn.acquire()
        try:
            self._act(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  raised again by World.run
            self.world.error = self.world.error or error
        self.done = True
        self.world.back.release()

    def step(self) -> None:
        """Let it go on to its next statement; from the scheduler."""
        self._turn.release()
        self.world.back.acquire()

    def pause(self) -> None:
        """Stand still until it is this one's turn; from the thread itself."""
        self.world.back.release()
        self._turn.acquire()
        if self.killed:
            raise Killed


@dataclass(slots=True, eq=False)
class Command:
    """One attempt of a run. `deadline` is the end of its window, `held_until` that of its lease."""

    run_id: str
    attempt: int
    job: str
    lock: str | None
    kind: str
    owner: str
    node: str
    deadline: float
    held_until: float = math.inf
    alive: bool = True
    outcome: Outcome = WELL

    @property
    def ends_at(self) -> float:
        """When whoever watches it ends it."""
        return min(self.deadline, self.held_until)

    def end(self) -> None:
        """It was told to."""
        self.alive, self.outcome = False, Outcome(None, "ended", 1, "", was_ended=True)


@dataclass(slots=True)
class World:
    """`choose(n)` is asked for each step; `said` is what the ticks said; `places`: max_running, 0 without.

    `line_only`: the faults are all of the line to the database. So many `minutes` pass while a leased command is alive.
    `commands` are those of all attempts, by their pids; `values` those of the statement that was sent last.
    """

    choose: Choose
    faults: int
    connection: sqlite3.Connection
    time: float = 0.0
    actors: list[Actor] = field(default_factory=list)
    commands: dict[int, Command] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    late: list[tuple[str, Mapping[str, Value]]] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    kills: int = 0
    back: Any = field(default_factory=lambda: _taken())
    error: BaseException | None = None
    audit: Callable[["World"], None] = lambda _: None
    places: int = 0
    minutes: int = 4
    line_only: bool = False

    def living(self, run_id: str) -> Command | None:
        """The command of a run that is alive."""
        return next((one for one in self.commands.values() if one.run_id == run_id and one.alive), None)

    def fault(self) -> bool:
        """Whether to break something here, while there is something left to break."""
        if self.faults and self.choose(2 if self.line_only else 6) == 0:
            self.faults -= 1
            return True
        return False

    def now(self) -> datetime:
        return ZERO + timedelta(seconds=self.time)

    def execute(self, dialect: "SharedSqlite", statement: str, values: Mapping[str, Value]) -> Result:
        """One statement of the actor whose turn it is; its answer, or the statement itself, may get lost."""
        here.actor.pause()
        self.time += 0.001
        writes = not statement.startswith("SELECT")
        if here.actor.spared:
            here.actor.spared = False
        elif writes and self.fault():
            here.actor.spared = True
            if self.choose(2):
                self.send(dialect, statement, values)
            else:
                self.late.append((statement, values))
            raise Lost("cut")
        return self.send(dialect, statement, values)

    def send(self, dialect: "SharedSqlite", statement: str, values: Mapping[str, Value]) -> Result:
        self.values = values
        try:
            return Sqlite.execute(dialect, statement, values, 1.0)
        finally:
            self.audit(self)

    def run(self) -> None:
        """Step by step to the end of all actors and commands."""
        while self.error is None and (steps := self._steps()):
            steps[self.choose(len(steps))]()
        for actor in self.actors:
            if not actor.done:
                actor.killed = True
                actor.step()
        if self.error is not None:
            raise self.error

    def _steps(self) -> list[Callable[[], None]]:
        ready = [actor for actor in self.actors if not actor.done]
        steps: list[Callable[[], None]] = [actor.step for actor in ready if not actor.blocked()]
        alive = [one for one in self.commands.values() if one.alive]
        ends = [(one, partial(self._end, one)) for one in alive]
        steps += [end for one, end in ends if one.kind != "leased" or self.choose(4) == 0]
        steps += [partial(self._fail, one) for one in alive if one.kind == "retried"]
        steps += [self._arrive] if self.late and self.choose(2 + self.line_only) == 0 else []
        if self.minutes and any(self.time + 1100 < one.held_until < math.inf for one in alive):
            steps += [self._pass_some_minutes]
        if self.faults and ready and not self.line_only and self.choose(5) == 0:
            steps += [partial(self._kill, ready), self._pass_an_hour, self._lengthen]
        if self.faults and ready and self.choose(5) == 0 and (between := self._between()):
            steps += [partial(self._reap, between)]
        steps = steps or [end for _, end in ends] or [self._arrive] * bool(self.late)
        return steps or [partial(self._sleep, ready)] * bool(ready)

    def _end(self, command: Command) -> None:
        command.alive = False

    def _fail(self, command: Command) -> None:
        command.alive, command.outcome = False, Outcome(3, "exit 3", 1, "")

    def _sleep(self, ready: list[Actor]) -> None:
        """Nothing goes on but the time."""
        self.time = min(actor.wakes_at for actor in ready)

    def _arrive(self) -> None:
        statement, values = self.late.pop(self.choose(len(self.late)))
        try:
            self.send(SharedSqlite(self), statement, values)
        except Violation as error:
            self.error = error
        except Duplicate:
            pass

    def _kill(self, ready: list[Actor]) -> None:
        self.faults -= 1
        actor = ready[self.choose(len(ready))]
        self.kill(actor)
        for run_id, owner in self.connection.execute("SELECT id, owner FROM cronledger_runs"):
            if owner == actor.owner and (command := self.living(run_id)) and self.choose(2):
                command.alive = False

    def kill(self, actor: Actor) -> None:
        """The tick alone."""
        self.kills += 1
        actor.killed = True
        actor.step()

    def _pass_an_hour(self) -> None:
        self.faults -= 1
        self._pass(3700)

    def _pass_some_minutes(self) -> None:
        """So many that a lease is to be renewed."""
        self.minutes -= 1
        self._pass(700)

    def _pass(self, seconds: float) -> None:
        """Whoever runs a command ends it at its window, or with its lease, adopters too."""
        self.time += seconds
        for command in self.commands.values():
            if command.alive and command.ends_at <= self.time:
                command.end()

    def _between(self) -> list[tuple[str, ...]]:
        """The running runs of which nothing lives: that wait for an attempt, or to be settled."""
        running = "SELECT id, job, due_at, node FROM cronledger_runs WHERE state = 'running' AND namespace = 'app'"
        started = {one.run_id for one in self.commands.values()}
        rows = self.connection.execute(running).fetchall()
        return [row for row in rows if row[0] in started and not self.living(row[0])]

    def _reap(self, runs: list[tuple[str, ...]]) -> None:
        """By hand, as `cronledger reap` does, and it says so."""
        self.faults -= 1
        run_id, job, due_at, node = runs[self.choose(len(runs))]
        why = "reaped: by hand"
        ended = "state = 'failed', active_job = NULL, held_lock = NULL, place = NULL, token = 'by hand', updated_at = ?"
        statement = f"UPDATE cronledger_runs SET {ended}, finished_at = ?, failure_reason = ? WHERE id = ?"
        now = self.now().replace(tzinfo=None).isoformat(" ", "microseconds")
        self.connection.execute(statement, (now, now, why, run_id))
        slot = datetime.fromisoformat(due_at).replace(tzinfo=UTC)
        holder = Holder(run_id=run_id, job=job, due_at=slot, node=node, started_at=slot)
        self.said.append(
            Reaped(at=self.now(), job=job, due_at=slot, node=node, run_id=run_id, holder=holder, why="by hand")
        )
        self.values = {}
        self.audit(self)

    def _lengthen(self) -> None:
        """What a later program may do: give its own runs a longer window."""
        self.faults -= 1
        running = "SELECT id, owner, expires_at FROM cronledger_runs WHERE state = 'running' AND namespace = 'app'"
        for run_id, owner, expires_at in self.connection.execute(f"{running} AND lease_ms IS NULL").fetchall():
            of_run = [one for one in self.commands.values() if one.run_id == run_id and one.owner == owner]
            if not of_run:
                continue
            later = (datetime.fromisoformat(expires_at) + timedelta(hours=2)).isoformat(" ", "microseconds")
            self.connection.execute("UPDATE cronledger_runs SET expires_at = ? WHERE id = ?", (later, run_id))
            of_run[-1].deadline += 7200
        self.values = {}
        self.audit(self)


here = threading.local()
"""`here.actor`: the actor whose thread this is."""


class SharedSqlite(Sqlite):
    """The one database, as one actor sees it; its clock is the world's."""

    now = "SELECT now() AS now"

    def __init__(self, world: World) -> None:
        super().__init__(Dsn("sqlite", "", database=":memory:"))
        self._world, self._connection = world, world.connection

    def execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        return self._world.execute(self, statement, values)

    def close(self) -> None:
        pass


class Commands:
    """In place of cronledger.command.Commands: a command is an entry of the world, and ends when that says so."""

    wakeup_fd = -1
    stopped: str | None = None

    def __init__(self, **_: object) -> None:
        self._world, self._watched = here.actor.world, dict[str, Command | None]()

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def has_place(self) -> bool:
        return True

    def start(
        self, key: str, argv: tuple[str, ...], cwd: str, env: Mapping[str, str], *, deadline: float, **_: object
    ) -> int:
        job, lock, kind = argv[0], argv[1] or None, argv[2]
        if deadline <= self._world.time:
            raise Violation(f"{job} is started past its window")
        states = self._world.connection.execute("SELECT state FROM cronledger_runs WHERE id = ?", (key,)).fetchall()
        if states != [("running",)]:
            raise Violation(f"{job} is started, and its run is {states}")
        for other in self._world.commands.values():
            same_job = other.job == job and kind != "overlap"
            if other.alive and (same_job or (lock and other.lock == lock)):
                raise Violation(f"{job} is started while {other.job} is alive")
        beside = [one for one in self._world.commands.values() if one.alive and one.node == here.actor.node]
        if self._world.places and len(beside) >= self._world.places:
            raise Violation(f"{job} is started beside {len(beside)} others of its node")
        attempt = int(env["CRONLEDGER_ATTEMPT"])
        command = Command(key, attempt, job, lock, kind, here.actor.owner, here.actor.node, deadline)
        pid = 1001 + len(self._world.commands)
        self._world.commands[pid] = self._watched[key] = command
        return pid

    def start_of(self, key: str) -> int | None:
        return 7

    def adopt(self, key: str, pid: int | None, *_: object, deadline: float, **__: object) -> None:
        command = self._world.living(key) if pid is None else self._world.commands.get(pid)
        self._watched[key] = command
        if command is not None and command.alive and deadline < command.deadline - 1:
            raise Violation(f"an adopter would end {command.job} before its window is over")

    def hold(self, key: str, until: float, unheld: str) -> None:
        if command := self._watched.get(key):
            command.held_until = until

    def end(self, key: str) -> None:
        if command := self._watched.get(key):
            command.end()

    def is_seen(self, key: str) -> bool:
        return True

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        if timeout > 0:
            actor = here.actor
            actor.wakes_at = self._world.time + timeout
            actor.blocked = lambda: not self._over() and self._world.time < actor.wakes_at
            actor.pause()
            actor.blocked = lambda: False
        over = [(key, self._watched.pop(key)) for key in self._over()]
        return [(key, command.outcome if command else WELL) for key, command in over]

    def _over(self) -> list[str]:
        return [key for key, command in self._watched.items() if command is None or not command.alive]


class Owner(process.Owner):
    """An owner of this history."""

    def is_alive(self, proc: str = "") -> bool:
        return any(one.pid == self.pid and not one.killed and not one.done for one in here.actor.world.actors)


def _lives(pid: int | None, start: int | None, run_id: str, since: int) -> bool:
    world = here.actor.world
    return world.living(run_id) is not None if pid is None else pid in world.commands and world.commands[pid].alive


PROCESS = SimpleNamespace(
    Owner=Owner,
    own=lambda: Owner.parse(here.actor.owner),
    ticks=int,
    lives=_lives,
    let_start=lambda _: None,
)
"""In place of cronledger.process, as cronledger.fate asks it."""
