"""Hostile text: what commands print, and DSNs with every awkward password."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conftest import KINDS, Database
from deployed import Deployed

from torture import secrets_shown, texts
from torture.conftest import Tally

SERVERS = [kind for kind in KINDS if kind != "sqlite"]


@pytest.fixture
def deployed(database: Database, run: Callable[..., CompletedProcess[str]], tmp_path: Path) -> Deployed:
    """A schedule whose ledger is installed."""
    return Deployed(tmp_path, database, run).installed()


def test_hostile_output(deployed: Deployed, tally: Tally) -> None:
    """Output with NUL, ESC, 4-byte characters, invalid UTF-8, SQL, and 300 kB without a newline.

    Each run is settled, in rows and lines that are harmless.
    """
    texts.hostile_output(deployed, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_awkward_passwords(deployed: Deployed, tally: Tally) -> None:
    """Users with every awkward password, right and wrong.

    The tick works, and the secret is found in no line, no row and no error.
    """
    for password in texts.PASSWORDS + texts.passwords(1, 8):
        texts.awkward(deployed, password, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_malformed_dsns(deployed: Deployed, tally: Tally) -> None:
    """DSNs that hold the password raw, doubled, or at a wrong place.

    Refused in one line that repeats nothing of it.
    """
    for password in ("hunter2/secret", "p@ss:word-long", "secret?x=y#z1", "100%secret-%zz"):
        texts.refused_without_a_word(deployed, password, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_command_lines(deployed: Deployed, spawn: secrets_shown.Spawn, tally: Tally) -> None:
    """Command lines of a tick and all its commands, with the DSN in the env_file or the environment: no secret."""
    for given in secrets_shown.GIVEN:
        secrets_shown.on_no_command_line(deployed, spawn, given, tally)
    tally.holds()


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_errors(deployed: Deployed, spawn: secrets_shown.Spawn, tally: Tally) -> None:
    """Every command with a wrong password, and with the server down; it goes down amid a run: no secret."""
    secrets_shown.in_no_error(deployed, spawn, tally)
    tally.holds()
