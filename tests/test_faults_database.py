"""Databases that go away, hang, give way or are crowded: quick forms of what tests/torture does at length."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torture.away import goes_away
from torture.scene import SERVERS, Scene, scene_of, tally_of


@pytest.fixture(params=SERVERS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """On each server in turn, which may go away."""
    with scene_of(request.getfixturevalue(request.param), tmp_path, tally_of(request.param)) as scene:
        yield scene
        scene.tally.holds()


def test_a_database_that_goes_away_for_a_second(scene: Scene) -> None:
    """What ran is settled when it is back, once; what was due meanwhile runs in its minute."""
    goes_away(scene, 1, 6)
