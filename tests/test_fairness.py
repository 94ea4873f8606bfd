"""What is due at once divides among the nodes that tick at once, and what one of them does not take, the others do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import KINDS, Database
from deployed import Deployed, Run, said
from sharing import HEAD, JOB, NODES, shared

from cronledger.clock import elapsed
from cronledger.ledger import Ledger, open_ledger, open_link
from cronledger.ledger.dsn import parse
from cronledger.ledger.jobs import EVERY_JOB, make_known, remembered
from cronledger.schedule import Schedule, Slot, load
from cronledger.turns import Turns, ticking, turn_of

SERVERS = [kind for kind in KINDS if kind != "sqlite"]
DUE = datetime(2026, 1, 5, 10, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database."""
    return Deployed(tmp_path, database, run).installed()


@pytest.fixture
def opened(deployed: Deployed) -> Callable[[str], Ledger]:
    """`opened("web1")`: the ledger as that node sees it."""

    def opener(node: str) -> Ledger:
        return open_ledger(open_link(parse(deployed.dsn, "/")), namespace="app", node=node, owner="elsewhere")

    return opener


def jobs(folder: Path, *texts: str) -> Schedule:
    path = folder / "jobs.toml"
    path.write_text(HEAD + "".join(texts))
    return load(path)


def turns_of(slots: list[tuple[float, Slot]], node: str = "web1", lasts: float = 60.0) -> Turns:
    """Those of a node whose ledger is asked for nothing; their minute lasts so many seconds more."""
    ledger: Any = SimpleNamespace(node=node, scope_node=lambda _: "")
    return Turns(ledger, slots, until=elapsed() + lasts)


def batch(turns: Turns) -> list[Slot]:
    """What is to be tried now."""
    turns.gather()
    return [*iter(turns.next, None)]


def seen(database: Database) -> list[tuple[object, ...]]:
    return sorted(database.sql("SELECT scope_node FROM cronledger_jobs WHERE job = '' AND seen_at IS NOT NULL"))


@pytest.mark.parametrize("late", [(), (0, 0.05, 0.1)], ids=["at once", "one after the other"])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_what_is_due_divides_among_the_nodes(
    deployed: Deployed, database: Database, tmp_path: Path, cron_environment: dict[str, str], late: tuple[float, ...]
) -> None:
    """120 slots of three nodes, in silence and each once: none has less than a tenth, though one be always first."""
    counts = shared(tmp_path, database.dsn, database.sql, cron_environment, rounds=6, jobs=20, late=late)
    assert min(counts.values()) >= 12, counts
    assert seen(database) == [(node,) for node in NODES]


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_what_a_node_does_not_take_the_others_do(deployed: Deployed, opened: Callable[[str], Ledger]) -> None:
    """A node that ticked a moment ago and does not come any more: its slots are run in this very tick."""
    ghost = opened("ghost")
    make_known(ghost, [])
    deployed.write(*(f'name = "job{number}"\ncommand = "true"\nreport = "problems"' for number in range(20)))
    said(deployed.tick(), status=0)
    assert len({job for (job,) in deployed.rows("job", "state = 'completed' AND node = 'web1'")}) == 20
    ghost.link.close()


def test_on_sqlite_and_for_who_asks_there_are_no_turns(
    deployed: Deployed, database: Database, opened: Callable[[str], Ledger]
) -> None:
    """SQLite serves one machine, and --at is for one node: these do not make themselves known."""
    assert deployed.tick("--at", "2026-01-05T10:00").returncode == 0
    assert seen(database) == []
    assert deployed.tick().returncode == 0
    assert seen(database) == ([] if database.kind == "sqlite" else [("web1",)])


def test_who_ticks(deployed: Deployed, database: Database, opened: Callable[[str], Ledger]) -> None:
    """This node, and those that ticked lately and are not drained; who is gone for a month is forgotten."""
    web1, web2, web3 = (opened(node) for node in NODES)
    assert ticking(web1, remembered(web1)) == ["web1"]
    for ledger in (web1, web2, web3):
        make_known(ledger, remembered(ledger))
    assert ticking(web1, remembered(web1)) == ["web1", "web2", "web3"]
    assert deployed.cli("drain", "web2").returncode == 0
    assert ticking(web1, remembered(web1)) == ["web1", "web3"]
    rows = remembered(web1)
    web1.clock.read += timedelta(seconds=200)
    assert ticking(web1, rows) == ["web1"]
    web1.clock.read += 40 * DAY
    for _ in range(2):
        make_known(web1, rows)
    assert seen(database) == [("web1",), ("web2",)]
    assert {row.scope_node for row in remembered(web1) if row.job == EVERY_JOB} == {"web1", "web2"}
    for ledger in (web1, web2, web3):
        ledger.link.close()


def test_each_slot_is_one_nodes_turn(tmp_path: Path) -> None:
    """All agree whose; each has about its share; one that goes leaves only its own turns to others."""
    job = jobs(tmp_path, JOB.format("a")).jobs[0]
    slots = [Slot(job, DUE + timedelta(minutes=minute)) for minute in range(900)]
    turns = [turn_of(slot, NODES) for slot in slots]
    assert turns == [turn_of(slot, NODES[::-1]) for slot in slots]
    assert all(turns.count(node) > 240 for node in NODES)
    without = [turn_of(slot, NODES[:2]) for slot in slots]
    assert all(before in (after, "web3") for before, after in zip(turns, without, strict=True))


@pytest.mark.parametrize(
    ("nodes", "timing"),
    [(NODES[:1], 'cron = "* * * * *"'), (NODES, 'cron = "* * * * *"\nscope = "node"'), (NODES, 'every = "1s"')],
    ids=["alone", "on every node", "without slack"],
)
def test_nothing_is_left_to_others_in_vain(tmp_path: Path, nodes: tuple[str, ...], timing: str) -> None:
    """A node alone, a job that each node runs, and one whose next slot is too near, wait for nobody."""
    schedule = jobs(tmp_path, f'[[job]]\nname = "a"\ncommand = "true"\n{timing}\n')
    assert turn_of(Slot(schedule.jobs[0], DUE), nodes) is None


def test_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is another's turn is tried later, unless it is taken then; the rest at once; of late intervals the last."""
    taken: set[tuple[str, str, datetime]] = set()
    monkeypatch.setattr("cronledger.turns.slots_taken", lambda _: taken)
    schedule = jobs(tmp_path, *(JOB.format(f"job{number}") for number in range(30)))
    slots = [(0.0, Slot(job, DUE)) for job in schedule.jobs]
    turns = turns_of(slots)
    turns.share(NODES)
    own = [slot.job.name for slot in batch(turns)]
    assert own == [slot.job.name for _, slot in slots if turn_of(slot, NODES) == "web1"]
    left = [slot.job.name for slot in turns.left]
    assert sorted(own + left) == sorted(job.name for job in schedule.jobs)
    assert elapsed() < turns.next_at + 60
    taken.add((left[0], "", DUE))
    turns.hasten()
    assert [slot.job.name for slot in batch(turns)] == left[1:]
    assert not turns


def test_of_late_slots_all_nodes_try_the_last_one_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever's turn it is: the division comes after the choice, else each node would run an old slot of its own."""
    monkeypatch.setattr("cronledger.turns.slots_taken", lambda _: set())
    job = jobs(tmp_path, '[[job]]\nname = "a"\nevery = "5s"\ncommand = "true"\n').jobs[0]
    late = [(0.0, Slot(job, DUE + timedelta(seconds=seconds))) for seconds in range(0, 40, 5)]
    tried = []
    for node in NODES:
        turns = turns_of(late, node)
        turns.share(NODES)
        tried += batch(turns)
        turns.hasten()
        tried += batch(turns)
        assert not turns
    assert tried == [late[-1][1]] * len(NODES)


def test_only_what_is_due_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hastens the tries of a crowded node does not bring forward what is another node's turn later on."""
    monkeypatch.setattr("cronledger.turns.slots_taken", lambda _: set())
    job = jobs(tmp_path, '[[job]]\nname = "a"\nevery = "5s"\ncommand = "true"\n').jobs[0]
    slots = [Slot(job, DUE + timedelta(seconds=seconds)) for seconds in range(5, 60, 5)]
    turns = turns_of([(elapsed() + 60, slot) for slot in slots])
    turns.share(NODES)
    turns.hasten()
    assert (batch(turns), turns.left, turns.give_up(elapsed())) == ([], [], [])


def test_turns_of_an_interval_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that found no place gives way to the job's next slot, and is given up when its minute is over."""
    monkeypatch.setattr("cronledger.turns.slots_taken", lambda _: set())
    job = jobs(tmp_path, '[[job]]\nname = "a"\nevery = "5s"\ncommand = "true"\n').jobs[0]
    first, second = (Slot(job, DUE + timedelta(seconds=seconds)) for seconds in (0, 5))
    turns = turns_of([(0.0, first)])
    assert (batch(turns), turns.leave(first), batch(turns)) == ([first], True, [])
    turns._waiting.append((0.0, second))
    turns.hasten()
    assert batch(turns) == [second]
    over = turns_of([(0.0, first)], lasts=0.0)
    assert (batch(over), over.leave(first), bool(over)) == ([first], False, False)
