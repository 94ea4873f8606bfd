"""The ledger's conformance: what every database must hold, on real servers."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from conftest import Database
from servers import Server
from torture.schemas import parts, take_away

from cronledger import fate, process
from cronledger.errors import CronledgerError, LedgerBusy, LedgerError, LedgerNotInstalled, LedgerUnreachable
from cronledger.ledger import (
    Barred,
    Claimed,
    ClaimedElsewhere,
    Ledger,
    Run,
    look,
    open_ledger,
    open_link,
    pruning,
    schema,
)
from cronledger.ledger.dialect import LATEST, Lost
from cronledger.ledger.dsn import parse
from cronledger.ledger.holding import record_pid
from cronledger.ledger.link import Link
from cronledger.ledger.run import MARGIN

DUE = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
HOUR = timedelta(hours=1)
Opener = Callable[..., Ledger]


def link_to(database: Database, *, install: bool = False, budget: float = 30.0) -> Link:
    dsn = parse(database.dsn, "/")
    return open_link(dsn, budget=budget, install=install)


@pytest.fixture
def installed(database: Database) -> Database:
    database.install()
    return database


@pytest.fixture
def node(installed: Database) -> Iterator[Opener]:
    """`node("web1")`: the ledger as that node sees it."""
    opened: list[Ledger] = []

    def opener(name: str = "web1", namespace: str = "default") -> Ledger:
        opened.append(open_ledger(link_to(installed), namespace=namespace, node=name, owner=f"boot/1/{name}/7"))
        return opened[-1]

    yield opener
    for ledger in opened:
        ledger.link.close()


def draft(ledger: Ledger, job: str = "reports:build", **values: object) -> Run:
    return ledger.draft(job, **{"due_at": DUE, "stale_after": HOUR} | values)  # type: ignore[arg-type]


def settle(ledger: Ledger, run: Run, reason: str | None = None, output: str | None = None) -> bool:
    return ledger.settle(run, pid=42, duration_ms=1400, exit_code=0, failure_reason=reason, output=output)


def at_once(nodes: list[Ledger], act: Callable[[Ledger], object]) -> list[object]:
    """What `act` gives for each node, all at the same moment, each on a connection of its own thread."""
    start = threading.Barrier(len(nodes))

    def acting(ledger: Ledger) -> object:
        start.wait(30)
        try:
            return act(ledger)
        finally:
            ledger.link.close()

    for ledger in nodes:
        ledger.link.close()
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(acting, nodes, timeout=120))


def test_a_claim_is_one_row_with_all_that_was_drafted(node: Opener) -> None:
    """What a claim wrote is what is read back, instants to the microsecond."""
    ledger = node()
    run = draft(ledger, lock="warehouse")
    assert ledger.claim(run) == Claimed()
    assert ledger.running() == [run]
    assert run.expires_at == run.started_at + HOUR + MARGIN


def test_a_slot_is_claimed_once(node: Opener) -> None:
    """A second node finds the slot claimed elsewhere, also when the run is over."""
    ledger, other = node("web1"), node("web2")
    run = draft(ledger)
    ledger.claim(run)
    assert other.claim(draft(other)) == ClaimedElsewhere()
    settle(ledger, run)
    assert other.claim(draft(other)) == ClaimedElsewhere()


def test_a_claim_sent_again_is_still_ours(node: Opener) -> None:
    """The same INSERT under the same id, after a lost reply, finds its own row."""
    ledger = node()
    run = draft(ledger)
    assert [ledger.claim(run), ledger.claim(run)] == [Claimed(), Claimed()]


def test_a_job_bars_itself_in_the_next_slot(node: Opener) -> None:
    """A run in flight bars the job's next slot and is named."""
    ledger, other = node("web1"), node("web2")
    run = draft(ledger)
    ledger.claim(run)
    later = draft(other, due_at=DUE + timedelta(minutes=1))
    assert other.claim(later) == Barred(run)
    settle(ledger, run)
    assert other.claim(later) == Claimed()


def test_overlap_bars_nothing(node: Opener) -> None:
    """With overlap several runs of a job may be in flight, each in a slot of its own."""
    ledger = node()
    slots = [DUE + timedelta(minutes=minutes) for minutes in range(3)]
    assert [ledger.claim(draft(ledger, due_at=due_at, overlap=True)) for due_at in slots] == [Claimed()] * 3


def test_jobs_that_share_a_lock_bar_each_other(node: Opener) -> None:
    """The holder of a lock bars another job, in the same slot too; its end frees the lock."""
    ledger, other = node("web1"), node("web2")
    run = draft(ledger, lock="warehouse")
    ledger.claim(run)
    loads = draft(other, job="loads:eu", lock="warehouse")
    assert other.claim(loads) == Barred(run)
    settle(ledger, run, "exit 3")
    assert other.claim(loads) == Claimed()


def test_a_lock_added_while_a_run_is_in_flight_does_not_lift_its_own_bar(node: Opener) -> None:
    """A deploy adds a lock: the old run still bars the job."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    assert ledger.claim(draft(ledger, due_at=DUE + HOUR, lock="new")) == Barred(run)


def test_namespaces_do_not_see_each_other(node: Opener) -> None:
    """Jobs, locks and running runs of another namespace bar nothing."""
    billing, shop = node(namespace="billing"), node(namespace="shop")
    assert billing.claim(draft(billing, lock="x")) == Claimed()
    assert shop.claim(draft(shop, lock="x")) == Claimed()
    assert len(billing.running()) == 1


@pytest.mark.parametrize("other", ["Reports:build", "reports:build-", "reports/build"])
def test_names_compare_byte_by_byte(node: Opener, other: str) -> None:
    """A job whose name differs in one byte is another job."""
    ledger = node()
    assert ledger.claim(draft(ledger)) == Claimed()
    assert ledger.claim(draft(ledger, job=other)) == Claimed()


def test_settling_is_written_once(node: Opener) -> None:
    """The first settle counts. One of another process is too late; one sent again is still ours."""
    ledger, other = node("web1"), node("web2")
    run = draft(ledger)
    ledger.claim(run)
    assert settle(ledger, run)
    assert not settle(other, run, "exit 3")
    assert settle(ledger, run, "exit 3")
    row = look.last_run(ledger, run.job)
    assert row is not None
    assert (row.state, row.active_job, row.failure_reason) == ("completed", None, None)
    assert (row.duration_ms, row.pid) == (1400, 42)


def test_a_pid_is_recorded_only_while_running(node: Opener) -> None:
    """The command's pid and its start time are in the row; a row that is over keeps what it has."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    record_pid(ledger, run, 4242, 99)
    assert [(row.pid, row.pid_start) for row in ledger.running()] == [(4242, 99)]
    settle(ledger, run)
    record_pid(ledger, run, 1, 1)
    assert look.last_run(ledger, run.job).pid == 42  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    ["naïve 😀 \u4e2d", "x" * 60_000, "quote ' \\ \" % %s %(id)s", "line\nline\ttab"],
    ids=["unicode", "long", "quotes", "lines"],
)
def test_output_comes_back_as_it_was(node: Opener, text: str) -> None:
    """Whatever a command printed, once made harmless, is kept whole."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    assert settle(ledger, run, "exit 3: " + text[:200], text)
    row = look.whole_run(ledger, run)
    assert (row.output, row.failure_reason) == (text, "exit 3: " + text[:200])


def test_exactly_one_node_reaps(node: Opener) -> None:
    """Of many nodes that find a run dead exactly one says so; the row is failed and bars nothing."""
    ledger = node()
    run = draft(ledger, lock="warehouse")
    ledger.claim(run)
    others = [node(f"web{number}") for number in range(2, 8)]
    said = at_once(others, lambda other: other.reap(run, "its tick is gone"))
    assert sorted(map(bool, said)) == [False] * 5 + [True]
    row = look.last_run(ledger, run.job)
    assert row is not None
    assert (row.state, row.failure_reason) == ("failed", "reaped: its tick is gone")
    assert (row.held_lock, row.active_job) == (None, None)
    assert not settle(ledger, run)


def test_an_adopted_run_is_not_reaped_under_its_old_owner(node: Opener) -> None:
    """Adoption is one conditional UPDATE: the second adopter and a reaper that saw the old owner lose."""
    ledger, second, third = node("web1"), node("web2"), node("web3")
    run = draft(ledger)
    ledger.claim(run)
    assert second.adopt(run)
    assert not third.adopt(run)
    assert not third.reap(run, "its tick is gone")
    assert ledger.running()[0].owner == second.owner


def test_a_stand_down_is_said_once_for_each_slot(node: Opener) -> None:
    """Of all nodes one says that a job stood down from a slot; a later slot is said anew."""
    nodes = [node(f"web{number}") for number in range(4)]
    first = at_once(nodes, lambda one: one.stand_down(draft(one, "inbox:poll")))
    later = [one.stand_down(draft(one, "inbox:poll", due_at=DUE + HOUR)) for one in nodes]
    assert [first.count(True), later.count(True)] == [1, 1]


def test_many_racers_have_one_winner_each_slot(node: Opener) -> None:
    """Eight connections race for ten slots: one row each, nobody sees an error."""
    nodes = [node(f"web{number}") for number in range(8)]
    slots = [DUE + timedelta(minutes=minute) for minute in range(10)]

    def race(ledger: Ledger) -> list[int]:
        return [ledger.claim(draft(ledger, due_at=slot, overlap=True)) == Claimed() for slot in slots]

    won = at_once(nodes, race)
    assert [sum(column) for column in zip(*won, strict=True)] == [1] * len(slots)
    assert len(nodes[0].running()) == len(slots)


def test_install_says_what_it_did_and_then_nothing(database: Database) -> None:
    """The first install creates, the second finds all there."""
    link = link_to(database, install=True)
    assert "created table cronledger_runs" in schema.install(link)
    assert schema.install(link) == []
    link.close()


def test_installs_at_once_end_alike(database: Database) -> None:
    """Six installs at the same time all succeed, and the tables are whole."""

    def install(_: int) -> list[str]:
        link = link_to(database, install=True)
        try:
            return schema.install(link)
        finally:
            link.close()

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(install, range(6), timeout=120))
    assert sum("created table cronledger_runs" in words for words in done) == 1


def test_each_column_is_missed_before_anything_is_claimed(installed: Database) -> None:
    """Whichever it is, it is named with its table and the repair; install adds it, and the ledger opens."""
    link = link_to(installed, install=True)
    for kind, table, column in [part for part in parts(installed) if part[0] == "column"]:
        take_away(installed, (kind, table, column))
        with pytest.raises(LedgerNotInstalled, match=rf"\b{table}\.{column}\b.*; run `cronledger install`$"):
            schema.check(link)
        assert f"added column {table}.{column}" in schema.install(link)
    link.close()


@pytest.mark.parametrize("table", ["cronledger_runs", "cronledger_jobs", "cronledger_meta"])
def test_a_missing_table_is_named_with_the_repair(installed: Database, table: str) -> None:
    """Without a table the ledger does not open and says which command makes it."""
    installed.sql(f"DROP TABLE {table}")
    link = link_to(installed)
    with pytest.raises(LedgerNotInstalled, match="run `cronledger install`"):
        open_ledger(link, namespace="default", node="web1", owner="")
    link.close()


def make_anew(database: Database, link: Link, table: schema.Table) -> None:
    """The table as somebody else's hand might have made it; SQLite cannot alter one."""
    database.sql(f"DROP TABLE {table.name}")
    database.sql(schema._create_table(link.dialect.types, table))


def without(name: str) -> schema.Table:
    """cronledger_runs without one of its mutexes."""
    return replace(schema.RUNS, mutexes=tuple(mutex for mutex in schema.RUNS.mutexes if mutex[0] != name))


@pytest.mark.parametrize("name", [name for name, _ in schema.RUNS.mutexes])
def test_a_lost_mutex_stops_every_tick_until_install_makes_it_again(installed: Database, name: str) -> None:
    """The loss of a mutex is found, named, and mended by install."""
    link = link_to(installed, install=True)
    make_anew(installed, link, without(name))
    with pytest.raises(LedgerNotInstalled, match=rf"lost a mutex.*{name}.*; run `cronledger install`$"):
        schema.check(link)
    assert any(name in words for words in schema.install(link))
    schema.check(link)
    link.close()


@pytest.mark.parametrize(
    ("unique", "columns"), [("UNIQUE", "namespace, job"), ("", "namespace, job, scope_node, due_at")]
)
def test_a_mutex_whose_name_is_taken(installed: Database, unique: str, columns: str) -> None:
    """By an index on other columns, or by one that is not unique: install says what to drop, then makes it."""
    link, name = link_to(installed, install=True), "cronledger_runs_slot"
    make_anew(installed, link, without(name))
    installed.sql(f"CREATE {unique} INDEX {name} ON cronledger_runs ({columns})")
    with pytest.raises(LedgerNotInstalled, match=name):
        schema.check(link)
    with pytest.raises(LedgerError, match=rf"index {name} is there, but .* drop that index, then run"):
        schema.install(link)
    installed.sql(f"DROP INDEX {name}" + (" ON cronledger_runs" if installed.kind in ("mariadb", "mysql") else ""))
    assert any(f"made mutex {name}" in words for words in schema.install(link))
    link.close()


def test_a_mutex_that_rows_forbid(node: Opener, installed: Database) -> None:
    """Rows that came in while it was lost are named as what is in the way, not removed."""
    ledger, link, name = node(), link_to(installed, install=True), "cronledger_runs_active"
    make_anew(installed, link, without(name))
    later = (DUE, DUE + timedelta(minutes=1))
    assert [ledger.claim(draft(ledger, due_at=due_at)) for due_at in later] == [Claimed()] * 2
    with pytest.raises(LedgerError, match=rf"mutex {name} .* rows of cronledger_runs collide; remove those, then run"):
        schema.install(link)
    assert len(ledger.running()) == 2
    link.close()


def test_a_column_that_needs_values_is_not_made_up(node: Opener, installed: Database) -> None:
    """Lost from a table that has rows it is not added, and install says what can be done."""
    ledger, link = node(), link_to(installed, install=True)
    ledger.claim(draft(ledger))
    installed.sql("ALTER TABLE cronledger_runs DROP COLUMN owner")
    with pytest.raises(LedgerError, match=r"cronledger_runs lacks owner, .* DROP TABLE cronledger_runs .* then run"):
        schema.install(link)
    assert installed.sql("SELECT job FROM cronledger_runs") == [("reports:build",)]
    installed.sql("DROP TABLE cronledger_runs")
    assert "created table cronledger_runs" in schema.install(link)
    link.close()


def test_a_column_that_takes_null_where_it_must_not(installed: Database) -> None:
    """Or does not where it must: install names both, and the DDL that shows how they should be."""
    link = link_to(installed, install=True)
    other = {"node": ("node", "name", "NULL"), "pid": ("pid", "number", "NOT NULL")}
    columns = tuple(other.get(column[0], column) for column in schema.RUNS.columns)
    make_anew(installed, link, replace(schema.RUNS, columns=columns))
    wrong = "--print-sql` has it: cronledger_runs.node is NULL, cronledger_runs.pid is NOT NULL; .* by hand"
    with pytest.raises(LedgerError, match=wrong):
        schema.install(link)
    make_anew(installed, link, schema.RUNS)
    assert [words for words in schema.install(link) if not words.startswith("created index")] == []
    link.close()


def test_a_newer_schema_that_bars_this_program_says_so(installed: Database) -> None:
    """A program that is too old for the schema refuses to tick."""
    installed.sql("UPDATE cronledger_meta SET value = 99")
    link = link_to(installed)
    with pytest.raises(LedgerNotInstalled, match=r"newer cronledger.*: deploy the newer one on this node$"):
        schema.check(link)
    link.close()


def test_the_printed_ddl_is_a_whole_ledger(database: Database) -> None:
    """What --print-sql prints, applied by hand, needs no install."""
    link = link_to(database, install=True)
    for statement in schema.statements(link.dialect):
        link.send(statement)
    assert schema.install(link) == []
    link.close()


def test_find_takes_a_name_and_either_end_of_an_id(node: Opener) -> None:
    """A run is found by its job's name and by enough of its id; too little and nothing are said."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    settle(ledger, run)
    enough = (run.job, run.id, run.id[:18], run.id[-8:], run.id[-8:].upper())
    assert [look.find_run(ledger, named).id for named in enough] == [run.id] * 5
    for named in ("nope", run.id[-3:], "ffff%", "_" * 8):
        with pytest.raises(CronledgerError, match="no run"):
            look.find_run(ledger, named)


def test_history_is_newest_first_and_can_be_narrowed(node: Opener) -> None:
    """By job, by failure, by age, by number."""
    ledger = node()
    for number in range(4):
        run = draft(ledger, job=f"job{number % 2}", due_at=DUE + timedelta(minutes=number))
        ledger.claim(run)
        settle(ledger, run, "exit 1" if number == 3 else None)
    assert [run.job for run in look.history(ledger)] == ["job1", "job0", "job1", "job0"]
    assert [run.job for run in look.history(ledger, job="job0", limit=1)] == ["job0"]
    assert [run.failure_reason for run in look.history(ledger, failed=True)] == ["exit 1"]
    assert look.history(ledger, started_after=ledger.clock.now()) == []


def test_prune_spares_the_running_the_young_and_the_newest(node: Opener, installed: Database) -> None:
    """Only settled runs that finished before the cutoff go, and never the newest of a job."""
    ledger = node()
    for number in range(5):
        run = draft(ledger, due_at=DUE + timedelta(minutes=number))
        ledger.claim(run)
        settle(ledger, run)
    alone = draft(ledger, job="alone")
    ledger.claim(alone)
    settle(ledger, alone)
    flying = draft(ledger, job="flying")
    ledger.claim(flying)
    assert pruning.prune(ledger, finished_before=ledger.clock.now() - HOUR) == 0
    assert pruning.prune(ledger, finished_before=ledger.clock.now() + HOUR) == 4
    assert sorted(run.job for run in look.history(ledger)) == ["alone", "flying", "reports:build"]


def test_prune_goes_through_several_batches(node: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a batch holds go all the same."""
    monkeypatch.setattr(pruning, "_PRUNABLE", pruning._PRUNABLE.replace("LIMIT 1000", "LIMIT 3"))
    ledger = node()
    for number in range(11):
        run = draft(ledger, job=f"job{number % 2}", due_at=DUE + timedelta(minutes=number))
        ledger.claim(run)
        settle(ledger, run)
    assert pruning.prune(ledger, finished_before=ledger.clock.now() + HOUR) == 9


def test_a_connection_that_was_closed_is_made_anew(node: Opener) -> None:
    """A server that closes an idle connection is not noticed by whoever uses the ledger next."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    ledger.link.hang_up()
    assert settle(ledger, run)


def test_a_unique_violation_on_something_else_is_never_a_lost_claim(node: Opener, installed: Database) -> None:
    """An index of somebody else's is named as being in the way, not taken for another node's claim."""
    installed.sql("CREATE UNIQUE INDEX stranger ON cronledger_runs (cause)")
    ledger = node()
    assert ledger.claim(draft(ledger)) == Claimed()
    with pytest.raises(LedgerError, match="another unique index"):
        ledger.claim(draft(ledger, job="other"))


@pytest.mark.parametrize(("default", "ours"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_a_claim_is_durable_whatever_the_default(postgres: Server, default: str, ours: str) -> None:
    """With synchronous_commit off a crash of the server could forget a claim: it is on, and stays what else it is."""
    dsn = postgres.fresh_database()
    postgres.rows(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} SET synchronous_commit = {default}")
    link = open_link(parse(dsn, "/"))
    assert link.send("SELECT current_setting('synchronous_commit') AS found").rows == [{"found": ours}]
    link.close()


def test_a_budget_that_is_spent_ends_the_waiting(database: Database) -> None:
    """A ledger that cannot be reached is given up within the budget, by name."""
    if database.server is None:
        database.sql("CREATE TABLE t (x)")
        dsn = parse(database.dsn, "/")
        import sqlite3

        blocker = sqlite3.connect(dsn.database, isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        link = open_link(dsn, budget=1.0)
        with pytest.raises(LedgerBusy):
            link.send("INSERT INTO t (x) VALUES (1)")
        blocker.close()
        return
    dsn = parse(database.dsn.replace(f":{parse(database.dsn, '/').port or 0}/", ":1/"), "/")
    if dsn.kind == "postgres":
        dsn = parse("postgresql://app:secret@127.0.0.1:1/ledger", "/")
    with pytest.raises(LedgerUnreachable, match="unreachable"):
        open_link(dsn, budget=1.0).send("SELECT 1")


def test_what_the_driver_cannot_take_is_an_error_of_ours(node: Opener) -> None:
    """A text with lone surrogates, as of a file name that is not UTF-8: a run is settled without it."""
    ledger = node()
    with pytest.raises(LedgerError, match="not UTF-8"):
        look.last_run(ledger, "job\udcff")
    run = draft(ledger)
    ledger.claim(run)
    assert settle(ledger, run, "cannot start: \udcff is not there", "\udcff")
    found = ledger.find(run.id)
    assert found is not None
    assert (found.state, found.failure_reason) == ("failed", "cannot start: \\udcff is not there")


def test_what_is_put_down(installed: Database) -> None:
    """The command of a tick that is stopped, while the row is as it was read; one renewed meanwhile may look dead."""
    own = process.own()
    assert own is not None
    sleep = partial(subprocess.Popen, ["sleep", "300"], start_new_session=True)
    with sleep() as tick, sleep() as command, closing(link_to(installed)) as link:
        start = process.start_time(tick.pid)
        assert start is not None
        ledger = open_ledger(link, namespace="default", node="web1", owner=replace(own, pid=tick.pid, start=start).text)
        run = draft(ledger, lease=HOUR, stale_after=None)
        ledger.claim(run)
        record_pid(ledger, run, command.pid, process.start_time(command.pid))
        [read] = ledger.running()
        fate.put_down(ledger, read)  # its tick can end it
        tick.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, tick.pid, os.WSTOPPED)
        fate.put_down(ledger, replace(read, expires_at=read.expires_at - HOUR))
        assert command.poll() is None
        fate.put_down(ledger, read)
        assert command.wait(30) == -signal.SIGKILL
        tick.kill()


def test_a_run_settled_after_it_was_read(installed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that settled its run amid the look of another, and ended, is not taken for a killed one."""
    waited: list[float] = []
    monkeypatch.setattr(process, "let_start", waited.append)
    own = process.own()
    assert own is not None
    gone = replace(own, start=own.start - 1).text
    with closing(link_to(installed)) as link:
        ledger = open_ledger(link, namespace="default", node="web1", owner=gone)
        run = draft(ledger)
        ledger.claim(run)
        [read] = ledger.running()
        assert fate.fate_of(ledger, read) == fate.Dead("its tick is gone")
        assert len(waited) == 1
        assert settle(ledger, run)
        assert fate.fate_of(ledger, read) is None
        assert len(waited) == 1


FAR_OFF = {
    "postgres": (["infinity", "12000-01-01"], ["-infinity", "0044-03-15 BC", "0001-01-01"]),
    "sqlite": (["9999-12-31"], ["0001-01-01"]),
}
ZEROS = (["9999-12-31 23:59:59"], ["0001-01-01", "0000-00-00", "2026-00-00"])


def test_an_instant_beyond_all_others(installed: Database, node: Opener) -> None:
    """What an operator wrote by hand, `infinity` or a date of zeros, is read as one far off: no tick fails of it."""
    ledger = node()
    run = draft(ledger)
    ledger.claim(run)
    late, early = FAR_OFF.get(installed.kind, ZEROS)
    for text in (*late, *early):
        ledger.link.send(f"UPDATE cronledger_runs SET expires_at = '{text}'")
        [found] = ledger.running()
        assert (found.expires_at > run.started_at) is (text in late), text
        assert found.expires_at + timedelta(days=365) < datetime.max.replace(tzinfo=UTC)
    for number in (2**63 - 1, -(2**63)):
        ledger.link.send(f"UPDATE cronledger_runs SET stale_after_ms = {number}, lease_ms = {number}")
        [found] = ledger.running()
        assert found.window is not None
        assert found.started_at + found.window < LATEST
        assert found.limit.startswith("lease of ")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_instant_that_is_none(node: Opener) -> None:
    """SQLite keeps any text: the row's is named, and what to write."""
    ledger = node()
    ledger.claim(draft(ledger))
    ledger.link.send("UPDATE cronledger_runs SET expires_at = 'soon'")
    with pytest.raises(LedgerError, match="a row of the ledger has the instant soon; write 2026-"):
        ledger.running()


def test_a_long_word_of_the_driver_is_cut_in_its_parentheses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence around it stays whole, so that scripts find its end."""
    link = open_link(parse("postgresql://app@127.0.0.1/ledger", "/"), budget=1.0)

    def lost(seconds: float) -> None:
        raise Lost("no route to any host, " * 100)

    monkeypatch.setattr(link.dialect, "connect", lost)
    with pytest.raises(LedgerUnreachable, match=r"^ledger unreachable \(no route.{300,400}…\)$"):
        link.send("SELECT 1")
