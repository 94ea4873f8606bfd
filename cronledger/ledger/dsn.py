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


class Malformed(UsageError):
    """A DSN that is none: `wrong` says what about it, `instead` what to write; neither repeats any of it."""

    def __init__(self, wrong: str, instead: str) -> None:
        self.wrong = wrong
        self.instead = instead
        super().__init__(f"the ledger's DSN is malformed: {wrong}; {instead}")


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

    Raises Malformed.
    """
    if not text:
        raise Malformed("it is empty", "write one, or set the variable that it names")
    scheme, separator, rest = text.partition("://")
    kind = _KINDS.get(scheme.lower())
    if not separator or kind is None:
        raise Malformed(
            "it starts with none of the known schemes", "write postgresql://, mysql://, mariadb:// or sqlite:///"
        )
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in text):
        raise Malformed("it holds a blank or a control character", "write it percent-encoded (a blank is %20)")
    if kind == "sqlite":
        return _sqlite(text, rest, folder)
    _check_encoding(rest, kind)
    return _mysql(text, rest) if kind == "mysql" else _postgres(text, rest)


def _check_encoding(rest: str, kind: str) -> None:
    """libpq takes all before the first @ for user:password, a raw #, ? or : in the password included."""
    encode = (
        "percent-encode it in the user name and the password:"
        " @ is %40, / is %2F, : is %3A, ? is %3F, # is %23, % is %25"
    )
    authority, _, path = rest.partition("/")
    if "#" in rest and kind == "mysql":
        raise Malformed("it holds a #", encode)
    if authority.count("@") > 1:
        raise Malformed("it holds more than one @", encode)
    if "@" in path.partition("?")[0] or ("@" not in authority and "@" in rest):
        raise Malformed("an @ stands behind a / or a ?", encode)
    credentials = authority.rpartition("@")[0]
    if "?" in (credentials if kind == "mysql" else credentials.partition(":")[0]):
        raise Malformed("a ? stands in front of the @", encode)
    if credentials.count(":") > 1 and kind == "mysql":
        raise Malformed("it holds more than one : in front of the @", encode)
    for piece in rest.split("%")[1:]:
        if len(piece) < 2 or not all(character in "0123456789abcdefABCDEF" for character in piece[:2]):
            raise Malformed("a % is not followed by two hexadecimal digits", encode)
        if piece[:2] == "00":
            raise Malformed("it holds %00", "a NUL can stand in no user name and no password")


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
    _check_utf8(rest)
    credentials = "".join(rest.partition("/")[0].rpartition("@")[:2])
    user, password, _ = _credentials(credentials)
    address, _, query = rest.removeprefix(credentials).partition("?")
    place, _, database = address.partition("/")
    options = _query(query)
    hosts = [_decoded(_port(one)[0]) for one in place.split(",")] + options.get("host", "").split(",")
    for host in hosts:
        if not host.startswith(("/", "@")):  # a folder of sockets, an abstract one
            _check_host(host)
    _check_seconds(options.get("connect_timeout", "").removeprefix("-") or "0")
    password = options.get("password", password)
    return Dsn("postgres", text, password=password, user=user, host=place or None, database=_decoded(database))


def _check_utf8(rest: str) -> None:
    from urllib.parse import unquote_to_bytes

    try:
        unquote_to_bytes(rest).decode()
    except UnicodeError:
        raise Malformed(
            "it holds bytes that are not UTF-8", "write them in UTF-8, percent-encoded (é is %C3%A9)"
        ) from None


def _check_host(host: str) -> None:
    """As socket.getaddrinfo reads a name: no part of it is empty or over 63 characters long (RFC 3490)."""
    if host and not all(0 < len(part) < 64 for part in host.removesuffix(".").split(".")):
        raise Malformed("its host is no host's name", "write one without an empty or too long part")


def _check_seconds(text: str) -> None:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Malformed("connect_timeout is not a number of seconds", "write connect_timeout=10")


def _port(place: str) -> tuple[str, int | None]:
    bracket = place.rfind("]")
    host, colon, port = place[bracket + 1 :].partition(":")
    if colon and port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise Malformed(
            "its port is not a number from 1 to 65535", "write host:port, and percent-encode a : in the password"
        )
    return place[: bracket + 1].strip("[]") + host, int(port) if port else None


def _mysql(text: str, rest: str) -> Dsn:
    address, _, query = rest.partition("?")
    authority, _, database = address.partition("/")
    user, password, place = _credentials(authority)
    if "," in place:
        raise Malformed(
            "it names several hosts", "mysql:// takes one; let a proxy or a virtual address choose among them"
        )
    host, port = _port(place)
    host = _decoded(host)
    _check_host(host)
    options = _query(query)
    if any(key not in _MYSQL_KEYS for key in options):
        raise Malformed("it has a query key that is not known", "the known ones are " + ", ".join(_MYSQL_KEYS))
    _check_seconds(options.get("connect_timeout", "1").lstrip("0"))
    if not database:
        raise Malformed("it names no database", "write it behind the host, as in mysql://host/database")
    return Dsn("mysql", text, password, user, host or None, port, _decoded(database), options)


def _sqlite(text: str, rest: str, folder: str) -> Dsn:
    path = _decoded(rest[1:]) if rest.startswith("/") else ""
    if not path or path == "/" or "\0" in path or "?" in rest:
        raise Malformed("it names no file", "write sqlite:///relative.db or sqlite:////absolute.db")
    return Dsn("sqlite", text, database=os.path.join(folder, path))
