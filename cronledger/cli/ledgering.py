"""`install`, `reap` and `prune`: what is done to the ledger by hand, or by a job like any other."""

import os
import pwd
import shlex
import shutil
import sys
from datetime import timedelta
from typing import Annotated

import typer

from cronledger import fate
from cronledger.cli.opening import BY_HAND, Environment, duration_of, find_dsn, find_schedule, node_name, opened
from cronledger.cli.parameters import AsJson, DsnText, NodeName, SchedulePath, named
from cronledger.cli.tables import moment, print_json, put, tell
from cronledger.errors import CronledgerError, EnvironmentMissing, UsageError
from cronledger.events import duration, utc
from cronledger.ledger import look, open_link, pruning, schema
from cronledger.ledger.dsn import Dsn, parse
from cronledger.schedule import Schedule, load

LONG_WORK = 3600.0


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(install)
    app.command()(reap)
    app.command()(prune)


def install(
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Only print the DDL, for a DBA; connect to nothing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Make or upgrade the ledger's tables, and print the crontab line.

    Safe to run again, by several nodes at once, and while ticks go on: it only adds what is missing.

    \b
    Examples:
        cronledger install --dsn postgresql://app@db/app
        CRONLEDGER_DSN=mysql://app:secret@db/app cronledger install
        cronledger install --print-sql --dsn postgresql:///app     the DDL, to apply by hand
    """
    path = find_schedule(schedule)
    read = load(path) if schedule or os.path.exists(path) else None
    found = find_dsn(dsn, read, Environment(read))
    link = open_link(found, budget=LONG_WORK, install=True)
    if print_sql:
        statements = schema.statements(link.dialect)
        print_json(statements) if json else put(";\n\n".join(statements) + ";")
        return
    try:
        link.send(link.dialect.now, within=BY_HAND)
        done, server = schema.install(link), link.dialect.version()
    finally:
        link.close()
    lines = _crontab_lines(read, node) if read else {}
    if json:
        print_json({"server": server, "done": done, **lines})
    else:
        _say_installed(server, done, lines)
    if read and (warning := _not_for_cron(read, dsn, found)):
        tell(f"cronledger: {warning}")


def _say_installed(server: str, done: list[str], lines: dict[str, str]) -> None:
    put(f"installed on {server}: {', '.join(done)}" if done else f"already installed on {server}: nothing to do")
    if not lines:
        put(
            "Write a schedule.toml, see cronledger-schedule(5); `cronledger install` beside it prints the crontab line."
        )
        return
    put(f"\nThe crontab line of every node (crontab -e):\n\n    {lines['crontab']}\n")
    put(f"or, in a file of /etc/cron.d:\n\n    {lines['cron_d']}")


def _crontab_lines(schedule: Schedule, node: str | None) -> dict[str, str]:
    """The line with absolute paths, since cron's PATH and folder are not the caller's; never with the DSN."""
    program = shutil.which(sys.argv[0]) or sys.argv[0]
    start = [sys.executable, "-m", "cronledger"] if program.endswith("__main__.py") else [os.path.abspath(program)]
    words = [*start, "tick", "--schedule", schedule.path, *(["--node", node_name(node)] if node else [])]
    # On a crontab line a % is a newline (crontab(5)).
    command = shlex.join(words).replace("%", "\\%")
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user that has no name
        user = "root"
    return {"crontab": f"* * * * * {command}", "cron_d": f"* * * * * {user} {command}"}


def _not_for_cron(schedule: Schedule, dsn: str | None, found: Dsn) -> str | None:
    """A warning when a tick under cron would not find the DSN of this shell, or one of another database."""
    origin = "--dsn" if dsn else "CRONLEDGER_DSN"
    if schedule.dsn is None:
        return (
            f"warning: the DSN came from this shell only ({origin}), cron will not have it; write dsn ="
            ' "${DATABASE_URL}" under [ledger] in the schedule, and DATABASE_URL=… in its env_file'
        )
    try:
        theirs = parse(schedule.expand(schedule.dsn, schedule.environment({})), schedule.folder)
    except (EnvironmentMissing, UsageError) as error:
        return f"warning: this shell has what cron will not have: {error}"
    if (theirs.kind, theirs.host, theirs.port, theirs.database) != (found.kind, found.host, found.port, found.database):
        return (
            f"warning: the DSN of this shell ({origin}) names another server or database than the schedule's, by which"
            " cron will tick: if it is not the same one by another name, install there too"
        )
    return None


def reap(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A job's name (its last run), or enough of an id.", callback=named)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """Mark a run failed that is recorded as running, now.

    For a node that is gone for good. This frees the job and its lock. It does not end the command: make sure that it is
    dead, or it will run twice.

    \b
    Examples:
        cronledger reap reports:build
        cronledger reap 5c1e9a7b --yes
    """
    read = load(find_schedule(schedule))
    here = node_name(node)
    with opened(read, dsn, here) as ledger:
        found = look.find_run(ledger, run)
        holder = found.holder()
        now = ledger.clock.now()
        age = duration(round((now - found.started_at) / timedelta(milliseconds=1)))
        if found.state != "running":
            since = moment(found.finished_at or now, read.zone, seconds=True)
            raise CronledgerError(f"run {found.id} of {found.job} is over: {found.state} since {since}")
        if not yes:
            _ask(f"{found.job}: {holder.run_of(read.zone, now)} on {found.node}, running for {age}")
        event = fate.reap(ledger, read, found, f"by hand on {here}")
        if event is None:
            raise CronledgerError(
                f"run {found.id} of {found.job} ended, or was reaped or adopted, in the meantime; look again"
            )
    print_json(event.record()) if json else put(event.line(read.zone))


def _ask(named: str) -> None:
    tell(f"{named}; its command may still be alive there. Reaped, the job may be started again beside it.")
    if not os.isatty(0):
        raise UsageError("nobody can be asked here; make sure that the command is dead, then add --yes")
    typer.confirm("Mark it failed?", abort=True, err=True)


def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="DURATION", help="Such as 30d; at least 1d.")],
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    json: AsJson = False,
) -> None:
    """Delete settled runs that finished longer ago, in batches. The schedule's `keep` does it by itself.

    Never a running run, never one younger than a day, never the newest of a job. A pruned slot can be claimed again
    by `tick --at`.

    \b
    Examples:
        cronledger prune --older-than 30d
    """
    window = _at_least_a_day(older_than)
    read = load(find_schedule(schedule))
    with opened(read, dsn, seconds=LONG_WORK) as ledger:
        finished_before = ledger.clock.now() - window
        deleted = pruning.prune(ledger, finished_before=finished_before)
    if json:
        print_json({"deleted": deleted, "finished_before": utc(finished_before)})
    else:
        before = finished_before.astimezone(read.zone).isoformat(" ", "minutes")
        put(f"pruned {deleted:,} run{'' if deleted == 1 else 's'} that finished before {before}")


def _at_least_a_day(older_than: str) -> timedelta:
    window = duration_of("--older-than", older_than, unit="d")
    if window < timedelta(days=1):
        raise UsageError(f"--older-than {older_than}: runs younger than a day are never pruned; write 1d or more")
    return window
