"""Runs in flight: nothing that the ledger does holds up a window, and what cannot be killed is not settled."""

import math
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from launching import group_alive

from cronledger import process
from cronledger.clock import Clock, elapsed
from cronledger.command import ending
from cronledger.errors import LedgerBusy, LedgerUnreachable
from cronledger.events import Event, Failed, Ran, Trouble
from cronledger.flight import Flight
from cronledger.ledger import Ledger
from cronledger.ledger.run import Run
from cronledger.masking import Mask
from cronledger.schedule import Schedule, load

QUICK = 12


class Link:
    """What a Flight needs of a link."""

    mask = Mask(None)

    def rest(self, idle: float) -> None: ...

    def hurry(self) -> None: ...

    def send(self, *values: object, **how: object) -> None: ...


class Slow(Ledger):
    """A ledger that settles as slowly, or as badly, as the test says."""

    def __init__(self) -> None:
        super().__init__(Link(), "app", "web1", "", Clock(datetime.now(UTC), elapsed()))  # type: ignore[arg-type]
        self.settled: list[str] = []

    def settle(self, run: Run, **how: object) -> bool:
        self.settled.append(run.job)
        return True


@pytest.fixture
def schedule(tmp_path: Path) -> Schedule:
    """A long job and many quick ones."""
    jobs = ['name = "long"\ncommand = ["sleep", "300"]', *(f'name = "j{n}"\ncommand = ["true"]' for n in range(QUICK))]
    text = "".join(f'[[job]]\ncron = "* * * * *"\n{job}\n' for job in jobs)
    (tmp_path / "schedule.toml").write_text(text)
    return load(tmp_path / "schedule.toml")


def start(flight: Flight, ledger: Ledger, schedule: Schedule, window: float) -> dict[str, Run]:
    runs = {}
    for job in schedule.jobs:
        stale_after = timedelta(seconds=window) if job.name == "long" else timedelta(hours=1)
        runs[job.name] = ledger.draft(job.name, due_at=ledger.clock.now(), stale_after=stale_after)
        flight.start(runs[job.name], job, dict(os.environ))
    return runs


def events(flight: Flight) -> Iterator[Event | Trouble]:
    while flight.is_busy:
        yield from flight.events()


def pid_of(flight: Flight, run: Run) -> int:
    return flight._flying[run.id].pid or 0


def test_a_slow_ledger_holds_up_no_window(schedule: Schedule) -> None:
    """While one quick run after another is being recorded, the long one is ended at its window."""

    class Sluggish(Slow):
        alive_at_the_end = True

        def settle(self, run: Run, **how: object) -> bool:
            threading.Event().wait(0.25)
            self.alive_at_the_end = group_alive(long_pid)
            return super().settle(run, **how)

    ledger = Sluggish()
    with Flight(ledger, schedule, expected=QUICK + 1) as flight:
        runs = start(flight, ledger, schedule, window=1.0)
        long_pid = pid_of(flight, runs["long"])
        said = [event for event in events(flight) if isinstance(event, Failed)]
    assert [event.reason for event in said] == ["ended after 1.0s, its stale_after"]
    assert ledger.settled[-1] == "long"
    assert not ledger.alive_at_the_end


def test_a_busy_row_does_not_keep_the_others_from_being_recorded(schedule: Schedule) -> None:
    """The run whose row is held comes last, when it is free; all others are settled meanwhile."""

    class Held(Slow):
        def settle(self, run: Run, **how: object) -> bool:
            if run.job == "j0" and len(self.settled) < QUICK - 1:
                raise LedgerBusy("ledger busy (held)")
            return super().settle(run, **how)

    ledger = Held()
    with Flight(ledger, schedule, expected=QUICK + 1) as flight:
        start(flight, ledger, schedule, window=0.5)
        assert not any(isinstance(event, Trouble) for event in events(flight))
    assert len(ledger.settled) == QUICK + 1


def test_what_survives_a_kill_is_not_settled(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row stays running, so that nothing starts beside it; the process group is named."""
    monkeypatch.setattr(ending, "KILL_AFTER", 0.2)
    monkeypatch.setattr(ending, "GIVE_UP_AFTER", 0.5)
    ledger = Slow()
    with Flight(ledger, schedule, expected=QUICK + 1) as flight:
        pid = pid_of(flight, start(flight, ledger, schedule, window=0.5)["long"])
        monkeypatch.setattr(process, "living_groups", lambda: frozenset({pid}))
        troubles = [event.text for event in events(flight) if isinstance(event, Trouble)]
    assert len(troubles) == 1
    assert f"survives SIGKILL here (process group {pid})" in troubles[0]
    assert "long" not in ledger.settled


def test_what_was_never_recorded_is_not_ended(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adopted run without a pid is waited for; that nobody can end it is said when its window is over."""
    monkeypatch.setattr(ending, "GIVE_UP_AFTER", 0.5)
    monkeypatch.setattr(process, "lives", lambda *about: True)
    ledger = Slow()
    run = ledger.draft("long", due_at=None, stale_after=timedelta(seconds=0.2))
    with Flight(ledger, schedule, expected=1) as flight:
        flight.adopt(run, 0)
        [trouble] = events(flight)
    assert (
        f"long: run {run.id} cannot be ended here, since its tick died before it had recorded the pid" in trouble.text
    )
    assert ledger.settled == []


def test_a_signal_leaves_time_to_record(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended long before it, and could not be recorded until then, is tried from the signal on."""
    monkeypatch.setattr("cronledger.flight.STOPPED_FOR", 1.0)

    class Away(Slow):
        until = math.inf

        def settle(self, run: Run, **how: object) -> bool:
            if elapsed() < self.until:
                raise LedgerUnreachable("ledger unreachable (cut off)")
            return super().settle(run, **how)

    ledger = Away()
    with Flight(ledger, schedule, expected=1) as flight:
        run = ledger.draft("j0", due_at=ledger.clock.now(), stale_after=timedelta(hours=1))
        flight.start(run, schedule.jobs[1], dict(os.environ))
        begun = elapsed()
        while elapsed() < begun + 2:
            assert list(flight.events()) == []
        flight.stop(signal.SIGTERM)
        ledger.until = elapsed() + 0.3
        assert [type(event) for event in events(flight)] == [Ran]
    assert ledger.settled == ["j0"]


def test_what_cannot_be_recorded_is_told_once_and_named(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up, each run has its event and one line that says that the ledger does not know."""
    monkeypatch.setattr("cronledger.flight.SETTLE_FOR", 0.5)

    class Gone(Slow):
        def settle(self, run: Run, **how: object) -> bool:
            raise LedgerUnreachable("ledger unreachable (gone)")

    ledger = Gone()
    with Flight(ledger, schedule, expected=QUICK + 1) as flight:
        start(flight, ledger, schedule, window=0.5)
        said = list(events(flight))
    assert len({event.run_id for event in said if isinstance(event, Event)}) == QUICK + 1
    assert sum("not recorded: the end of" in event.text for event in said if isinstance(event, Trouble)) == QUICK + 1
    assert len(said) == 2 * (QUICK + 1)
