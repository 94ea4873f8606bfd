"""The connection of a tick, broken at some of its chunks: a quick selection of `make torture`."""

from pathlib import Path

import pytest
from conftest import Database
from torture.conftest import Tally
from torture.cuts import answers_come_late, cut_here_and_there, settles_unanswered
from torture.stages import SERVERS, Stages


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_cut(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """The line cut while a tick runs, reaps, adopts, stands down, settles, tells: once each, as if nothing happened."""
    tally = Tally("line cut", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        cut_here_and_there(stages, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_unanswered(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """The answer to the settling UPDATE is swallowed: the run is told as what the row has, not as ended too late."""
    tally = Tally("settling unanswered", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        settles_unanswered(stages, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_late(database: Database, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """Each answer 0.1 s late: it works as ever."""
    tally = Tally("answers late", database.kind)
    with Stages(database, tmp_path, cron_environment) as stages:
        answers_come_late(stages, tally, (0.1,))
    tally.holds()
