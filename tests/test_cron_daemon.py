"""The same schedule under a real cron daemon, on two nodes, for four minutes of real time.

While the minutes pass, the other processes that share the tests go on.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import machine
import pytest
import servers

pytestmark = [pytest.mark.cron, pytest.mark.xdist_group("cron")]

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 4
NODES = ("web1", "web2")
SCHEDULE = """
timezone = "UTC"
namespace = "under-cron"
env_file = ".env"

[ledger]
dsn = "${DATABASE_URL}"

[[job]]
name = "minute"
cron = "* * * * *"
command = "echo $CRONLEDGER_DUE_AT $CRONLEDGER_NODE >>ran"

[[job]]
name = "leap-day"
cron = "0 0 29 2 *"
command = "echo $CRONLEDGER_DUE_AT $CRONLEDGER_NODE >>ran"
"""


@dataclass(frozen=True, slots=True)
class UnderCron:
    """A schedule that two nodes tick, each by its line of `crontab`, their output in files of their names."""

    folder: Path
    crontab: Path
    dsn: str
    server: servers.Server

    def ran(self) -> list[datetime]:
        """The slots that ran, as the jobs themselves wrote them down."""
        path = self.folder / "ran"
        return sorted(datetime.fromisoformat(line.split()[0]) for line in _lines(path))

    def said(self) -> list[str]:
        """All that the ticks of both nodes printed."""
        return [line for node in NODES for line in _lines(self.folder / node)]

    def is_ticking(self) -> bool:
        """Whether a tick of it is under way."""
        mark = os.fsencode(self.folder / "schedule.toml")
        return any(mark in _read(entry / "cmdline") for entry in Path("/proc").glob("[0-9]*"))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="session")
def under_cron() -> Iterator[UnderCron]:
    """Two nodes under cron, on a server of their own: the other tests stop theirs."""
    if os.geteuid() != 0:
        pytest.fail("only root may write to /etc/cron.d: run as root, or set CRONLEDGER_TEST_CRON=no to leave this out")
    folder = Path(tempfile.mkdtemp(prefix="cronledger-cron-"))
    crontab = Path(f"/etc/cron.d/cronledger-test-{os.getpid()}")
    with closing(servers.server("postgres")) as server, closing(machine.Guard(folder, crontab)):
        nodes = UnderCron(folder, crontab, server.fresh_database(), server)
        _install(nodes)
        with _daemon():
            yield nodes


def _install(nodes: UnderCron) -> None:
    schedule = nodes.folder / "schedule.toml"
    schedule.write_text(SCHEDULE)
    env_file = nodes.folder / ".env"
    env_file.touch(mode=0o600)
    env_file.write_text(f"DATABASE_URL='{nodes.dsn}'\n")
    program = [sys.executable, "-m", "cronledger"]
    subprocess.run([*program, "install", "--schedule", schedule], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    tick = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join([*program, 'tick', '--schedule', str(schedule)])}"
    lines = [f"* * * * * root CRONLEDGER_NODE={node} {tick} >>{nodes.folder / node} 2>&1" for node in NODES]
    nodes.crontab.write_text("".join(line.replace("%", r"\%") + "\n" for line in lines))


PIDFILE = Path("/run/crond.pid")


def _has_daemon() -> bool:
    """Whether the process of cron's pidfile is one: a child of an ended one, or a zombie, starts no tick."""
    pid = _read(PIDFILE).decode().strip()
    return (
        pid.isdecimal() and _read(Path(f"/proc/{pid}/comm")) == b"cron\n" and _read(Path(f"/proc/{pid}/cmdline")) != b""
    )


def _circumstances(crontab: Path) -> str:
    """What tells a cron that sleeps from one that starts what fails, for want of a log of its own."""
    proc = Path("/proc", _read(PIDFILE).decode().strip())
    status = [" ".join(line.split()) for line in _read(proc / "status").decode().splitlines()]
    wanted = ("State", "SigBlk", "SigIgn", "voluntary_ctxt_switches")
    after_name = _read(proc / "stat").rpartition(b")")[2].split()
    children = f"page faults of children waited for: {after_name[9:10]}"  # proc(5), cminflt
    file = crontab.stat() if crontab.exists() else None
    return "; ".join([*(line for line in status if line.startswith(wanted)), children, f"crontab: {file}"])


@contextmanager
def _daemon() -> Iterator[None]:
    """A cron of our own meanwhile, which dies with us, unless the machine's is running."""
    if _has_daemon():
        yield
        return
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        machine.program("cron", "cron", "CRONLEDGER_TEST_CRON"),
        "-f",
        "-L",
        "15",
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as daemon:
        yield
        daemon.terminate()


def test_crontab_goes_in(under_cron: UnderCron) -> None:
    """Two nodes have their one crontab line each, and have said nothing yet."""
    assert under_cron.crontab.read_text().count("cronledger tick") == len(NODES)
    assert under_cron.said() == []


def test_each_slot_runs_once(under_cron: UnderCron) -> None:
    """Minute after minute one of the nodes runs the job and says so, and the other is silent."""
    try:
        machine.wait_for(lambda: len(under_cron.ran()) >= MINUTES, (MINUTES + 2) * 60, "the job ran for four minutes")
    except AssertionError as error:
        seen = f"ran {under_cron.ran()}, said {under_cron.said()}, "
        seen += f"cron lives: {_has_daemon()}; {_circumstances(under_cron.crontab)}"
        raise AssertionError(f"{error}: {seen}") from None
    under_cron.crontab.unlink()
    machine.wait_for(lambda: not under_cron.is_ticking(), 30, "the last ticks ended")
    ran, said = under_cron.ran(), under_cron.said()
    assert all(later - earlier == timedelta(minutes=1) for earlier, later in pairwise(ran)), ran
    assert len(said) == len(ran), said
    assert all(re.fullmatch(r"\S+ ran minute in \d+\.\ds", line) for line in said), said
    rows = under_cron.server.rows(under_cron.dsn, "SELECT state, count(*) FROM cronledger_runs GROUP BY state")
    assert rows == [("completed", len(ran))]
