"""Clocks, zones and limits, a few of each kind: the slow ones are tests/torture/fault_machine.py."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import Database
from deployed import Deployed, Run
from torture import machines
from torture.conftest import Tally


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule whose ledger is installed, on a server whose zone is none of these."""
    return Deployed(tmp_path, database, run).installed()


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()


@pytest.fixture
def counted() -> Tally:
    """A tally that no table shows."""
    return Tally("", "")


def test_a_clock_that_is_off(embedded: Deployed, counted: Tally) -> None:
    """By 31 s nothing is claimed, and that is said; by 5 s all works."""
    machines.skewed(embedded, counted)
    counted.holds()


@pytest.mark.parametrize("zone", ["BBB-14", "CET-1CEST,J1/0,J365/25"])
def test_a_node_in_another_zone(deployed: Deployed, counted: Tally, zone: str) -> None:
    """Also within a change of its clock: the times in the ledger are the database's."""
    machines.zones(deployed, counted, zone)
    counted.holds()


@pytest.mark.parametrize(("by", "how"), [(-3600.0, "wall"), (4000.0, "suspended")])
def test_a_clock_that_jumps(embedded: Deployed, counted: Tally, tmp_path: Path, by: float, how: str) -> None:
    """The wall clock's jump changes nothing; a suspension past the window ends the run."""
    machines.jumping(embedded, counted, by, how, tmp_path)
    counted.holds()


def test_few_descriptors(embedded: Deployed, counted: Tally) -> None:
    """20 jobs due at once with 32 descriptors: all run."""
    machines.few_descriptors(embedded, counted, jobs=20)
    counted.holds()


def test_half_deployed(embedded: Deployed, counted: Tally) -> None:
    """What cannot start here is named and left to another node, in the same minute."""
    machines.half_deployed(embedded, counted)
    counted.holds()


def test_a_deleted_folder(embedded: Deployed, counted: Tally) -> None:
    """A tick that was started in it works."""
    machines.no_folder(embedded, counted)
    counted.holds()


def test_ticks_that_nobody_reads(embedded: Deployed, counted: Tally) -> None:
    """They all end, and their runs are recorded."""
    machines.unread(embedded, counted)
    counted.holds()


def test_full_disk(embedded: Deployed, counted: Tally) -> None:
    """SQLite on a disk that is full: nothing runs unrecorded, and that is said."""
    machines.full_disk(embedded, counted)
    counted.holds()


def test_a_start_in_the_future(embedded: Deployed, counted: Tally) -> None:
    """A run that started after now, for the database's clock was set back: barred by it, never reaped for it."""
    machines.from_the_future(embedded, counted)
    counted.holds()


def test_few_processes(embedded: Deployed, counted: Tally) -> None:
    """Many jobs due at once for a user who may have few processes: all run."""
    with TemporaryDirectory() as folder:
        machines.few_processes(embedded, counted, Path(folder))
    counted.holds()
