"""SQLite, embedded: for one machine, for the example and for trying things out."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NoReturn

from cronledger.errors import LedgerError
from cronledger.ledger.dialect import Again, Duplicate, Exists, Result, Types, Value, lacking, no_column, no_table
from cronledger.ledger.dsn import Dsn


class Sqlite:
    """See Dialect. A database file is made by install only: a tick opens what is there."""

    types = Types(name="TEXT", word="TEXT", text="TEXT", output="TEXT", instant="TEXT", number="INTEGER")
    is_shared = False
    insert_guard = " ON CONFLICT DO NOTHING"
    now = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') AS now"
    mutexes = (
        "SELECT group_concat(k.name) AS columns FROM pragma_index_list(%(table)s) AS x, pragma_index_info(x.name) AS k"
        ' WHERE x."unique" AND NOT x.partial GROUP BY x.name'
    )
    indexes = "SELECT name FROM pragma_index_list(%(table)s)"
    columns = 'SELECT name, 1 - "notnull" AS nullable FROM pragma_table_info(%(table)s)'
    adds_not_null = False
    shortest = 0.0
    # WAL lets readers go on beside the one writer; it is kept in the file.
    preparation = "PRAGMA journal_mode = WAL"

    def __init__(self, dsn: Dsn, create: bool = False) -> None:
        self._path = dsn.database
        self._mode = "rwc" if create else "rw"
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Not when the file was moved, deleted or replaced since: what is written to it then is lost."""
        if self._file is not None and _identity(self._path) != self._file:
            self.close()
        return self._connection is not None

    def connect(self, seconds: float) -> None:
        if self._mode == "rw" and not os.path.exists(self._path):
            raise lacking(f"the ledger is not installed (there is no file {self._path})")
        address = "file:" + self._path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        try:
            self._connection = sqlite3.connect(
                f"{address}?mode={self._mode}", uri=True, timeout=min(seconds, 5.0), isolation_level=None
            )
            self._file = _identity(self._path)
        except sqlite3.Error as error:
            raise LedgerError(
                f"the ledger {self._path} cannot be opened ({error}); check that its folder is there and may be written"
            ) from None

    def execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        assert self._connection is not None
        try:
            cursor = self._connection.execute(_named(statement), {name: _text(value) for name, value in values.items()})
            names = [column[0] for column in cursor.description or ()]
            return Result([dict(zip(names, row, strict=True)) for row in cursor.fetchall()], cursor.rowcount)
        except sqlite3.Error as error:
            self._understand(error)

    def _understand(self, error: sqlite3.Error) -> NoReturn:
        code, text = getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Again(text) from None
        if code == sqlite3.SQLITE_CONSTRAINT and "UNIQUE" in text:
            raise Duplicate(text) from None
        if "already exists" in text or text.startswith("duplicate column name"):
            raise Exists(text) from None
        if text.startswith("no such table"):
            raise no_table(text) from None
        if text.startswith("no such column") or "has no column" in text:
            raise no_column(text) from None
        self.close()
        if code == sqlite3.SQLITE_READONLY:
            raise LedgerError(
                f"the ledger {self._path} is read-only; let this user write the file and its folder"
            ) from None
        if code == sqlite3.SQLITE_NOTADB:
            raise LedgerError(
                f"the ledger {self._path} is not an SQLite database; name another file in the DSN"
            ) from None
        raise LedgerError(f"the ledger {self._path} cannot be used ({text}); check the disk it is on") from None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._file = None

    @property
    def password(self) -> str | None:
        return None

    def descriptor(self) -> int | None:
        return None

    def instant(self, value: object) -> datetime:
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"


def _identity(path: str) -> tuple[int, int] | None:
    """Which file this is; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@lru_cache(maxsize=128)
def _named(statement: str) -> str:
    return re.sub(r"%\((\w+)\)s", r":\1", statement)


def _text(value: Value) -> str | int | None:
    """SQLite has no type for instants: UTC, always with microseconds, so that texts compare as instants do."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return value
