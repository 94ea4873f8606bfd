"""`run JOB`: a job now, through the ledger, by hand."""

import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated

import typer

from cronledger import pauses
from cronledger.claiming import drafted, stood_down
from cronledger.cli.lines import Lines
from cronledger.cli.opening import (
    Environment,
    duration_of,
    find_schedule,
    given,
    job_of,
    load_for_work,
    node_name,
    opened,
)
from cronledger.cli.parameters import AsJson, DsnText, NodeName, SchedulePath, named, start_of
from cronledger.cli.tables import tell
from cronledger.cli.tick import Printer, Stopper
from cronledger.clock import elapsed
from cronledger.errors import CannotStart, CronledgerError
from cronledger.events import Event, Trouble
from cronledger.flight import Flight
from cronledger.ledger import Barred, Claim, Claimed, Ledger, Run, check_skew
from cronledger.ledger.jobs import remembered
from cronledger.ledger.link import BUDGET
from cronledger.schedule import Job, Schedule

POLL = 1.0
"""Seconds between two tries to claim while `--wait` lasts."""


READER_MS = 10_000
"""How long a reader of the output (less) may pause before output is left out: the run must not hang on it."""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(run)


def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", callback=named)],
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="DURATION", help="Wait so long for a run that bars it, such as 10m.")
    ] = None,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """Run a job now, through the ledger.

    It takes no slot, but no other run of it is in flight beside it.

    Prints the command's output as it comes, then how it ended. With --json the output goes to stderr and the end, an
    object, to stdout. Ctrl-C ends the command, within 7 seconds; a second one kills it at once.

    \b
    Examples:
        cronledger run reports:build
        cronledger run reports:build --wait 10m
    """
    start = start_of(context)
    patience = given("--wait", wait, "a duration")
    window = duration_of("--wait", patience) if patience else timedelta()
    read = load_for_work(find_schedule(schedule))
    wanted = job_of(read, job)
    environment = Environment(read)
    with opened(read, dsn, node_name(node), seconds=BUDGET) as ledger:
        check_skew(ledger.clock, start.wall, start.wall_read_at)
        printer = Printer(read, ledger.link.mask, Lines(2, "utf-8"), json=json, quiet=None)
        live = Lines(2 if json else 1, "utf-8", patience_ms=READER_MS)
        with Flight(ledger, read, expected=1) as flight:
            if why := flight.missing(wanted, environment()):
                raise CannotStart(f"{job} cannot start on this node: {why}")
            _warn_of_a_pause(ledger, read, wanted)
            claimed = _claim(ledger, read, wanted, window)
            with Stopper() as stopper:
                stopper.forward(_ending(flight))
                flight.start(claimed, wanted, environment(), live.write_bytes)
                failed = False
                while flight.is_busy:
                    failed |= printer.print_events(_after_output(live, flight.events()))
    raise typer.Exit(1 if failed else 0)


def _after_output(live: Lines, events: Iterator[Event | Trouble]) -> Iterator[Event | Trouble]:
    for event in events:
        live.end_line()
        yield event


def _ending(flight: Flight) -> Callable[[int], None]:
    """What a signal does: the first is forwarded to the command, the second, as a second Ctrl-C, kills it at once."""
    came: list[str] = []

    def end(signum: int) -> None:
        came.append(signal.Signals(signum).name)
        flight.stop(signum if len(came) == 1 else signal.SIGKILL, f"ended by {came[0]}")

    return end


def _warn_of_a_pause(ledger: Ledger, schedule: Schedule, job: Job) -> None:
    paused = pauses.active(remembered(ledger), ledger.clock.now())
    if because := pauses.why_barred(ledger, paused, job, schedule.zone):
        tell(f"cronledger: warning: {job.name} is run although {because}")


def _claim(ledger: Ledger, schedule: Schedule, job: Job, wait: timedelta) -> Run:
    """The run, claimed. Raises CronledgerError when another run bars it for longer than `wait`."""
    until, told = elapsed() + wait.total_seconds(), False
    while True:
        run = drafted(ledger, job, None, "manual")
        claim = ledger.claim(run)
        if isinstance(claim, Claimed):
            return run
        why = _why(ledger, schedule, run, claim, "" if wait else "--wait 10m waits for it, ")
        if elapsed() >= until:
            raise CronledgerError(f"{job.name} does not run now: {why}")
        if not told:
            tell(f"cronledger: waiting to run {job.name}: {why}")
        told = True
        ledger.link.close()
        time.sleep(POLL)


def _why(ledger: Ledger, schedule: Schedule, run: Run, claim: Claim, hint: str) -> str:
    if not isinstance(claim, Barred):
        return "a run by hand was started in this very microsecond; try again"
    down = stood_down(ledger, run, claim.run)
    return f"{down.because(schedule.zone)}; {hint}`cronledger show {claim.run.id[-8:]}` tells more"
