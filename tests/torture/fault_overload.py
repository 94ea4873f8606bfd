"""More than the ledger likes at once: ticks, jobs, rows; and servers set up as nobody would expect."""

from collections.abc import Iterator
from pathlib import Path

import machine
import pytest

from torture.conftest import Tally
from torture.overload import busy_file, few_connections, many_ticks_and_jobs
from torture.pruning import pruned, roomy
from torture.scene import OWN, SERVERS, Scene, scene_of
from torture.unusual import pooled, unusual


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, tally: Tally, kind: str) -> Iterator[Scene]:
    """On one kind of database; its tally is the test's."""
    server = None if kind == "sqlite" else request.getfixturevalue(kind)
    with scene_of(server, tmp_path, tally) as scene:
        yield scene


@pytest.fixture
def pgbouncer() -> str:
    """The path of this program."""
    found = machine.find("pgbouncer")
    assert found is not None  # else no test has begun
    return found


@pytest.mark.parametrize("kind", OWN)
def test_few_connections(scene: Scene, tally: Tally) -> None:
    """Ticks at once, 15 of them, on a server with 3 connections left: each slot runs once."""
    few_connections(scene, 3, 15, 5)
    tally.holds()


@pytest.mark.parametrize("kind", SERVERS)
def test_many_ticks_and_jobs(scene: Scene, tally: Tally) -> None:
    """Ticks at once, 50 of them, with 200 jobs due: each slot runs once."""
    many_ticks_and_jobs(scene, 50, 200)
    tally.holds()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_busy_file(scene: Scene, tally: Tally) -> None:
    """SQLite under 10 ticks at once, and a lock held for 3 s: each slot runs once."""
    busy_file(scene, 10, 5, 3)
    tally.holds()


@pytest.mark.parametrize("kind", SERVERS)
def test_prune(scene: Scene, tally: Tally) -> None:
    """Prune of 500,000 runs while ticks go on: no other run goes, no tick fails or is slowed by more than 1 s."""
    with roomy(scene):
        pruned(scene, 5, 100_000, 2, idle=20)
    tally.holds()
    assert tally.slowed is not None
    assert tally.slowed < 1, tally


@pytest.mark.parametrize("kind", OWN)
def test_unusual_settings(scene: Scene, tally: Tally) -> None:
    """Unusual settings of the server, all at once: nothing depends on them."""
    unusual(scene, 20)
    tally.holds()


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_transaction_pooler(scene: Scene, pgbouncer: str, tally: Tally) -> None:
    """Behind pgbouncer in transaction mode, which dies, and then its server: each slot runs once."""
    pooled(scene, pgbouncer, 12, 20)
    tally.holds()
