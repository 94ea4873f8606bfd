"""kill -9 at any moment."""

from pathlib import Path

import pytest
from conftest import Database

from torture.conftest import Tally
from torture.kills import kill_at_every_chunk, kill_at_random
from torture.stages import SERVERS, Stages

SEED = 20260105


def test_random(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """Tick, command or both killed at 200 random moments: no two copies alive, no slot twice, no row left running."""
    tally.fault, tally.database = "kill -9 of tick, command or both at a random moment", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        kill_at_random(stages, tally, 200, SEED)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_each_chunk(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """The tick killed at every chunk between it and its database, delivered or not: found out by the next tick."""
    tally.fault, tally.database = "kill -9 of the tick at every chunk", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        kill_at_every_chunk(stages, tally)
    tally.holds()
