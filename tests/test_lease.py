"""Leases: runs of any length, whose death is noticed within minutes."""

import re
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run
from torture import machines
from torture.conftest import Tally
from torture.leases import BEHIND_A_PROXY, KINDS, UNHELD, leased
from torture.stages import SERVERS, Stages


def test_a_lease_holds_and_ends(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """Renewed while its command runs, by an adopter too; reaped when it is over; its window is still its end."""
    tally = Tally("lease", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        leased(stages, tally, KINDS)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_ledger_that_is_away(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """What cannot renew ends its command before others may reap it, and what can again goes on."""
    tally = Tally("lease without its ledger", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        leased(stages, tally, BEHIND_A_PROXY)
    tally.holds()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_node_that_slept(database: Database, run: Run, tmp_path: Path) -> None:
    """A node that wakes when its lease is over ends the command at once."""
    deployed = Deployed(tmp_path, database, run).installed()
    deployed.write(f'name = "long"\nlease = "1m"\ncommand = "touch {tmp_path}/started; sleep 300"')
    tick = machines.start(deployed, machines.JUMPS, f"{tmp_path}/started", "100", "suspended")
    status, out, err = machines.ended(tick)
    assert (status, err) == (1, "")
    assert re.search(rf" failed long in \S+: {UNHELD}\n", out), out
