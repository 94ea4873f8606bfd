"""Clocks and zones, and what a machine runs out of."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import Database
from deployed import Deployed, Run

from torture import machines
from torture.conftest import Tally

ZONES = ["AAA0", "BBB-14", "CCC+12", "Europe/Paris", "CET-1CEST,J1/0,J365/25", "EST5EDT,J365/23,J365/24"]
"""Of nodes; the last two are of nodes that have just changed their clock, or are about to."""


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule whose ledger is installed, on a server whose zone is none of these."""
    return Deployed(tmp_path, database, run).installed()


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()


def test_skew(deployed: Deployed, tally: Tally) -> None:
    """A node clock off by 31 s, either way, and by 5 s.

    The first claims nothing and says so, the other works.
    """
    machines.skewed(deployed, tally)
    tally.holds()


def test_zones(deployed: Deployed, tally: Tally) -> None:
    """Nodes in other zones than the database, some within a change of their clock.

    Each time in the ledger is the database's, and each window is as long as it says.
    """
    for zone in ZONES:
        machines.zones(deployed, tally, zone)
    tally.holds()


def test_jumps(deployed: Deployed, tally: Tally, tmp_path: Path) -> None:
    """The wall clock jumps while a command runs, or the node is suspended past its window.

    A jump changes nothing; after the suspension the run is ended at once.
    """
    for by, how in ((3600.0, "wall"), (-3600.0, "wall"), (86_400.0, "wall"), (4000.0, "suspended")):
        machines.jumping(deployed, tally, by, how, tmp_path)
    tally.holds()


def test_few_descriptors(deployed: Deployed, tally: Tally) -> None:
    """60 jobs due at once on a node with 32 descriptors: all run."""
    machines.few_descriptors(deployed, tally)
    tally.holds()


def test_half_deployed(deployed: Deployed, tally: Tally) -> None:
    """A node without the programs of a job: named, and left to another node."""
    machines.half_deployed(deployed, tally)
    tally.holds()


def test_no_folder(deployed: Deployed, tally: Tally) -> None:
    """A tick whose folder was deleted: it works."""
    machines.no_folder(deployed, tally)
    tally.holds()


def test_unread(deployed: Deployed, tally: Tally) -> None:
    """Ticks whose stdout is a full pipe that nobody reads: all end, all is recorded."""
    machines.unread(deployed, tally, ticks=10)
    tally.holds()


def test_full_disk(embedded: Deployed, tally: Tally) -> None:
    """SQLite on a disk that is full: nothing runs unrecorded, and that is said."""
    machines.full_disk(embedded, tally)
    tally.holds()


def test_a_start_in_the_future(deployed: Deployed, tally: Tally) -> None:
    """A run that started after now, for the database's clock was set back: barred by it, never reaped for it."""
    machines.from_the_future(deployed, tally)
    tally.holds()


def test_few_processes(embedded: Deployed, tally: Tally) -> None:
    """Many jobs due at once for a user who may have few processes: all run."""
    with TemporaryDirectory() as folder:
        machines.few_processes(embedded, tally, Path(folder))
    tally.holds()
