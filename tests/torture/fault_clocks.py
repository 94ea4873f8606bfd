"""The turn of a minute, and clocks that are set or change their zone during a run."""

from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run

from torture import clocks
from torture.conftest import Tally
from torture.scene import OWN
from torture.stages import Stages


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule whose ledger is installed."""
    return Deployed(tmp_path, database, run).installed()


def test_minutes_turn(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """Ticks at :59.9 and at :00, of two nodes each: each slot runs once or stands down, never two at a time."""
    with Stages(database, tmp_path, cron_environment) as stages:
        clocks.minutes_turn(stages, tally, 30, seed=8)
    tally.holds()


@pytest.mark.parametrize("database", OWN, indirect=True)
def test_database_jumps(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """The database's clock is set by 29 s and by 2 h, either way, during a run: its window stays, nobody reaps it."""
    with Stages(database, tmp_path, cron_environment) as stages:
        clocks.database_jumps(stages, tally)
    tally.holds()


def test_zones_change(deployed: Deployed, tally: Tally) -> None:
    """Node, database and schedule change to summer time and back between start and reap: on time, and told in both."""
    for offsets in (clocks.SPRING, clocks.AUTUMN):
        clocks.zones_change(deployed, tally, offsets)
        clocks.change_amid_run(deployed, tally, offsets)
    tally.holds()
