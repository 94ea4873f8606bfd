"""Retries: what failed is tried again by the tick that runs it, within its window, and never twice at once."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run
from torture import machines
from torture.attempts import BEHIND_A_PROXY, KINDS
from torture.conftest import Tally
from torture.leases import leased
from torture.stages import SERVERS, Stages


def test_what_failed_is_tried_again(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """One line at the end, attempts in the row; none after a signal, the window or the end of the tick."""
    tally = Tally("retries", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        leased(stages, tally, KINDS)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_ledger_that_is_away(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """No attempt begins that the ledger does not know of."""
    tally = Tally("retries without their ledger", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        leased(stages, tally, BEHIND_A_PROXY)
    tally.holds()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_work_does_not_wait_for_an_attempt_when_it_ends(
    database: Database, run: Run, spawn: Callable[..., object], wait_for: Callable[..., None], tmp_path: Path
) -> None:
    """The signal that drains it ends the wait at once."""
    deployed = Deployed(tmp_path, database, run).installed()
    job = 'name = "job"\nevery = "1s"\ncommand = "touch begun; exit 3"\nretries = 3\nretry_delay = "5m"\n'
    (tmp_path / "schedule.toml").write_text(f'timezone = "UTC"\nnamespace = "app"\n[[job]]\n{job}')
    work = spawn("work", "--grace", "0", env=deployed.env)
    wait_for(lambda: (tmp_path / "begun").exists(), what="it has begun")
    work.send_signal(signal.SIGTERM)
    out, err = work.communicate(timeout=60)
    assert err == ""
    assert re.fullmatch(r"\S+ failed job in \S+: (ended by SIGTERM to the tick after )?exit 3\n", out), out


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_attempt_waits_for_a_place(
    database: Database, run: Run, wait_for: Callable[..., None], tmp_path: Path
) -> None:
    """When it is due, other runs have all descriptors of the tick: it is not used up by that."""
    deployed = Deployed(tmp_path, database, run).installed()
    flaky = 'name = "flaky"\ncommand = "touch begun; [ -e go ]"\nretries = 1\nretry_delay = "1s"'
    until_go = "while [ ! -e go ]; do sleep 0.05; done"
    deployed.write(flaky, *(f'name = "j{n}"\ncommand = "{until_go}"' for n in range(30)))
    code = f"import cronledger.command; cronledger.command.START_WITHIN = 0.5\n{machines.PLAIN}"
    tick = machines.start(deployed, code, before=machines.FEW_DESCRIPTORS)
    wait_for(lambda: (tmp_path / "begun").exists(), what="it has begun")
    time.sleep(3)
    (tmp_path / "go").touch()
    status, out, err = machines.ended(tick)
    assert (status, err, out.count(" ran ")) == (0, "", 31), (out, err)
    assert re.search(r" ran flaky in \S+ on attempt 2\n", out), out
