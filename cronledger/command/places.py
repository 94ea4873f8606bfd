"""Whether this machine has room for one more command: descriptors and processes, asked before a job is claimed."""

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_OWN = 64  # descriptors beside those of the commands
_EACH = 2  # a pipe and a pidfd stay open for each command
_SPARE = 8  # descriptors that a start, a look into /proc or a reconnection to the ledger needs for a moment
_NEAR = 64  # tasks below the limit at which it is worth a closer look


class Places:
    """The room for commands. Raises the soft limit of descriptors where `expected` commands need it.

    `restore` then gives a command the old limit back, before it is executed; it is None otherwise.
    `refused` is set by whoever saw the kernel refuse a process.
    """

    def __init__(self, expected: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.refused = False
        self.restore: Callable[[], None] | None = None
        self._pipe: tuple[int, int] | None = None
        self._descriptors = _raised(soft, hard, _OWN + _EACH * expected)
        if self._descriptors != soft:
            self.restore = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, hard))

    def has_one(self) -> bool:
        """Whether a command can be started now. The pipe that proves it is kept for that command."""
        if self._pipe is None:
            with suppress(OSError):
                self._pipe = self._make_pipe()
        if self._pipe is None:
            return False
        self.refused = self._may_be_full() and not _can_fork()
        return not self.refused

    def take(self) -> tuple[int, int]:
        """A pipe for a command: where to read, without blocking, and where to write. OSError when there is none."""
        (reader, writer), self._pipe = self._pipe or os.pipe(), None
        os.set_blocking(reader, False)
        return reader, writer

    def close(self) -> None:
        """Closes what was kept for a command."""
        for descriptor in self._pipe or ():
            os.close(descriptor)
        self._pipe = None

    def _make_pipe(self) -> tuple[int, int] | None:
        pipe = os.pipe()
        # The kernel gives the lowest number that is free, so the number says how many are taken.
        if self._descriptors == resource.RLIM_INFINITY or max(pipe) + _SPARE < self._descriptors:
            return pipe
        for descriptor in pipe:
            os.close(descriptor)
        return None

    def _may_be_full(self) -> bool:
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        return self.refused or (limit != resource.RLIM_INFINITY and _tasks() + _NEAR >= limit)


def _raised(soft: int, hard: int, needed: int) -> int:
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return soft
    return needed if hard == resource.RLIM_INFINITY else min(needed, hard)


def _tasks() -> int:
    """All tasks of the machine, of whatever user (proc(5), loadavg); 0 where it cannot be told."""
    with suppress(OSError, ValueError, IndexError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0


def _can_fork() -> bool:
    """Whether a process can be had, found out by having one."""
    try:
        pid = os.fork()
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
