"""The lines an operator reads, to the letter."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronledger.events import (
    Crowded,
    Event,
    Failed,
    Holder,
    Paused,
    Ran,
    Reaped,
    StoodDown,
    duration,
    harmless,
    local,
    one_line,
    tail,
    utc,
)

PARIS = ZoneInfo("Europe/Paris")


def paris(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=PARIS)


def holder(job: str, due: str, started: str, node: str = "web2", manual: bool = False) -> Holder:
    return Holder(run_id="019a", job=job, due_at=paris(due), node=node, started_at=paris(started), manual=manual)


def where(at: str, job: str, due: str = "2026-11-30T03:00") -> dict[str, object]:
    return {"at": paris(at), "job": job, "due_at": paris(due), "node": "web1", "run_id": "019b"}


def failed(at: str, duration_ms: int, reason: str, job: str = "inbox:poll") -> Failed:
    return Failed(**where(at, job), duration_ms=duration_ms, exit_code=None, reason=reason)  # type: ignore[arg-type]


def paused(job: str, node: str = "", *, until: str | None = None, reason: str | None = None) -> Paused:
    of = where("2026-11-30T14:00:01", job) | {"due_at": None, "run_id": None}
    return Paused(
        **of,  # type: ignore[arg-type]
        scope_node=node,
        paused_at=paris("2026-11-29T14:00"),
        resumes_at=paris(until) if until else None,
        paused_by="alice on web1",
        reason=reason,
    )


LINES = [
    (
        Ran(**where("2026-11-30T03:15:01", "sessions:prune"), duration_ms=1400, attempts=2),  # type: ignore[arg-type]
        "2026-11-30T03:15:01+01:00 ran sessions:prune in 1.4s on attempt 2",
    ),
    (
        Failed(
            **where("2026-11-30T04:00:12", "reports:build"),  # type: ignore[arg-type]
            duration_ms=12_000,
            exit_code=3,
            reason="exit 3: could not connect to warehouse",
            attempts=4,
        ),
        (
            "2026-11-30T04:00:12+01:00 failed reports:build in 12.0s after 4 attempts:"
            " exit 3: could not connect to warehouse"
        ),
    ),
    (
        failed("2026-11-30T03:25:00", 4200, "ended by SIGTERM to the tick after exit 3: could not connect"),
        (
            "2026-11-30T03:25:00+01:00 failed inbox:poll in 4.2s:"
            " ended by SIGTERM to the tick after exit 3: could not connect"
        ),
    ),
    (
        failed("2026-11-30T03:25:00", 900_000, "ended: lease not renewable since 03:20:10"),
        "2026-11-30T03:25:00+01:00 failed inbox:poll in 15m0s: ended: lease not renewable since 03:20:10",
    ),
    (
        Reaped(
            **where("2026-11-30T04:02:00", "loads:eu"),  # type: ignore[arg-type]
            holder=holder("loads:eu", "2026-11-30T03:00", "2026-11-30T03:00:01"),
            why="lease of 5m0s over",
        ),
        "2026-11-30T04:02:00+01:00 reaped loads:eu: run of 03:00 on web2, started 03:00:01, lease of 5m0s over",
    ),
    (
        Ran(**where("2026-11-30T03:15:01", "sessions:prune"), duration_ms=1400),  # type: ignore[arg-type]
        "2026-11-30T03:15:01+01:00 ran sessions:prune in 1.4s",
    ),
    (
        failed("2026-11-30T04:00:12", 12_000, "exit 3: could not connect to warehouse", "reports:build"),
        "2026-11-30T04:00:12+01:00 failed reports:build in 12.0s: exit 3: could not connect to warehouse",
    ),
    (
        StoodDown(
            **where("2026-11-30T03:10:00", "inbox:poll"),  # type: ignore[arg-type]
            holder=holder("inbox:poll", "2026-11-30T03:00", "2026-11-30T03:00:00"),
        ),
        "2026-11-30T03:10:00+01:00 stood down inbox:poll: run of 03:00 still going on web2 for 10m0s",
    ),
    (
        StoodDown(
            **where("2026-11-30T03:30:00", "loads:eu"),  # type: ignore[arg-type]
            holder=holder("reports:build", "2026-11-29T22:00", "2026-11-29T22:00:01"),
            lock="warehouse",
        ),
        (
            "2026-11-30T03:30:00+01:00 stood down loads:eu: lock warehouse held by reports:build,"
            " run of 2026-11-29 22:00 on web2"
        ),
    ),
    (
        StoodDown(
            **where("2026-11-30T03:10:00", "inbox:poll"),  # type: ignore[arg-type]
            holder=holder("inbox:poll", "2026-11-30T03:02:17", "2026-11-30T03:02:17", manual=True),
            lock="mail",
        ),
        "2026-11-30T03:10:00+01:00 stood down inbox:poll: manual run of 03:02:17 still going on web2 for 7m43s",
    ),
    (
        Crowded(**where("2026-11-30T03:11:00", "loads:eu"), running=8, places=8),  # type: ignore[arg-type]
        "2026-11-30T03:11:00+01:00 stood down loads:eu: no place on web1, 8 of max_running = 8 runs going",
    ),
    (
        Reaped(
            **where("2026-11-30T03:11:00", "inbox:poll"),  # type: ignore[arg-type]
            holder=holder("inbox:poll", "2026-11-30T03:00", "2026-11-30T03:00:01"),
            why="its tick is gone",
        ),
        "2026-11-30T03:11:00+01:00 reaped inbox:poll: run of 03:00 on web2, started 03:00:01, its tick is gone",
    ),
    (
        Reaped(
            **where("2026-11-30T04:02:00", "loads:eu"),  # type: ignore[arg-type]
            holder=holder("loads:eu", "2026-11-30T03:00", "2026-11-30T03:00:01"),
            why="window of 60m0s over",
        ),
        "2026-11-30T04:02:00+01:00 reaped loads:eu: run of 03:00 on web2, started 03:00:01, window of 60m0s over",
    ),
    (
        failed("2026-11-30T03:25:00", 600_000, "ended after 10m0s, its stale_after"),
        "2026-11-30T03:25:00+01:00 failed inbox:poll in 10m0s: ended after 10m0s, its stale_after",
    ),
    (
        failed("2026-11-30T03:25:00", 4200, "ended by SIGTERM to the tick"),
        "2026-11-30T03:25:00+01:00 failed inbox:poll in 4.2s: ended by SIGTERM to the tick",
    ),
    (
        failed("2026-11-30T03:25:00", 4200, "ended by SIGINT"),
        "2026-11-30T03:25:00+01:00 failed inbox:poll in 4.2s: ended by SIGINT",
    ),
    (
        failed("2026-11-30T03:25:00", 0, "cannot start: Argument list too long"),
        "2026-11-30T03:25:00+01:00 failed inbox:poll in 0.0s: cannot start: Argument list too long",
    ),
    (
        failed("2026-11-30T04:25:00", 5_100_000, "ended (exit 0) after it was reaped at 04:02"),
        "2026-11-30T04:25:00+01:00 failed inbox:poll in 85m0s: ended (exit 0) after it was reaped at 04:02",
    ),
    (
        Ran(**where("2026-11-30T03:31:02", "sessions:prune"), duration_ms=1400, cause="catch_up"),  # type: ignore[arg-type]
        "2026-11-30T03:31:02+01:00 ran sessions:prune in 1.4s, for its missed slot of 03:00",
    ),
    (
        Failed(
            **where("2026-11-30T03:31:02", "sessions:prune"),  # type: ignore[arg-type]
            duration_ms=1400,
            cause="catch_up",
            exit_code=3,
            reason="exit 3: no",
        ),
        "2026-11-30T03:31:02+01:00 failed sessions:prune in 1.4s, for its missed slot of 03:00: exit 3: no",
    ),
    (
        paused("reports:build", reason="the warehouse moves"),
        ("2026-11-30T14:00:01+01:00 paused reports:build by alice on web1 since 2026-11-29 14:00: the warehouse moves"),
    ),
    (
        paused("", until="2026-12-02T14:00"),
        "2026-11-30T14:00:01+01:00 paused all jobs by alice on web1 since 2026-11-29 14:00 until 2026-12-02 14:00",
    ),
    (paused("", "web2"), "2026-11-30T14:00:01+01:00 drained web2 by alice on web1 since 2026-11-29 14:00"),
]


@pytest.mark.parametrize(("event", "line"), LINES, ids=[line.split(" ", 1)[1][:40] for _, line in LINES])
def test_each_event_has_its_line(event: Event, line: str) -> None:
    """The sentences of the contract, in the schedule's zone, with the date only where it is not the line's own."""
    assert event.line(PARIS) == line


@pytest.mark.parametrize("event", [event for event, _ in LINES])
def test_each_record_is_json_in_utc(event: Event) -> None:
    """Every record has the same first keys, and instants in UTC with Z."""
    record = json.loads(json.dumps(event.record()))
    assert list(record)[:6] == ["at", "event", "job", "due_at", "node", "run_id"]
    assert (record["event"], record["due_at"]) == (event.name, event.due_at and "2026-11-30T02:00:00Z")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0s"),
        (1449, "1.4s"),
        (59_949, "59.9s"),
        (59_950, "1m0s"),
        (60_000, "1m0s"),
        (600_000, "10m0s"),
        (7_199_499, "119m59s"),
        (7_200_000, "2h0m"),
        (93_900_000, "26h5m"),
    ],
)
def test_durations_read_alike_everywhere(milliseconds: int, text: str) -> None:
    """Tenths under a minute, minutes and seconds under two hours, hours and minutes above; never 60.0s."""
    assert duration(milliseconds) == text


def test_nothing_that_drives_a_terminal_reaches_a_line() -> None:
    """Controls, bidirectional overrides, line separators and lone surrogates are written out; a line stays a line."""
    hostile = "a\x1b[2J\x00b\r\nc\u2028d\u202ee\udc80f\x9bg\ttab"
    assert one_line(hostile) == "a\\x1b[2J\\x00b\\x0d c\\u2028d\\u202ee\\udc80f\\x9bg tab"
    assert harmless("line\n\ttab") == "line\n\ttab"
    event = failed("2026-11-30T03:25:00", 0, hostile)
    assert "\x1b" not in event.line(PARIS)
    assert len(event.line(PARIS).splitlines()) == 1


@pytest.mark.parametrize(
    ("output", "last"),
    [("", ""), ("one\ntwo\n\n  \n", "two"), ("x" * 300, "x" * 200), ("  padded \n", "padded"), ("\n\n", "")],
)
def test_the_tail_is_the_last_line_that_says_something(output: str, last: str) -> None:
    """At most 200 characters of it, without the blanks around it."""
    assert tail(output) == last


def test_instants_are_written_in_utc_and_shown_in_the_zone() -> None:
    """RFC 3339 with Z for machines, the zone's time of day for people."""
    at = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
    assert utc(at) == "2026-11-30T02:15:00Z"
    assert utc(at + timedelta(microseconds=5)) == "2026-11-30T02:15:00.000005Z"
    assert local(at, PARIS, at) == "03:15"
    assert local(at, PARIS, at - timedelta(hours=4), seconds=True) == "2026-11-30 03:15:00"
