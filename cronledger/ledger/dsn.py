"""A DSN, taken apart and checked by our own rules first: a driver's word on a malformed one would echo the password."""

import os
from dataclasses import dataclass, field

from cronledger.errors import UsageError

_KINDS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_MYSQL_KEYS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity", "connect_timeout")


@dataclass(frozen=True, slots=True)
class Dsn:
    """Where the ledger is. `kind` is the dialect's; `text` and `password` are left out of every repr.

    `database` is a file's absolute path for SQLite. `options` holds the query keys of mysql://.
    """

    kind: str
    text: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    user: str | None = None
    host: str | None = None
    port: int | None = None
    database: str = ""
    options: dict[str, str] = field(default_factory=dict)


def parse(text: str, folder: str) -> Dsn:
    """Take `text` apart. A relative SQLite path counts from `folder`, an absolute path.

    Raises UsageError for a malformed DSN; its text says what is wrong and never repeats any of it.
    """
    scheme, separator, rest = text.partition("://")
    kind = _KINDS.get(scheme.lower())
    if not separator or kind is None:
        raise _refused(
            "it starts with none of the known schemes", "write postgresql://, mysql://, mariadb:// or sqlite:///"
        )
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in text):
        raise _refused("it holds a blank or a control character", "write it percent-encoded (a blank is %20)")
    if kind == "sqlite":
        return _sqlite(text, rest, folder)
    _check_encoding(rest)
    return _mysql(text, rest) if kind == "mysql" else _postgres(text, rest)


def _refused(wrong: str, instead: str) -> UsageError:
    return UsageError(f"the ledger's DSN is malformed: {wrong}; {instead}")


def _check_encoding(rest: str) -> None:
    encode = (
        "percent-encode it in the user name and the password:"
        " @ is %40, / is %2F, : is %3A, ? is %3F, # is %23, % is %25"
    )
    authority, _, path = rest.partition("/")
    if "#" in rest:
        raise _refused("it holds a #", encode)
    if authority.count("@") > 1:
        raise _refused("it holds more than one @", encode)
    if "@" in path.partition("?")[0] or ("@" not in authority and "@" in rest):
        raise _refused("an @ stands behind a / or a ?", encode)
    if "?" in authority and "@" in authority.partition("?")[2]:
        raise _refused("a ? stands in front of the @", encode)
    if authority.rpartition("@")[0].count(":") > 1:
        raise _refused("it holds more than one : in front of the @", encode)
    for piece in rest.split("%")[1:]:
        if len(piece) < 2 or not all(character in "0123456789abcdefABCDEF" for character in piece[:2]):
            raise _refused("a % is not followed by two hexadecimal digits", encode)
        if piece[:2] == "00":
            raise _refused("it holds %00", "a NUL can stand in no user name and no password")


def _decoded(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text, errors="surrogateescape")


def _query(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split("&") if pair]
    return {_decoded(key): _decoded(value) for key, _, value in pairs}


def _credentials(authority: str) -> tuple[str | None, str | None, str]:
    credentials, at, place = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    return (_decoded(user) or None if at else None, _decoded(password) if colon else None, place)


def _postgres(text: str, rest: str) -> Dsn:
    """libpq reads the rest of it (manual, 34.1.1.2. Connection URIs); here only what must be masked is taken out."""
    address, _, query = rest.partition("?")
    authority, _, database = address.partition("/")
    user, password, place = _credentials(authority)
    for one in place.split(","):
        _port(one)
    password = _query(query).get("password", password)
    return Dsn("postgres", text, password=password, user=user, host=place or None, database=_decoded(database))


def _port(place: str) -> tuple[str, int | None]:
    bracket = place.rfind("]")
    host, colon, port = place[bracket + 1 :].partition(":")
    if colon and port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise _refused(
            "its port is not a number from 1 to 65535", "write host:port, and percent-encode a : in the password"
        )
    return place[: bracket + 1].strip("[]") + host, int(port) if port else None


def _mysql(text: str, rest: str) -> Dsn:
    address, _, query = rest.partition("?")
    authority, _, database = address.partition("/")
    user, password, place = _credentials(authority)
    if "," in place:
        raise _refused(
            "it names several hosts", "mysql:// takes one; let a proxy or a virtual address choose among them"
        )
    host, port = _port(place)
    options = _query(query)
    if any(key not in _MYSQL_KEYS for key in options):
        raise _refused("it has a query key that is not known", "the known ones are " + ", ".join(_MYSQL_KEYS))
    if not options.get("connect_timeout", "1").isdigit() or options.get("connect_timeout") == "0":
        raise _refused("connect_timeout is not a number of seconds", "write connect_timeout=10")
    if not database:
        raise _refused("it names no database", "write mysql://user:password@host/database")
    return Dsn("mysql", text, password, user, _decoded(host) or None, port, _decoded(database), options)


def _sqlite(text: str, rest: str, folder: str) -> Dsn:
    path = _decoded(rest[1:]) if rest.startswith("/") else ""
    if not path or path == "/" or "\0" in path or "?" in rest:
        raise _refused("it names no file", "write sqlite:///relative.db or sqlite:////absolute.db")
    return Dsn("sqlite", text, database=os.path.join(folder, path))
