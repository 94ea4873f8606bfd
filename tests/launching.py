"""Starts commands and waits for their end, here and in programs of their own."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from cronledger import process
from cronledger.clock import elapsed
from cronledger.command import Commands, Outcome
from cronledger.masking import Mask

__all__ = ["Commands", "Mask", "elapsed", "finish", "in_child", "outcome", "signal", "start", "start_argv", "timedelta"]

ROOT = Path(__file__).resolve().parent.parent
PATH = "/usr/local/bin:/usr/bin:/bin"


def start(commands: Commands, script: str, key: str = "job", **options: object) -> int | None:
    """Starts a shell script that may take a minute."""
    return start_argv(commands, "/bin/sh", "-c", script, key=key, **options)


def start_argv(commands: Commands, *argv: str, key: str = "job", **options: object) -> int | None:
    """The same for any command."""
    options = {"deadline": elapsed() + 60, "window": timedelta(minutes=1)} | options
    return commands.start(key, argv, options.pop("cwd", "/"), options.pop("env", {"PATH": PATH}), **options)


def finish(commands: Commands) -> dict[str, Outcome]:
    """How all that are in flight ended."""
    ended: dict[str, Outcome] = {}
    while commands:
        ended |= commands.wait(1)
    return ended


def outcome(commands: Commands, script: str, **options: object) -> Outcome:
    start(commands, script, **options)
    return finish(commands)["job"]


def in_child(code: str, **options: object) -> str:
    """What a Python program of its own prints that has the functions of this file."""
    head = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\nfrom launching import *\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + code], capture_output=True, text=True, timeout=60, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def group_alive(pgid: int) -> bool:
    """Whether a member of the process group lives."""
    groups = process.living_groups()
    assert groups is not None
    return pgid in groups
