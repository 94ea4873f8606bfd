"""Install and upgrade, many at once, killed on the way, and put to mend."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Database

from torture import schemas
from torture.conftest import Tally


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[schemas.Site]:
    """A schedule whose nodes install and tick."""
    site = schemas.Site(tmp_path / "site", database.kind)
    yield site
    site.close()


def test_many_at_once(database: Database, site: schemas.Site, tally: Tally, tmp_path: Path) -> None:
    """Ten installs at once, on empty ledgers and on released ones.

    All succeed, each thing is made once, and the ledger is whole.
    """
    for number in range(8):
        ledger = schemas.fresh(database, tmp_path / "ledgers")
        if number % 2:
            schemas.make(ledger, number // 2 % schemas.NEWEST + 1)
        schemas.many_at_once(site, ledger, tally)
    tally.holds()


def test_killed_midway(database: Database, site: schemas.Site, tally: Tally, tmp_path: Path) -> None:
    """Installs killed at any moment, then one that is not.

    The ledger is whole afterwards, and a tick runs.
    """
    chance = random.Random(1)
    for _ in range(20):
        schemas.interrupted(site, schemas.fresh(database, tmp_path / "ledgers"), tally, chance)
    tally.holds()


def test_any_part_lost(database: Database, site: schemas.Site, tally: Tally) -> None:
    """A table, a column, an index, a mutex or a version gone from a ledger.

    No tick runs without a mutex, and install puts each back.
    """
    schemas.make(database)
    for part in schemas.parts(database):
        schemas.without(site, database, part, tally)
        database.sql("DELETE FROM cronledger_runs")
    tally.holds()


def test_among_ticks(database: Database, site: schemas.Site, tally: Tally) -> None:
    """Installs that put an index back while three nodes tick each minute.

    Each slot runs once, and no tick is in trouble.
    """
    schemas.make(database)
    for first in range(0, 50, 10):
        schemas.take_away(database, ("index", "cronledger_runs", "cronledger_runs_last"))
        schemas.among_ticks(site, database, iter(range(first, first + 10)), tally)
        database.sql("DELETE FROM cronledger_runs")
    tally.holds()
