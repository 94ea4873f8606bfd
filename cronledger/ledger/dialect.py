"""What a dialect is: how to reach one kind of database, what it calls things, and which of its errors means what."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from cronledger.errors import LedgerError, LedgerNotInstalled

Value = str | int | datetime | None
Row = dict[str, object]


EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""What is before or after is taken for these: an operator may have written `infinity`, or a date of zeros."""


class Fault(Exception):
    """A statement did not come through, and sending it once more is right. The text is the driver's."""


class Lost(Fault):
    """The connection is gone, or the answer did not come in time: whether the statement took effect is not known."""


class Again(Fault):
    """The database gave way: a deadlock, a serialization or certification failure, a lock that was not had in time."""


class Duplicate(Exception):
    """A row with this key is there already. Which key is not said: look."""


class Exists(Duplicate):
    """A table, column or index of this name is there already."""


class Unstorable(LedgerError):
    """The database refuses a text as such: a character that its encoding does not have, or a length."""


def lacking(what: str) -> LedgerNotInstalled:
    """The error for a ledger that lacks something, with the command that adds it: the one place that advises it."""
    return LedgerNotInstalled(f"{what}; run `cronledger install`")


def no_table(text: str) -> LedgerNotInstalled:
    """A statement met no table; `text` is the driver's."""
    return lacking(f"the ledger is not installed, or not for this version ({text})")


def no_column(text: str) -> LedgerNotInstalled:
    """A statement met a table without one of its columns; `text` is the driver's, and names it."""
    return lacking(f"the ledger has lost a column, or is not for this version ({text})")


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave: its rows by column name, and how many rows it wrote."""

    rows: list[Row]
    count: int


@dataclass(frozen=True, slots=True)
class Types:
    """The column types of a dialect, and what follows a table's closing parenthesis."""

    name: str
    word: str
    text: str
    output: str
    instant: str
    number: str
    table: str = ""


class Dialect(Protocol):
    """One kind of database. Statements are written once, with %(name)s for parameters; a dialect sends them."""

    types: Types
    is_shared: bool
    """Whether nodes on several machines can keep a ledger in it."""
    insert_guard: str
    """What ends an INSERT that must not fail on a key that is taken; "" where that is the error Duplicate."""
    now: str
    """A SELECT of the database's clock, as `now`."""
    mutexes: str
    """A SELECT of the unique indexes of a table, whole and valid ones only: `columns`, joined by commas."""
    indexes: str
    """A SELECT of all indexes of a table by `name`."""
    columns: str
    """A SELECT of the columns of a table: `name`, and `nullable` (0 or 1); no rows when there is no such table."""
    adds_not_null: bool
    """Whether a table without rows can be given a column that is NOT NULL and has no default."""
    preparation: str
    """What install sends first; "" for nothing."""
    shortest: float
    """Seconds that the shortest attempt to connect may take."""

    def connect(self, seconds: float) -> None:
        """Open the connection within `seconds`. Raises Lost, or a LedgerError when trying again is of no use."""

    def execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        """Send one statement and wait for its answer, `seconds` at most on both sides.

        Raises a Fault, Duplicate, Unstorable, or a LedgerError. The connection is closed after Lost.
        """

    def close(self) -> None:
        """Close the connection, if there is one; never raises."""

    @property
    def password(self) -> str | None:
        """The password of the connection, wherever the driver found it."""

    def descriptor(self) -> int | None:
        """The connection's socket; None without one."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known on this side."""

    def instant(self, value: object) -> datetime:
        """A value read from a column of type `instant`, as an aware datetime in UTC. Raises ValueError for none."""

    def version(self) -> str:
        """The server's name and version, as `PostgreSQL 15.18`."""
