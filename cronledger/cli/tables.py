"""What a command shows: a JSON document, an aligned table or a list of fields; colour and cuts on a terminal only."""

import io
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from cronledger.errors import CronledgerError
from cronledger.events import one_line

if TYPE_CHECKING:
    from rich.text import Text

_GAP = "  "
_NARROWEST = 12
"""Columns of a terminal that a table's last column needs at least to be of use."""
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
        # What is left in the buffer must not fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            raise CronledgerError(f"cannot write to stdout: {error.strerror}") from None


def print_json(document: object) -> None:
    """One document, ASCII only, its keys in the order given."""
    import json

    put(json.dumps(document, indent=2))


def moment(instant: datetime, zone: tzinfo, *, seconds: bool = False) -> str:
    """`2026-11-30 03:15+01:00`: an instant in `zone`, with its offset."""
    return instant.astimezone(zone).isoformat(" ", "seconds" if seconds else "minutes")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = ()) -> None:
    """Rows under their titles; the last column may begin with a run's state, which is coloured.

    On a terminal that is too narrow the `spare` columns are left out, one after another, then the last one is cut;
    where even that is too wide each row becomes a list of fields. Elsewhere nothing is left out.
    """
    from rich.cells import cell_len

    lines = [titles, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    room = _room()
    shown = _fitting(titles, widths, spare, room)
    if not shown:
        for row in rows:
            print_fields(list(zip(titles, row, strict=True)), state=titles[-1], room=room)
            put("")
        return
    kept = [[(line[column], widths[column]) for column in shown] for line in lines]
    heading, *body = [_line(cells, room) for cells in kept]
    heading.stylize("bold")
    _print([heading, *body])


def print_fields(fields: Sequence[tuple[str, str]], *, state: str = "", room: int | None = None) -> None:
    """One line for each name and value, cut to `room` columns; the value named `state` is coloured."""
    from rich.cells import cell_len

    width = max(cell_len(name) for name, _ in fields)
    lines = []
    for name, value in fields:
        line = _line([(name.lower(), width), (one_line(value), 0)], room, coloured=name == state)
        line.stylize("bold", 0, len(name))
        lines.append(line)
    _print(lines)


def _room() -> int | None:
    """The terminal's columns; None off a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _fitting(titles: Sequence[str], widths: Sequence[int], spare: Sequence[str], room: int | None) -> list[int]:
    """The columns to show, by number; none when there is no room for a table."""
    shown = list(range(len(titles)))
    for title in (*spare, ""):
        least = sum(widths[column] + len(_GAP) for column in shown[:-1]) + min(widths[shown[-1]], _NARROWEST)
        if room is None or least <= room:
            return shown
        shown = [column for column in shown if titles[column] != title]
    return []


def _line(cells: Sequence[tuple[str, int]], room: int | None, *, coloured: bool = True) -> "Text":
    """Texts and the widths they are filled up to; the last one coloured by the state it begins with."""
    from rich.cells import cell_len
    from rich.text import Text

    *others, (last, _) = cells
    line = Text("".join(text + " " * (width - cell_len(text)) + _GAP for text, width in others))
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
