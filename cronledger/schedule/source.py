"""The text of a schedule, and the mistakes found in it, each at its line."""

import os
import tomllib
from collections.abc import Mapping, Set
from functools import cached_property
from typing import Any, NoReturn

from cronledger.cron import Refused, quoted
from cronledger.errors import Mistake, ScheduleRefused
from cronledger.schedule.toml_lines import Where, key_lines
from cronledger.schedule.values import Reader, is_name

_BOM = b"\xef\xbb\xbf"
_OFTEN_MEANT = {"timeout": "stale_after", "schedule": "cron", "cmd": "command", "tz": "timezone", "when": "cron"}


class Source:
    """One schedule file while it is read: `toml` is what tomllib made of it, `places` says which keys stand where.

    Raises ScheduleRefused for a file that cannot be read, is not UTF-8 or is not TOML.
    """

    def __init__(self, path: str, places: Mapping[str, Set[str]]) -> None:
        self.path = path
        self._places = places
        self.mistakes: list[Mistake] = []
        self.meant: set[Where] = set()
        """Keys that an unknown one was taken for."""
        self.text = self._decoded(self._bytes()).replace("\r\n", "\n")
        self.toml = self._parsed()

    def _bytes(self) -> bytes:
        try:
            # Not blocking, since nobody may ever write to a FIFO; what is written to a pipe is waited for.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb") as file:
                return file.read().removeprefix(_BOM)
        except OSError as error:
            instead = "name another by --schedule or CRONLEDGER_SCHEDULE"
            if isinstance(error, PermissionError):
                instead = "let this user read it, and enter its folder"
            self._refuse(0, f"cannot be read: {error.strerror}", instead)

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self._refuse(line, f"the byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")

    def _parsed(self) -> dict[str, Any]:
        if not self.text.strip():
            self._refuse(1, "the file is empty", "write a [[job]] with name, cron and command")
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            wrong, _, place = str(error).rpartition(" (at ")
            number = place.removeprefix("line ").partition(",")[0]
            line = int(number) if number.isdigit() else self.text.rstrip("\n").count("\n") + 1
            twice = wrong.startswith(("Cannot ", "Duplicate "))
            instead = "write each key and each table once" if twice else "strings stand in quotes"
            if "('job',)" in wrong:
                instead = "write each job below a [[job]] of its own"
            self._refuse(line, f"not TOML: {_with_table(wrong)}", f"{instead}, see https://toml.io/en/v1.0.0")
        except (RecursionError, ValueError) as error:  # nested too deeply, an integer too large
            wrong = f"too much for the TOML parser ({str(error).partition(':')[0]})"
            self._refuse(self._line_of(type(error)), wrong, "write it smaller")

    def _line_of(self, kind: type[Exception]) -> int:
        """The first line with which tomllib raises `kind`: it says where for errors of its own only."""
        from bisect import bisect_left

        def fails(count: int) -> bool:
            try:
                tomllib.loads("\n".join(lines[:count]))
            except (RecursionError, ValueError) as error:
                return type(error) is kind
            return False

        lines = self.text.split("\n")
        return bisect_left(range(len(lines)), True, key=fails)

    def _refuse(self, line: int, wrong: str, instead: str) -> NoReturn:
        raise ScheduleRefused([Mistake(self.path, line, "", "", wrong, instead)])

    @cached_property
    def _lines(self) -> dict[Where, int]:
        try:
            return key_lines(self.text)
        except RecursionError:  # tomllib nests a little deeper: the mistakes are told without their lines
            return {}

    def line(self, where: Where) -> int:
        """The line of the key, else of the nearest table around it."""
        around = (where[:length] for length in range(len(where), 0, -1))
        return next((self._lines[path] for path in around if path in self._lines), 1)

    def job_lines(self, count: int) -> list[int]:
        """The lines on which the jobs begin, without a scan of the whole text where [[job]] is written plainly."""
        lines, line = [], 0
        for before in f"\n{self.text}".split("\n[[job]]")[:-1]:
            line += before.count("\n") + 1
            lines.append(line)
        return lines if len(lines) == count else [self.line(("job", index)) for index in range(count)]

    def mistake(self, where: Where, wrong: str, instead: str) -> None:
        """Notes one mistake of the key at `where`."""
        job, keys = "", where
        if where[:1] == ("job",) and len(where) > 1:
            job, keys = self._job_name(where), where[2:]
        key = ".".join(_shown(str(part)) for part in keys)
        self.mistakes.append(Mistake(self.path, self.line(where), job, key, wrong, instead))

    def _job_name(self, where: Where) -> str:
        table = self.toml["job"][where[1]]
        name = table.get("name", "") if isinstance(table, dict) else ""
        return _shown(name) if isinstance(name, str) and name else ""

    def read(self, where: Where, table: dict[str, Any], readers: dict[str, Reader]) -> dict[str, Any]:
        """What the readers make of the table's values; a key without a reader is a mistake."""
        values = {}
        for key, value in table.items():
            reader = readers.get(key)
            if reader is None:
                self._unknown((*where, key), readers)
                continue
            try:
                values[key] = reader(value)
            except Refused as refused:
                self.mistake((*where, key), refused.wrong, refused.instead)
        return values

    def _unknown(self, where: Where, readers: dict[str, Reader]) -> None:
        import difflib

        key = str(where[-1])
        if places := [place for place, keys in self._places.items() if key in keys]:
            there = "above the first [table]" if places == ["the top"] else "there"
            self.mistake(where, "unknown key", f"it is a key of {_listed(places)}: write it {there}")
            return
        meant = [_OFTEN_MEANT[key.lower()]] if key.lower() in _OFTEN_MEANT else []
        near = [one for one in meant if one in readers] or difflib.get_close_matches(key.lower(), readers, n=1)
        self.meant |= {(*where[:-1], one) for one in near[:1]}
        self.mistake(where, "unknown key", f"write {near[0]}" if near else f"known here are {', '.join(readers)}")

    def refuse_mistakes(self) -> None:
        """Raises ScheduleRefused with every mistake in the order of the file, if there is one."""
        if self.mistakes:
            raise ScheduleRefused(sorted(self.mistakes, key=lambda mistake: mistake.line))


def _listed(places: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(places[:-1]), places[-1]]))


def _with_table(wrong: str) -> str:
    """tomllib's sentence with a table as the file has it, `[a.b]`, in place of Python's tuple."""
    import ast
    import re

    def table(keys: re.Match[str]) -> str:
        return f"[{'.'.join(map(_shown, ast.literal_eval(keys[0])))}]"

    return re.sub(r"\(['\"].*\)", table, wrong)


def _shown(name: str) -> str:
    return name if is_name(name) else quoted(name)
