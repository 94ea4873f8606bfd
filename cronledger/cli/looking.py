"""`list`, `history` and `show`: what runs next, what ran, and how it ended."""

from datetime import datetime

import typer

from cronledger.cli.opening import complaint, find_schedule
from cronledger.cli.parameters import AsJson, DsnText, SchedulePath, start_of
from cronledger.cli.past import history, ledger_of, run_record, show, took
from cronledger.cli.tables import moment, print_json, print_table
from cronledger.cron import Cron
from cronledger.errors import CronledgerError
from cronledger.events import utc
from cronledger.every import Every
from cronledger.ledger import Run, look
from cronledger.schedule import Job, Schedule, load


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_jobs)
    app.command()(history)
    app.command()(show)


def list_jobs(context: typer.Context, schedule: SchedulePath = None, dsn: DsnText = None, json: AsJson = False) -> None:
    """Show every job: its expression, when it runs next, its last run and how that ended.

    Without a ledger it shows the schedule alone, says why on stderr, and exits 0.

    \b
    Examples:
        cronledger list
        cronledger list --json | jq -r '.[] | select(.last_run.state == "failed") | .name'
    """
    now = start_of(context).wall
    read = load(find_schedule(schedule))
    last = _last_runs(read, dsn)
    if json:
        print_json([_job_record(job, now, *(last or {}).get(job.name, (None, None))) for job in read.jobs])
        return
    rows = [_job_row(job, read, now) for job in read.jobs]
    if last is None:
        print_table(["JOB", "CRON", "NEXT"], rows)
        return
    rows = [[*row, _last(*last[row[0]], read)] for row in rows]
    print_table(["JOB", "CRON", "NEXT", "LAST RUN"], rows)


def _last_runs(schedule: Schedule, dsn: str | None) -> dict[str, tuple[Run | None, look.LastDown | None]] | None:
    """Each job's last run, and the slot that it stood down from last; None without a ledger, saying why on stderr."""
    try:
        with ledger_of(schedule, dsn) as ledger:
            stood_down = look.stood_down(ledger)
            return {job.name: (look.last_run(ledger, job.name), stood_down.get(job.name)) for job in schedule.jobs}
    except CronledgerError as error:
        typer.echo(f"{complaint(error)}; so this is the schedule alone, without the last runs", err=True)
        return None


def _job_record(job: Job, now: datetime, run: Run | None, stood_down: look.LastDown | None) -> dict[str, object]:
    due_at = _due_at(job, now)
    return {
        "name": job.name,
        "cron": job.timing.expression if isinstance(job.timing, Cron) else None,
        "every": job.timing.text if isinstance(job.timing, Every) else None,
        "timezone": job.zone_name,
        "scope": job.scope,
        "enabled": job.enabled,
        "next_at": due_at and utc(due_at),
        "last_run": run and run_record(run),
        "stood_down_at": stood_down and utc(stood_down.due_at),
    }


def _job_row(job: Job, schedule: Schedule, now: datetime) -> list[str]:
    due_at = _due_at(job, now)
    zone = "" if job.zone_name == schedule.zone_name else f" ({job.zone_name})"
    seconds = isinstance(job.timing, Every)
    next_run = moment(due_at, schedule.zone, seconds=seconds) if due_at else "disabled"
    return [job.name, job.timing.expression + zone, next_run]


def _due_at(job: Job, now: datetime) -> datetime | None:
    """Its next slot; None for a disabled job."""
    return next(job.timing.upcoming(now, job.zone), None) if job.enabled else None


def _last(run: Run | None, stood_down: look.LastDown | None, schedule: Schedule) -> str:
    """How it last went: a slot that it stood down from is told while it is newer than the run.

    Where each node has slots of its own, it is the last run of any node, and named.
    """
    told = _last_run(run, schedule)
    if stood_down is None or (run is not None and run.due_at > stood_down.due_at):
        return told
    on = f" on {stood_down.scope_node}" if stood_down.scope_node else ""
    return f"stood down from {moment(stood_down.due_at, schedule.zone)}{on}; before that {told}"


def _last_run(run: Run | None, schedule: Schedule) -> str:
    if run is None:
        return "never ran"
    at = moment(run.started_at, schedule.zone)
    if run.state == "running":
        return f"running since {at} on {run.node}"
    at += f" on {run.node}" if run.scope_node else ""
    return f"{run.state} {at}" + (f": {run.failure_reason}" if run.failure_reason else f" in {took(run)}")
