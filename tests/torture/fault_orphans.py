"""Orphans: the tick died, and its command or something of it lives on."""

from pathlib import Path

import pytest
from conftest import Database

from torture.conftest import Tally
from torture.orphans import HIDING, KINDS, hidden, orphaned
from torture.stages import SERVERS, Stages


@pytest.mark.parametrize("database", SERVERS, indirect=True)
@pytest.mark.parametrize("name", KINDS)
def test_orphan(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally, name: str) -> None:
    """A run whose tick was killed is adopted by one, or reaped by who may conclude that it is dead, and by no other."""
    tally.fault, tally.database = f"orphan: {name}", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        orphaned(stages, name, tally, 4)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_hidden(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """Where /proc hides the processes of others (hidepid), a plain user's tick concludes nothing."""
    tally.fault, tally.database = "orphan: hidden from a plain user", database.kind
    with Stages(database, tmp_path, cron_environment, *HIDING) as stages:
        hidden(stages, tally, 2)
    tally.holds()
