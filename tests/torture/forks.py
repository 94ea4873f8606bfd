"""Ticks one by one, each a process of its own, forked from a program that has imported all: milliseconds, not tenths.

python tests/torture/forks.py   reads one JSON object per line from stdin and answers each by one
"""

import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
PARTS = ("cli.options", "cli.tick", "cli.working", "flight", "ledger.mysql", "ledger.postgres", "ledger.sqlite")
IMPORTED = ("ticks", "encodings.idna", *(f"cronledger.{part}" for part in PARTS))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tick ended. `status` is negative where a signal killed it; `events` are what it said, by --json."""

    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Ticking:
    """A tick that goes on."""

    def __init__(self, pid: int, files: tuple[Path, Path], reap: Callable[[], int]) -> None:
        """`reap` returns its exit status once it has ended."""
        self.pid, self._files, self._reap = pid, files, reap
        self._ended: Ended | None = None

    def send(self, signum: int) -> None:
        """Signal it. Until `wait` it keeps its pid, dead or alive."""
        if self._ended is None:
            os.kill(self.pid, signum)

    def wait(self, timeout: float = 60.0) -> Ended:
        """How it ended; AssertionError when it does not within `timeout` seconds."""
        if self._ended is None:
            exited = os.pidfd_open(self.pid)
            try:
                over = bool(select.select([exited], [], [], timeout)[0])
            finally:
                os.close(exited)
            assert over, f"the tick {self.pid} did not end within {timeout:g} s"
            self._ended = Ended(self._reap(), *(file.read_text() for file in self._files))
        return self._ended


class Forks:
    """The program that forks them, from the tests' side. Use as a context manager; threads may share it."""

    def __init__(self, env: Mapping[str, str], *prefix: str) -> None:
        """`prefix`: a command that starts it, such as `unshare --mount`."""
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()
        self._number = 0

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate(timeout=30)

    def ask(self, question: dict[str, object]) -> int:
        """The program's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return int(json.loads(self._process.stdout.readline()))

    def start(
        self,
        arguments: list[str],
        folder: Path,
        *,
        window: float | None = None,
        lease: float | None = None,
        uid: int = 0,
        wall: float | None = None,
        boot: str | None = None,
    ) -> Ticking:
        """`cronledger tick ARGUMENTS` in `folder`.

        `window`, `lease`: seconds in place of each job's stale_after, and of its lease. `uid`: as whom. `wall`: what
        the node's clock shows when it starts, as time.time() does. `boot`: the id of another machine.
        """
        with self._lock:
            self._number += 1
            files = folder / f"out.{self._number}", folder / f"err.{self._number}"
        named = {"out": str(files[0]), "err": str(files[1]), "folder": str(folder)}
        made_up = {"window": window, "lease": lease, "uid": uid, "wall": wall, "boot": boot}
        pid = self.ask({"arguments": arguments} | made_up | named)
        return Ticking(pid, files, lambda: self.ask({"reap": pid}))


def main() -> None:
    """The program."""
    sys.path.insert(0, str(TESTS))
    for name in IMPORTED:
        importlib.import_module(name)
    for signum in (signal.SIGINT, signal.SIGHUP):  # what nohup ignores, ticks would ignore
        signal.signal(signum, signal.SIG_DFL)
    for line in sys.stdin:
        asked = json.loads(line)
        if "reap" in asked:
            _, status = os.waitpid(asked["reap"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = _fork(asked)
        os.write(1, f"{answer}\n".encode())


def _fork(asked: dict[str, Any]) -> int:
    opened = [os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for name in ("out", "err")]
    pid = os.fork()
    if pid == 0:
        status = 99  # an exception that nobody caught
        try:
            os.setsid()
            for descriptor, where in zip((0, 1, 2), (os.open(os.devnull, os.O_RDONLY), *opened), strict=True):
                os.dup2(where, descriptor)
            os.closerange(3, 64)
            os.chdir(asked["folder"])
            status = _tick(asked)
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            if status == 99:
                traceback.print_exc()
            os._exit(status)
    for descriptor in opened:
        os.close(descriptor)
    return pid


def _tick(asked: dict[str, Any]) -> int:
    import ticks

    ticks.shorten(stale_after=asked["window"], lease=asked["lease"])
    if asked["wall"] is not None:
        _set_clock(asked["wall"])
    if asked["boot"] is not None:
        _move(asked["boot"])
    if asked["uid"]:
        os.setgroups([])
        os.setresgid(asked["uid"], asked["uid"], asked["uid"])
        os.setresuid(asked["uid"], asked["uid"], asked["uid"])
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else its own /proc is root's, as exec would undo
    return ticks._tick(asked["arguments"])


def _set_clock(wall: float) -> None:
    begun = time.monotonic()
    time.time = lambda: wall + time.monotonic() - begun  # type: ignore[assignment]


def _move(boot: str) -> None:
    from dataclasses import replace

    from cronledger import process

    here = process.own()
    assert here is not None
    process.own = lambda proc=process.PROC: replace(here, boot=boot)  # type: ignore[assignment]


if __name__ == "__main__":
    main()
