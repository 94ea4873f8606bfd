"""kill -9 at some moments: a quick selection of `make torture`."""

from pathlib import Path

import pytest
from conftest import Database
from torture.conftest import Tally
from torture.kills import kill_at_random
from torture.stages import Stages


@pytest.mark.parametrize(("by", "times"), [(None, 10), ("mixed", 5)])
def test_random(
    database: Database, cron_environment: dict[str, str], tmp_path: Path, by: str | None, times: int
) -> None:
    """Tick, command or both killed at random moments: no slot twice, no row left running, the next ticks say so."""
    tally = Tally("kill -9 at a random moment", database.kind)
    with Stages(database, tmp_path, cron_environment, by=by) as stages:
        kill_at_random(stages, tally, times, seed=1)
    tally.holds()
