"""Runs commands: starts them, takes what they print, and says how each ended.

One process, one thread, one loop over all commands in flight. Nothing that a command is or does raises here.
"""

import errno
import math
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from types import TracebackType

from cronledger import process
from cronledger.clock import elapsed
from cronledger.command.ending import SETTLING, WATCHING, Adopted, Groups, Outcome, Run
from cronledger.command.missing import missing
from cronledger.command.places import Places
from cronledger.command.started import Pipe, Started, readable
from cronledger.masking import Mask

__all__ = ["Commands", "Outcome", "missing"]

START_WITHIN = 10.0  # seconds for which a start that the kernel has no room for is tried again
_CHUNK = 64 * 1024
_PIPE_AT_MOST = 16  # chunks of a last drain: pipe-max-size of pipe(7), for a background child may print without end
_NO_ROOM = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_OF_A_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC}


class Commands:
    """The commands in flight of this process. A context manager; those still in flight when it is left run on.

    Commands inherit an empty signal mask and SIGCHLD at its default from this process, which therefore gets both. What
    `live` is given is masked; neither it nor anything else of a command may raise.
    """

    def __init__(self, *, mask: Mask, expected: int) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._mask, self._places = mask, Places(expected)
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._buffer = memoryview(bytearray(_CHUNK))
        self._runs: dict[str, Run] = {}
        self._ended: list[tuple[str, Outcome]] = []
        self._stopped: tuple[str, int] | None = None
        self._look_at = 0.0
        self._selector = selectors.DefaultSelector()
        woken, self.wakeup_fd = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(self.wakeup_fd, False)
        self._selector.register(woken, selectors.EVENT_READ, partial(self._pump, Pipe(woken, self._wake)))

    def __enter__(self) -> "Commands":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        self._places.close()
        os.close(self.wakeup_fd)
        os.close(self._null)

    def __len__(self) -> int:
        return len(self._runs) + len(self._ended)

    def keys(self) -> list[str]:
        """Those in flight: started or adopted, and not yet returned by `wait`."""
        return [*(key for key, _ in self._ended), *self._runs]

    @property
    def stopped(self) -> str | None:
        """Why all commands were told to end; None while they were not."""
        return self._stopped and self._stopped[0]

    def has_place(self) -> bool:
        """Whether one more command can be started. While it cannot, `wait`, and claim nothing."""
        return self._places.has_one()

    def start_of(self, key: str) -> int | None:
        """The start time (proc(5), field 22 of stat) of a command in flight."""
        run = self._runs.get(key)
        return process.start_time(run.pid) if isinstance(run, Started) else None

    def start(
        self,
        key: str,
        argv: tuple[str, ...],
        cwd: str,
        env: Mapping[str, str],
        *,
        deadline: float,
        window: timedelta | None,
        limit: str = "its stale_after",
        stdin: str = "",
        live: Callable[[bytes], None] | None = None,
    ) -> int | None:
        """Starts a command in its own session and returns its pid; None when that fails, and `wait` then says why.

        `deadline` is an instant of `elapsed()`, `window` and `limit` the length and the name that are said when it is
        reached; infinity and None where there is none. When the kernel has no room, tries again for 10 s. After `stop`
        nothing is started.
        """
        started = elapsed()
        try:
            with readable(stdin, self._null) as given:
                pid, pipe = self._spawn(argv, cwd, env, given, until=started + START_WITHIN)
        except (OSError, ValueError) as error:
            self._ended.append((key, Outcome(None, self._mask.text(self._refusal(error)), 0, "")))
            return None
        run = Started(pid, pipe, self._mask, live, started=started, deadline=deadline, window=window, limit=limit)
        self._selector.register(pipe, selectors.EVENT_READ, partial(self._pump, run.pipe))
        if run.exit_fd is not None:
            self._selector.register(run.exit_fd, selectors.EVENT_READ, partial(self._exited, key, run))
        self._add(key, run)
        return pid

    def adopt(
        self,
        key: str,
        pid: int | None,
        start: int | None,
        run_id: str,
        *,
        since: int,
        started: float,
        deadline: float,
    ) -> None:
        """Watches a run whose tick died; ends it at its deadline. See `process.lives` for `since`."""
        self._add(key, Adopted(pid, start, run_id, since=since, started=started, deadline=deadline))
        self._look_at = 0.0

    def hold(self, key: str, until: float, unheld: str) -> None:
        """The lease of a command in flight lasts until then; held no more, it is ended for the reason `unheld`."""
        if run := self._runs.get(key):
            run.hold(until, unheld)
            self._look_at = min(self._look_at, run.look_again_at(elapsed()))

    def is_seen(self, key: str) -> bool:
        """Whether what lives of a run in flight is its own for certain: without a pid that may be open."""
        run = self._runs.get(key)
        return not isinstance(run, Adopted) or run.is_seen()

    def end(self, key: str) -> None:
        """Ends a command in flight whose row is over already; its exit tells how."""
        if run := self._runs.get(key):
            run.end("", signal.SIGTERM, elapsed())
            self._look_at = 0.0

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Sleeps until something happens, at most `timeout` seconds and at most 1, and returns what has ended."""
        self._pass(0.0 if self._ended else timeout)
        ended, self._ended = self._ended, []
        return ended

    def stop(self, signum: int, because: str | None = None) -> None:
        """Forwards a signal that came to this process to all groups; what has not ended 7 s later is killed.

        May be called from a signal handler, and again, also to kill at once; the first call says why they ended.
        `signal.set_wakeup_fd(wakeup_fd)` makes `wait` wake at once.
        """
        because = because or f"ended by {signal.Signals(signum).name} to the tick"
        self._stopped = self._stopped or (because, signum)
        for run in list(self._runs.values()):
            run.end(self._stopped[0], signum, elapsed())
        self._look_at = 0.0

    def bury(self) -> None:
        """Waits for the dead children that are no commands of ours: a PID 1 (or subreaper, prctl(2)) inherits them.

        One of ours may stand before them; then the next call finds them.
        """
        with suppress(ChildProcessError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and not self._has(dead.si_pid):
                os.waitpid(dead.si_pid, os.WNOHANG)

    def _has(self, pid: int) -> bool:
        return any(isinstance(run, Started) and run.pid == pid for run in self._runs.values())

    def _spawn(
        self, argv: tuple[str, ...], cwd: str, env: Mapping[str, str], stdin: int, *, until: float
    ) -> tuple[int, int]:
        """Its pid and its pipe. OSError or ValueError say why there is none."""
        while self._stopped is None:
            try:
                return self._popen(argv, cwd, env, stdin)
            except OSError as error:
                if error.errno not in _NO_ROOM or elapsed() >= until:
                    raise
            self._places.refused = True
            self._pass(SETTLING)
        raise InterruptedError

    def _popen(self, argv: tuple[str, ...], cwd: str, env: Mapping[str, str], stdin: int) -> tuple[int, int]:
        reader, writer = self._places.take()
        try:
            child = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=writer,
                stderr=writer,
                cwd=cwd,
                env=env,
                start_new_session=True,
                preexec_fn=self._places.restore,  # None wherever possible: with one, Python must fork instead of vfork
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        child.returncode = 0  # so that Popen leaves the waiting to us
        return child.pid, reader

    def _refusal(self, error: OSError | ValueError) -> str:
        if isinstance(error, InterruptedError) and self._stopped:
            return self._stopped[0]
        if not isinstance(error, OSError):
            return f"cannot start: {error}"
        named = f": {os.fsdecode(error.filename)}" if error.errno in _OF_A_FILE and error.filename else ""
        return f"cannot start: {error.strerror}{named}"

    def _add(self, key: str, run: Run) -> None:
        self._runs[key] = run
        self._look_at = min(self._look_at, run.look_again_at(elapsed()))
        if self._stopped:
            run.end(*self._stopped, elapsed())

    def _pass(self, timeout: float) -> None:
        """Sleeps until something happens, and takes care of it."""
        pause = min(timeout, WATCHING, self._look_at - elapsed())
        for key, _ in self._selector.select(max(0.0, pause)):
            key.data()
        now = elapsed()
        if now >= self._look_at:
            self._look(now)

    def _look(self, now: float) -> None:
        """Takes care of what no event tells: windows, adopted runs, groups that outlive their command."""
        groups = cache(process.living_groups)
        for key, run in list(self._runs.items()):
            run.look(now)
            self._finish_if_over(key, run, now, groups)
        self._look_at = min((run.look_again_at(now) for run in self._runs.values()), default=math.inf)

    def _exited(self, key: str, run: Started) -> None:
        """The command itself exited: the run is over, unless it is being ended and its group lives on."""
        self._forget_exit(run)
        now = elapsed()
        self._finish_if_over(key, run, now, process.living_groups)
        if key in self._runs:
            self._look_at = min(self._look_at, run.look_again_at(now))

    def _finish_if_over(self, key: str, run: Run, now: float, groups: Groups) -> None:
        if not run.is_over(now, groups):
            return
        del self._runs[key]  # first: from here on its pid may be given again, and `stop` must not signal it
        if isinstance(run, Started):
            self._forget_exit(run)
            for _ in range(_PIPE_AT_MOST):
                if not self._pump(run.pipe):
                    break
        self._ended.append((key, run.outcome(now)))

    def _forget_exit(self, run: Started) -> None:
        if run.exit_fd is not None:
            self._close(run.exit_fd)
            run.exit_fd = None

    def _pump(self, pipe: Pipe) -> bool:
        """Takes a chunk from a pipe, never waiting for one; whether there may be another."""
        if pipe.descriptor is None:
            return False
        try:
            size = os.readv(pipe.descriptor, [self._buffer])
        except BlockingIOError:
            return False
        if size:
            pipe.sink(self._buffer[:size])
            return True
        self._close(pipe.descriptor)
        pipe.descriptor = None
        return False

    def _close(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def _wake(self, _: memoryview) -> None:
        self._look_at = 0.0
