"""Orphans: a quick selection of `make torture`."""

from pathlib import Path

import pytest
from conftest import Database
from torture.conftest import Tally
from torture.orphans import KINDS, orphaned
from torture.stages import Stages

QUICK = [*[*KINDS][1:3], "seen from another namespace, boot, without /proc", "pids given again", "its tick stopped"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", QUICK)
def test_orphan(database: Database, cron_environment: dict[str, str], tmp_path: Path, name: str) -> None:
    """A run whose tick was killed is adopted by one, or reaped by who may conclude that it is dead, and by no other."""
    tally = Tally(name, database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        orphaned(stages, name, tally, 2)
    tally.holds()
