"""The connection of a tick, broken at every chunk in turn, or slow."""

from pathlib import Path

import pytest
from conftest import Database

from torture.conftest import Tally
from torture.cuts import SCENARIOS, answers_come_late, answers_come_too_late, cut_everywhere, mute_everywhere
from torture.stages import SERVERS, Stages


@pytest.mark.parametrize("database", SERVERS, indirect=True)
@pytest.mark.parametrize("name", SCENARIOS)
def test_cut(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally, name: str) -> None:
    """The line cut at every chunk of a tick, delivered or not: it does once what it is to do."""
    tally.fault, tally.database = f"line cut at every chunk while a tick {name.replace('_', ' ')}", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        cut_everywhere(stages, name, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_mute(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """The line gone silent at a chunk of a tick that runs, reaps or adopts: the tick gives it up and makes it anew."""
    tally.fault, tally.database = "line mute from a chunk on while a tick runs, reaps, adopts", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        mute_everywhere(stages, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_late(database: Database, cron_environment: dict[str, str], tmp_path: Path, tally: Tally) -> None:
    """Each answer late by 0.1 s, 0.5 s, or more than a tick waits: it works, or gives up and names what was due."""
    tally.fault, tally.database = "answers late while a tick runs, reaps, adopts, stands down, settles", database.kind
    with Stages(database, tmp_path, cron_environment) as stages:
        answers_come_late(stages, tally, (0.1, 0.5))
        answers_come_too_late(stages, tally)
    tally.holds()
