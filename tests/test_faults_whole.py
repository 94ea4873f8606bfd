"""Whole ticks on schedules, minutes, clocks and deaths by chance: a quick selection of `make torture`."""

from pathlib import Path

from conftest import Database
from torture.conftest import Tally
from torture.stages import Stages
from torture.whole import histories


def test_histories(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """No slot twice, no two alive of a job or a lock, every dead run reaped, each line once, nothing passed over."""
    tally = Tally("whole ticks", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        histories(stages, tally, range(4), steps=16)
    tally.holds()
