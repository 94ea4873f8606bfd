"""The database goes away and comes back: for seconds, for minutes, and again and again."""

from collections.abc import Callable

import pytest

from torture.away import goes_away
from torture.conftest import Tally
from torture.everywhere import Everywhere
from torture.scene import SERVERS


@pytest.fixture(scope="module")
def everywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Everywhere:
    """On all servers at once."""
    return Everywhere(request, tmp_path_factory.mktemp("everywhere"))


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("seconds", [3, 20, 90])
def test_the_database_goes_away(everywhere: Callable[..., None], tally: Tally, kind: str, seconds: int) -> None:
    """Gone for seconds, by a crash amid 50 running jobs: each is settled once, what was due ran or is named."""
    everywhere(tally, kind, goes_away, seconds, 50)
    tally.holds()
