"""Where in a TOML text each key stands: tomllib does not say. Only asked when there is a mistake to report."""

import re
import tomllib
from collections.abc import Iterator

Where = tuple[str | int, ...]

_TOKEN = (  # compiled when it is used: most schedules have no mistakes
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may stand before the three that end it
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=,.\n]"
    r"|[^\s\[\]{}=,.\"'#]+"
)


def key_lines(text: str) -> dict[Where, int]:
    """The line (from 1) of each key and table of a valid TOML text, by its path: `("job", 0, "env", "LANG")`.

    A key written more than once, as a table or a prefix of dotted keys is, keeps its first line.
    """
    return _Scanner(text).lines


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, counted = 1, 0
    for match in re.finditer(_TOKEN, text, re.DOTALL):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if not match[0].startswith("#"):
            yield match[0], line


def _key(token: str) -> str:
    return str(tomllib.loads(f"key = {token}")["key"]) if token[0] in "\"'" else token


class _Scanner:
    """Walks the tokens once. `token` is the one in hand, "" at the end."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Where, int] = {}
        self._last: dict[Where, int] = {}  # the newest element of each array of tables
        self._tokens = _tokens(text.replace("\r\n", "\n"))
        self._next()
        table: Where = ()
        while self.token:
            if self.token == "[":
                table = self._header()
            elif self.token != "\n":
                self._pair(table)
            self._next()

    def _next(self) -> None:
        self.token, self.line = next(self._tokens, ("", 0))

    def _header(self) -> Where:
        """`[a.b]` or `[[a.b]]`: keys after an array of tables belong to its newest element."""
        line, brackets = self.line, 0
        while self.token == "[":
            brackets += 1
            self._next()
        path: Where = ()
        keys = self._dotted("]")
        for depth, key in enumerate(keys, start=1):
            path += (key,)
            if depth == len(keys) and brackets == 2:
                self._last[path] = self._last.get(path, -1) + 1
            self.lines.setdefault(path, line)
            if path in self._last:
                path += (self._last[path],)
        self.lines.setdefault(path, line)
        if brackets == 2:
            self._next()
        return path

    def _dotted(self, end: str) -> list[str]:
        keys = []
        while self.token != end:
            if self.token != ".":
                keys.append(_key(self.token))
            self._next()
        return keys

    def _pair(self, table: Where) -> None:
        """`key = value`, left at the token that ends it."""
        line, path = self.line, table
        for key in self._dotted("="):
            path += (key,)
            self.lines.setdefault(path, line)
        self._next()
        self._value(path)

    def _value(self, path: Where) -> None:
        if self.token == "[":
            self._array(path)
        elif self.token == "{":
            self._inline_table(path)
        while self.token not in ("", "\n", ",", "]", "}"):
            self._next()

    def _array(self, path: Where) -> None:
        element = 0
        self._next()
        while self.token != "]":
            if self.token == ",":
                element += 1
            elif self.token != "\n":
                self.lines.setdefault((*path, element), self.line)
                self._value((*path, element))
                continue
            self._next()
        self._next()

    def _inline_table(self, path: Where) -> None:
        self._next()
        while self.token != "}":
            if self.token == ",":
                self._next()
            else:
                self._pair(path)
        self._next()
