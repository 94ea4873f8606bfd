"""Signals to the tick: a quick selection of `make torture`."""

from pathlib import Path

import pytest
from conftest import Database
from torture.conftest import Tally
from torture.signals import signal_at_every_chunk, signal_while_adopting, signal_while_running
from torture.stages import SERVERS, Stages


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_while_running(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """TERM, INT and HUP end a command that ignores them or forks twice, and leave alone what has left its group."""
    tally = Tally("signal while running", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        signal_while_running(stages, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_at_some_chunks(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """TERM, INT or HUP while the tick connects, looks, claims and runs: it ends, and its command with it."""
    tally = Tally("signal at a chunk", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        signal_at_every_chunk(stages, tally, mute=False, every=3)
    tally.holds()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_while_adopting(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """A tick that is signalled just before it adopts a run does not wait for the end of that."""
    tally = Tally("signal while adopting", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        signal_while_adopting(stages, tally, last=5)
    tally.holds()
