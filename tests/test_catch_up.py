"""Slots that no node ran are made up: the last one of a job, once, and never what was not meant to run."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Database
from deployed import Deployed, Run, said
from ticks import run_batches

from cronledger import catchup
from cronledger.clock import Clock, elapsed
from cronledger.events import utc
from cronledger.ledger import Claimed, Ledger, open_link
from cronledger.ledger.dsn import parse
from cronledger.ledger.jobs import Remembered, remembered
from cronledger.runner import Runner
from cronledger.schedule import Schedule, Slot, load
from cronledger.tick import Tick

Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]


def slot(minutes: float) -> datetime:
    """The minute that was so many minutes ago."""
    return (datetime.now(UTC) - timedelta(minutes=minutes)).replace(second=0, microsecond=0)


def once(at: datetime, zone: str = "UTC") -> str:
    """The timing of a job that is due then, and a year later."""
    return f'cron = "{at.minute} {at.hour} {at.day} {at.month} *"\ntimezone = "{zone}"'


def job(name: str, timing: str, more: str = 'catch_up = "2h"', command: str = '["true"]') -> str:
    return f'[[job]]\nname = "{name}"\n{timing}\ncommand = {command}\n{more}\n'


class Cluster(Deployed):
    """Ticks of it that know its jobs for long."""

    def deploy(self, *jobs: str) -> None:
        (self.folder / "schedule.toml").write_text('timezone = "UTC"\nnamespace = "app"\n' + "".join(jobs))

    def know(self, *jobs: str) -> None:
        """Deploy these jobs, and have them known for a month."""
        self.deploy(*jobs)
        said(self.tick(), status=0)
        self.set("timed_at", datetime.now(UTC) - timedelta(days=30))

    def set(self, column: str, instant: datetime, where: str = "1 = 1") -> None:
        self.database.sql(f"UPDATE cronledger_jobs SET {column} = {self.literal(instant)} WHERE {where}")

    def pause(self, what: str, *, began: float, ended: float) -> None:
        """A pause that is over, in minutes before now."""
        assert self.cli("pause", what, "--for", "1h").returncode == 0
        where = f"scope_node = '' AND job = '{what.replace('--all', '')}'"
        for column, minutes in (("paused_at", began), ("resumes_at", ended)):
            self.set(column, datetime.now(UTC) - timedelta(minutes=minutes), where)

    def made_up(self) -> list[tuple[str, str]]:
        """The runs that made up a slot: job and instant."""
        runs = json.loads(self.cli("history", "--json").stdout)
        return [(run["job"], run["due_at"]) for run in runs if run["cause"] == "catch_up"]


@pytest.fixture
def cluster(database: Database, run: Run, tmp_path: Path) -> Cluster:
    """On each kind of database."""
    cluster = Cluster(tmp_path, database, run)
    cluster.installed()
    return cluster


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Cluster:
    """On SQLite, for what is not about the database."""
    cluster = Cluster(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run)
    cluster.installed()
    return cluster


def test_one_of_eight_ticks_makes_up_a_missed_slot(cluster: Cluster, cron_environment: dict[str, str]) -> None:
    """Once, under its own instant; the line names the slot, the row and `history` the cause."""
    missed, failing = slot(10), slot(20)
    fail = '"echo no warehouse; exit 3"'
    cluster.know(job("ok", once(missed)), job("bad", once(failing), command=fail))
    options = ["--schedule", f"{cluster.folder}/schedule.toml", "--dsn", cluster.dsn]
    batch = [[*options, "--node", f"web{number}"] for number in range(8)]
    first, second = run_batches([batch, batch], cron_environment)
    lines = sorted(line.partition(" ")[2] for _, out, _ in first for line in out.splitlines())
    of = "for its missed slot of (\\S+ )?{:%H:%M}".format
    assert len(lines) == 2
    assert re.fullmatch(rf"failed bad in \d\.\ds, {of(failing)}: exit 3: no warehouse", lines[0])
    assert re.fullmatch(rf"ran ok in \d\.\ds, {of(missed)}", lines[1])
    assert {err for _, _, err in [*first, *second]} == {""}
    assert [(status, out) for status, out, _ in second] == [(0, "")] * 8
    assert sorted(cluster.made_up()) == [("bad", utc(failing)), ("ok", utc(missed))]
    assert re.search(rf" {missed:%H:%M}, made up ", cluster.cli("history", "ok").stdout)
    assert re.search(rf"^due .*{missed:%H:%M}\+00:00, made up$", cluster.cli("show", "ok").stdout, re.M)


def test_what_was_not_missed_is_never_made_up(cluster: Cluster) -> None:
    """New, retimed, in another zone, enabled again, back again, paused, with all paused, stood down, too old.

    Of each of these jobs a slot has no run, and only that of `ok` is made up.
    """
    at = slot(10)
    names = ("ok", "paused", "paused-twice", "stood-down", "back", "enabled")
    kept = {name: job(name, once(at)) for name in names}
    kept |= {"too-old": job("too-old", once(slot(61)), 'catch_up = "1h"'), "without": job("without", once(at), "")}
    kept |= {"all-paused": job("all-paused", once(slot(50)))}
    before = [job("retimed", once(slot(30))), job("rezoned", once(at, "Etc/GMT"))]
    after = [job("retimed", once(at)), job("rezoned", once(at)), job("new", once(at))]
    assert cluster.cli("drain", "web1").returncode == 0  # so that these ticks only look at the schedule
    cluster.know(*kept.values(), *before)
    gone = {**kept, "enabled": f"{kept['enabled']}enabled = false\n", "back": ""}
    cluster.deploy(*gone.values(), *before)
    said(cluster.tick(), status=0)
    cluster.deploy(*kept.values(), *after)
    said(cluster.tick(), status=0)

    cluster.pause("paused", began=15, ended=5)
    cluster.pause("paused-twice", began=15, ended=5)
    cluster.pause("paused-twice", began=0.02, ended=0.01)
    cluster.pause("--all", began=55, ended=45)
    cluster.set("stood_down_at", at, "job = 'stood-down'")
    assert cluster.cli("undrain", "web1").returncode == 0
    for _ in range(2):
        assert cluster.tick().stderr == ""
    assert cluster.made_up() == [("ok", utc(at))]


def test_a_slot_whose_row_was_pruned_is_not_run_again(cluster: Cluster) -> None:
    """A run of the job since then is proof; without one, a slot of days ago is made up where catch_up goes so far."""
    at = slot(3 * 1440)
    month = 'catch_up = "30d"'
    cluster.know(job("pruned", once(at), month), job("missed", once(at), month))
    assert cluster.cli("run", "pruned").returncode == 0  # the newest run, which prune leaves
    cluster.tick()
    assert cluster.made_up() == [("missed", utc(at))]


def test_a_run_in_flight_defers_it_silently(cluster: Cluster, spawn: Spawn, wait_for: WaitFor, tmp_path: Path) -> None:
    """Nothing is said while the job is barred; a later tick makes it up. A drained node leaves it to the others."""
    at = slot(10)
    wait = f'"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"'
    cluster.know(job("slow", once(at), command=wait))
    by_hand = spawn("run", "slow", cwd=tmp_path, env=cluster.env)
    wait_for(lambda: cluster.rows("pid", "pid IS NOT NULL"))
    said(cluster.tick(), status=0)
    assert re.match("would wait to make up slow: manual run of ", cluster.tick("--dry-run").stdout)
    (tmp_path / "go").touch()
    assert by_hand.wait(30) == 0
    assert re.match(f"would make up slow: no node ran its slot of .*{at:%H:%M}, ", cluster.tick("--dry-run").stdout)
    said(cluster.tick("--at", utc(slot(0))), status=0)
    assert cluster.cli("drain", "web2").returncode == 0
    said(cluster.tick(CRONLEDGER_NODE="web2"), status=0)
    said(cluster.tick(), r"ran slow in \d\.\ds, for its missed slot of .*", status=0)
    assert cluster.made_up() == [("slow", utc(at))]


def test_a_node_that_cannot_start_it_leaves_it(embedded: Cluster) -> None:
    """Silently, minute by minute, to those that can."""
    embedded.know(job("a", once(slot(10)), command='["/not/there"]'))
    said(embedded.tick(), status=0)
    assert embedded.rows("id") == []


def test_a_missed_slot_waits_for_a_place(embedded: Cluster, spawn: Spawn, wait_for: WaitFor, tmp_path: Path) -> None:
    """With max_running reached nothing is said, and no tick stays for it."""
    wait = f'"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"'
    at = slot(10)
    embedded.know(job("long", once(at), command=wait), job("short", once(at)))
    path = embedded.folder / "schedule.toml"
    path.write_text(f"max_running = 1\n{path.read_text()}")
    first = spawn("tick", cwd=tmp_path, env=embedded.env)
    wait_for(lambda: embedded.rows("pid", "pid IS NOT NULL"))
    said(embedded.tick(), status=0)
    (tmp_path / "go").touch()
    assert first.wait(30) == 0
    said(embedded.tick(), r"ran short in \d\.\ds, for its missed slot of .*", status=0)
    assert embedded.made_up() == [("short", utc(at)), ("long", utc(at))]


NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=400)


class Clocked:
    """A ledger whose clock shows what the test wants, and the jobs of a schedule that it has known for long."""

    def __init__(self, embedded: Cluster, *jobs: str, now: datetime = NOW) -> None:
        embedded.deploy(*jobs)
        self.schedule: Schedule = load(embedded.folder / "schedule.toml")
        self.link = open_link(parse(embedded.dsn, "/"))
        self.ledger = Ledger(self.link, "app", "web1", "", Clock(LONG_AGO, elapsed()))
        catchup.note(self.ledger, self.schedule, self.rows())
        self.now(now)

    def now(self, now: datetime) -> "Clocked":
        self.ledger.clock = Clock(now, elapsed())
        return self

    def rows(self) -> list[Remembered]:
        return remembered(self.ledger)

    def missed(self) -> list[str]:
        """The slots to make up, in UTC."""
        found = catchup.missed(self.ledger, self.schedule, self.rows())
        return [f"{one.due_at:%m-%d %H:%M:%S}".removesuffix(":00") for one in found]

    def claim(self, *due: str) -> None:
        """Have these slots run, as far as a claim can tell."""
        for one in due:
            due_at = datetime.fromisoformat(f"2026-{one}+00:00")
            [job] = self.schedule.jobs
            run = self.ledger.draft(job.name, due_at=due_at, stale_after=job.stale_after, overlap=True)
            assert isinstance(self.ledger.claim(run), Claimed)


@pytest.fixture
def clocked(embedded: Cluster) -> Iterator[Callable[..., Clocked]]:
    """`clocked(*jobs, now=…)`."""
    made: list[Clocked] = []

    def make(*jobs: str, **now: datetime) -> Clocked:
        made.append(Clocked(embedded, *jobs, **now))
        return made[-1]

    yield make
    for one in made:
        one.link.close()


def test_only_the_last_missed_slot_is_made_up_once_it_is_old_enough(clocked: Callable[..., Clocked]) -> None:
    """One each ten minutes, after an hour without any tick: the one of 11:50, until the next one is that old."""
    world = clocked(job("a", 'cron = "*/10 * * * *"'))
    assert world.missed() == ["11-30 11:50"]
    assert world.now(NOW.replace(minute=1, second=59)).missed() == []  # that of 12:00 is missed too, and still young
    assert world.now(NOW.replace(minute=2, second=1)).missed() == ["11-30 12:00"]
    world.claim("11-30 12:00")
    assert world.missed() == []
    assert world.now(NOW.replace(minute=1, second=59)).missed() == ["11-30 11:50"]


def test_a_job_of_each_minute_loses_all_but_the_last(clocked: Callable[..., Clocked]) -> None:
    """After an outage up to 12:00 the slot of 11:59 is made up at 12:01, and neither 11:58 nor any other before."""
    world = clocked(job("a", 'cron = "* * * * *"'))
    assert world.missed() == []
    world.claim("11-30 12:00", "11-30 12:01")
    assert world.now(NOW.replace(minute=1)).missed() == ["11-30 11:59"]
    assert world.now(NOW.replace(minute=2)).missed() == []


def test_intervals_are_made_up_from_two_minutes_on(clocked: Callable[..., Clocked]) -> None:
    """A shorter one is due again before a slot is old enough."""
    for every, missed in (("1h", ["11-30 11:00"]), ("150s", ["11-30 11:57:30"]), ("90s", [])):
        assert clocked(job("a", f'every = "{every}"')).missed() == missed


@pytest.mark.parametrize(
    ("cron", "now", "missed"),
    [
        ("30 2 * * *", "2026-03-29T04:00+00:00", []),
        ("30 3 * * *", "2026-03-29T04:00+00:00", ["03-29 01:30"]),
        ("30 2 * * *", "2026-10-25T04:00+00:00", ["10-25 00:30"]),
        ("*/30 2 * * *", "2026-10-25T04:00+00:00", ["10-25 01:30"]),
    ],
)
def test_a_local_time_that_does_not_occur_has_no_slot(
    clocked: Callable[..., Clocked], cron: str, now: str, missed: list[str]
) -> None:
    """And a fixed one that occurs twice has its first only, also when it is made up."""
    paris = job("a", f'cron = "{cron}"\ntimezone = "Europe/Paris"', 'catch_up = "12h"')
    assert clocked(paris, now=datetime.fromisoformat(now)).missed() == missed


def test_the_last_slot_of_a_year_is_found_quickly(clocked: Callable[..., Clocked]) -> None:
    """Also a single one, months ago; and none where there was none."""
    year = 'catch_up = "365d"'
    jobs = [job("a", 'cron = "30 4 29 2 *"', year), job("b", 'cron = "1 0 1 1 *"', year)]
    assert clocked(*jobs).missed() == ["01-01 00:01"]


def test_an_interval_job_that_passed_over_a_slot_does_not_make_it_up(clocked: Callable[..., Clocked]) -> None:
    """Nothing is said of it, but with catch_up it is remembered as stood down."""
    world = clocked(job("a", 'every = "10m"'))
    [one] = world.schedule.jobs
    run = world.ledger.draft("a", due_at=NOW - timedelta(hours=1), stale_after=timedelta(hours=3))
    assert isinstance(world.ledger.claim(run), Claimed)
    due = Slot(one, datetime(2026, 11, 30, 11, 50, tzinfo=UTC))
    assert world.missed() == ["11-30 11:50"]
    with Runner(world.schedule, world.ledger, expected=1) as runner:
        tick = Tick(runner, dict, [due], moment_of=lambda _: 0.0)
        assert list(tick.go_on()) == []
    assert world.missed() == []
