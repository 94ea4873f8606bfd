"""Places to inflict a fault in: a folder, a schedule and a namespace each, in one database; and what came of it."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import machine
from conftest import KINDS, Database
from ticks import done_by

from torture.conftest import Tally
from torture.forks import Ended, Forks, Ticking

Point = TypeVar("Point")

MINUTE = "2026-01-05T10:00"
SERVERS = [kind for kind in KINDS if kind != "sqlite"]

# The kernel gives the lock back when the shell is gone, however it went: what finds it held is a second copy.
GUARDED = "exec 9>>held; flock -n 9 || echo twice >>twice; echo $CRONLEDGER_DUE_AT $CRONLEDGER_RUN_ID $$ >>started; "
SHORT = GUARDED + "sleep 0.05 9>&-"
UNTIL_GO = GUARDED + "while [ ! -e go ]; do sleep 0.02 9>&-; done"
FOR_EVER = GUARDED + "sleep 300 9>&-; true"


class Stage:
    """One of them. Ticks are of node web1 unless they say otherwise, speak JSON, and are remembered in `ticks`."""

    def __init__(self, folder: Path, database: Database, forks: Forks, env: Mapping[str, str]) -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self.folder, self.database, self._forks, self._env = folder, database, forks, env
        self.namespace = f"stage-{folder.name}"
        self.ticks: list[Ticking] = []

    def write(self, command: str | None, more: str = "") -> None:
        """The one job, due every minute; None: nothing is due."""
        enabled = "enabled = false\n" if command is None else ""
        job = f'[[job]]\nname = "job"\ncron = "* * * * *"\ncommand = {json.dumps(command or "true")}\n{enabled}{more}\n'
        text = f'timezone = "UTC"\nnamespace = "{self.namespace}"\n{job}'
        (self.folder / "schedule.toml").write_text(text)

    def arguments(self, *options: str, dsn: str | None = None, at: str | None = MINUTE) -> list[str]:
        given = ["--dsn", dsn or self.database.dsn, "--json", *(("--at", at) if at else ()), *options]
        return [*given, *(() if "--node" in options else ("--node", "web1"))]

    def start(self, *options: str, dsn: str | None = None, at: str | None = MINUTE, **made_up: Any) -> Ticking:
        """A tick that goes on. See Forks.start for what can be made up."""
        tick = self._forks.start(self.arguments(*options, dsn=dsn, at=at), self.folder, **made_up)
        self.ticks.append(tick)
        return tick

    def tick(self, *options: str, dsn: str | None = None, at: str | None = MINUTE) -> Ended:
        """A tick, and how it ended."""
        return self.start(*options, dsn=dsn, at=at).wait()

    def spawn(self, *prefix: str, options: tuple[str, ...] = (), dsn: str | None = None) -> Ticking:
        """A whole tick, as cron starts it, at the head of whose command line stands `prefix`."""
        files = self.folder / f"out.s{len(self.ticks)}", self.folder / f"err.s{len(self.ticks)}"
        command = [*prefix, sys.executable, "-m", "cronledger", "tick", *self.arguments(*options, dsn=dsn)]
        with files[0].open("w") as out, files[1].open("w") as err:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._env, stdout=out, stderr=err, start_new_session=True
            )
        self.ticks.append(Ticking(process.pid, files, process.wait))
        return self.ticks[-1]

    def rows(self, columns: str, where: str = "1 = 1") -> list[tuple[object, ...]]:
        return self.database.sql(
            f"SELECT {columns} FROM cronledger_runs WHERE namespace = '{self.namespace}' AND {where}"
            " ORDER BY started_at"
        )

    def instant(self, seconds: float) -> str:
        """So many seconds from now, as an SQL literal of this database."""
        return self.utc(f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}")

    def utc(self, instant: str) -> str:
        """An instant in UTC likewise."""
        return f"'{instant}{'+00' if self.database.kind == 'postgres' else ''}'"

    def change(self, assignments: str) -> None:
        """Rewrite the rows, as time or another machine would have."""
        self.database.sql(f"UPDATE cronledger_runs SET {assignments} WHERE namespace = '{self.namespace}'")

    @property
    def started(self) -> list[tuple[str, str, int]]:
        """Slot, run and pid of each command that began."""
        with suppress(FileNotFoundError):
            lines = (line.split() for line in (self.folder / "started").read_text().splitlines(keepends=True))
            return [(words[0], words[1], int(words[2])) for words in lines if len(words) == 3]
        return []

    @property
    def pid(self) -> int:
        """That of the command that began last."""
        return self.started[-1][2]

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
        try:
            machine.wait_for(condition, timeout, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.said()}") from None

    def wait_for_pid(self) -> None:
        """Until the command runs and the ledger knows its pid."""
        self.wait_for(lambda: self.started and self.rows("id", "pid IS NOT NULL AND state = 'running'"), "it runs")

    def orphan(
        self, command: str, *, recorded: bool = True, window: float | None = None, lease: float | None = None
    ) -> None:
        """A run whose tick was killed and whose command lives on; `recorded`: its pid is in the ledger."""
        self.write(command)
        tick = self.start(window=window, lease=lease)
        self.wait_for_pid()
        tick.send(signal.SIGKILL)
        tick.wait()
        if not recorded:
            self.change("pid = NULL, pid_start = NULL")

    def go(self) -> None:
        """Let the command UNTIL_GO end."""
        (self.folder / "go").touch()

    def living(self) -> list[int]:
        """What works in the folder."""
        return machine.processes(self.folder)

    def said(self) -> str:
        """All that there is to know, for a test that fails."""
        ended = [tick.wait(0.1) if tick._ended else "goes on" for tick in self.ticks]
        return f"{self.folder}: ticks {ended}, started {self.started}, rows {self.rows('*')}"


class Stages:
    """Makes stages in a database with an installed ledger. Use as a context manager."""

    def __init__(
        self, database: Database, folder: Path, env: Mapping[str, str], *prefix: str, by: str | None = None
    ) -> None:
        self.database, self._folder, self._env = database, folder, dict(env)
        self.forks = Forks(done_by(env, by), *prefix)
        self._numbers = count(1)

    def __enter__(self) -> "Stages":
        schedule = self._folder / "install.toml"
        schedule.write_text(
            'timezone = "UTC"\nnamespace = "install"\n[[job]]\nname = "a"\ncron = "* * * * *"\ncommand = "true"\n'
        )
        arguments = ["install", "--schedule", str(schedule), "--dsn", self.database.dsn]
        subprocess.run(
            [sys.executable, "-m", "cronledger", *arguments], env=self._env, check=True, stdout=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *raised: object) -> None:
        machine.send(signal.SIGKILL, self._folder)
        self.forks.__exit__(*raised)

    def stage(self) -> Stage:
        """A new one."""
        return Stage(self._folder / f"{next(self._numbers)}", self.database, self.forks, self._env)


def account(stage: Stage, tally: Tally, *, slots: int = 1) -> None:
    """Add to the tally what one fault came to, once all ticks of the stage have ended."""
    ended = [tick.wait() for tick in stage.ticks]
    rows = stage.rows("id, state, failure_reason")
    started = Counter(slot for slot, _, _ in stage.started)
    runs = {run for _, run, _ in stage.started} | {str(run) for run, _, _ in rows}
    over = {str(run) for run, state, reason in rows if state == "completed" or (state == "failed" and reason)}
    printed = "".join(f"{one.out}{one.err}" for one in ended)
    twice = stage.folder / "twice"
    doubles = started.total() - len(started) + (len(twice.read_text().splitlines()) if twice.exists() else 0)
    lost = sum(run not in over and run not in printed for run in runs)
    running = sum(state == "running" for _, state, _ in rows)
    if doubles or lost or running:
        print(f"doubles {doubles}, lost {lost}, running {running}: {stage.said()}")
    tally.inflicted += 1
    tally.expected += slots
    tally.seen += started.total()
    tally.doubles += doubles
    tally.lost += lost
    tally.running += running
    endings = [event["run_id"] for one in ended for event in one.events if event["event"] != "stood_down"]
    assert len(endings) == len(set(endings)), stage.said()
    complaints = re.findall(r"Traceback|internal error|p@ss|p%40ss", printed)
    assert not complaints, stage.said()
    assert all(one.status != 99 for one in ended), stage.said()


def at_once(
    inflict: Callable[[Point], Stage | None], points: Iterable[Point], tally: Tally, *, width: int = 8, slots: int = 1
) -> None:
    """Inflict each, some at a time, and account for the stages of those that came about, with `slots` due in each."""
    with ThreadPoolExecutor(width) as pool:
        for stage in pool.map(inflict, points):
            if stage is not None:
                account(stage, tally, slots=slots)
