"""What the tests need of the machine: its programs, its ports, and processes that end with the tests."""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PORTS = range(20000, 32768)


class ProgramMissing(Exception):
    """A program that the tests need is not installed."""


def wait_for(condition: Callable[[], object], timeout: float = 20.0, what: str = "") -> None:
    """Return as soon as `condition()` is true; AssertionError when it is not so within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not so within {timeout:g} s: {what or condition}")
        time.sleep(0.02)


class Guard:
    """Ends what runs in a folder, and removes that and whatever else is named, when this process closes it or dies."""

    def __init__(self, folder: Path, *others: Path) -> None:
        command = [sys.executable, "-I", __file__, str(folder), *map(str, others)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def close(self) -> None:
        """Return when all is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


def guard(folder: Path, *others: Path) -> None:
    """The guard's own process: wait for the end of stdin, which the kernel closes however the tests end."""
    sys.stdin.read()
    for other in others:
        other.unlink(missing_ok=True)
    send(signal.SIGCONT, folder)
    send(signal.SIGQUIT, folder)  # at which either server ends quickly and leaves no shared memory
    with suppress(AssertionError):
        wait_for(lambda: not processes(folder), 5)
    send(signal.SIGKILL, folder)
    shutil.rmtree(folder, ignore_errors=True)


def processes(folder: Path) -> list[int]:
    """The processes that work in `folder`, but for this one; a database server's all do."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append(int(entry.name))
    return sorted(set(found) - {os.getpid()})


def send(number: signal.Signals, folder: Path) -> None:
    """Send a signal to all that works in `folder`."""
    for pid in processes(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def program(name: str, package: str, variable: str) -> str:
    """The path of a server's program. ProgramMissing says what to do without it."""
    found = find(name)
    if found is None:
        repair = f"apt-get install {package}, or let {variable} be the DSN of a server to use"
        raise ProgramMissing(f"{name} is not in PATH, /usr/lib/postgresql/*/bin, /usr/sbin or /usr/libexec: {repair}")
    return found


def find(name: str) -> str | None:
    """The path of a program, also where PATH does not lead; of several PostgreSQL the newest."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    folders = [os.environ.get("PATH", ""), *map(str, versions), "/usr/bin", "/usr/sbin", "/usr/libexec"]
    return shutil.which(name, path=":".join(folders))


def unprivileged(account: str, folder: Path) -> dict[str, Any]:
    """What makes Popen start a server as `account`, else as nobody, who then owns `folder`; {} unless root."""
    if os.geteuid() != 0:
        return {}
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = accounts.get(account, accounts["nobody"])
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nobody listens, below those that Linux gives to connections (ip(7)).

    Of those the kernel may take one for any connection until it is listened on, and again while its server is down.
    """
    while True:
        port = random.SystemRandom().choice(PORTS)  # hypothesis sets the state of `random`
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(port: int) -> bool:
    """Whether somebody takes connections on this TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    guard(*map(Path, sys.argv[1:]))
