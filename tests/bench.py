"""What cronledger costs, each figure as a ratio of medians of one run, beside its limit; exit status 1 above one.

    python tests/bench.py [idle] [burst] [output] [schedule] [history] [share] [work] [minute] [flat]

The servers flush each commit to the disk, as real ones do. "Bare" is a Python that does the same by the driver alone.
"""

import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_work
import servers
from figures import Figure
from fill import fill
from machine import Guard
from sharing import shared

from cronledger.schedule import Slot
from cronledger.turns import turn_of

ROOT = Path(__file__).resolve().parent.parent

# In between, since what is started by a large process counts that one's memory as its own peak.
SPAWN = """
import os, sys, time
begin = time.perf_counter()
silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silent)
_, status, usage = os.wait4(pid, 0)
print(time.perf_counter() - begin, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""

BARE_IDLE = """
cursor = connection.cursor()
cursor.execute("SELECT 1")
cursor.fetchall()
"""

BARE_BURST = """
import subprocess, uuid
cursor, started, run = connection.cursor(), [], str(uuid.uuid4())
for job in range(200):
    cursor.execute("INSERT INTO bare (run, job) VALUES (%s, %s)", (run, job))
    started.append(subprocess.Popen(["/bin/sh", "-c", "true"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
    cursor.execute("UPDATE bare SET pid = %s WHERE run = %s AND job = %s", (started[-1].pid, run, job))
for job, process in enumerate(started):
    process.communicate()
    cursor.execute("UPDATE bare SET code = %s WHERE run = %s AND job = %s", (process.returncode, run, job))
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process took: seconds by the wall clock, and MB of memory at its peak."""

    seconds: float
    megabytes: float


def spend(command: list[str]) -> Spent:
    """Run a Python as a process of its own. CalledProcessError when it fails."""
    around = [sys.executable, "-I", "-S", "-c", SPAWN, sys.executable, *command]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(around, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    seconds, kilobytes, status = done.stdout.split()
    if status != "0":
        raise subprocess.CalledProcessError(int(status), command)
    return Spent(float(seconds), int(kilobytes) / 1024)


def ratio(name: str, limit: float | None, turns: int, ours: Callable[[], Spent], other: Callable[[], Spent]) -> Figure:
    """The medians of both compared, run in turn `turns` times, after one turn that does not count."""
    taken = [(ours().seconds, other().seconds) for _ in range(turns + 1)][1:]
    mine, theirs = (statistics.median(turn[side] for turn in taken) for side in (0, 1))
    return Figure(name, mine / theirs, "times", limit, f"{mine * 1000:.1f} ms to {theirs * 1000:.1f} ms, {turns} turns")


class Bench:
    """A ledger, and a schedule to tick it by: `schedule(n)` is the text for the n-th tick, `keep` a key of [ledger]."""

    def __init__(self, dsn: str, schedule: Callable[[int], str], keep: str = "") -> None:
        self._dsn = dsn
        self._schedule = schedule
        self._keep = keep
        self._ticks = 0
        self._path = folder() / f"{len(list(folder().iterdir()))}.toml"
        self._write()
        self._run("install")

    def tick(self) -> Spent:
        """Tick as cron does."""
        self._ticks += 1
        self._write()
        return self._run("tick")

    def history(self) -> Spent:
        """Show the last runs, as an operator does."""
        return self._run("history")

    def _write(self) -> None:
        self._path.write_text(f'{self._schedule(self._ticks)}\n[ledger]\ndsn = "{self._dsn}"\n{self._keep}\n')

    def _run(self, command: str) -> Spent:
        return spend(["-m", "cronledger", command, "--schedule", str(self._path)])


def toml(namespace: str, jobs: dict[str, tuple[str, str]]) -> str:
    """A schedule of jobs by name, each with its cron and its command."""
    head = f'timezone = "UTC"\nnamespace = "{namespace}"\n'
    one = '\n[[job]]\nname = "{}"\ncron = "{}"\ncommand = "{}"\n'
    return head + "".join(one.format(name, cron, command) for name, (cron, command) in jobs.items())


def nothing_due(number: int) -> str:
    """Twenty jobs for the 29th of February."""
    return toml("idle", {f"job:{job}": ("0 0 29 2 *", "true") for job in range(20)})


def bare(server: servers.Server, dsn: str, body: str) -> Spent:
    """A Python that connects by the driver alone and does `body`."""
    connect = f"import psycopg\nconnection = psycopg.connect({dsn!r}, autocommit=True)"
    if isinstance(server, servers.MySQL):
        connect = f"import pymysql\nconnection = pymysql.connect(**{server.arguments(dsn)!r})"
    return spend(["-c", f"{connect}\n{body}\nconnection.close()"])


def idle() -> Iterator[Figure]:
    """A tick with nothing due, against a bare connection."""
    for kind, limit in (("postgres", 1.2), ("mariadb", 1.3)):
        server = durable(kind)
        dsn = server.fresh_database()
        connection = partial(bare, server, dsn, BARE_IDLE)
        yield ratio(f"idle tick, {server.name}", limit, 21, Bench(dsn, nothing_due).tick, connection)


def burst() -> Iterator[Figure]:
    """200 jobs due at once, against bare spawns with three statements each."""

    def due(number: int) -> str:
        return toml(f"burst:{number}", {f"job:{job}": ("* * * * *", "true") for job in range(200)})

    for kind in ("postgres", "mariadb"):
        server = durable(kind)
        dsn = server.fresh_database()
        server.rows(
            dsn, "CREATE TABLE bare (run VARCHAR(36), job INTEGER, pid INTEGER, code INTEGER, PRIMARY KEY (run, job))"
        )
        bench = Bench(dsn, due)
        yield ratio(f"200 due jobs, {server.name}", 1.4, 9, bench.tick, partial(bare, server, dsn, BARE_BURST))
        yield Figure(f"200 due jobs, {server.name}, peak memory", bench.tick().megabytes, "MB", 60, "")


def output() -> Iterator[Figure]:
    """A job that prints 2 GB, against a tick with nothing due."""

    def loud(number: int) -> str:
        return toml(f"output:{number}", {"loud": ("* * * * *", "yes | head -c 2147483648")})

    dsn = durable("postgres").fresh_database()
    quiet = Bench(dsn, nothing_due)
    idle = max(quiet.tick().megabytes for _ in range(3))
    spent = Bench(dsn, loud).tick()
    note = f"{spent.megabytes:.1f} MB to {idle:.1f} MB; it took {spent.seconds:.1f} s"
    yield Figure("2 GB of output, memory above an idle tick", spent.megabytes - idle, "MB", 16, note)


def schedule() -> Iterator[Figure]:
    """10,000 jobs read and decided, against tomllib alone: in one process, and as processes."""
    path = folder() / "large.toml"
    jobs = {f"job:{n}": (f"{n % 60} {n % 24} * * {n % 7}", f"bin/job {n}") for n in range(10_000)}
    path.write_text(toml("large", jobs))
    name = "10,000 jobs read and decided"
    decide = "from datetime import UTC, datetime; from cronledger.schedule import load"
    decide += f"; load({str(path)!r}).due(datetime.now(UTC))"
    parse = f"import tomllib; tomllib.load(open({str(path)!r}, 'rb'))"
    yield ratio(name, 1.6, 9, partial(timed, decide), partial(timed, parse))
    yield ratio(f"{name}, whole processes", None, 9, partial(spend, ["-c", decide]), partial(spend, ["-c", parse]))


def timed(statements: str) -> Spent:
    """What statements take in this process; its memory is not asked."""
    begin = time.perf_counter()
    exec(statements, {})
    return Spent(time.perf_counter() - begin, 0)


def history() -> Iterator[Figure]:
    """`history`, and a tick with one due job, on 1,000,000 runs against none."""

    def one_due(number: int) -> str:
        old = {f"job:{job}": ("0 0 29 2 *", "true") for job in range(20)}
        return toml("full", old | {f"new:{number}": ("* * * * *", "true")})

    for kind in ["sqlite", "postgres", "mariadb", *(["mysql"] if "CRONLEDGER_TEST_MYSQL" in os.environ else [])]:
        name, dsns, execute = _two_databases(kind)
        empty, full = (Bench(dsn, one_due, 'keep = "364d"') for dsn in dsns)
        fill(kind, "full", execute)
        yield ratio(f"history of 1,000,000 runs, {name}", 1.3, 15, full.history, empty.history)
        yield ratio(f"tick on 1,000,000 runs, {name}", 1.3, 15, full.tick, empty.tick)


def _two_databases(kind: str) -> tuple[str, list[str], Callable[[str], object]]:
    """The name of a database, the DSNs of two empty ones of its kind, and what sends a statement to the second."""
    if kind == "sqlite":
        paths = [folder() / "empty.db", folder() / "full.db"]

        def execute(statement: str) -> None:
            with closing(sqlite3.connect(paths[1], isolation_level=None)) as connection:
                connection.execute(statement).fetchall()

        return f"SQLite {sqlite3.sqlite_version}", [f"sqlite:///{path}" for path in paths], execute
    server = durable(kind)
    dsns = [server.fresh_database() for _ in range(2)]
    return server.name, dsns, lambda statement: server.rows(dsns[1], statement)


def share() -> Iterator[Figure]:
    """How much the first of three nodes gets of what is due at once, and what a job pays whose node does not come."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    for kind in ("postgres", "mariadb"):
        server = durable(kind)
        dsn, known, alone = (server.fresh_database() for _ in range(3))
        Bench(dsn, nothing_due)
        place = Path(tempfile.mkdtemp(dir=folder()))
        counts = shared(place, dsn, partial(server.rows, dsn), environment, rounds=20, jobs=20, late=(0, 0.05, 0.1))
        most = 100 * max(counts.values()) / sum(counts.values())
        yield Figure(f"share of the busiest of three nodes, {server.name}", most, "%", 45, f"{counts}, 50 ms apart")
        benches = [Bench(one, _turn_of_another) for one in (known, alone)]
        server.rows(known, ANOTHER)
        taken = [[bench.tick().seconds * 1000 for bench in benches] for _ in range(11)][1:]
        put_off, at_once = (statistics.median(turn[side] for turn in taken) for side in (0, 1))
        note = f"{put_off:.1f} ms to {at_once:.1f} ms, {len(taken)} turns"
        yield Figure(f"put off for a node that is away, {server.name}", put_off - at_once, "ms", 200, note)


ANOTHER = (
    "INSERT INTO cronledger_jobs (namespace, job, scope_node, seen_at, token, created_at, updated_at)"
    " VALUES ('share', '', 'away', '2199-01-01', '', '2199-01-01', '2199-01-01')"
)
"""A node that ticks, as far as the ledger knows."""


def _turn_of_another(number: int) -> str:
    """A job that is due, and is that node's turn in this minute and the next."""
    nodes, minute = (socket.gethostname(), "away"), datetime.now(UTC).replace(second=0, microsecond=0)
    for name in (f"job:{number}:{other}" for other in count()):
        job: Any = SimpleNamespace(name=name, scope="cluster", timing=None)
        slots = [Slot(job, minute + timedelta(minutes=ahead)) for ahead in (0, 1)]
        if all(turn_of(slot, nodes) == "away" for slot in slots):
            return toml("share", {name: ("* * * * *", "true")})
    raise AssertionError


@cache
def folder() -> Path:
    """The folder of this run's schedules and files."""
    return Path(tempfile.mkdtemp(prefix="cronledger-bench-"))


@cache
def durable(kind: str) -> servers.Server:
    """The server of a kind, started when it is first asked for."""
    return servers.server(kind, durable=True)


def work() -> Iterator[Figure]:
    """Ten minutes of three nodes that work: twelve of real time."""
    yield from bench_work.ten_minutes(folder() / "work", durable("postgres"))


def minute() -> Iterator[Figure]:
    """200 jobs due at once under `work`: four minutes."""
    yield from bench_work.full_minute(folder() / "minute", durable("postgres"))


def flat() -> Iterator[Figure]:
    """The memory of a `work` that goes on: four minutes."""
    yield from bench_work.flat(folder() / "flat", durable("postgres"))


FIGURES = {"idle": idle, "burst": burst, "output": output, "schedule": schedule, "history": history, "share": share}
FIGURES |= {"work": work, "minute": minute, "flat": flat}


def main(names: list[str]) -> int:
    """Measure the figures of these names, or all of them."""
    if unknown := set(names) - set(FIGURES):
        print(f"no such figure: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(ROOT))
    guard = Guard(folder())
    failed = False
    for name in names or FIGURES:
        for figure in FIGURES[name]():
            print(figure, flush=True)
            failed |= not figure.passes
    guard.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
