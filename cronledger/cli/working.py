"""`cronledger work`: ticks from a process that stays, for containers and systemd. Knows no typer."""

import gc
import math
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime

from cronledger import process
from cronledger.cli.lines import Lines
from cronledger.cli.opening import (
    Environment,
    complaint,
    duration_of,
    find_dsn,
    find_schedule,
    load_for_work,
    node_name,
)
from cronledger.cli.tick import Printer, Stopper, text_of
from cronledger.clock import Clock, elapsed
from cronledger.errors import CronledgerError, UsageError
from cronledger.ledger import Ledger, open_link
from cronledger.ledger.dsn import Dsn
from cronledger.masking import Mask
from cronledger.runner import Runner
from cronledger.schedule import Schedule, absolute
from cronledger.work import Work

GRACE = "7s"


def work(options: Mapping[str, str | bool]) -> int:
    """Tick each minute until a signal comes or the time is up; returns the exit status."""
    errors = Lines(2, "utf-8")
    try:
        return _work(options, errors)
    except CronledgerError as error:
        errors.write(complaint(error))
        return error.exit_status


def _work(options: Mapping[str, str | bool], errors: Lines) -> int:
    supervisor = Supervisor()
    grace = text_of(options, "grace")
    grace_seconds = _seconds("--grace", GRACE if grace is None else grace)
    ends_at = elapsed() + _longest(text_of(options, "max-runtime"))
    deployed = Deployed(find_schedule(text_of(options, "schedule")), text_of(options, "dsn"), errors)
    node = node_name(text_of(options, "node"))
    with Stopper() as stopper, closing(open_link(deployed.dsn)) as link:
        stopper.forward(lambda _: link.hurry())
        schedule, own = deployed.schedule, process.own()
        # Its clock is read before each minute; until the ledger has answered, nothing asks for it.
        ledger = Ledger(link, schedule.namespace, node, own.text if own else "", Clock(*wall()))
        printer = Printer(schedule, link.mask, errors, json=bool(options.get("json")), quiet=bool(options.get("quiet")))
        deployed.printer, deployed.mask = printer, link.mask
        gc.enable()
        gc.freeze()  # what was imported is never garbage
        with Runner(schedule, ledger, expected=len(schedule.jobs) + 1, stays=True) as runner:
            minutes = Work(runner, deployed, wall=wall, ends_at=ends_at)
            stopper.forward(Grace(runner, grace_seconds))
            supervisor.tell("READY=1")
            printer.print_events(minutes.events())
            supervisor.tell("STOPPING=1")
            printer.print_events(minutes.drain())
        return int(runner.has_ended_runs)


def _longest(text: str | None) -> float:
    """Seconds after which nothing is claimed any more."""
    if text is None:
        return math.inf
    if seconds := _seconds("--max-runtime", text):
        return seconds
    raise UsageError(f"--max-runtime {text}: would claim nothing at all; write 1h, or leave it out")


def _seconds(option: str, text: str) -> float:
    return duration_of(option, "0s" if text == "0" else text).total_seconds()


def wall() -> tuple[datetime, float]:
    """The node's clock, in UTC, and the moment of `elapsed()` at which it was read."""
    return datetime.fromtimestamp(time.time(), UTC), elapsed()


class Grace:
    """What a signal does to a `runner`: after the first, what runs may go on for so many seconds, 0 for ever.

    A second one ends it. The end of these seconds is a signal too, SIGALRM: nothing that the process waits for holds it
    up.
    """

    def __init__(self, runner: Runner, seconds: float) -> None:
        self._runner = runner
        self._seconds = seconds
        self._drains = False

    def __call__(self, signum: int) -> None:
        if self._drains:
            self._runner.stop(signum)
            return
        self._drains = True
        self._runner.drain(signum)
        signal.signal(signal.SIGALRM, lambda *_: self._runner.stop(signum))
        signal.setitimer(signal.ITIMER_REAL, self._seconds)


class Deployed:
    """The schedule as it is on disk, read again when the file changed; while that one is refused, the last good one.

    What took the place of the file by way of a symbolic link is seen too. Raises ScheduleRefused and the errors of a
    DSN for what is there at the start; after it they are complained of, once for each change.
    """

    printer: Printer
    mask: Mask

    def __init__(self, path: str, dsn: str | None, errors: Lines) -> None:
        # Absolute once and for all: a deploy puts another folder in the place that PWD names, not in the current one's.
        self._path, self._option, self._errors = absolute(path), dsn, errors
        self._signature = self._sign()
        self.schedule = self._load()
        self._good_since = wall()[0]
        self.dsn = self._find_dsn(Environment(self.schedule))
        self._used = self._told = self.dsn, self.schedule.namespace

    def __call__(self) -> tuple[Schedule, Environment]:
        """The schedule to go by, and its environment, read anew when it is asked for."""
        signature = self._sign()
        if signature != self._signature:
            self._signature = signature
            self._reload()
        environment = Environment(self.schedule)
        with suppress(CronledgerError):  # is said when something starts
            self._compare(environment)
        return self.schedule, environment

    def _sign(self) -> tuple[int, ...]:
        """What differs when the file was changed or replaced; () where it is not there."""
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _load(self) -> Schedule:
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            # Of a FIFO the beginning of the next minute might be waited for in vain.
            raise UsageError(f"{self._path}: is not a regular file, and work reads it again each time that it changes")
        return load_for_work(self._path)

    def _reload(self) -> None:
        try:
            self.schedule = self._load()
        except CronledgerError as error:
            since = self._good_since.astimezone(self.schedule.zone).isoformat(timespec="seconds")
            self._errors.write(complaint(error))
            self._errors.write(f"cronledger: the schedule as it was read at {since} goes on until that is mended")
            return
        self._good_since = wall()[0]
        self.printer.follow(self.schedule)

    def _compare(self, environment: Environment) -> None:
        """Tell, once, what this process cannot change under its runs."""
        found = self._find_dsn(environment), self.schedule.namespace
        self.mask.learn(found[0].password)  # commands get it from the env_file, and may print it
        if found == self._told:
            return
        self._told = found
        for what, used, named in zip(("DSN", "namespace"), self._used, found, strict=True):
            if named != used:
                self._errors.write(
                    f"cronledger: another {what} is named for the ledger now; this process keeps to the one that it"
                    " began with until it is restarted"
                )

    def _find_dsn(self, environment: Environment) -> Dsn:
        return find_dsn(self._option, self.schedule, environment)


class Supervisor:
    """Who started this process and wants to know how it stands: sd_notify(3). Commands do not get its NOTIFY_SOCKET."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")

    def tell(self, state: str) -> None:
        """Send a state, such as READY=1; nobody there is no trouble."""
        if self._address[:1] in ("/", "@"):
            address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.setblocking(False)
                line.sendto(state.encode(), address)
