"""A job as the schedule has it, and a slot of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from cronledger.cron import Cron
from cronledger.every import Every

Command = str | tuple[str, ...]


@dataclass(eq=False, slots=True)  # not frozen: that takes twice as long, and a schedule may hold ten thousand
class Job:
    """One [[job]], with what it inherits from [defaults]. `line` is that of its header, `cwd` is absolute.

    `stale_after` is None only with a `lease`: then a run may take as long as it likes.
    """

    line: int
    name: str
    timing: Cron | Every
    command: Command = field(repr=False)
    stale_after: timedelta | None
    lease: timedelta | None
    description: str
    enabled: bool
    zone: tzinfo
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    shell: str
    lock: str | None
    overlap: bool
    scope: str
    keep_output: str
    report: str
    retries: int = 0
    retry_delay: timedelta = timedelta()
    catch_up: timedelta | None = None
    on_failure: Command | None = field(repr=False, default=None)
    on_recovery: Command | None = field(repr=False, default=None)

    @property
    def zone_name(self) -> str:
        """The zone as the schedule names it, or "local"."""
        return str(self.zone)

    @property
    def argv(self) -> tuple[str, ...]:
        """What is executed: a string goes through the shell, an array does not."""
        return self._argv(self.command)

    def notice(self, state: str) -> tuple[str, ...] | None:
        """What is executed to tell of a run that is now in this state; None when nothing is to be told."""
        told = {"failed": self.on_failure, "completed": self.on_recovery}.get(state)
        return None if told is None else self._argv(told)

    def _argv(self, command: Command) -> tuple[str, ...]:
        return (self.shell, "-c", command) if isinstance(command, str) else command

    def due(self, moment: datetime) -> bool:
        """Whether it is due in the minute of the aware `moment`, with `every` in the second; enabled or not."""
        return self.timing.due(aware(moment).astimezone(self.zone))


@dataclass(frozen=True, slots=True)
class Slot:
    """A job and an instant (UTC) at which it is due. `cause`: why it is claimed, "schedule" or "catch_up"."""

    job: Job
    due_at: datetime
    cause: str = "schedule"


def aware(moment: datetime) -> datetime:
    """The instant in UTC, cut to the second. Raises ValueError for a naive one."""
    if moment.utcoffset() is None:
        raise ValueError(f"{moment} has no time zone; give it one, as in datetime.now(UTC)")
    return moment.astimezone(UTC).replace(microsecond=0)
