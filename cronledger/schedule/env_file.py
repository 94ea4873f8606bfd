"""Reads an env_file: KEY=VALUE per line, as deploy tools write it."""

import os
import stat

from cronledger.errors import EnvironmentMissing

_BOM = b"\xef\xbb\xbf"


def read(path: str) -> dict[str, str]:
    """The variables of the file. Blank lines and lines of a `#` comment are passed over, `export ` is dropped.

    A value stands bare (up to a ` #` comment), or in single or double quotes; nothing is expanded, no escapes.
    Raises EnvironmentMissing if the file cannot be read or a line is malformed, never showing what it holds.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "it is not a regular file")
            text = file.read().removeprefix(_BOM).decode()
    except OSError as error:
        raise EnvironmentMissing(
            f"env_file {path} cannot be read: {error.strerror}; let this user find and read it there, or drop the key"
        ) from None
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise EnvironmentMissing(f"{path}:{number}: not UTF-8; save the env_file as UTF-8") from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            variables |= _variable(line.strip())
        except ValueError as error:
            raise EnvironmentMissing(f"{path}:{number}: {error}") from None
    return variables


def _variable(line: str) -> dict[str, str]:
    if not line or line.startswith("#"):
        return {}
    name, equals, value = line.partition("=")
    words = name.split()
    if words[:1] == ["export"] and len(words) == 2:
        words = words[1:]
    if not equals or len(words) != 1 or "\0" in line:
        raise ValueError('not a variable; write KEY=VALUE, or "# " before a comment')
    return {words[0]: _value(value.strip())}


def _value(text: str) -> str:
    if text[:1] not in ("'", '"'):
        bare = text.partition("\t#")[0].partition(" #")[0]
        return "" if bare.startswith("#") else bare.rstrip()
    value, closed, rest = text[1:].partition(text[0])
    if not closed:
        raise ValueError("the quote is not closed on its line; close it, or write the value without quotes")
    if rest.strip() and not rest.lstrip().startswith("#"):
        raise ValueError("something follows the closing quote; put the whole value in the other kind of quotes")
    return value
