"""Installs and ticks at once, each a fork of one program that has imported all, some of them killed on the way.

python tests/torture/installing.py DRIVER   reads a JSON document from each line of stdin, and answers it by one

A document: a list of [arguments of cronledger, seconds until it is killed or null]. All start at once. The answer: for
each its exit status (-9 where it was killed in time), stdout and stderr.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

Asked = tuple[list[str], float | None]
Ended = tuple[int, str, str]


class Nodes:
    """The program, running. `driver` is the name of the dialect that is imported beforehand."""

    def __init__(self, driver: str, env: dict[str, str]) -> None:
        command = [sys.executable, __file__, driver]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)

    def at_once(self, *asked: Asked) -> list[Ended]:
        """All of these at the same moment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return [(status, out, err) for status, out, err in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        """End it."""
        with self._process:
            pass  # closes its pipes, and waits for it


def main(driver: str) -> None:
    importlib.import_module(f"cronledger.ledger.{driver}")
    importlib.import_module("cronledger.cli.app")
    importlib.import_module("cronledger.flight")
    for line in sys.stdin:
        print(json.dumps(_at_once(json.loads(line))), flush=True)


def _at_once(asked: Sequence[Asked]) -> list[Ended]:
    ready, go = os.pipe()
    started = [_fork(arguments, ready, go) for arguments, _ in asked]
    os.close(ready)
    os.close(go)
    begun = time.monotonic()
    order = sorted((after, pid) for (pid, _, _), (_, after) in zip(started, asked, strict=True) if after is not None)
    for after, pid in order:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    return [_ended(*one) for one in started]


def _fork(arguments: list[str], ready: int, go: int) -> tuple[int, int, int]:
    out, err = _temporary(), _temporary()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.read(ready, 1)  # until all are forked
        os.close(ready)
        os._exit(_run(arguments))
    return pid, out, err


def _run(arguments: list[str]) -> int:
    from cronledger.__main__ import main as cronledger

    sys.argv = ["cronledger", *arguments]
    try:
        return cronledger()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()


def _ended(pid: int, out: int, err: int) -> Ended:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), _read(out), _read(err)


def _temporary() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    main(sys.argv[1])
