"""Retries: what failed is tried again by the tick that runs it, within its window, and never twice at once."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run
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
