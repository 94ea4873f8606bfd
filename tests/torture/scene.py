"""Nodes that tick one ledger, what their commands wrote of themselves, and what is missing in the end."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import machine
from conftest import KINDS, ROOT, Database
from servers import Server
from ticks import run_batches

from cronledger.events import utc
from torture.conftest import Tally
from torture.gate import Gate, gate_of

SERVERS = [kind for kind in KINDS if kind != "sqlite"]
OWN = ["postgres", "mariadb"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A tick that is over: the slots that were due for it, its exit status, and what it said."""

    due: frozenset[tuple[str, str]]
    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, object]]:
        """What it printed."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def named(self) -> frozenset[tuple[str, str]]:
        """The slots that it said to have left."""
        lists = [line.partition("; not claimed here: ")[2] for line in self.err.splitlines()]
        names = {name for names in lists for name in names.split(", ")}
        return frozenset(slot for slot in self.due if slot[0] in names)


class Ticking:
    """A tick that goes on."""

    def __init__(self, process: subprocess.Popen[str], due: frozenset[tuple[str, str]]) -> None:
        self.process, self._due = process, due
        self._ended: Ended | None = None

    def wait(self, timeout: float = 120) -> Ended:
        """How it ended."""
        if self._ended is None:
            out, err = self.process.communicate(timeout=timeout)
            self._ended = Ended(self._due, self.process.returncode, out, err)
        return self._ended


class Scene:
    """A ledger in `database`, reached by nodes through `dsn`; `gate` lets it go away. Use as a context manager.

    `tally` is added up by `count`. Each command writes a line of its own when it starts: what ran, whatever the ledger
    says of it.
    """

    def __init__(self, folder: Path, database: Database, gate: Gate | None, tally: Tally) -> None:
        self.folder, self.database, self.tally = folder, database, tally
        self._gate = gate
        self.dsn = gate.dsn(database.dsn) if gate else database.dsn
        self._now = datetime.now(UTC).replace(second=0, microsecond=0)
        self._ticking: list[Ticking] = []
        self._wrote = folder / "ran"
        self._wrote.touch()
        self.write("schedule.toml", self.job("ok"))
        self.run("install")

    @property
    def gate(self) -> Gate:
        """What stands between the nodes and the server."""
        assert self._gate is not None
        return self._gate

    @property
    def environment(self) -> dict[str, str]:
        """Cron's, and the DSN."""
        cron = {"HOME": str(self.folder), "LOGNAME": "nobody", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
        return cron | {"PYTHONPATH": str(ROOT), "CRONLEDGER_DSN": self.dsn}

    def minute(self, back: int) -> str:
        """A minute of the past, as --at takes it and as a slot has it."""
        return utc(self._now - timedelta(minutes=back))

    def job(self, name: str, then: str = "true", **keys: str) -> str:
        """A job that is due every minute, writes down that it started, and goes on with `then`."""
        command = f"echo $CRONLEDGER_JOB $CRONLEDGER_DUE_AT $CRONLEDGER_RUN_ID >>{self._wrote}; {then}"
        more = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        return f'[[job]]\nname = "{name}"\ncron = "* * * * *"\ncommand = {json.dumps(command)}\n{more}'

    def until(self, name: str) -> str:
        """What waits, as a part of a command, until `touch(name)`."""
        return f"while [ ! -e {self.folder}/{name} ]; do sleep 0.2; done"

    def touch(self, name: str) -> None:
        """Let what waits for it go on."""
        (self.folder / name).touch()

    def write(self, name: str, *jobs: str) -> None:
        """Write a schedule."""
        (self.folder / name).write_text(f'timezone = "UTC"\nnamespace = "app"\n{"".join(jobs)}')

    def arguments(self, node: str, back: int, schedule: str = "schedule.toml", dsn: str = "") -> list[str]:
        """What follows `tick`, for the minute `back` minutes ago."""
        place = ["--schedule", str(self.folder / schedule), "--dsn", dsn or self.dsn]
        return ["--json", *place, "--node", node, "--at", self.minute(back)]

    def slots(self, back: int, schedule: str = "schedule.toml") -> frozenset[tuple[str, str]]:
        """The slots of a minute: a job's name and the minute."""
        lines = (self.folder / schedule).read_text().splitlines()
        return frozenset((line.split('"')[1], self.minute(back)) for line in lines if line.startswith("name = "))

    def tick(self, node: str, back: int, schedule: str = "schedule.toml", dsn: str = "") -> Ticking:
        """Start a tick."""
        process = self.start("tick", *self.arguments(node, back, schedule, dsn))
        self._ticking.append(Ticking(process, self.slots(back, schedule)))
        return self._ticking[-1]

    def batches(self, *batches: Sequence[tuple[str, int]], dsn: str = "") -> list[Ended]:
        """Ticks of nodes and minutes, those of a batch at once: forked, so that hundreds take seconds."""
        asked = [[self.arguments(node, back, dsn=dsn) for node, back in batch] for batch in batches]
        return self.forked(asked, [back for batch in batches for _, back in batch])

    def forked(self, batches: list[list[list[str]]], backs: list[int]) -> list[Ended]:
        """The same, with arguments of your own; `backs` are the minutes of all."""
        ended = chain(*run_batches(batches, self.environment))
        return [Ended(self.slots(back), *tick) for back, tick in zip(backs, ended, strict=True)]

    def run(self, *arguments: str) -> str:
        """Run another command to its end; what it printed."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, (arguments, out, err)
        return out

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start another command."""
        return subprocess.Popen(
            [sys.executable, "-m", "cronledger", *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def rows(self, columns: str, where: str = "1 = 1") -> list[tuple[object, ...]]:
        """Rows of the runs, read past the gate."""
        return self.database.sql(f"SELECT {columns} FROM cronledger_runs WHERE {where} ORDER BY started_at")

    def wait_for_pids(self, number: int) -> None:
        """Wait until so many running runs have theirs."""
        condition = "pid IS NOT NULL AND state = 'running'"
        machine.wait_for(lambda: len(self.rows("id", condition)) == number, 60, f"{number} pids")

    def wrote(self) -> list[tuple[str, str, str]]:
        """Job, minute and run of each command that started."""
        return [(job, due_at, run_id) for job, due_at, run_id in map(str.split, self._wrote.read_text().splitlines())]

    def count(self, *ended: Ended, inflicted: int = 1) -> None:
        """Add to the tally: each slot ran once, or was named, or has a row; each run has one row and one line."""
        wrote, tally = self.wrote(), self.tally
        printed = Counter(event["run_id"] for tick in ended for event in tick.events if event["event"] != "reaped")
        rows = {str(run_id): str(state) for run_id, state in self.rows("id, state")}
        assert not [tick.err for tick in ended if "Traceback" in tick.err]
        due = {slot for tick in ended for slot in tick.due}
        ran = Counter((job, due_at) for job, due_at, _ in wrote)
        left = due - ran.keys() - {slot for tick in ended for slot in tick.named} - self._slots("state <> 'running'")
        tally.inflicted += inflicted
        tally.expected += len(due - self._slots("owner = ''"))  # those are other sessions' own
        tally.seen += len(wrote)
        tally.doubles += len(wrote) - len(ran) + sum(max(0, printed[run_id] - 1) for _, _, run_id in wrote)
        tally.lost += len(left) + sum(
            rows.get(run_id) not in ("completed", "failed") or not printed[run_id] for _, _, run_id in wrote
        )
        tally.running += sum(state == "running" for state in rows.values())
        assert (tally.doubles, tally.lost, tally.running) == (0, 0, 0), (left, wrote, printed, rows, ended)

    def _slots(self, where: str) -> set[tuple[str, str]]:
        return {(str(job), _utc(due_at)) for job, due_at in self.rows("job, due_at", where)}

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *raised: object) -> None:
        for ticking in self._ticking:
            ticking.process.kill()
            with ticking.process:
                pass  # waits for it, and closes its pipes
        machine.send(signal.SIGKILL, self.folder)


def _utc(value: object) -> str:
    instant = datetime.fromisoformat(str(value))  # a text in SQLite
    return utc(instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC))


def tally_of(database: str = "") -> Tally:
    """One that no table shows."""
    return Tally("", database)


@contextmanager
def scene_of(server: Server | None, folder: Path, tally: Tally) -> Iterator[Scene]:
    """A scene on a server, which may go away behind its gate; without one, on SQLite."""
    folder.mkdir(exist_ok=True)
    if server is None:
        with Scene(folder, Database("sqlite", f"sqlite:///{folder}/ledger.db", None), None, tally) as scene:
            yield scene
        return
    database = Database(server.kind, server.fresh_database(), server)
    with gate_of(server) as gate, Scene(folder, database, gate, tally) as scene:
        yield scene


def at_once(ticks: Sequence[Callable[[], Ticking]]) -> list[Ended]:
    """Start ticks together, and wait for all."""
    return [ticking.wait() for ticking in [tick() for tick in ticks]]
