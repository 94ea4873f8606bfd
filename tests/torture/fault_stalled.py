"""The database is there, and silent, crowded, read-only, impatient, or locked by others."""

from collections.abc import Callable

import pytest

from torture import stalled
from torture.conftest import Tally
from torture.everywhere import Everywhere
from torture.scene import OWN, SERVERS

everywhere_on = pytest.mark.parametrize("kind", SERVERS)
on_own = pytest.mark.parametrize("kind", OWN)


@pytest.fixture(scope="module")
def everywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Everywhere:
    """On all servers at once."""
    return Everywhere(request, tmp_path_factory.mktemp("everywhere"))


@everywhere_on
def test_a_frozen_server(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """Accepts and says nothing while a job ends: its run is settled later, a tick meanwhile names what was due."""
    everywhere(tally, kind, stalled.frozen)
    tally.holds()


@on_own
def test_no_connections_left(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """Out of connections while a job ends: its run is settled later, a tick meanwhile names what was due."""
    everywhere(tally, kind, stalled.crowded)
    tally.holds()


@on_own
def test_turned_read_only(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """Turned read-only while a job runs: its run is settled later, a tick meanwhile says so and names what was due."""
    everywhere(tally, kind, stalled.read_only)
    tally.holds()


@on_own
def test_time_outs_of_two_seconds(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """Idle, statement and lock time-outs of 2 s on the server: a longer run is settled all the same."""
    everywhere(tally, kind, stalled.impatient)
    tally.holds()


@everywhere_on
def test_uncommitted_slots(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """Slots inserted by another session, then committed or rolled back, which deadlocks who waits: one run or none."""
    everywhere(tally, kind, stalled.uncommitted, 8)
    tally.holds()


@everywhere_on
def test_slots_held_for_long(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """A slot held by another session beyond lock time-outs, then beyond a tick's patience: it runs, or is named."""
    everywhere(tally, kind, stalled.held_for_long)
    tally.holds()


@everywhere_on
def test_a_locked_table(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """The table locked beyond lock time-outs while a run ends and a tick starts: both get through."""
    everywhere(tally, kind, stalled.table_locked)
    tally.holds()


@everywhere_on
def test_a_locked_row(everywhere: Callable[..., None], tally: Tally, kind: str) -> None:
    """The row of a run locked beyond lock time-outs while it ends: it is settled."""
    everywhere(tally, kind, stalled.row_locked)
    tally.holds()
