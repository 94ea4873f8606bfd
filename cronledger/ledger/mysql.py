"""MySQL 8 and later and MariaDB 10.6 and later, by PyMySQL."""

import contextlib
import ssl
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

import pymysql
from pymysql.connections import Connection

from cronledger.errors import LedgerError
from cronledger.ledger.dialect import (
    EARLIEST,
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

# Error numbers: MySQL's and MariaDB's error message references. Those of the client library start at 2000.
_LOST = {0, 1040, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1927, 4031}
_AGAIN = {1020, 1047, 1205, 1213, 1317, 1969, 3024}
_READ_ONLY = {1290, 1792, 1836}
_UNSTORABLE = {1153, 1300, 1366, 1406, 3854, 3988}
_NO_TABLE = {1146}
_NO_COLUMN = {1054}
_DUPLICATE = {1062}
_EXISTS = {1050, 1060, 1061}
_DENIED = {1044, 1142, 1143, 1227}
_REFUSED = {1045, 1049, 1129, 1130, 1251, 1698, 1862}

# What PyMySQL raises, beside errors of its own, when what it reads is no answer of MySQL.
_GARBLED = (struct.error, LookupError, ValueError, AssertionError, TypeError)

_ASCII = "CHARACTER SET ascii COLLATE ascii_bin"
_UTF8 = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


class _Connection(Connection):
    """A connection that loads no CA files where it is to verify nothing; PyMySQL would, for 26 ms of each tick."""

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if sslp:
            context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def bound(self, seconds: float) -> None:
        """Wait `seconds` at most for each piece of an answer."""
        self._read_timeout = self._write_timeout = seconds


class Mysql:
    """See Dialect."""

    types = Types(
        name=f"varchar(128) {_ASCII}",
        word=f"varchar(36) {_ASCII}",
        text=f"text {_UTF8}",
        output=f"mediumtext {_UTF8}",
        instant="datetime(6)",
        number="bigint",
        # Said here, since a server's defaults may be latin1, MyISAM or a row format with short keys.
        table=f" ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT {_UTF8}",
    )
    is_shared = True
    insert_guard = ""
    now = "SELECT UTC_TIMESTAMP(6) AS now"
    mutexes = (
        "SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) AS columns FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %(table)s AND NON_UNIQUE = 0"
        " GROUP BY INDEX_NAME HAVING MAX(SUB_PART) IS NULL"
    )
    indexes = (
        "SELECT DISTINCT INDEX_NAME AS name FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %(table)s"
    )
    columns = (
        "SELECT COLUMN_NAME AS name, IS_NULLABLE = 'YES' AS nullable FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %(table)s"
    )
    adds_not_null = True
    preparation = ""
    shortest = 1.0

    def __init__(self, dsn: Dsn, longest: float = 10.0) -> None:
        self._dsn = dsn
        self._longest = longest
        self._connection: _Connection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.open

    def connect(self, seconds: float) -> None:
        options = self._dsn.options
        within = max(self.shortest, min(seconds, float(options.get("connect_timeout", seconds))))
        verified = bool(options.get("ssl_ca"))
        try:
            self._connection = _Connection(
                user=self._dsn.user,
                # As bytes, since PyMySQL takes a text for Latin-1.
                password=(self._dsn.password or "").encode("utf-8", "surrogateescape"),
                host=self._dsn.host,
                port=self._dsn.port or 0,
                database=self._dsn.database,
                unix_socket=options.get("unix_socket"),
                ssl_ca=options.get("ssl_ca"),
                ssl_cert=options.get("ssl_cert"),
                ssl_key=options.get("ssl_key"),
                ssl_verify_cert=True if verified else None,
                ssl_verify_identity=(verified and options.get("ssl_verify_identity") != "false") or None,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=within,
                read_timeout=within,
                write_timeout=within,
                program_name="cronledger",
            )
            with self._connection.cursor() as cursor:
                cursor.execute(self._session())
        except pymysql.Error as error:
            self.close()
            self._understand(error)
        except _GARBLED as error:
            self._lose(error)
        except OSError as error:
            raise LedgerError(
                f"the ledger's TLS files cannot be used ({error}); check the ssl_ keys in the DSN"
            ) from None
        except RuntimeError as error:
            raise LedgerError(
                f"the ledger's user logs in by caching_sha2_password without TLS, which takes one more package"
                f' ({error}); install "cronledger[mysql]", or let the server offer TLS'
            ) from None

    def _session(self) -> str:
        """The session's bounds, in seconds: of a row lock, of a table's, of a statement; and no silent truncation.

        Mutexes are checked and each statement is committed whatever the server's init_connect says, which PyMySQL does
        not notice.
        """
        bounds = (
            "SET SESSION autocommit = 1, unique_checks = 1, sql_mode = 'STRICT_ALL_TABLES',"
            " innodb_lock_wait_timeout = 3, lock_wait_timeout = 5,"
            " sql_select_limit = 18446744073709551615, group_concat_max_len = 1024"
        )
        if "MariaDB" in self._server():
            return f"{bounds}, max_statement_time = {self._longest:g}"
        return f"{bounds}, max_execution_time = {self._longest * 1000:.0f}"

    def execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        assert self._connection is not None
        self._connection.bound(seconds)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, {name: _naive(value) for name, value in values.items()} or None)
                names = [column[0] for column in cursor.description or ()]
                return Result([dict(zip(names, row, strict=True)) for row in cursor.fetchall()], cursor.rowcount)
        except pymysql.Error as error:
            self._understand(error)
        except _GARBLED as error:
            self._lose(error)

    def _lose(self, error: Exception) -> NoReturn:
        if isinstance(error, UnicodeEncodeError):  # of what we sent
            raise error
        self.close()
        raise Lost(f"what answers there does not speak MySQL's protocol, {type(error).__name__}") from None

    def _understand(self, error: pymysql.Error) -> NoReturn:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1]) if len(error.args) > 1 and error.args[1] else str(error)
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise LedgerError(
                f"the ledger's server shows a certificate that is not accepted ({text}); check ssl_ca in the DSN, or"
                " write ssl_verify_identity=false there if the certificate does not name the host"
            ) from None
        if number in _AGAIN:
            raise Again(text) from None
        if number in _LOST or 2000 <= number < 3000:
            self.close()
            raise Lost(text) from None
        if number in _DUPLICATE:
            raise Duplicate(text) from None
        if number in _EXISTS:
            raise Exists(text) from None
        if number in _UNSTORABLE:
            raise Unstorable(text) from None
        if number in _NO_TABLE:
            raise no_table(text) from None
        if number in _NO_COLUMN:
            raise no_column(text) from None
        if number in _READ_ONLY:
            self.close()
            raise LedgerError(f"the ledger's server is read-only ({text}); point the DSN at the primary") from None
        if number in _REFUSED:
            raise LedgerError(
                f"the ledger's server refuses the connection ({text});"
                " check the user, the password and the database in the DSN"
            ) from None
        if number in _DENIED:
            raise LedgerError(
                f"the ledger's user may not do this ({text}); GRANT SELECT, INSERT, UPDATE, DELETE on the database to"
                " it, and for install CREATE, ALTER, INDEX"
            ) from None
        raise LedgerError(f"the ledger's server says {number}: {text}") from None

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            with contextlib.suppress(pymysql.Error):
                self._connection.close()
        self._connection = None

    @property
    def password(self) -> str | None:
        return self._dsn.password

    def descriptor(self) -> int | None:
        line = getattr(self._connection, "_sock", None)
        return line.fileno() if line is not None else None

    def instant(self, value: object) -> datetime:
        if not isinstance(value, datetime):  # of zeros, which PyMySQL leaves as text
            return EARLIEST
        return value.replace(tzinfo=UTC)

    def _server(self) -> str:
        """Such as `8.4.3` or `5.5.5-10.11.14-MariaDB-deb12`, as the handshake said."""
        return str(getattr(self._connection, "server_version", ""))

    def version(self) -> str:
        version = self._server()
        name = "MariaDB" if "MariaDB" in version else "MySQL"
        return f"{name} {version.removeprefix('5.5.5-').split('-')[0]}"


def _naive(value: Value) -> Value:
    """DATETIME knows no zone: the ledger's are UTC."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
