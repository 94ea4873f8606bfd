"""A server dies for good, and another one takes its place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from torture.cluster import Cluster
from torture.conftest import Tally
from torture.failing_over import cut_off, fails_over, frozen_standby, loses_a_node
from torture.scene import Scene, scene_of
from torture.standby import Pair


@pytest.fixture
def pair(synchronous: bool) -> Iterator[Pair]:
    """A primary and its standby."""
    pair = Pair(synchronous=synchronous)
    yield pair
    pair.close()


@pytest.fixture
def scene(pair: Pair, tmp_path: Path, tally: Tally) -> Iterator[Scene]:
    """On both of them."""
    with Scene(tmp_path, pair.database, None, tally) as scene:
        yield scene


@pytest.mark.parametrize("synchronous", [True], ids=["postgres"])
def test_a_synchronous_fail_over(scene: Scene, pair: Pair, tally: Tally) -> None:
    """Fail-over to a synchronous standby, amid ticks with a multi-host DSN: no slot runs twice."""
    fails_over(scene, pair, 4, 6, 15)
    tally.holds()
    assert tally.seen <= len({(job, due_at) for job, due_at, _ in scene.wrote()})


@pytest.mark.parametrize("synchronous", [False], ids=["postgres"])
def test_an_asynchronous_fail_over(scene: Scene, pair: Pair, tally: Tally) -> None:
    """Fail-over to an asynchronous standby: a slot runs twice only if its acknowledged row was forgotten."""
    fails_over(scene, pair, 2, 6, 15)
    tally.holds()


@pytest.mark.parametrize("synchronous", [False], ids=["postgres"])
def test_a_standby_that_was_cut_off(scene: Scene, pair: Pair, tally: Tally) -> None:
    """Fail-over to a standby that lagged: exactly what it had not received is forgotten, and its runs say so."""
    cut_off(scene, pair, 5)
    tally.holds()


@pytest.mark.parametrize("synchronous", [True], ids=["postgres"])
def test_a_frozen_standby(scene: Scene, pair: Pair, tally: Tally) -> None:
    """A synchronous standby falls silent, so that commits wait: what could not be claimed is named, and never runs."""
    frozen_standby(scene, pair)
    tally.holds()


@pytest.mark.parametrize("kind", ["galera"])
def test_a_cluster_loses_a_node(tmp_path: Path, tally: Tally, kind: str) -> None:
    """Galera, two nodes ticked at once, one killed midway: each of 60 slots runs once."""
    cluster = Cluster()
    try:
        with scene_of(cluster.first, tmp_path, tally) as scene:
            loses_a_node(scene, cluster, 6, 20)
    finally:
        cluster.close()
    tally.holds()
