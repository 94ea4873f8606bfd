"""Who is alive on this machine, as proc(5) tells: whether a tick died, and whether anything of its runs lives on.

Start times are field 22 of /proc/PID/stat: clock ticks since boot. A pid and its start time name one process of a boot.
`proc` is where procfs is mounted. All that cannot be told counts as alive, so that nothing is ever run twice for it.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cronledger.clock import elapsed

PROC = "/proc"
STARTING = 1.0
"""Seconds within which what was forked has become its command."""
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of the kernel's sched.h, in field 9


@dataclass(frozen=True, slots=True)
class Owner:
    """A tick, so that another may tell whether it is alive: its boot, PID namespace (inode), pid and start time."""

    boot: str
    pid_namespace: int
    pid: int
    start: int

    @property
    def text(self) -> str:
        """`boot/pid_namespace/pid/start`, as the ledger keeps it."""
        return f"{self.boot}/{self.pid_namespace}/{self.pid}/{self.start}"

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """The owner that `text` names; None when it names none."""
        boot, *numbers = text.split("/")
        if not boot or len(numbers) != 3 or not all(number.isascii() and number.isdecimal() for number in numbers):
            return None
        return cls(boot, *map(int, numbers))

    def same_machine(self, other: "Owner") -> bool:
        """Whether both are of one boot and one PID namespace, so that either may look for the other."""
        return (self.boot, self.pid_namespace) == (other.boot, other.pid_namespace)

    def is_alive(self, proc: str = PROC) -> bool:
        """Whether it still runs; to be asked of an owner of the same machine only. A zombie does not."""
        try:
            found = _process(self.pid, proc)
        except OSError:
            return True
        if found is None:
            return not _shows_all(proc)
        return found.lives and found.start == self.start

    def is_stopped(self, proc: str = PROC) -> bool:
        """Whether it is stopped, by SIGSTOP or Ctrl-Z, so that it does nothing though it lives."""
        try:
            found = _process(self.pid, proc)
        except OSError:
            return False
        return found is not None and found.stopped and found.start == self.start


def own(proc: str = PROC) -> Owner | None:
    """This process; None where procfs is not mounted, or is that of another PID namespace."""
    try:
        if os.readlink(f"{proc}/self") != str(os.getpid()):
            return None
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
        namespace = os.stat(f"{proc}/self/ns/pid").st_ino
    except (OSError, ValueError):
        return None
    start = start_time(os.getpid(), proc)
    return None if start is None else Owner(boot, namespace, os.getpid(), start)


def ticks(moment: float) -> int:
    """A moment of `clock.elapsed()` in the unit of start times."""
    return int(moment * os.sysconf("SC_CLK_TCK"))


def start_time(pid: int, proc: str = PROC) -> int | None:
    """When `pid` started; None when there is no such process or it cannot be read. A zombie has one."""
    try:
        found = _process(pid, proc)
    except OSError:
        return None
    return None if found is None else found.start


def lives(
    pid: int | None, start: int | None, run_id: str, since: int, proc: str = PROC, *, in_doubt: bool = True
) -> bool:
    """Whether anything of a run lives whose tick is dead; True when it cannot be told.

    Of a recorded command: itself, its process group or its session. Else any process that carries CRONLEDGER_RUN_ID or
    whose environment may not be read. Nothing that started before the command, or before `since`, is of the run.
    `in_doubt` is what a process is taken for whose environment may not be read, and what is told where not all show.
    """
    if not _shows_all(proc):
        return in_doubt
    if pid is not None and start is not None:
        since = start
    # What forks and ends between the listing and the reading escapes one look.
    return any(_seen(pid, start, run_id, since, proc, in_doubt) for _ in range(2))


def let_start(moment: float) -> None:
    """Wait until what was forked at this moment of `clock.elapsed()` has become its command: a second at most.

    Until execve(2) it shows the environment of the tick that forked it, and nothing tells of which run it is.
    """
    time.sleep(min(STARTING, max(0.0, moment + STARTING - elapsed())))


def signal_group(pid: int | None, start: int | None, run_id: str, signum: int, proc: str = PROC) -> bool:
    """Signals the process group `pid` of a run, if it is proven to be that of the run; whether it was signalled.

    Proof is the leader's start time, or CRONLEDGER_RUN_ID in a member's environment where the leader is gone.
    """
    if pid is None or pid <= 1 or not _is_group_of(pid, start, run_id, proc):
        return False
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def living_groups(proc: str = PROC) -> frozenset[int] | None:
    """The process groups that have a living member, in one look for many; None when it cannot be told."""
    if start_time(os.getpid(), proc) is None:
        return None
    return frozenset(found.group for found in _processes(proc) if found.lives)


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    lives: bool
    stopped: bool
    group: int
    session: int
    kernel: bool
    start: int


def _process(pid: int, proc: str) -> _Process | None:
    """What /proc/PID/stat says; None when there is no such process; OSError when it may not be read."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, field 2, may hold blanks, parentheses and newlines; all that follows it is free of them.
    state, _, group, session, _, _, flags, *rest = line[line.rindex(b")") + 1 :].split()
    threads, start = int(rest[10]), int(rest[12])
    # A process whose first thread ended is shown as a zombie although its other threads go on.
    alive = state not in (b"Z", b"X", b"x") or threads > 1
    return _Process(
        pid, alive, state in (b"T", b"t"), int(group), int(session), bool(int(flags) & _KERNEL_THREAD), start
    )


def _processes(proc: str) -> Iterator[_Process]:
    for name in os.listdir(proc):
        if name.isdecimal():
            try:
                found = _process(int(name), proc)
            except OSError:
                continue
            if found is not None:
                yield found


def _shows_all(proc: str) -> bool:
    """Whether procfs shows the processes of other users (its mount option hidepid): pid 1 must exist."""
    return start_time(1, proc) is not None


def _seen(pid: int | None, start: int | None, run_id: str, since: int, proc: str, in_doubt: bool) -> bool:
    """One look for anything of a run."""
    found = [one for one in _processes(proc) if one.start >= since and not one.kernel and one.pid != os.getpid()]
    alive = [one for one in found if one.lives]
    if pid is None:
        return any(_carries(one.pid, run_id, proc, unreadable=in_doubt) for one in alive)
    if start is not None and any(one.pid == pid and one.start != start for one in found):
        return False  # the kernel gives a pid again only when no group and no session bears its number
    return any(pid in (one.pid, one.group, one.session) for one in alive)


def _is_group_of(pid: int, start: int | None, run_id: str, proc: str) -> bool:
    leader = start_time(pid, proc)
    if leader is not None and start is not None:
        return leader == start
    members = (found for found in _processes(proc) if found.group == pid)
    return any(_carries(member.pid, run_id, proc, unreadable=False) for member in members)


def _carries(pid: int, run_id: str, proc: str, *, unreadable: bool) -> bool:
    """Whether the environment of `pid` names the run; `unreadable` when it may not be read."""
    try:
        environment = _read(pid, "environ", proc)
        if not environment:
            # Amid execve(2) a process has no command line either: whose it is cannot be told.
            if not _read(pid, "cmdline", proc):
                return unreadable
            environment = _read(pid, "environ", proc)
        return f"CRONLEDGER_RUN_ID={run_id}".encode() in environment.split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return unreadable


def _read(pid: int, name: str, proc: str) -> bytes:
    with open(f"{proc}/{pid}/{name}", "rb") as file:
        return file.read()
