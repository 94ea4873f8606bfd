"""What `cronledger work` is worth: how near to the start of the minute it starts what is due, and what it keeps.

When a command started is what the kernel says (proc(5), field 22 of stat, of 10 ms), as the ledger has it.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import servers
from figures import Figure

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 10
MINUTE = timedelta(minutes=1)
ALIVE = '["sleep", "3"]'  # long enough for its start to be recorded


class Nodes:
    """Some that work on one ledger, by one schedule, in `folder`."""

    def __init__(self, folder: Path, server: servers.Server, jobs: str) -> None:
        folder.mkdir()
        self._folder, self._server, self.dsn = folder, server, server.fresh_database()
        self._schedule = folder / "schedule.toml"
        head = f'timezone = "UTC"\nnamespace = "bench"\n[ledger]\ndsn = "{self.dsn}"\n'
        self._schedule.write_text(f"{head}{jobs}")
        self.start("install").wait()
        self.works: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: str, *options: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "cronledger", command, "--schedule", str(self._schedule), *options]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        with (self._folder / "said").open("ab") as said:
            return subprocess.Popen(words, env=env, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=said)

    def work(self, node: str) -> None:
        self.works[node] = self.start("work", "--node", node, "--quiet", "--grace", "20s")

    @contextmanager
    def working(self, *nodes: str) -> Iterator[None]:
        """While these do; what they said on stderr is an AssertionError."""
        for node in nodes:
            self.work(node)
        try:
            yield
        finally:
            for work in self.works.values():
                work.send_signal(signal.SIGCONT)
                work.terminate()
            for work in self.works.values():
                work.wait(60)
        said = (self._folder / "said").read_text()
        assert not said, said

    def megabytes(self, node: str) -> float:
        """Its memory now."""
        lines = Path(f"/proc/{self.works[node].pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def rows(self, columns: str, first: datetime) -> list[tuple[object, ...]]:
        """Of the runs of the slots from `first` on."""
        since = f"due_at >= '{first:%Y-%m-%d %H:%M:%S}+00'"
        return self._server.rows(self.dsn, f"SELECT {columns} FROM cronledger_runs WHERE {since}")

    def lags(self, first: datetime) -> dict[datetime, list[float]]:
        """For each minute, by how many seconds later than its start its commands were started."""
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        lags: dict[datetime, list[float]] = {}
        for due_at, start in self.rows("due_at, pid_start", first):
            assert isinstance(due_at, datetime)
            assert isinstance(start, int)
            lags.setdefault(due_at, []).append(boot + start / os.sysconf("SC_CLK_TCK") - due_at.timestamp())
        return lags


def jobs(count: int, when: str = 'cron = "* * * * *"', command: str = ALIVE) -> str:
    return "".join(f'[[job]]\nname = "job{number}"\n{when}\ncommand = {command}\n' for number in range(count))


def next_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) + MINUTE


def sleep_until(moment: datetime) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def ten_minutes(folder: Path, server: servers.Server) -> Iterator[Figure]:
    """Three nodes, 20 jobs a minute; one is killed and starts again, one is frozen over two starts of a minute."""
    nodes = Nodes(folder, server, jobs(20))
    with nodes.working("web1", "web2", "web3"):
        first = next_minute() + MINUTE
        sleep_until(first + 2.5 * MINUTE)
        before = max(map(nodes.megabytes, nodes.works))
        sleep_until(first + 3.5 * MINUTE)
        nodes.works["web1"].kill()
        nodes.works["web1"].wait()
        sleep_until(first + 4.7 * MINUTE)
        nodes.work("web1")
        sleep_until(first + 5.5 * MINUTE)
        nodes.works["web2"].send_signal(signal.SIGSTOP)
        sleep_until(first + 7.5 * MINUTE)
        nodes.works["web2"].send_signal(signal.SIGCONT)
        sleep_until(first + (MINUTES - 0.5) * MINUTE)
        after = max(map(nodes.megabytes, ("web2", "web3")))
    slots = Counter(nodes.rows("job, due_at", first))
    states = Counter(state for (state,) in nodes.rows("state", first))
    shares = Counter(node for (node,) in nodes.rows("node", first))
    note = f"{states}, by node {dict(sorted(shares.items()))}"
    yield Figure("ten minutes, slots not run once", 20 * MINUTES - states["completed"], "slots", 0, note)
    yield Figure("ten minutes, slots run twice", sum(slots.values()) - len(slots), "slots", 0, "")
    lags = nodes.lags(first)
    firsts = [min(lag) * 1000 for lag in lags.values()]
    every = [lag * 1000 for minute in lags.values() for lag in minute]
    yield Figure("start of a minute, median", statistics.median(firsts), "ms", 100, "its first job")
    yield Figure("start of a minute, longest", max(firsts), "ms", 500, "")
    yield Figure("start of each job, median", statistics.median(every), "ms", None, f"the latest {max(every):.0f} ms")
    yield Figure("memory after ten minutes, more than after two", after - before, "MB", 1, f"{after:.1f} MB")


def full_minute(folder: Path, server: servers.Server) -> Iterator[Figure]:
    """200 jobs due at once, on one node, each claim durable before its command starts."""
    nodes = Nodes(folder, server, jobs(200))
    with nodes.working("web1"):
        first = next_minute() + MINUTE
        sleep_until(first + 2.3 * MINUTE)
    lags = nodes.lags(first)
    latest = [max(minute) * 1000 for minute in lags.values() if len(minute) == 200]
    note = f"of {len(latest)} minutes: {', '.join(f'{one:.0f}' for one in latest)} ms"
    yield Figure(f"200 due jobs started, {server.name}", max(latest), "ms", 500, note)


def flat(folder: Path, server: servers.Server) -> Iterator[Figure]:
    """20 jobs each second: in three minutes as many runs as of 20 jobs an hour in a week."""
    nodes = Nodes(folder, server, jobs(20, 'every = "1s"', '["true"]'))
    with nodes.working("web1"):
        time.sleep(60)
        begun, before = datetime.now(UTC), nodes.megabytes("web1")
        time.sleep(180)
        after = nodes.megabytes("web1")
    [(count,)] = nodes.rows("COUNT(*)", begun)
    yield Figure("memory after so many runs more", after - before, "MB", 1, f"{count} runs, {after:.1f} MB")
