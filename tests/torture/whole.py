"""Whole ticks of three machines at once: schedules, minutes, clocks and deaths by chance, and what holds all the same.

A history is told by its seed, but for what the machine's scheduler makes of it.
"""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from cronledger.events import utc
from cronledger.ledger import read_clock
from torture.conftest import Tally
from torture.forks import Ticking
from torture.schemas import link_to
from torture.stages import Stage, Stages, account

OTHER = "00000000-0000-4000-8000-00000000000{}"
MACHINES = {"web1": None, "web2": OTHER.format(2), "web3": OTHER.format(3)}
"""Each node is a machine of its own, by its boot's id; the first one is this one."""

MINUTES = [datetime(2026, 1, 5, 10, minute, tzinfo=UTC) for minute in range(6)]
ZONES = {"UTC": 0, "Europe/Paris": 60, "America/St_Johns": -210, "Asia/Kathmandu": 345, "Pacific/Apia": 780}
"""Minutes from UTC, at that time of the year."""

MARGIN = timedelta(seconds=60)
UNENDED = r"(cronledger: job\d: run \S+ cannot be ended here, since its tick died before .*\n)*"
SKEWED = r"cronledger: this node's clock is \d+ s (ahead of|behind) the database's .*\n"


@dataclass(frozen=True, slots=True)
class Job:
    """One of a schedule, due at each minute or at some of MINUTES only."""

    name: str
    minutes: tuple[datetime, ...] | None
    zone: str
    lock: str
    overlap: bool
    lasts: float
    status: int
    endless: bool

    def is_due(self, minute: datetime | None) -> bool:
        return minute is not None and (self.minutes is None or minute in self.minutes)

    @property
    def text(self) -> str:
        """What the schedule says of it."""
        keys = {"name": self.name, "cron": self._cron, "timezone": self.zone, "command": self._command}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        lines += [f'lock = "{self.lock}"'] if self.lock else []
        return "\n".join(["[[job]]", *lines, *(["overlap = true"] if self.overlap else [])])

    @property
    def _cron(self) -> str:
        if self.minutes is None:
            return "* * * * *"
        there = [minute + timedelta(minutes=ZONES[self.zone]) for minute in self.minutes]
        return f"{','.join(str(one.minute) for one in there)} {there[0].hour} 5 1 *"

    @property
    def _command(self) -> str:
        """It says when it finds another one of its kind alive; see stages.GUARDED."""
        held = ([] if self.overlap else [f"job.{self.name}"]) + ([f"lock.{self.lock}"] if self.lock else [])
        guards = "".join(
            f"exec {8 + at}>>{file}; flock -n {8 + at} || echo twice >>twice; " for at, file in enumerate(held)
        )
        started = "echo $CRONLEDGER_JOB@$CRONLEDGER_DUE_AT $CRONLEDGER_RUN_ID $$ >>started; "
        # What is to be ended must be the command itself: what that leaves behind is nobody's.
        then = "exec sleep 300" if self.endless else f"sleep {self.lasts} 8>&- 9>&-; exit {self.status}"
        return guards + started + then


def _job(chance: random.Random, name: str, window: float | None) -> Job:
    some = tuple(sorted(chance.sample(MINUTES, chance.randint(1, 6))))
    lock = chance.choice(["", "", "warehouse"])
    return Job(
        name=name,
        minutes=chance.choice([None, some]),
        zone=chance.choice(list(ZONES)),
        lock=lock,
        overlap=not lock and chance.random() < 0.3,
        lasts=round(chance.uniform(0.01, 0.6), 2),
        status=chance.choice([0, 0, 3]),
        endless=window is not None and chance.random() < 0.2,
    )


@dataclass(slots=True)
class Tick:
    """A tick for a minute that was asked for or is its clock's, which is `off` by so many seconds.

    `minute` None: its schedule has no jobs.
    """

    ticking: Ticking
    minute: datetime | None
    asked: bool
    off: float
    killed: bool = False

    @property
    def skewed(self) -> bool:
        return abs(self.off) >= 30


class History:
    """One of them, on a stage."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.chance = stage, random.Random(seed)
        self.window = self.chance.choice([None, 2.0])
        self.jobs = [_job(self.chance, f"job{n}", self.window) for n in range(self.chance.randint(1, 4))]
        self.ticks: list[Tick] = []
        self.stopped: list[Tick] = []
        self.begun = self._database_time()
        text = "\n".join(job.text for job in self.jobs)
        (stage.folder / "jobs.toml").write_text(f'timezone = "UTC"\nnamespace = "{stage.namespace}"\n{text}\n')
        stage.write(None)

    def happen(self, steps: int) -> None:
        """So many things, one after another, while ticks and commands go on."""
        for _ in range(steps):
            for tick in self.stopped:
                tick.ticking.send(signal.SIGCONT)
            self.stopped.clear()
            what = self.chance.choices(
                [self._tick, self._kill_tick, self._kill_command, self._kill_both, self._stop_tick], [12, 2, 2, 1, 1]
            )
            what[0]()
            time.sleep(self.chance.choice([0, self.chance.uniform(0, 0.2)]))

    def _tick(self) -> None:
        asked, off = self.chance.random() < 0.7, self._off()
        node, wall = self.chance.choice(list(MACHINES)), time.time() + off
        now = datetime.fromtimestamp(wall, UTC).replace(second=0, microsecond=0)
        minute = self.chance.choice(MINUTES) if asked else now
        self._start(node, minute, asked, off, wall)

    def _off(self) -> float:
        """Mostly by less than is tolerated, and never so that the minute is about to turn."""
        while True:
            near, far = self.chance.uniform(-28, 28), self.chance.choice([-1, 1]) * self.chance.uniform(32, 4000)
            off = self.chance.choices([0.0, near, far], [2, 5, 1])[0]
            if (time.time() + off) % 60 < 55:
                return off
            time.sleep(0.1)  # for 0 too

    def _start(self, node: str, minute: datetime | None, asked: bool, off: float, wall: float) -> Tick:
        made_up = {"wall": wall, "boot": MACHINES[node], "window": self.window}
        options = ["--node", node, *(["--schedule", "jobs.toml"] if minute else [])]
        at = utc(minute or MINUTES[0]) if asked else None
        self.ticks.append(Tick(self.stage.start(*options, at=at, **made_up), minute, asked, off))
        return self.ticks[-1]

    def _kill_tick(self) -> None:
        """A young one more likely than one that is long over."""
        if tick := self.chance.choice([None, *self.ticks[-4:]]):
            tick.killed = True
            tick.ticking.send(signal.SIGKILL)

    def _stop_tick(self) -> None:
        if tick := self.chance.choice([None, *self.ticks[-4:]]):
            tick.ticking.send(signal.SIGSTOP)
            self.stopped.append(tick)

    def _kill_command(self) -> None:
        """One process of one: its shell, or what that waits for."""
        if commands := self._commands():
            _kill(self.chance.choice(commands))

    def _kill_both(self) -> None:
        self._kill_tick()
        self._kill_command()

    def _commands(self) -> list[int]:
        return sorted(set(self.stage.living()) - {tick.ticking.pid for tick in self.ticks})

    def end(self) -> None:
        """Each node ticks once more, but for one that is lost maybe: others learn that when its window is over."""
        for tick in self.stopped:
            tick.ticking.send(signal.SIGCONT)
        self._end_unrecorded()
        lost = self.chance.choice([None, *MACHINES])
        for _ in range(2):  # what a tick had sent when it was killed may arrive after the first time
            for node in MACHINES.keys() - {lost}:
                self._start(node, None, True, 0.0, time.time())
            for tick in self.ticks:
                tick.ticking.wait()
        assert not self._running(f"node <> '{lost}'"), self.stage.said()
        self._windows_hold()
        if lost:
            self._lose(lost)
        self.stage.wait_for(lambda: not self.stage.living(), "all have ended")

    def _end_unrecorded(self) -> None:
        """By hand, as an adopter asks that does not know the pid, for its tick died before that was recorded."""
        unrecorded = self._running("pid IS NULL")
        for _, run, pid in self.stage.started:
            if run in unrecorded:
                _kill(pid)

    def _lose(self, node: str) -> None:
        for pid in self._commands():
            _kill(pid)
        left = self._running()
        self.stage.change(f"expires_at = CASE state WHEN 'running' THEN {self._over()} ELSE expires_at END")
        other = self._start(min(MACHINES.keys() - {node}), None, True, 0.0, time.time())
        events = other.ticking.wait().events
        assert sorted(event["run_id"] for event in events) == sorted(left), self.stage.said()
        assert {event["reason"].partition(" ")[0] for event in events} <= {"window"}, self.stage.said()

    def _over(self) -> str:
        literal = self.stage.instant(-1)
        return f"timestamptz {literal}" if self.stage.database.kind == "postgres" else literal

    def _running(self, where: str = "1 = 1") -> list[str]:
        return [str(run_id) for (run_id,) in self.stage.rows("id", f"state = 'running' AND {where}")]

    def check(self) -> int:
        """All that must hold; returns how many slots were due."""
        self._said_what_they_should()
        self._told_once()
        self._nothing_undue()
        self._nothing_passed_over()
        self._ages_hold()
        return len({(job.name, tick.minute) for tick in self.ticks for job in self.jobs if job.is_due(tick.minute)})

    def _said_what_they_should(self) -> None:
        """A node whose clock is off says so and does nothing; no other one is in trouble; nothing was reaped early."""
        for tick in self.ticks:
            ended = tick.ticking.wait()
            expected = SKEWED if tick.skewed else UNENDED
            assert re.fullmatch(expected, ended.err) or (tick.killed and not ended.err), self.stage.said()
            assert not (tick.skewed and ended.out), self.stage.said()
            for event in ended.events:
                assert "after it" not in str(event.get("reason")), self.stage.said()
                early = event.get("reason") == "its tick is gone" and event["node"] != event["run_node"]
                assert not early, self.stage.said()

    def _told_once(self) -> None:
        """One line for each run whose tick lived, none twice; a stand-down once, but to those who asked."""
        events = [(tick, event) for tick in self.ticks for event in tick.ticking.wait().events]
        endings = Counter(event["run_id"] for _, event in events if event["event"] != "stood_down")
        lived = {str(tick.ticking.pid) for tick in self.ticks if not tick.killed}
        owned = {str(run_id) for run_id, owner in self.stage.rows("id, owner") if str(owner).split("/")[2] in lived}
        assert owned <= endings.keys(), self.stage.said()
        assert set(endings.values()) <= {1}, self.stage.said()
        down = [(event["job"], event["due_at"]) for tick, event in events if _is_down(event) and not tick.asked]
        assert len(down) == len(set(down)), self.stage.said()

    def _nothing_undue(self) -> None:
        named = {job.name: job for job in self.jobs}
        assert all(named[name].is_due(minute) for name, minute in self._slots()), self.stage.said()

    def _nothing_passed_over(self) -> None:
        """What was due for a tick that lived has a row, or stood down and that was said or is remembered."""
        remembered = dict(
            self.stage.database.sql(
                f"SELECT job, stood_down_at FROM cronledger_jobs WHERE namespace = '{self.stage.namespace}'"
            )
        )
        slots = self._slots()
        told = {
            (event["job"], _instant(event["due_at"]))
            for tick in self.ticks
            for event in tick.ticking.wait().events
            if _is_down(event)
        }
        told |= {(job.name, tick.minute) for tick in self.ticks for job in self.jobs if tick.killed}  # before its line
        for tick in self.ticks:
            down = {event["job"] for event in tick.ticking.wait().events if _is_down(event)}
            for job in self.jobs:
                if tick.killed or tick.skewed or not job.is_due(tick.minute) or (job.name, tick.minute) in slots:
                    continue
                last = remembered.get(job.name)
                known = (job.name, tick.minute) in told or (
                    not tick.asked and last is not None and _instant(last) >= tick.minute
                )
                assert job.name in down or known, (job, tick, self.stage.said())

    def _slots(self) -> set[tuple[str, datetime]]:
        return {(str(job), _instant(due_at)) for job, due_at in self.stage.rows("job, due_at")}

    def _windows_hold(self) -> None:
        window = timedelta(seconds=self.window or 3600) + MARGIN
        rows = [map(_instant, row) for row in self.stage.rows("started_at, expires_at")]
        assert {expires - started for started, expires in rows} <= {window}, self.stage.said()

    def _ages_hold(self) -> None:
        """All is of the time that this took, by the database's clock."""
        now = self._database_time()
        for row in self.stage.rows("started_at, finished_at"):
            started, finished = map(_instant, row)
            assert self.begun <= started <= finished <= now, self.stage.said()

    def _database_time(self) -> datetime:
        link = link_to(self.stage.database)
        try:
            return read_clock(link).read
        finally:
            link.close()


def _is_down(event: dict[str, object]) -> bool:
    return event["event"] == "stood_down"


def _instant(value: object) -> datetime:
    instant = datetime.fromisoformat(str(value))  # a text in SQLite
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def histories(stages: Stages, tally: Tally, seeds: Iterable[int], steps: int, width: int = 4) -> None:
    """One of so many steps for each seed."""
    with ThreadPoolExecutor(width) as pool:
        for stage, slots in pool.map(partial(_history, stages, steps), seeds):
            account(stage, tally, slots=slots)


def _history(stages: Stages, steps: int, seed: int) -> tuple[Stage, int]:
    history = History(stages.stage(), seed)
    print(f"seed {seed} on {history.stage.folder}")
    try:
        history.happen(steps)
        history.end()
        return history.stage, history.check()
    except (AssertionError, ValueError) as error:
        raise AssertionError(f"seed {seed}, {steps} steps, {history.jobs}: {error}") from error
