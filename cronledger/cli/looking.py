"""`list`, `history` and `show`: what runs next, what ran, and how it ended."""

from datetime import datetime

import typer

from cronledger import pauses
from cronledger.cli.opening import complaint, find_schedule, opened
from cronledger.cli.parameters import AsJson, DsnText, SchedulePath, start_of
from cronledger.cli.past import history, run_record, show, took
from cronledger.cli.tables import moment, print_json, print_table, put, tell
from cronledger.cron import Cron
from cronledger.errors import CronledgerError
from cronledger.events import Paused, utc
from cronledger.every import Every
from cronledger.ledger import Run, look
from cronledger.ledger.jobs import EVERY_JOB, remembered
from cronledger.schedule import Job, Schedule, load


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_jobs)
    app.command()(history)
    app.command()(show)


def list_jobs(context: typer.Context, schedule: SchedulePath = None, dsn: DsnText = None, json: AsJson = False) -> None:
    """Show every job, when it runs next, and how its last run ended.

    Without a ledger it shows the schedule alone, says why on stderr, and exits 0.

    \b
    Examples:
        cronledger list
        cronledger list --json | jq -r '.[] | select(.last_run.state == "failed") | .name'
    """
    now = start_of(context).wall
    read = load(find_schedule(schedule))
    known = _look(read, dsn)
    last, paused = known or ({}, [])
    if json:
        print_json([_job_record(job, now, *last.get(job.name, (None, None)), paused) for job in read.jobs])
        return
    rows = [_job_row(job, read, now, paused) for job in read.jobs]
    if known is None:
        print_table(["JOB", "CRON", "NEXT"], rows)
        return
    rows = [[*row, _last(*last[row[0]], read)] for row in rows]
    print_table(["JOB", "CRON", "NEXT", "LAST RUN"], rows)
    if paused:
        put("\n".join(["", *(pause.sentence(read.zone) for pause in paused)]))


Last = dict[str, tuple[Run | None, look.LastDown | None]]
"""Of each job its last run, and the slot that it stood down from last."""


def _look(schedule: Schedule, dsn: str | None) -> tuple[Last, list[Paused]] | None:
    """The last runs, and what is paused of the jobs, or drained; None without a ledger, saying why on stderr."""
    try:
        with opened(schedule, dsn) as ledger:
            now, names = ledger.clock.now(), {EVERY_JOB, *(job.name for job in schedule.jobs)}
            rows = [row for row in pauses.active(remembered(ledger), now) if row.job in names]
            stood_down = look.stood_down(ledger)
            last = {job.name: (look.last_run(ledger, job.name), stood_down.get(job.name)) for job in schedule.jobs}
            return last, [pauses.told(ledger, row) for row in rows]
    except CronledgerError as error:
        tell(f"{complaint(error)}; so this is the schedule alone, without the last runs")
        return None


def _pause_of(job: Job, paused: list[Paused]) -> Paused | None:
    """The pause of the job, or of all jobs, that ends last."""
    own = [pause for pause in paused if not pause.scope_node and pause.job in (EVERY_JOB, job.name)]
    return max(own, key=lambda pause: (pause.resumes_at is None, pause.resumes_at or pause.paused_at), default=None)


def _job_record(
    job: Job, now: datetime, run: Run | None, stood_down: look.LastDown | None, paused: list[Paused]
) -> dict[str, object]:
    due_at, pause = _due_at(job, now), _pause_of(job, paused)
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
        "paused_at": pause and utc(pause.paused_at),
        "resumes_at": pause and pause.resumes_at and utc(pause.resumes_at),
        "paused_by": pause and pause.paused_by,
        "pause_reason": pause and pause.reason,
        "drained_nodes": [one.scope_node for one in paused if one.scope_node],
    }


def _job_row(job: Job, schedule: Schedule, now: datetime, paused: list[Paused]) -> list[str]:
    due_at = _due_at(job, now)
    zone = "" if job.zone_name == schedule.zone_name else f" ({job.zone_name})"
    seconds = isinstance(job.timing, Every)
    next_run = moment(due_at, schedule.zone, seconds=seconds) if due_at else "disabled"
    if due_at and (pause := _pause_of(job, paused)):
        next_run = f"paused until {moment(pause.resumes_at, schedule.zone) if pause.resumes_at else 'resumed'}"
    return [job.name, job.timing.expression + zone, next_run]


def _due_at(job: Job, now: datetime) -> datetime | None:
    """Its next slot; None for a disabled job."""
    return next(job.timing.upcoming(now, job.zone), None) if job.enabled else None


def _last(run: Run | None, stood_down: look.LastDown | None, schedule: Schedule) -> str:
    """How it last went: a slot that it stood down from is told while it is newer than the run.

    Where each node has slots of its own, it is the last run of any node, and named.
    """
    told = _last_run(run, schedule)
    if stood_down is None or (run is not None and run.due_at >= stood_down.due_at):
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
