"""PostgreSQL 12 and later, by psycopg; also behind a transaction pooler: no session state, no prepared statements."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict

from cronledger.errors import LedgerError, UsageError
from cronledger.ledger.dialect import (
    EARLIEST,
    LATEST,
    Again,
    Duplicate,
    Exists,
    Lost,
    Result,
    Types,
    Unstorable,
    Value,
    no_column,
    no_table,
)
from cronledger.ledger.dsn import Dsn

# SQLSTATEs: PostgreSQL manual, appendix A. A class stands for all of its codes.
_LOST = ("08", "25P03", "25P04", "57P", "53300", "58")
_AGAIN = ("40001", "40P01", "55P03", "57014")
# FATALs of a refused connection that pass: of PostgreSQL, then of pgbouncer.
_PASSING = (
    *("the database system is", "too many", "remaining connection slots", "terminating connection"),
    *("cannot connect to server", "login has been failing", "no more connections", "timeout"),
)

_PER_HOST = 2
"""Seconds, the shortest connect_timeout that libpq takes."""

# What libpq says by itself when the server asks for a password and the DSN has none.
_NO_PASSWORD = "no password supplied"

# One message with the statement it bounds: it ends with the statement's own transaction and leaves no state behind.
_BOUNDS = (
    "SELECT set_config('lock_timeout', '{lock}', true), set_config('statement_timeout', '{statement}', true),"
    " set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true),"
    # A claim that a crash of the server may forget is none; the stronger settings are left as they are.
    " CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END; "
)


class _Instant(Loader):
    """An instant as _BOUNDS lets it be written. psycopg goes by the DateStyle that the session has when it reads."""

    def load(self, data: Buffer) -> datetime:
        text = bytes(data).decode("ascii")
        try:
            return datetime.fromisoformat(text)
        except ValueError:  # infinity, or a year that Python does not have
            return EARLIEST if text.startswith("-") or text.endswith("BC") else LATEST


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait is bounded: psycopg waits for ever for a server that stopped answering."""

    seconds = 10.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval=interval, timeout=timeout or self.seconds)


class Postgres:
    """See Dialect."""

    types = Types(
        name='varchar(128) COLLATE "C"',
        word='varchar(36) COLLATE "C"',
        text="text",
        output="text",
        instant="timestamptz(6)",
        number="bigint",
    )
    is_shared = True
    insert_guard = " ON CONFLICT DO NOTHING"
    now = "SELECT clock_timestamp() AS now"
    mutexes = (
        "SELECT array_to_string(ARRAY(SELECT a.attname FROM generate_series(0, x.indnkeyatts - 1) AS k(i)"
        " JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k.i] ORDER BY k.i), ',') AS columns"
        " FROM pg_index x WHERE x.indrelid = to_regclass(%(table)s) AND x.indisunique AND x.indisvalid"
        " AND x.indimmediate AND x.indpred IS NULL AND x.indexprs IS NULL"
    )
    indexes = (
        "SELECT c.relname AS name FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid"
        " WHERE x.indrelid = to_regclass(%(table)s) AND x.indisvalid"
    )
    columns = (
        "SELECT attname AS name, CASE WHEN attnotnull THEN 0 ELSE 1 END AS nullable FROM pg_attribute"
        " WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped"
    )
    adds_not_null = True
    preparation = ""

    def __init__(self, dsn: Dsn) -> None:
        self._dsn = dsn
        self._connection: _Connection | None = None
        self.shortest = 0.0

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def connect(self, seconds: float) -> None:
        try:
            named = conninfo_to_dict(self._dsn.text)
        except psycopg.ProgrammingError:
            # The error's own text would repeat the DSN with its password.
            raise UsageError(
                "the ledger's DSN is malformed: libpq cannot read it; write it as in postgresql://host/database"
            ) from None
        hosts = str(named.get("hostaddr") or named.get("host") or "").count(",") + 1
        asked = int(str(named.get("connect_timeout") or 0))
        self.shortest = _PER_HOST * hosts
        within = max(_PER_HOST, min(int(seconds / hosts), asked or int(seconds)))
        try:
            self._connection = _Connection.connect(
                self._dsn.text,
                autocommit=True,
                prepare_threshold=None,
                cursor_factory=psycopg.ClientCursor,
                connect_timeout=within,
                client_encoding="utf8",
                fallback_application_name="cronledger",
            )
            self._connection.adapters.register_loader("timestamptz", _Instant)
        except psycopg.Error as error:
            self._cannot_connect(error)

    def _cannot_connect(self, error: psycopg.Error) -> NoReturn:
        # libpq gives no SQLSTATE for a refused connection; a server that answered says FATAL in most languages.
        text = str(error)
        if _NO_PASSWORD in text or ("FATAL" in text and not any(word in text for word in _PASSING)):
            raise LedgerError(
                f"the ledger's server refuses the connection ({text});"
                " check the user, the password and the database in the DSN"
            ) from None
        raise Lost(text) from None

    def execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        assert self._connection is not None
        self._connection.seconds = seconds + 1
        bounds = _BOUNDS.format(lock=min(3000, int(seconds * 1000)), statement=int(seconds * 1000))
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(bounds + statement, values or None)
                while cursor.nextset():
                    pass
                if cursor.description is None:
                    return Result([], cursor.rowcount)
                names = [column.name for column in cursor.description]
                return Result([dict(zip(names, row, strict=True)) for row in cursor.fetchall()], cursor.rowcount)
        except psycopg.Error as error:
            self._understand(error)

    def _understand(self, error: psycopg.Error) -> NoReturn:
        state, text = error.sqlstate or "", error.diag.message_primary or str(error)
        if state.startswith(_AGAIN):
            raise Again(text) from None
        if state.startswith(_LOST) or (
            not state and not isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
        ):
            self.close()
            raise Lost(text) from None
        if state == "23505":
            raise Duplicate(text) from None
        if state in ("42P07", "42701", "42710"):
            raise Exists(text) from None
        if state.startswith("22") or (not state and isinstance(error, psycopg.DataError)):
            raise Unstorable(text) from None
        if state == "42P01":
            raise no_table(text) from None
        if state == "42703":
            raise no_column(text) from None
        if state == "3F000":
            raise LedgerError(
                f"the ledger's tables have no schema to be made in ({text}); CREATE SCHEMA the one that the search_path"
                " names, or set another search_path"
            ) from None
        if state == "25006":
            # The next connection may find the primary of a multi-host DSN.
            self.close()
            raise LedgerError(f"the ledger's server is read-only ({text}); point the DSN at the primary") from None
        if state == "42501":
            raise LedgerError(
                f"the ledger's role may not do this ({text}); as the owner of the database GRANT SELECT, INSERT,"
                " UPDATE, DELETE on cronledger_runs, cronledger_jobs and cronledger_meta to it, or, for install,"
                " GRANT USAGE, CREATE ON SCHEMA public TO it (a plain role has no CREATE there since PostgreSQL 15)"
            ) from None
        raise LedgerError(f"the ledger's server says {state}: {text}") from None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    @property
    def password(self) -> str | None:
        found = self._connection.pgconn.password if self._connection is not None else b""
        return found.decode("utf-8", "surrogateescape") or None

    def descriptor(self) -> int | None:
        return self._connection.pgconn.socket if self._connection is not None and self.is_open else None

    def instant(self, value: object) -> datetime:
        assert isinstance(value, datetime)
        return value.astimezone(UTC)

    def version(self) -> str:
        assert self._connection is not None
        return f"PostgreSQL {self._connection.info.parameter_status('server_version')}".split(" (")[0]
