"""Databases that go away, give way or are crowded: quick forms of what tests/torture does at length."""

from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
from torture import stalled
from torture.away import goes_away
from torture.failing_over import fails_over
from torture.overload import busy_file, few_connections, many_ticks_and_jobs
from torture.pruning import pruned
from torture.scene import OWN, SERVERS, Scene, scene_of, tally_of
from torture.standby import Pair
from torture.unusual import pooled, unusual

on_all = pytest.mark.parametrize("kind", SERVERS)
on_own = pytest.mark.parametrize("kind", OWN)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Iterator[Scene]:
    """On one kind of database; nothing ran twice there, nothing was lost track of."""
    server = None if kind == "sqlite" else request.getfixturevalue(kind)
    with scene_of(server, tmp_path, tally_of(kind)) as scene:
        yield scene
    scene.tally.holds()


@pytest.fixture
def pgbouncer() -> str:
    """The path of this program."""
    found = machine.find("pgbouncer")
    assert found is not None  # else no test has begun
    return found


@on_all
def test_a_database_that_goes_away_for_a_second(scene: Scene) -> None:
    """What ran is settled when it is back, once; what was due meanwhile runs in its minute."""
    goes_away(scene, 1, 6)


@on_own
def test_a_server_that_turns_read_only(scene: Scene) -> None:
    """A tick says so and names what was due; a run that ended meanwhile is settled afterwards."""
    stalled.read_only(scene)


@on_own
def test_a_server_that_breaks_off_what_idles(scene: Scene) -> None:
    """A run that outlives its connection is settled in a new one."""
    stalled.impatient(scene)


@on_all
def test_a_slot_that_another_session_has_inserted(scene: Scene) -> None:
    """Those who wait for it run nothing when it is committed; when it is rolled back, one of them does."""
    stalled.uncommitted(scene, 1)


@on_own
def test_few_connections(scene: Scene) -> None:
    """Eight ticks share two connections."""
    few_connections(scene, 2, 8, 1)


@on_all
def test_many_ticks_at_once(scene: Scene) -> None:
    """Ten ticks at once, 20 jobs due: each runs once."""
    many_ticks_and_jobs(scene, 10, 20)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_busy_file(scene: Scene) -> None:
    """A lock on the file is waited for, by all of five ticks."""
    busy_file(scene, 5, 1, 1)


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_prune_while_ticks_go_on(scene: Scene) -> None:
    """Neither sees the other; the running, the young and the newest stay."""
    pruned(scene, 5, 1000, 1, idle=1)


@on_own
def test_unusual_settings(scene: Scene) -> None:
    """Nothing depends on what the server's settings make of a session."""
    unusual(scene, 1)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_transaction_pooler(scene: Scene, pgbouncer: str) -> None:
    """pgbouncer with two connections for four nodes, killed in the middle of a run."""
    pooled(scene, pgbouncer, 4, 2)


def test_a_fail_over(tmp_path: Path) -> None:
    """A synchronous standby takes its primary's place amid ticks that name both: no slot runs twice."""
    pair = Pair(synchronous=True)
    try:
        with Scene(tmp_path, pair.database, None, tally_of()) as scene:
            fails_over(scene, pair, 1, 3, 4)
            scene.tally.holds()
    finally:
        pair.close()
