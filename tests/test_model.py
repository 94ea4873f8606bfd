"""The protocol of claim, reap, adopt, settle and stand-down, in made-up histories; and that they would find a hole."""

import re
from collections.abc import Iterator

import pytest
from torture.model import JOBS, empty, every, histories, history, made_up
from torture.world import Violation

from cronledger.ledger import runs, schema

TOKENS = ("_TOKEN", "_STOOD_TOKEN")


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
    """What can be taken away: each condition of each UPDATE, and the token that tells one's own from another's."""
    texts = {name: text for name, text in vars(runs).items() if isinstance(text, str)}
    updates = {name: text for name, text in texts.items() if text.startswith("UPDATE") or name == "_STILL"}
    return [(name, one) for name, text in updates.items() for one in conditions(text)] + [
        (name, "token = %(token)s") for name in TOKENS
    ]


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
    text = getattr(runs, name)
    assert text.count(condition) >= 1
    never = " OR " in text and f"({condition})" not in text and condition in text.partition(" AND (")[2]
    monkeypatch.setattr(runs, name, text.replace(condition, "1 = 0" if never else "1 = 1"))
    with pytest.raises(Violation):
        histories(range(1500))
