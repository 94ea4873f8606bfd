"""A command that this process started: what it prints, and how it ended."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from cronledger.command.ending import SETTLING, Groups, Outcome, Run
from cronledger.events import lasting, tail
from cronledger.masking import Mask, Stream, Tail


class Pipe:
    """The reading end of a pipe, and where goes what is read; `descriptor` is None once it is closed."""

    def __init__(self, descriptor: int, sink: Callable[[memoryview], None]) -> None:
        self.descriptor: int | None = descriptor
        self.sink = sink


class Started(Run):
    """A child in its own session and group. Until `outcome` is asked it stays a zombie, so that its pid stays its own.

    `exit_fd` becomes readable when it exits, and is None where there is no pidfd.
    """

    def __init__(
        self,
        pid: int,
        pipe: int,
        mask: Mask,
        live: Callable[[bytes], None] | None,
        *,
        started: float,
        deadline: float,
        window: timedelta | None,
        limit: str,
    ) -> None:
        at_window = f"ended after {lasting(window)}, {limit}" if window else ""
        super().__init__(started=started, deadline=deadline, at_window=at_window)
        self.pid = pid
        self.pipe = Pipe(pipe, self._take)
        self.exit_fd = _exit_fd(pid)
        self._tail, self._stream, self._live = Tail(mask), Stream(mask), live

    def signal(self, signum: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def end(self, because: str, signum: int, now: float) -> None:
        if self.because is not None or not self._has_exited():
            super().end(because, signum, now)

    def look(self, now: float) -> None:
        super().look(now)
        self._show(self._stream.idle())

    def look_again_at(self, now: float) -> float:
        again = super().look_again_at(now)
        return min(again, now + SETTLING) if self.exit_fd is None or self._live else again

    def has_ended(self, now: float, groups: Groups) -> bool:
        if not self._has_exited():
            return False
        if self.because is None:
            return True
        alive = groups()
        return alive is not None and self.pid not in alive

    def outcome(self, now: float) -> Outcome:
        self._show(self._stream.flush())
        self.pipe.sink = _discard
        reaped, status = os.waitpid(self.pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if reaped else -signal.SIGKILL  # which it is still to die of
        output = self._tail.text()
        reason, last = self.because or _how(code), tail(output)
        reason = f"{reason}: {last}" if reason and last else reason
        exit_code, was_ended = code if code >= 0 else None, self.because is not None
        return Outcome(exit_code, reason, self.duration_ms(now), output, self.survives, was_ended)

    def _take(self, data: memoryview) -> None:
        self._tail.add(data)
        if self._live:
            self._show(self._stream.feed(bytes(data)))

    def _show(self, data: bytes) -> None:
        if self._live and data:
            self._live(data)

    def _has_exited(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@contextmanager
def readable(text: str, empty: int) -> Iterator[int]:
    """A descriptor of what a command reads as stdin, a file in memory: one that does not read it holds up nobody."""
    if not text:
        yield empty
        return
    with os.fdopen(os.memfd_create("output"), "wb+", buffering=0) as file:
        file.write(text.encode())
        file.seek(0)
        yield file.fileno()


def _exit_fd(pid: int) -> int | None:
    """A pidfd; None where the kernel, its seccomp filter or the limit of descriptors has none to give."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _how(code: int) -> str | None:
    """What an exit code means as `os.waitstatus_to_exitcode` gives it: a signal's number is negative."""
    if code >= 0:
        return f"exit {code}" if code else None
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _discard(data: memoryview) -> None:
    pass
