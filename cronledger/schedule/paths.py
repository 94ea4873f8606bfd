"""Paths as a schedule means them, and who may change what is there."""

import os
import stat
from contextlib import suppress


def absolute(path: str, folder: str | None = None) -> str:
    """`path` counted from `folder`, or from the current one, with symbolic links as they are written.

    The current folder is named as the shell names it in PWD where that is true (pwd -L, POSIX): a deploy's
    `current` stays `current`. Where that folder is gone, a relative path stays relative.
    """
    path = path if os.path.isabs(path) else os.path.join(folder or _current_folder(), path)
    return path if ".." in path.split("/") else os.path.normpath(path)


def _current_folder() -> str:
    named = os.environ.get("PWD", "")
    with suppress(OSError):
        if named.startswith("/") and os.path.samefile(named, "."):
            return named
    with suppress(FileNotFoundError):
        return os.getcwd()
    return ""


def anyone_may_write(path: str) -> bool:
    """Whether any user of the machine may change the file, or replace it in its folder. False if it is not there."""
    try:
        file, folder = os.stat(path).st_mode, os.stat(os.path.dirname(path) or ".").st_mode
    except OSError:
        return False
    return bool(file & stat.S_IWOTH or (folder & stat.S_IWOTH and not folder & stat.S_ISVTX))
