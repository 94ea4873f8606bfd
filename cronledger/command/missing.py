"""Whether this node has what a command needs to start."""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress


def missing(argv: tuple[str, ...], cwd: str, env: Mapping[str, str]) -> str | None:
    """Why this node cannot start the command, as a part of a sentence: its cwd, shell or program. None when it can.

    A program with a slash counts from `cwd`; another is looked for on the PATH of `env`, as execvpe(3) does.
    """
    if not _is(stat.S_ISDIR, cwd):
        return f"cwd {cwd} is not there"
    if not os.access(cwd, os.X_OK):
        return f"cwd {cwd} may not be entered"
    name, kind = argv[0], "shell" if argv[1:2] == ("-c",) else "program"
    path = [""] if "/" in name else os.get_exec_path(env)
    places = [os.path.join(cwd, folder, name) for folder in path]
    there = [place for place in places if _is(stat.S_ISREG, place)]
    if found := next((place for place in there if os.access(place, os.X_OK)), None):
        interpreter = _interpreter(found)
        if interpreter is None or _is(stat.S_ISREG, os.path.join(cwd, interpreter)):
            return None
        return f"{interpreter}, the interpreter of {kind} {found}, is not there"
    if "/" in name and _is(stat.S_ISDIR, places[0]):
        return f"{kind} {places[0]} is a directory"
    if there:
        return f"{kind} {there[0]} is not executable"
    return f"{kind} {places[0]} is not there" if "/" in name else f"{kind} {name} is not on its PATH {':'.join(path)}"


def _is(kind: Callable[[int], bool], path: str) -> bool:
    with suppress(OSError, ValueError):
        return kind(os.stat(path).st_mode)
    return False


def _interpreter(path: str) -> str | None:
    """What the first line of a script names to execute it (execve(2)); None for a program that is no script."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        mark, _, line = (file.read(256) or b"").partition(b"\n")[0].partition(b"#!")
        if not mark and (words := line.replace(b"\t", b" ").split(b"\0")[0].split(b" ")):
            return os.fsdecode(next(filter(None, words), b"")) or None
    return None
