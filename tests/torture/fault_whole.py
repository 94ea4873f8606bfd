"""Whole ticks, with all that can happen to them."""

import os
import random
from pathlib import Path

from conftest import Database

from torture.conftest import Tally
from torture.stages import Stages
from torture.whole import histories

SEED = int(os.environ.get("CRONLEDGER_TEST_SEED") or random.randrange(10**9))
"""A failure names the one of its history, and CRONLEDGER_TEST_SEED begins with it."""


def test_histories(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """Histories of schedules, minutes, clocks and kills by chance, on three machines: all promises hold in each."""
    with Stages(database, tmp_path, cron_environment) as stages:
        histories(stages, tally, range(SEED, SEED + 20), steps=30)
    tally.holds()
