"""Leases: runs of any length, whose death is noticed within minutes."""

import os
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run
from test_ledger import Opener, installed, node
from torture import machines
from torture.conftest import Tally
from torture.leases import BEHIND_A_PROXY, KINDS, UNHELD, leased
from torture.stages import SERVERS, Stages

from cronledger.clock import elapsed
from cronledger.flight import Flight
from cronledger.ledger import Claimed
from cronledger.schedule import load

__all__ = ["installed", "node"]


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


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_it_holds_while_a_tick_asks_for_other_things(node: Opener, tmp_path: Path) -> None:
    """Between its reaps and claims, however long these take, it renews what is due."""
    job = 'name = "long"\ncron = "* * * * *"\nlease = "1m"\ncommand = ["sleep", "300"]'
    (tmp_path / "schedule.toml").write_text(f"[[job]]\n{job}\n")
    schedule, ledger = load(tmp_path / "schedule.toml"), node()
    run = ledger.draft("long", due_at=ledger.clock.now(), stale_after=None, lease=timedelta(seconds=3))
    assert ledger.claim(run) == Claimed()
    with Flight(ledger, schedule, expected=1) as flight:
        flight.start(run, schedule.jobs[0], os.environ)
        until = elapsed() + 4
        while elapsed() < until:
            assert list(flight.attend()) == []
            assert flight.runs == 1
        flight.stop(signal.SIGKILL)
        while flight.is_busy:
            assert [event.is_failure for event in flight.events()] in ([], [True])
