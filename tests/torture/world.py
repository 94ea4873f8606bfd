"""One history of a few ticks, chosen step by step: the real Tick, Flight and Ledger; commands and /proc made up.

Each tick is a thread that stands still before each of its statements until it is its turn. In between ticks die, with
and without their commands, answers get lost, statements arrive late, commands end and hours pass.
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from cronledger import process
from cronledger.command.ending import Outcome
from cronledger.ledger.dialect import Duplicate, Lost, Result, Value
from cronledger.ledger.dsn import Dsn
from cronledger.ledger.sqlite import Sqlite

ZERO = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
WINDOW = timedelta(hours=1)
Choose = Callable[[int], int]


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
    run_id: str
    job: str
    lock: str | None
    overlap: bool
    owner: str
    node: str
    ends_at: float
    alive: bool = True


@dataclass(slots=True)
class World:
    """`choose(n)` is asked for each step; `said` is what the ticks said; `places`: max_running, 0 without."""

    choose: Choose
    faults: int
    connection: sqlite3.Connection
    time: float = 0.0
    actors: list[Actor] = field(default_factory=list)
    commands: dict[str, Command] = field(default_factory=dict)
    late: list[tuple[str, Mapping[str, Value]]] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    kills: int = 0
    back: Any = field(default_factory=lambda: _taken())
    error: BaseException | None = None
    audit: Callable[["World"], None] = lambda _: None
    places: int = 0

    def fault(self) -> bool:
        """Whether to break something here, while there is something left to break."""
        if self.faults and self.choose(6) == 0:
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
        steps += [lambda one=one: self._end(one) for one in self.commands.values() if one.alive]
        steps += [self._arrive] if self.late else []
        if self.faults and ready and self.choose(5) == 0:
            steps += [lambda: self._kill(ready), self._pass_an_hour, self._lengthen]
        return steps

    def _end(self, command: Command) -> None:
        command.alive = False

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
            if owner == actor.owner and run_id in self.commands and self.choose(2):
                self.commands[run_id].alive = False

    def kill(self, actor: Actor) -> None:
        """The tick alone."""
        self.kills += 1
        actor.killed = True
        actor.step()

    def _pass_an_hour(self) -> None:
        """Whoever runs a command ends it at its window, adopters too."""
        self.faults -= 1
        self.time += 3700
        for command in self.commands.values():
            command.alive = command.alive and command.ends_at > self.time

    def _lengthen(self) -> None:
        """What a later program may do: give its own runs a longer window."""
        self.faults -= 1
        running = "SELECT id, owner, expires_at FROM cronledger_runs WHERE state = 'running' AND namespace = 'app'"
        for run_id, owner, expires_at in self.connection.execute(running).fetchall():
            if run_id not in self.commands or self.commands[run_id].owner != owner:
                continue
            later = (datetime.fromisoformat(expires_at) + timedelta(hours=2)).isoformat(" ", "microseconds")
            self.connection.execute("UPDATE cronledger_runs SET expires_at = ? WHERE id = ?", (later, run_id))
            self.commands[run_id].ends_at += 7200
        self.audit(self)


here = threading.local()
"""`here.actor`: the actor whose thread this is."""


class SharedSqlite(Sqlite):
    """The one database, as one actor sees it."""

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

    def start(self, key: str, argv: tuple[str, ...], *_: object, deadline: float, **__: object) -> int:
        job, lock, overlap = argv[0], argv[1] or None, bool(argv[2])
        if deadline <= self._world.time:
            raise Violation(f"{job} is started past its window")
        for other in self._world.commands.values():
            same_job = other.job == job and not overlap
            if other.alive and (same_job or (lock and other.lock == lock)):
                raise Violation(f"{job} is started while {other.job} is alive")
        beside = [one for one in self._world.commands.values() if one.alive and one.node == here.actor.node]
        if self._world.places and len(beside) >= self._world.places:
            raise Violation(f"{job} is started beside {len(beside)} others of its node")
        command = Command(key, job, lock, overlap, here.actor.owner, here.actor.node, deadline)
        self._world.commands[key] = self._watched[key] = command
        return 1000 + len(self._world.commands)

    def start_of(self, key: str) -> int | None:
        return 7

    def adopt(self, key: str, *_: object, deadline: float, **__: object) -> None:
        command = self._watched[key] = self._world.commands.get(key)
        if command is not None and command.alive and deadline < command.ends_at - 1:
            raise Violation(f"an adopter would end {command.job} before its window is over")

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        if timeout > 0:
            here.actor.blocked = lambda: not self._over()
            here.actor.pause()
            here.actor.blocked = lambda: False
        over = self._over()
        for key in over:
            del self._watched[key]
        return [(key, Outcome(0, None, 1, "")) for key in over]

    def _over(self) -> list[str]:
        return [key for key, command in self._watched.items() if command is None or not command.alive]


class Owner(process.Owner):
    """An owner of this history."""

    def is_alive(self, proc: str = "") -> bool:
        return any(one.pid == self.pid and not one.killed and not one.done for one in here.actor.world.actors)


def _lives(pid: int | None, start: int | None, run_id: str, since: int) -> bool:
    command = here.actor.world.commands.get(run_id)
    return command is not None and command.alive


PROCESS = SimpleNamespace(Owner=Owner, own=lambda: Owner.parse(here.actor.owner), ticks=int, lives=_lives)
"""In place of cronledger.process, as cronledger.fate asks it."""
