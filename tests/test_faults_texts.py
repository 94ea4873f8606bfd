"""Hostile text, a few of each kind: the slow ones are tests/torture/fault_texts.py."""

from pathlib import Path

import pytest
from conftest import KINDS, Database
from deployed import Deployed, Run
from torture import texts
from torture.conftest import Tally

SERVERS = [kind for kind in KINDS if kind != "sqlite"]


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule whose ledger is installed."""
    return Deployed(tmp_path, database, run).installed()


def test_hostile_output_is_settled_and_harmless(deployed: Deployed) -> None:
    """NUL, ESC, 4-byte characters, invalid UTF-8, SQL, 300 kB without a newline: rows and lines that drive nothing."""
    counted = Tally("", "")
    texts.hostile_output(deployed, counted)
    counted.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_an_awkward_password_works_and_shows_nowhere(deployed: Deployed) -> None:
    """In no line, no row and no error, right or wrong."""
    counted = Tally("", "")
    for password in ("p@ss/w:rd?#[]'\\%41", "pässwörd-😀"):
        texts.awkward(deployed, password, counted)
    counted.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_malformed_dsn_is_refused_without_its_secret(deployed: Deployed) -> None:
    """In one line, whatever is wrong with it."""
    texts.refused_without_a_word(deployed, "hunter2/secret", Tally("", ""))
