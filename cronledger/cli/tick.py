"""`cronledger tick`: the work of one minute, its events as lines, its end as an exit status. Knows no typer."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime

from cronledger.cli.lines import Lines
from cronledger.cli.opening import (
    BY_HAND,
    Environment,
    complaint,
    find_dsn,
    find_schedule,
    given,
    load_for_work,
    minute_of,
    node_name,
    open_for,
)
from cronledger.errors import CronledgerError, UsageError
from cronledger.events import Event, Ran, Trouble, one_line
from cronledger.ledger import check_skew, open_link
from cronledger.ledger.link import BUDGET, Link
from cronledger.masking import Mask
from cronledger.runner import Runner
from cronledger.schedule import Schedule
from cronledger.tick import Tick, not_claimed

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def tick(options: Mapping[str, str | bool], wall_seconds: float, wall_read_at: float) -> int:
    """One tick; `wall_seconds` since the epoch were read from the node's clock at `wall_read_at` of `elapsed()`."""
    errors = Lines(2, "utf-8")
    try:
        return _tick(options, wall_seconds, wall_read_at, errors)
    except CronledgerError as error:
        errors.write(complaint(error))
        return error.exit_status


def _tick(options: Mapping[str, str | bool], wall_seconds: float, wall_read_at: float, errors: Lines) -> int:
    wall = datetime.fromtimestamp(wall_seconds, UTC)
    at = given("--at", text_of(options, "at"), "a time")
    schedule = load_for_work(find_schedule(text_of(options, "schedule")))
    node = node_name(text_of(options, "node"))
    due_at = minute_of(at, schedule) if at else wall.replace(second=0, microsecond=0)
    if due_at > wall and not options.get("dry-run"):
        raise UsageError(f"--at {at}: a minute still to come cannot be made up; with --dry-run it can be looked at")
    slots = schedule.slots(due_at)

    def moment_of(instant: datetime) -> float:
        return wall_read_at + (instant - wall).total_seconds()

    environment = Environment(schedule)
    stopper = Stopper()
    try:
        with stopper, closing(_link(options, schedule, environment)) as link:
            stopper.forward(lambda _: link.hurry())
            ledger = open_for(link, schedule, node)
            check_skew(ledger.clock, wall, wall_read_at)
            printer = Printer(
                schedule, link.mask, errors, json=bool(options.get("json")), quiet=bool(options.get("quiet"))
            )
            if options.get("dry-run"):
                from cronledger.plan import plan

                return printer.print_plan(plan(schedule, ledger, environment, slots, minute=due_at, is_now=not at))
            gc.enable()  # from here on the process may live for hours
            with Runner(schedule, ledger, expected=len(slots) + 1) as runner:
                stopper.forward(runner.stop)
                watched = bool(at) and os.isatty(2)
                work = Tick(runner, environment, slots, moment_of=moment_of, asked=bool(at), watched=watched)
                failed = printer.print_events(work.events())
            return 1 if failed or stopper.signal_name else 0
    except CronledgerError as error:
        if options.get("dry-run"):  # which would claim nothing
            raise
        said = f"ended by {stopper.signal_name}" if stopper.signal_name else str(error)
        kind = UsageError if isinstance(error, UsageError) else type(error)
        raise kind(not_claimed(said, slots)) from None


def _link(options: Mapping[str, str | bool], schedule: Schedule, environment: Environment) -> Link:
    dsn = find_dsn(text_of(options, "dsn"), schedule, environment)
    return open_link(dsn, budget=BY_HAND if options.get("dry-run") else BUDGET)


def text_of(options: Mapping[str, str | bool], name: str) -> str | None:
    """The value of an option that is no flag; None when it was not given."""
    value = options.get(name)
    return value if isinstance(value, str) else None


class Stopper:
    """While it is entered TERM, INT and HUP come here, and go to whom `forward` named last, those before it included.

    One that the caller ignores (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._stop: Callable[[int], None] = lambda _: None
        self._signum: int | None = None

    @property
    def signal_name(self) -> str | None:
        """The first signal that came."""
        return None if self._signum is None else signal.Signals(self._signum).name

    def __enter__(self) -> "Stopper":
        self._before = {signum: signal.getsignal(signum) for signum in SIGNALS}
        for signum, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(signum, self._came)
        return self

    def __exit__(self, *raised: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def forward(self, stop: Callable[[int], None]) -> None:
        """Call `stop` with each signal, at once with one that has come."""
        self._stop = stop
        if self._signum is not None:
            stop(self._signum)

    def _came(self, signum: int, _: object) -> None:
        self._signum = self._signum or signum
        self._stop(signum)


class Printer:
    """Events on stdout, troubles on stderr, as lines or as JSON; the ledger's password masked.

    `quiet`: without what ran well; None: with it, whatever the jobs' `report` says.
    """

    def __init__(self, schedule: Schedule, mask: Mask, errors: Lines, *, json: bool, quiet: bool | None) -> None:
        encoding = sys.stdout.encoding if sys.stdout is not None else "utf-8"
        self._lines = Lines(1, encoding)
        self._errors = errors
        self._mask = mask
        self._json = json
        self._leaves_out = quiet
        self.follow(schedule)

    def follow(self, schedule: Schedule) -> None:
        """Go by the zone and the jobs of this schedule from now on."""
        self._zone = schedule.zone
        jobs = () if self._leaves_out is None else schedule.jobs
        self._quiet = {job.name for job in jobs if self._leaves_out or job.report == "problems"}

    def print_events(self, events: Iterator[Event | Trouble]) -> bool:
        """Print each as it comes; whether one of them was a failure."""
        failed = False
        for event in events:
            failed |= event.is_failure
            if isinstance(event, Trouble):
                self._errors.write(f"cronledger: {one_line(self._mask.text(event.text))}")
            elif not (isinstance(event, Ran) and event.job in self._quiet):
                self._print(event.record() if self._json else event.line(self._zone))
        return failed

    def print_plan(self, plan: Iterator[tuple[str, dict[str, object]]]) -> int:
        """Print what a tick would do."""
        for sentence, record in plan:
            self._print(record if self._json else one_line(sentence))
        return 0

    def _print(self, said: str | dict[str, object]) -> None:
        if isinstance(said, dict):
            import json

            said = json.dumps(said)
        self._lines.write(self._mask.text(said))
