"""What a command shows: a JSON document, an aligned table or a list of fields; colour and cuts on a terminal only."""

import io
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from cronledger.cli.lines import Lines
from cronledger.errors import CronledgerError
from cronledger.events import one_line

if TYPE_CHECKING:
    from rich.text import Text

_GAP = "  "
_INDENT = 4
_NARROWEST = 24
"""Columns of a terminal that a table's last column needs at least to be of use."""
_MOST_LINES = 4
"""Of one field; a failure's reason may be long."""
_COLOURS = {"completed": "green", "running": "yellow", "failed": "red"}


def put(text: str) -> None:
    """Write `text` and a newline to stdout; what its encoding does not have is escaped.

    Raises CronledgerError when stdout cannot be written. A reader that has seen enough (history | head) is no error.
    """
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            raise CronledgerError(f"cannot write to stdout: {error.strerror}") from None


def give_up_stdout() -> None:
    """Let what is left in its buffer not fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def tell(text: str, end: str = "\n") -> None:
    """Write `text` to stderr, at its reader's pace. A closed or full one loses it, which changes nothing else."""
    Lines(2, "utf-8", patience_ms=-1).write_bytes(f"{text}{end}".encode("utf-8", "backslashreplace"))


def print_json(document: object) -> None:
    """One document, ASCII only, its keys in the order given."""
    import json

    put(json.dumps(document, indent=2))


def moment(instant: datetime, zone: tzinfo, *, seconds: bool = False) -> str:
    """`2026-11-30 03:15+01:00`: an instant in `zone`, with its offset."""
    return instant.astimezone(zone).isoformat(" ", "seconds" if seconds else "minutes")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under their titles; the last column may begin with a run's state, which is coloured.

    On a terminal that is too narrow each row takes two lines, the second indented; where that is too wide too, it
    becomes a list of fields. The last column is cut where it is still too long. Elsewhere nothing is parted or cut.
    """
    from rich.cells import cell_len

    texts = [titles, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    room = _room()
    parts = _parts([*widths[:-1], min(widths[-1], _NARROWEST)], room)
    if not parts:
        for row in rows:
            print_fields(list(zip(titles, row, strict=True)), state=titles[-1], room=room)
            put("")
        return
    lines = [_line(list(zip(line, widths, strict=True))[part], room, at) for line in texts for at, part in parts]
    for heading in lines[: len(parts)]:
        heading.stylize("bold")
    _print(lines)


def print_fields(fields: Sequence[tuple[str, str]], *, state: str = "", room: int | None = None) -> None:
    """A name and a value a line; the value named `state` is coloured, one that is wider than `room` goes on below."""
    from rich.cells import cell_len

    width = max(cell_len(name) for name, _ in fields)
    lines = []
    for name, value in fields:
        first, *more = _folded(one_line(value), None if room is None else room - width - len(_GAP))
        line = _line([(name.lower(), width), (first, 0)], room, coloured=name == state)
        line.stylize("bold", 0, len(name))
        lines += [line, *(_line([(part, 0)], room, width + len(_GAP), coloured=False) for part in more)]
    _print(lines)


def _room() -> int | None:
    """The terminal's columns; None off a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _parts(least: Sequence[int], room: int | None) -> list[tuple[int, slice]]:
    """The lines of a row: how far each is indented and which columns it has. None when two are not enough."""

    def fits(columns: Sequence[int], indent: int) -> bool:
        return room is None or indent + sum(columns) + len(_GAP) * (len(columns) - 1) <= room

    if fits(least, 0):
        return [(0, slice(None))]
    for end in range(len(least) - 1, 0, -1):
        if fits(least[:end], 0) and fits(least[end:], _INDENT):
            return [(0, slice(end)), (_INDENT, slice(end, None))]
    return []


def _folded(text: str, room: int | None) -> list[str]:
    """A text in lines of `room` columns, a few at most, parted between words where that can be."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    if room is None or cell_len(text) <= room:
        return [text]
    lines = [line.plain.rstrip() for line in Text(text).wrap(Console(file=io.StringIO()), max(room, 1))]
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], " ".join(lines[_MOST_LINES - 1 :])]


def _line(cells: Sequence[tuple[str, int]], room: int | None, indent: int = 0, *, coloured: bool = True) -> "Text":
    """Texts and the widths they are filled up to; the last one coloured by the state it begins with."""
    from rich.cells import cell_len
    from rich.text import Text

    *others, (last, _) = cells
    line = Text(" " * indent + "".join(text + " " * (width - cell_len(text)) + _GAP for text, width in others))
    colour = _COLOURS.get(last.partition(" ")[0].rstrip(":")) if coloured else None
    line.append(last, colour)
    line.rstrip()
    if room is not None:
        line.truncate(room, overflow="ellipsis")
    return line


def _print(lines: Sequence["Text"]) -> None:
    """Text without markup and without wrapping; rich itself would assume 80 columns off a terminal."""
    from rich.console import Console
    from rich.text import Text

    plain = _room() is None or bool(os.environ.get("NO_COLOR"))
    rendered = io.StringIO()
    console = Console(file=rendered, color_system=None if plain else "auto", force_terminal=not plain, highlight=False)
    console.print(Text("\n").join(lines), soft_wrap=True, end="")
    put(rendered.getvalue())
