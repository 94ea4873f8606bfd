"""Other sessions of the same database, which hold what a tick wants."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import recorded

from torture.scene import Scene

_CLIENTS = "FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
_WAITING = (
    "SELECT t.trx_mysql_thread_id, t.trx_started FROM information_schema.INNODB_TRX t"
    " JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id"
    " WHERE t.trx_state = 'LOCK WAIT' AND p.DB = '{name}'"
)
_REFRESH = 0.2
"""Seconds: InnoDB makes its table of transactions anew only for who asks 0.1 s after the last who asked."""

_THREADS = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{name}'"


def connect(scene: Scene) -> Any:
    """A connection of its own, in which a transaction begins with the first statement."""
    database = scene.database
    if database.kind == "postgres":
        import psycopg

        return psycopg.connect(database.dsn)
    import pymysql

    server: Any = database.server
    return pymysql.connect(**server.arguments(database.dsn) | {"autocommit": False})


@contextmanager
def session(scene: Scene) -> Iterator[Any]:
    """A connection that is closed in the end, and rolled back by that."""
    connection = connect(scene)
    try:
        yield connection
    finally:
        connection.close()


def insert(scene: Scene, session: Any, job: str, back: int) -> None:
    """Take a slot in this session, by a run that is over already; not committed."""
    execute: Callable[[str], object] = session.cursor().execute
    due_at = datetime.fromisoformat(scene.minute(back))
    recorded.record(SimpleNamespace(kind=scene.database.kind, sql=execute), back, job, due_at=due_at, namespace="app")


def blocked(scene: Scene) -> frozenset[tuple[object, ...]]:
    """Who waits for a row lock in this database, and since when."""
    if scene.database.kind == "postgres":
        return frozenset(_asked(scene, f"SELECT pid, query_start {_CLIENTS} AND wait_event_type = 'Lock'"))
    time.sleep(_REFRESH)
    return frozenset(_asked(scene, _WAITING))


def connections(scene: Scene) -> int:
    """How many connections this database has."""
    return len(_asked(scene, f"SELECT pid {_CLIENTS}" if scene.database.kind == "postgres" else _THREADS))


def _asked(scene: Scene, statement: str) -> list[tuple[object, ...]]:
    assert scene.database.server is not None
    return scene.database.server.sql(statement.format(name=urlsplit(scene.database.dsn).path[1:]))
