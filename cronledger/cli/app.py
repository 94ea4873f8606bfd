"""The commands, gathered; what they raise becomes a line and an exit status."""

import io
import os
import sys
from typing import Annotated

import typer

import cronledger
from cronledger.cli import ledgering, looking, options, pausing, reading, running
from cronledger.cli.opening import complaint
from cronledger.cli.parameters import DsnText, NodeName, SchedulePath, Start, asked, start_of
from cronledger.cli.tables import give_up_stdout, put, tell
from cronledger.cli.tick import tick as run_tick
from cronledger.cli.working import work as run_work
from cronledger.errors import CronledgerError, UsageError
from cronledger.masking import without_credentials

app = typer.Typer(
    name="cronledger",
    help="Run cron on several machines, each job once.\n\n"
    "One TOML file names the jobs, a table in your database says who runs what, each machine has one crontab line:\n\n"
    "\b\n"
    "    * * * * * cronledger tick\n\n"
    "or a container, or a systemd service, that runs `cronledger work`.\n\n"
    "\b\n"
    "Begin with:\n"
    "    cronledger check                     look for mistakes in ./schedule.toml\n"
    "    cronledger install --dsn DSN         make the tables, print the crontab line\n"
    "    cronledger list                      what runs next, and how it last ended\n\n"
    "Exit status: 0 nothing failed; 1 a run failed or was reaped, a pause is a day old, the ledger could not be used or"
    " a job could not start here; 2 wrong usage or a schedule that is refused. Manual: cronledger(1),"
    " cronledger-schedule(5).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        put(f"cronledger {cronledger.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def tick(
    context: typer.Context,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    quiet: Annotated[bool, asked(options.QUIET)] = False,
    json: Annotated[bool, asked(options.JSON)] = False,
    at: Annotated[str | None, asked(options.AT)] = None,
    dry_run: Annotated[bool, asked(options.DRY_RUN)] = False,
) -> None:
    """Claim what is due this minute, run it, record how it ended.

    The one crontab line.

    Prints one line for each job that ran, failed or stood down, for each dead run reaped, and once a day for what is
    paused; else nothing.

    \b
    Examples:
        * * * * * cronledger tick --schedule /srv/app/schedule.toml
        cronledger tick --dry-run                    what would happen now, and why
        cronledger tick --at 2026-11-30T03:15        make up a slot that no node ran
    """
    given = {"schedule": schedule, "dsn": dsn, "node": node, "at": at}
    values: dict[str, str | bool] = {name: value for name, value in given.items() if value is not None}
    values |= {"quiet": quiet, "json": json, "dry-run": dry_run}
    start = start_of(context)
    raise typer.Exit(run_tick(values, start.wall_seconds, start.wall_read_at))


@app.command()
def work(
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    quiet: Annotated[bool, asked(options.QUIET)] = False,
    json: Annotated[bool, asked(options.JSON)] = False,
    grace: Annotated[str | None, asked(options.GRACE)] = None,
    max_runtime: Annotated[str | None, asked(options.MAX_RUNTIME)] = None,
) -> None:
    """Tick at the start of each minute, in the foreground.

    In place of cron, in a container or under systemd.

    Reads the schedule again when the file changed. The first TERM, INT or HUP ends the claiming, and after --grace what
    still runs; a second one ends that at once.

    \b
    Examples:
        cronledger work --schedule /srv/app/schedule.toml
        cronledger work --grace 0                    let each command finish, however long it takes
        cronledger work --max-runtime 1h             end after an hour, for a supervisor that starts it again
    """
    given = {"schedule": schedule, "dsn": dsn, "node": node, "grace": grace, "max-runtime": max_runtime}
    values: dict[str, str | bool] = {name: value for name, value in given.items() if value is not None}
    raise typer.Exit(run_work(values | {"quiet": quiet, "json": json}))


for group in (ledgering, reading, looking, running, pausing):
    group.register(app)


class Discreet(io.TextIOBase):
    """In place of stderr: never fails, and hides the credentials in words that typer does not know and repeats."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        tell(without_credentials(text), end="")
        return len(text)


_COMPLETES = "_CRONLEDGER_COMPLETE"
_ANSWERED_BY_TYPER = {"-h", "--help", "--install-completion", "--show-completion"}


def run_app(wall_seconds: float, wall_read_at: float) -> int:
    """Run what the command line asks for; returns the exit status."""
    sys.stderr = Discreet()
    try:
        _see_that_the_command_comes_first(sys.argv[1:])
        app(prog_name="cronledger", obj=Start(wall_seconds, wall_read_at))
    except CronledgerError as error:
        tell(complaint(error))
        return error.exit_status
    except (OSError, ValueError, KeyError) as error:
        if _COMPLETES not in os.environ and not _ANSWERED_BY_TYPER & set(sys.argv):
            raise
        give_up_stdout()
        tell(f"cronledger: {_trouble_of_typer(error)}")
        return 1
    return 0


def _see_that_the_command_comes_first(words: list[str]) -> None:
    first = words[0].partition("=")[0] if words else ""
    if first in {f"--{option.name}" for option in (*options.TICK, *options.WORK)}:
        raise UsageError(f"{first} stands before the command; write it after, as in `cronledger COMMAND {first} …`")


def _trouble_of_typer(error: Exception) -> str:
    """What keeps typer from showing help, or from completing a word."""
    if isinstance(error, OSError):
        return f"cannot write to {error.filename or 'stdout'}: {error.strerror}"
    return (
        "no completion: COMP_WORDS or COMP_CWORD is not as a shell sets it; `cronledger --install-completion` puts that"
        " right"
    )
