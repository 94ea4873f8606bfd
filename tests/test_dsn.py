"""A DSN is taken apart by our own rules, and no error ever repeats any of it."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from cronledger.errors import UsageError
from cronledger.ledger.dsn import parse

SECRET = "hunter2secret"


READ = [
    ("postgresql://app:p%40ss@db/app", "postgres", "app", "p@ss", "db", None, "app"),
    ("postgres://db/app", "postgres", None, None, "db", None, "app"),
    ("postgresql:///app?host=/var/run/postgresql", "postgres", None, None, None, None, "app"),
    ("postgresql://a:pw9@h1:5432,h2:5433/app", "postgres", "a", "pw9", "h1:5432,h2:5433", None, "app"),
    ("postgresql://a@[::1]:5432/app", "postgres", "a", None, "[::1]:5432", None, "app"),
    ("postgresql://ha:pw#x?y@127.0.0.1:5432/db", "postgres", "ha", "pw#x?y", "127.0.0.1:5432", None, "db"),
    ("postgresql://a:p:w@h/app?application_name=y/z@", "postgres", "a", "p:w", "h", None, "app"),
    ("postgresql://a#b@h", "postgres", "a#b", None, "h", None, ""),
    ("postgresql://a:p?w@?host=h,/tmp&connect_timeout=-1", "postgres", "a", "p?w", None, None, ""),
    ("postgresql://h.?host=/tmp#x", "postgres", None, None, "h.", None, ""),
    ("mysql://app:p%ff@db./app", "mysql", "app", "p\udcff", "db.", None, "app"),
    ("postgresql://a@h/app?password=x%26y", "postgres", "a", "x&y", "h", None, "app"),
    (
        "mysql://app:p%40ss%2Fw%3Ard@127.0.0.1:53308/ledger",
        "mysql",
        "app",
        "p@ss/w:rd",
        "127.0.0.1",
        53308,
        "ledger",
    ),
    ("mariadb://app@db/app", "mysql", "app", None, "db", None, "app"),
    ("mysql://app:%C3%A6+%25@[::1]/app", "mysql", "app", "æ+%", "::1", None, "app"),
    ("sqlite:///ledger.db", "sqlite", None, None, None, None, "/srv/app/ledger.db"),
    ("sqlite:////var/lib/ledger.db", "sqlite", None, None, None, None, "/var/lib/ledger.db"),
    ("SQLite:///with%20blank.db", "sqlite", None, None, None, None, "/srv/app/with blank.db"),
]


@pytest.mark.parametrize(("text", "kind", "user", "password", "host", "port", "database"), READ)
def test_a_dsn_is_read(
    text: str, kind: str, user: str | None, password: str | None, host: str | None, port: int | None, database: str
) -> None:
    """Percent-encoding is decoded; a relative SQLite file counts from the folder."""
    dsn = parse(text, "/srv/app")
    found = (dsn.kind, dsn.user, dsn.password, dsn.host, dsn.port, dsn.database)
    assert found == (kind, user, password, host, port, database)
    assert password is None or password not in repr(dsn)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"app:{SECRET}@db/app",
        f"oracle://app:{SECRET}@db/app",
        f"postgresql://app:{SECRET}@x@db/app",
        f"postgresql://app:{SECRET}/x@db/app",
        f"postgresql://app:x/{SECRET}@db/app",
        f"postgresql://app:x?{SECRET}/x@db/app",
        f"postgresql://app:x@{SECRET}?x@db/app",
        f"postgresql://db?user=app&password={SECRET}@x",
        f"mysql://app:{SECRET}?x@db/app",
        f"mysql://app:{SECRET}#x@db/app",
        f"mysql://app:{SECRET}:x@db/app",
        f"postgresql://app:{SECRET}%ff@db/app",
        f"postgresql://app:{SECRET}\udcff@db/app",
        f"postgresql://app:x@{SECRET}..example.org/app",
        f"postgresql://app:x@db,{SECRET}{'x' * 63}/app",
        f"postgresql://app:x@/app?host=db,{SECRET}..org",
        f"postgresql://app:{SECRET}@db/app?connect_timeout=x",
        f"postgresql://app:{SECRET}@db/app?connect_timeout=--1",
        f"postgresql://app:{SECRET}@db/app?connect_timeout={'9' * 5000}",
        f"postgresql://app:{SECRET}%zz@db/app",
        f"postgresql://app:{SECRET}%@db/app",
        f"postgresql://app:{SECRET}%00@db/app",
        f"postgresql://app:x@db:{SECRET}/app",
        f"postgresql://app:x@db:123456{SECRET}/app",
        f"postgresql://app: {SECRET}@db/app",
        f"postgresql://app:{SECRET}\n@db/app",
        f"mysql://app:{SECRET}@a,b/app",
        f"mysql://app:{SECRET}@db",
        f"mysql://app:x@db/app?{SECRET}=1",
        f"mysql://app:{SECRET}@db/app?connect_timeout=soon",
        f"mysql://app:x@db:99999{SECRET}/app",
        "mysql://app:x@db:70000/app",
        "sqlite://",
        "sqlite:///",
        f"sqlite:///a?{SECRET}",
        "",
    ],
)
@pytest.mark.parametrize("scheme", ["as it is", "mysql"])
def test_a_malformed_dsn_is_refused_without_a_word_of_it(text: str, scheme: str) -> None:
    """What is wrong and what to write, never a piece of what was written: any may be the password."""
    if scheme == "mysql":
        text = text.replace("postgresql://", "mysql://").replace("%ff", "%zz").replace("\udcff", "\x7f")
    with pytest.raises(UsageError, match=r"^the ledger's DSN is malformed: .+; .+") as refused:
        parse(text, "/srv/app")
    assert SECRET not in str(refused.value)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty; write one, or set the variable that it names"),
        ("mysql://a@b/c?connect_timeout=00", "connect_timeout is not a number of seconds; write connect_timeout=10"),
        (
            "mysql://a@b/c?connect_timeout=\u00b2",
            "connect_timeout is not a number of seconds; write connect_timeout=10",
        ),
        ("mysql://a@b..c/d", "its host is no host's name; write one without an empty or too long part"),
        (
            "postgresql://a:b%ff@c",
            "it holds bytes that are not UTF-8; write them in UTF-8, percent-encoded (\xe9 is %C3%A9)",
        ),
    ],
)
def test_a_refusal_says_what_to_write(text: str, sentence: str) -> None:
    """To the letter."""
    with pytest.raises(UsageError) as refused:
        parse(text, "/srv/app")
    assert str(refused.value) == f"the ledger's DSN is malformed: {sentence}"


@pytest.mark.parametrize("text", [row[0] for row in READ if row[1] == "postgres"])
def test_libpq_reads_the_same(text: str) -> None:
    """User, password and database of PostgreSQL's own reading."""
    dsn, own = parse(text, "/"), conninfo_to_dict(text)
    assert (dsn.user, dsn.password, dsn.database) == (own.get("user"), own.get("password"), own.get("dbname", ""))
