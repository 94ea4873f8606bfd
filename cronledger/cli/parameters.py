"""The options and arguments of all commands, as typer wants them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from cronledger.cli import options
from cronledger.cli.options import Option
from cronledger.errors import UsageError
from cronledger.events import harmless


@dataclass(frozen=True, slots=True)
class Start:
    """When the program started, on both clocks: seconds since the epoch, and `elapsed()` at that moment."""

    wall_seconds: float
    wall_read_at: float

    @property
    def wall(self) -> datetime:
        """The node's clock, in UTC."""
        return datetime.fromtimestamp(self.wall_seconds, UTC)


def start_of(context: typer.Context) -> Start:
    """What the program handed down."""
    start = context.obj
    assert isinstance(start, Start)
    return start


def named(argument: typer.CallbackParam, text: str | None) -> str | None:
    """The name that was given to an argument, None where there is none; what no name may hold is written out.

    Raises UsageError for an empty one.
    """
    if text == "":
        raise UsageError(f"{argument.metavar} is empty: is a variable of the shell not set? Give it a name")
    return text and harmless(text)


def asked(option: Option) -> object:
    """A typer option from the one table."""
    text = f"{option.help} [{option.variable}]" if option.variable else option.help
    return typer.Option(f"--{option.name}", help=text, metavar=option.metavar or None, show_default=False)


SchedulePath = Annotated[str | None, asked(options.SCHEDULE)]
DsnText = Annotated[str | None, asked(options.DSN)]
NodeName = Annotated[str | None, asked(options.NODE)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.", show_default=False)]
