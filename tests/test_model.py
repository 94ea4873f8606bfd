"""The protocol of claim, reap, adopt, settle and stand-down, in made-up histories; and that they would find a hole."""

import re
from collections.abc import Iterator

import pytest
from torture.model import JOBS, empty, every, histories, history, made_up
from torture.world import Violation

from cronledger.ledger import holding, runs, schema

TOKENS = ("_TOKEN", "_STOOD_TOKEN")
TEXTS = {name: module for module in (runs, holding) for name, text in vars(module).items() if isinstance(text, str)}
"""The statements, and the modules that have them."""
NO_HOLE = "owner = %(owner)s"
"""Of what an owner alone writes: who lost its run finds no such row in these histories, whatever its owner."""


@pytest.fixture(autouse=True)
def _made_up() -> Iterator[None]:
    with made_up():
        yield


def conditions(text: str) -> list[str]:
    """Each condition of a WHERE: those that AND joins, and those that OR joins in one of these."""
    _, _, where = text.rpartition("WHERE ") if "WHERE" in text else ("", "", text.removeprefix(" AND "))
    whole = re.findall(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|(?:[^(]|%\()+?(?= AND |$)", where)
    found = [one.removeprefix(" AND ").strip() for one in whole]
    return found + [part for one in found if one.startswith("(") for part in one[1:-1].split(" OR ")]


def holes() -> list[tuple[str, str]]:
    """What can be taken away: each condition of each UPDATE, and what tells one's own row from another's."""
    texts = {name: getattr(module, name) for name, module in TEXTS.items()}
    updates = {name: text for name, text in texts.items() if text.startswith("UPDATE") or name in ("_STILL", "_OURS")}
    found = [(name, one) for name, text in updates.items() for one in conditions(text)]
    found = [hole for hole in found if not (TEXTS[hole[0]] is holding and hole[1] == NO_HOLE)]
    return found + [(name, "token = %(token)s") for name in TOKENS]


def test_every_order_of_two_nodes_at_one_slot() -> None:
    """Whatever the order of their statements: one run, one line, nothing left running."""
    ledger = empty()
    count = every(lambda choose: history(choose, ledger, [("web1", 0, JOBS[2:3]), ("web2", 0, JOBS[2:3])]))
    assert count > 500


def test_histories_of_nodes_that_die_and_answers_that_get_lost() -> None:
    """Two to four ticks of two nodes and two minutes, with kills, lost answers, late statements and hours that pass."""
    started = histories(range(500))
    assert started > 700


@pytest.mark.parametrize("mutex", [name for name, _ in schema.RUNS.mutexes])
def test_a_lost_mutex_is_found(mutex: str) -> None:
    """Without any one of the unique indexes some history runs something twice."""
    with pytest.raises(Violation):
        histories(range(1500), empty(mutex))


@pytest.mark.parametrize(("name", "condition"), holes())
def test_a_lost_condition_is_found(monkeypatch: pytest.MonkeyPatch, name: str, condition: str) -> None:
    """Without any one of the conditions of an UPDATE some history ends otherwise than it may."""
    module = TEXTS[name]
    text = getattr(module, name)
    assert text.count(condition) >= 1
    never = " OR " in text and f"({condition})" not in text and condition in text.partition(" AND (")[2]
    monkeypatch.setattr(module, name, text.replace(condition, "1 = 0" if never else "1 = 1"))
    with pytest.raises(Violation):
        histories(range(2500))
