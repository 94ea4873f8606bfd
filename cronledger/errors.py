"""The few errors that an operator can act on; each knows its exit status and its text is the line that is printed."""

from dataclasses import dataclass


class CronledgerError(Exception):
    """Something that an operator can act on. Its text says what happened, to what, and what to do."""

    exit_status = 1


class UsageError(CronledgerError):
    """The command line asks for something that cannot be meant."""

    exit_status = 2


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a schedule: where it is, what is wrong and what to write instead. Line 0 is the whole file."""

    path: str
    line: int
    job: str
    key: str
    wrong: str
    instead: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        named = [f"job {self.job}"] if self.job else []
        keyed = [self.key] if self.key else []
        return ": ".join([place, *named, *keyed, "; ".join(part for part in (self.wrong, self.instead) if part)])


class ScheduleRefused(CronledgerError):
    """The schedule has mistakes and is refused whole. `mistakes` holds all of them, in the order of the file."""

    exit_status = 2

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class EnvironmentMissing(CronledgerError):
    """The env_file, or a variable that the schedule names as ${NAME}, is not there when it is needed."""


class CannotStart(CronledgerError):
    """A job cannot start on this node: its cwd, its shell or its program is not there."""


class LedgerError(CronledgerError):
    """The ledger cannot be used. The text never holds a password."""


class LedgerUnreachable(LedgerError):
    """The database does not answer, refuses the connection, or did not answer in time."""


class LedgerBusy(LedgerError):
    """One row is held by somebody else's transaction, or the database gave way again and again; others may be free."""


class LedgerNotInstalled(LedgerError):
    """A table, a column or a mutex of the ledger is missing, or its schema is not this program's."""
