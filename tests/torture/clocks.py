"""Two clocks at the turn of a minute, a database whose clock jumps, and zones that change theirs during a run."""

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit

import recorded
from conftest import Database
from deployed import Deployed
from servers import OwnServer

from cronledger.events import utc
from torture.conftest import Tally
from torture.kills import NEXT
from torture.machines import PLAIN, ages, count, ended, start
from torture.sessions import connections
from torture.stages import FOR_EVER, GUARDED, UNTIL_GO, Stage, Stages, account, at_once
from torture.stalled import setting

NEAR = 28.0
"""Seconds by which a node's clock may safely be off."""


def minutes_turn(stages: Stages, tally: Tally, times: int, seed: int) -> None:
    """So many times: two nodes tick at :59.9, two more a moment later at :00."""
    chance = random.Random(seed)
    moments = [(chance.uniform(0, 0.2), chance.uniform(0, 0.3)) for _ in range(times)]
    at_once(partial(_turn, stages), moments, tally, width=3, slots=2)


def _turn(stages: Stages, moment: tuple[float, float]) -> Stage:
    """Each slot ran once, or stood down for the other one, as one line says; or both, when a node came later."""
    apart, lasts = moment
    stage, turn = stages.stage(), _near_turn()
    stage.write(f"{GUARDED}sleep {lasts:.2f} 9>&-")
    for number, wall in enumerate((turn - 0.1, turn - 0.1, turn, turn)):
        time.sleep(apart if number == 2 else 0)
        stage.start("--node", f"web{number}", at=None, wall=wall)
    ended = [tick.wait() for tick in stage.ticks]
    slots = {utc(datetime.fromtimestamp(minute, UTC)) for minute in (turn - 60, turn)}
    told = [(event["due_at"], event["event"]) for one in ended for event in one.events]
    assert ({slot for slot, _ in told}, len(set(told))) == (slots, len(told)), stage.said()
    assert {event for _, event in told} <= {"ran", "stood_down"}, stage.said()
    assert [one.err for one in ended] == [""] * 4, stage.said()
    assert stage.rows("state") in ([("completed",)], [("completed",)] * 2), stage.said()
    return stage


def _near_turn() -> float:
    """The next or the last turn of a minute, whichever is near enough for a clock to be off by; waited for."""
    while True:
        now = time.time()
        turn = round(now / 60) * 60
        if abs(turn - now) <= NEAR:
            return turn
        time.sleep(0.2)


AHEAD = "SELECT pg_catalog.clock_timestamp() + seconds * INTERVAL ''1 second'' FROM ahead.of"


class DatabaseClock:
    """The clock of a server of our own, as new sessions of a database find it. Use as a context manager."""

    def __init__(self, database: Database) -> None:
        assert isinstance(database.server, OwnServer)
        self._database, self._server = database, database.server
        self._open = ExitStack()

    def __enter__(self) -> "DatabaseClock":
        if self._database.kind == "postgres":
            name = urlsplit(self._database.dsn).path[1:]
            for statement in (
                "CREATE SCHEMA ahead",
                "CREATE TABLE ahead.of (seconds integer)",
                "INSERT INTO ahead.of VALUES (0)",
                f"CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS '{AHEAD}'",
                f"ALTER DATABASE {name} SET search_path = ahead, pg_catalog, public",
            ):
                self._database.sql(statement)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def set(self, seconds: int) -> None:
        """Let it be so much ahead of the true time."""
        if self._database.kind == "postgres":
            self._database.sql(f"UPDATE ahead.of SET seconds = {seconds}")
            return
        self._open.close()
        self._open.enter_context(
            setting(self._server, "init_connect", f"'SET timestamp = UNIX_TIMESTAMP(SYSDATE(6)) + ({seconds})'")
        )


AFTER_NEXT = "2026-01-05T10:02"


def database_jumps(stages: Stages, tally: Tally) -> None:
    """The database's clock is set during two runs, by less than a node's may be off, and by hours."""
    with DatabaseClock(stages.database) as clock:
        for by in (29, -29, 7200, -7200):
            clock.set(0)
            runs, endless = stages.stage(), stages.stage()
            _jump(runs, endless, clock, by)
            for stage in (runs, endless):
                account(stage, tally)


def _jump(runs: Stage, endless: Stage, clock: DatabaseClock, by: int) -> None:
    """Others leave the runs alone; one is settled as it was, one is ended after its window, by no other measure."""
    runs.write(UNTIL_GO)
    endless.write(FOR_EVER)
    tick, ended = runs.start(), endless.start(window=8.0)
    runs.wait_for(lambda: runs.started and endless.started, "both run")
    runs.wait_for(lambda: connections(runs) == 0, "both rest, and will come back in new sessions")
    before = runs.rows("started_at, expires_at, state")
    clock.set(by)
    for node, minute in (("web1", NEXT), ("web2", AFTER_NEXT)):
        _leaves_alone(runs, node, minute, by)
    assert runs.rows("started_at, expires_at, state") == before, runs.said()
    runs.go()
    assert ([event["event"] for event in tick.wait().events], tick.wait().err) == (["ran"], ""), runs.said()
    assert runs.rows("started_at, expires_at") == [row[:2] for row in before], runs.said()
    [(started, finished, lasted)] = runs.rows("started_at, finished_at, duration_ms")
    assert timedelta() <= finished - started - timedelta(milliseconds=lasted) < timedelta(seconds=29), runs.said()
    [event] = ended.wait().events
    assert event["reason"] == "ended after 8.0s, its stale_after", endless.said()
    assert 7000 < event["duration_ms"] < 29_000, endless.said()


def _leaves_alone(stage: Stage, node: str, minute: str, by: int) -> None:
    other = stage.tick("--node", node, at=minute)
    if abs(by) < 30:
        assert ([event["event"] for event in other.events], other.err) == (["stood_down"], ""), stage.said()
        return
    assert re.search(r"this node's clock is \d+ s (ahead of|behind) the database's", other.err), stage.said()
    assert (other.status, other.events) == (1, []), stage.said()


SPRING, AUTUMN = (timedelta(hours=1), timedelta(hours=2)), (timedelta(hours=2), timedelta(hours=1))
"""Offsets from UTC before and after a change."""


def changing(at: datetime, offsets: tuple[timedelta, timedelta]) -> str:
    """A zone whose clocks change at this instant, by the rules of POSIX; and back, half a year before and after it."""
    change, back = at + offsets[0], at + timedelta(days=180) + offsets[1]
    begins, ends = (change, back) if offsets == SPRING else (back, change)
    return "CET-1CEST," + ",".join(f"{one.timetuple().tm_yday - 1}/{one:%H:%M:%S}" for one in (begins, ends))


@contextmanager
def changed(database: Database, zone: str, offsets: tuple[timedelta, timedelta]) -> Iterator[None]:
    """The zone of the database too, where it is ours to set; for MariaDB, which has no rules, after the change."""
    with ExitStack() as settings:
        if database.kind == "postgres":
            database.sql(f"ALTER DATABASE {urlsplit(database.dsn).path[1:]} SET timezone = '{zone}'")
        elif isinstance(database.server, OwnServer):
            after = f"'+0{offsets[1] // timedelta(hours=1)}:00'"
            settings.enter_context(setting(database.server, "time_zone", after))
        yield


def zones_change(deployed: Deployed, tally: Tally, offsets: tuple[timedelta, timedelta]) -> None:
    """Node, database and schedule change their clocks half an hour after a run began, half an hour before now.

    It is not reaped before its window is over, for all that the clocks say; when it is over, it is reaped.
    """
    now = datetime.now(UTC)
    zone, started_at = changing(now - timedelta(minutes=30), offsets), now - timedelta(hours=1)
    _write(deployed, "true")
    for over, left in ((False, 5), (True, -5)):
        for table in ("runs", "jobs"):  # who stood down in this minute is remembered
            deployed.database.sql(f"DELETE FROM cronledger_{table}")
        row = {"started_at": started_at, "due_at": started_at.replace(second=0, microsecond=0), "owner": "elsewhere"}
        row |= {"expires_at": now + timedelta(minutes=left), "namespace": "app", "node": "web2"}
        recorded.running(deployed.database, 0, "ok", **row)
        with changed(deployed.database, zone, offsets):
            done = deployed.tick(TZ=zone)
        began = started_at + offsets[0]
        run, day = rf"run of {_day(now, began, offsets)}{began:%H:%M}", _day(now, began, offsets)
        lines = [rf"stood down ok: {run} still going on web2 for 60m\d+s"]
        if over:
            window = rf"window of {59 + left}m0s over"
            lines = [rf"reaped ok: {run} on web2, started {day}{began:%H:%M:%S}, {window}", r"ran ok in \d\.\ds"]
        _said(done.stdout, lines, offsets[1])
        assert (done.returncode, done.stderr) == (int(over), ""), done
        if not over:
            deployed.database.sql("DELETE FROM cronledger_runs")
        count(deployed, tally, 2 if over else 0)


def change_amid_run(deployed: Deployed, tally: Tally, offsets: tuple[timedelta, timedelta]) -> None:
    """The clocks change while the command runs: its line has the new time, its ages are as ever."""
    deployed.database.sql("DELETE FROM cronledger_runs")
    _write(deployed, "sleep 4")
    zone = changing(datetime.now(UTC) + timedelta(seconds=3), offsets)
    with changed(deployed.database, zone, offsets):
        status, out, err = ended(start(deployed, PLAIN, TZ=zone))
        assert (status, err) == (0, ""), (out, err)
        _said(out, [r"ran ok in \d+\.\ds"], offsets[1])
        assert ages(deployed) == (True, 3660.0)
    count(deployed, tally, 1)


def _write(deployed: Deployed, command: str) -> None:
    job = f'[[job]]\nname = "ok"\ncron = "* * * * *"\ncommand = "{command}"\n'
    (deployed.folder / "schedule.toml").write_text(f'timezone = "local"\nnamespace = "app"\n{job}')


def _day(now: datetime, began: datetime, offsets: tuple[timedelta, timedelta]) -> str:
    """The date, as a line has it when it is not its own."""
    return "" if began.date() == (now + offsets[1]).date() else f"{began:%Y-%m-%d} "


def _said(out: str, patterns: list[str], offset: timedelta) -> None:
    printed = out.splitlines()
    assert len(printed) == len(patterns), (out, patterns)
    for line, pattern in zip(printed, patterns, strict=True):
        assert re.fullmatch(rf"\S+\+0{offset // timedelta(hours=1)}:00 {pattern}", line), (line, pattern)
