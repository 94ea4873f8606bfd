"""A database that is there and does not do what it is asked: silent, crowded, read-only, impatient, or locked."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from machine import wait_for
from servers import OwnServer

from torture.scene import Scene, at_once
from torture.sessions import blocked, connect, connections, insert, session

LOCKED = 6.0
"""Seconds: longer than one wait for a lock (3 s for a row's, 5 s for a table's), shorter than a tick's patience."""


def frozen(scene: Scene) -> None:
    """Accepts and says nothing, from the middle of a run on: another tick names what was due, the run is settled."""
    with going_on(scene) as runs:
        scene.gate.hold()
        scene.touch("go")
        other = scene.tick("web2", 4).wait()
        scene.gate.release()
        assert (other.status, other.named) == (1, other.due), other
        scene.count(other, runs.wait())


def crowded(scene: Scene) -> None:
    """All connections are taken, by others: the same."""
    with going_on(scene) as runs:
        wait_for(lambda: connections(scene) == 0, 30, "the tick lets its connection go")
        with filled(scene):
            scene.touch("go")
            other = scene.tick("web2", 4).wait()
        assert (other.status, other.named) == (1, other.due), other
        scene.count(other, runs.wait())


def read_only(scene: Scene) -> None:
    """Turned read-only: the same, at once."""
    server = own(scene)
    postgres = server.kind == "postgres"
    with going_on(scene) as runs:
        with setting(server, "default_transaction_read_only" if postgres else "read_only", "on" if postgres else "1"):
            scene.touch("go")
            other = scene.tick("web2", 4).wait()
        assert (other.status, other.named) == (1, other.due), other
        assert "is read-only" in other.err
        scene.count(other, runs.wait())


def impatient(scene: Scene) -> None:
    """The server breaks off what idles or works for 2 s: a long run is settled all the same."""
    server = own(scene)
    names = ("idle_session_timeout", "idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout")
    if server.kind != "postgres":
        names = ("wait_timeout", "interactive_timeout", "max_statement_time", "innodb_lock_wait_timeout")
    with ExitStack() as settings:
        for name in names:
            settings.enter_context(setting(server, name, "2s" if server.kind == "postgres" else "2"))
        with going_on(scene) as runs:
            wait_for(lambda: connections(scene) == 0, 30, "the connection is broken off")
            scene.touch("go")
            scene.count(scene.tick("web2", 4, "quick.toml").wait(), runs.wait())


def uncommitted(scene: Scene, times: int) -> None:
    """Another session has inserted a slot, and commits or rolls back while three ticks wait for it."""
    scene.write("schedule.toml", scene.job("a"), scene.job("b"))
    ended = []
    for back in range(2 * times, 0, -1):
        with session(scene) as holder:
            insert(scene, holder, "a", back)
            ticking = [scene.tick(f"web{node}", back) for node in range(3)]
            wait_for(lambda: len(blocked(scene)) == 3, 60, "three wait")
            holder.commit() if back % 2 else holder.rollback()
        ended += [tick.wait() for tick in ticking]
    assert {(tick.status, tick.err) for tick in ended} == {(0, "")}, ended
    assert len(scene.wrote()) == 3 * times
    scene.count(*ended, inflicted=2 * times)


def held_for_long(scene: Scene) -> None:
    """Another session holds a slot for longer than one wait for a lock, then for longer than a tick waits at all."""
    with session(scene) as holder:
        insert(scene, holder, "ok", 2)
        patient = scene.tick("web1", 2)
        wait_for(lambda: blocked(scene), 60, "it waits")
        first = blocked(scene)
        wait_for(lambda: blocked(scene) and not blocked(scene) & first, 60, "it waits anew")
    ended = [patient.wait()]
    assert (ended[0].status, ended[0].err, len(scene.wrote())) == (0, "", 1)
    with session(scene) as holder:
        insert(scene, holder, "ok", 1)
        ended += at_once([lambda node=node: scene.tick(f"web{node}", 1) for node in range(3)])
        assert {(tick.status, tick.named) for tick in ended[1:]} == {(1, scene.slots(1))}, ended
    scene.count(*ended, scene.tick("web4", 1).wait(), inflicted=2)
    assert len(scene.wrote()) == 2


def table_locked(scene: Scene) -> None:
    """Another session locks the whole table while a run ends and a tick starts: both wait for it."""
    postgres = scene.database.kind == "postgres"
    lock = "LOCK TABLE cronledger_runs" if postgres else "LOCK TABLES cronledger_runs WRITE"
    with going_on(scene) as runs:
        with session(scene) as holder:
            holder.cursor().execute(lock)
            scene.touch("go")
            other = scene.tick("web2", 4)
            time.sleep(LOCKED)
        scene.count(other.wait(), runs.wait())


def row_locked(scene: Scene) -> None:
    """Another session holds the row of a run that ends, for longer than one wait for a lock."""
    with going_on(scene) as runs:
        with session(scene) as holder:
            holder.cursor().execute("SELECT * FROM cronledger_runs FOR UPDATE")
            scene.touch("go")
            wait_for(lambda: blocked(scene), 60, "it waits")
            first = blocked(scene)
            wait_for(lambda: blocked(scene) and not blocked(scene) & first, 60, "it waits anew")
        scene.count(runs.wait())


@contextmanager
def going_on(scene: Scene) -> Iterator[Any]:
    """A tick of a minute ago whose job runs until `go`; each minute has a job `quick` of its own."""
    scene.write("schedule.toml", scene.job("slow", scene.until("go")))
    runs = scene.tick("web1", 5)
    scene.wait_for_pids(1)
    scene.write("schedule.toml", scene.job("quick"))
    scene.write("quick.toml", scene.job("quick"))
    yield runs


@contextmanager
def filled(scene: Scene) -> Iterator[None]:
    """Every connection that the server has is taken."""
    server = own(scene)
    with ExitStack() as taken:
        if server.kind != "postgres":
            taken.enter_context(setting(server, "max_connections", "10"))
        while (another := tried(scene)) is not None:
            taken.callback(another.close)
        yield


def tried(scene: Scene) -> Any:
    """One more connection; None when there is none to have."""
    try:
        return connect(scene)
    except Exception as error:
        if "too many" in str(error).lower() or "remaining connection slots" in str(error):
            return None
        raise


@contextmanager
def setting(server: OwnServer, name: str, value: str) -> Iterator[None]:
    """A setting of the whole server, of sessions that are there too where it can be."""
    if server.kind == "postgres":
        change, undo, reload = f"ALTER SYSTEM SET {name} = '{value}'", f"ALTER SYSTEM RESET {name}", "pg_reload_conf()"
    else:
        [(before,)] = server.sql(f"SELECT @@GLOBAL.{name}")
        text = f"'{before}'" if isinstance(before, str) else before
        change, undo, reload = f"SET GLOBAL {name} = {value}", f"SET GLOBAL {name} = {text}", "1"
    try:
        for statement in (change, f"SELECT {reload}"):
            server.sql(statement)
        yield
    finally:
        for statement in (undo, f"SELECT {reload}"):
            server.sql(statement)


def own(scene: Scene) -> OwnServer:
    """The server, whose settings are ours."""
    assert isinstance(scene.database.server, OwnServer)
    return scene.database.server
