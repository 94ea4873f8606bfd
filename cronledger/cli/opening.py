"""From options and environment to a schedule and a ledger: what every command begins with."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from cronledger import process
from cronledger.errors import CronledgerError, ScheduleRefused, UsageError
from cronledger.events import one_line
from cronledger.ledger import Ledger, open_ledger, open_link
from cronledger.ledger.dsn import Dsn, parse
from cronledger.ledger.link import Link
from cronledger.masking import without_credentials
from cronledger.schedule import Job, Schedule, anyone_may_write, is_name, load, parse_duration

BY_HAND = 5.0
"""Seconds of patience with the ledger for a command that somebody waits for."""
LOOKS = 60.0
"""Seconds for all that it asks, once the ledger has answered: `list` takes one look for each job."""


def given(option: str, text: str | None, what: str) -> str | None:
    """The value of an option, None where it was left out. Raises UsageError for an empty one; `what` it takes."""
    if text == "":
        raise UsageError(f"{option} is empty: is a variable of the shell not set? Leave it out, or give it {what}")
    return text


def find_schedule(option: str | None) -> str:
    """Where the schedule is: the option, else CRONLEDGER_SCHEDULE, else ./schedule.toml. Raises UsageError."""
    return given("--schedule", option, "a path") or os.environ.get("CRONLEDGER_SCHEDULE") or "schedule.toml"


def load_for_work(path: str) -> Schedule:
    """The schedule, to run its commands.

    Raises ScheduleRefused, and UsageError when root would run what anyone may write.
    """
    schedule = load(path)
    if os.geteuid() == 0 and anyone_may_write(schedule.path):
        raise UsageError(
            f"{path}: anyone may write this schedule, and root would run what they write; chmod o-w it and its folder"
        )
    return schedule


def node_name(option: str | None) -> str:
    """This node's name: the option, else CRONLEDGER_NODE, else the host name.

    Raises UsageError for one off the grammar.
    """
    name = option if option is not None else os.environ.get("CRONLEDGER_NODE") or socket.gethostname()
    if not is_name(name):
        raise UsageError(
            f"the node's name {name!a} is not a name: at most 128 ASCII letters, digits and . _ : / -, a letter or"
            " digit first; name the node by --node or CRONLEDGER_NODE"
        )
    return name


class Environment:
    """The schedule's environment, its env_file included, read once and only when it is needed."""

    def __init__(self, schedule: Schedule | None) -> None:
        self._schedule = schedule
        self._read: Mapping[str, str] | None = None

    def __call__(self) -> Mapping[str, str]:
        """Raises EnvironmentMissing."""
        if self._read is None:
            self._read = self._schedule.environment(os.environ) if self._schedule else os.environ
        return self._read


def find_dsn(option: str | None, schedule: Schedule | None, environment: Environment) -> Dsn:
    """The ledger's DSN: the option, else CRONLEDGER_DSN, else the schedule's. Raises UsageError without one."""
    if text := given("--dsn", option, "a DSN") or os.environ.get("CRONLEDGER_DSN"):
        return parse(text, _current_folder())
    if schedule is not None and schedule.dsn is not None:
        text = schedule.expand(schedule.dsn, environment()) if "${" in schedule.dsn else schedule.dsn
        return parse(text, schedule.folder)
    either = f"; {find_schedule(None)} is not there either: name the schedule by --schedule" if schedule is None else ""
    raise UsageError(
        "no ledger is named: give --dsn, or set CRONLEDGER_DSN, or write dsn under [ledger] in the schedule"
        f' (dsn = "${{DATABASE_URL}}"){either}'
    )


def _current_folder() -> str:
    """Where a relative SQLite path counts from; "" where that folder is gone: then only an absolute one is found."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def open_for(link: Link, schedule: Schedule, node: str) -> Ledger:
    """The ledger of the schedule's namespace. Raises LedgerError."""
    own = process.own()
    return open_ledger(link, namespace=schedule.namespace, node=node, owner=own.text if own else "")


@contextmanager
def opened(schedule: Schedule, dsn: str | None, node: str = "", *, seconds: float = LOOKS) -> Iterator[Ledger]:
    """The same for a command by hand, which has so many seconds once the ledger has answered."""
    link = open_link(find_dsn(dsn, schedule, Environment(schedule)), budget=BY_HAND)
    try:
        ledger = open_for(link, schedule, node)
        link.extend(seconds)
        yield ledger
    finally:
        link.close()


def duration_of(option: str, text: str, unit: str = "m") -> timedelta:
    """The duration that was given to `option`. Raises UsageError for what is none: a bare number may mean `unit`."""
    try:
        return parse_duration(text, unit)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def job_of(schedule: Schedule, name: str) -> Job:
    """The job of this name. Raises CronledgerError, which names the nearest one."""
    for job in schedule.jobs:
        if job.name == name:
            return job
    raise unknown_job(name, {job.name for job in schedule.jobs}, f"in {schedule.path}")


def unknown_job(name: str, names: set[str], where: str) -> CronledgerError:
    """The error for a job that is not there, which names the nearest of `names`."""
    from difflib import get_close_matches

    spelled = {one.lower(): one for one in sorted(names)}
    near = get_close_matches(name.lower(), spelled, 1)
    hint = f"did you mean {spelled[near[0]]}?" if near else "`cronledger list` shows the jobs"
    return CronledgerError(f"there is no job {name} {where}; {hint}")


def minute_of(text: str, schedule: Schedule) -> datetime:
    """A minute written by hand, ISO 8601, as an instant cut to the minute.

    Raises UsageError, also for a local time that occurs twice or never in the schedule's zone.
    """
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2026-11-30"):  # a day has no minute
            raise ValueError(text)
        if moment.tzinfo is None:
            moment = _local(moment, text, schedule)
        if not 1970 <= moment.year < 9999:  # beyond, not every zone can tell the time
            raise ValueError(moment.year)
        return moment.astimezone(UTC).replace(second=0, microsecond=0)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--at {text}: not a time; write 2026-11-30T03:15, with an offset or in the schedule's zone"
        ) from None


def _local(naive: datetime, text: str, schedule: Schedule) -> datetime:
    first, second = (naive.replace(tzinfo=schedule.zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    if not _is_there(first, schedule):
        raise UsageError(
            f"--at {text}: this local time never occurs in {schedule.zone_name}, so nothing was due then; write another"
        )
    offsets = f"{first.isoformat()} or {second.isoformat()}"
    raise UsageError(
        f"--at {text}: this local time occurs twice in {schedule.zone_name}; write it with its offset, {offsets}"
    )


def _is_there(moment: datetime, schedule: Schedule) -> bool:
    back = moment.astimezone(UTC).astimezone(schedule.zone)
    return back.replace(tzinfo=None, fold=0) == moment.replace(tzinfo=None, fold=0)


def complaint(error: CronledgerError) -> str:
    """An error as it stands on stderr: one line, but for a refused schedule, which has one for each mistake."""
    if isinstance(error, ScheduleRefused):
        return "\n".join(without_credentials(str(mistake)) for mistake in error.mistakes)
    return f"cronledger: {one_line(without_credentials(str(error)))}"
