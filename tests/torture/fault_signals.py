"""Signals to the tick in each phase."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from conftest import Database

from torture import signals
from torture.conftest import Tally
from torture.stages import SERVERS, Stages

PHASES: dict[str, Callable[[Stages, Tally], None]] = {
    "at a random moment": partial(signals.signal_at_random, times=30, seed=11),
    "at every chunk": partial(signals.signal_at_every_chunk, mute=False),
    "after every chunk, in silence": partial(signals.signal_at_every_chunk, mute=True),
    "at every chunk while it adopts": signals.signal_while_adopting,
    "while its command runs, however that behaves": signals.signal_while_running,
    "while it waits for a lock": signals.signal_while_claiming,
    "while it settles, the database gone": signals.signal_while_settling,
}


@pytest.mark.parametrize("database", SERVERS, indirect=True)
@pytest.mark.parametrize("phase", PHASES)
def test_signal(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally, phase: str) -> None:
    """TERM, INT or HUP to the tick in each of its phases: its runs end and are settled, and it names what is not."""
    tally.fault, tally.database = f"TERM, INT, HUP to the tick {phase}", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        PHASES[phase](stages, tally)
    tally.holds()
