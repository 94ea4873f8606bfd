"""`history` and `show`: what ran, and how it ended."""

import os
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated

import typer

from cronledger.cli.opening import duration_of, find_schedule, opened, unknown_job
from cronledger.cli.parameters import AsJson, DsnText, SchedulePath, named
from cronledger.cli.tables import moment, print_fields, print_json, print_table, put
from cronledger.errors import UsageError
from cronledger.events import duration, harmless, lasting, local, utc
from cronledger.ledger import Ledger, Run, look
from cronledger.schedule import Schedule, load

_KEYS = [field.name for field in fields(Run) if field.name not in ("output", "token", "pid_start", "place")]

_MOST = 100_000
"""Runs that `history` shows."""


def history(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only the runs of this job.", callback=named)] = None,
    limit: Annotated[int, typer.Option("-n", metavar="N", help="At most so many.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DURATION", help="Only those started so long ago or later, as 1d.")
    ] = None,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    json: AsJson = False,
) -> None:
    """Show the last runs of all jobs or of one, newest first.

    The last column but one is the end of a run's id: `cronledger show` takes it.

    \b
    Examples:
        cronledger history
        cronledger history reports:build -n 100
        cronledger history --failed --since 1d
    """
    if not 1 <= limit <= _MOST:
        raise UsageError(f"-n {limit}: write a number from 1 to {_MOST}")
    window = None if since is None else duration_of("--since", since)
    read = _schedule(schedule)
    with opened(read, dsn) as ledger:
        now = ledger.clock.now()
        started_after = None if window is None else now - window
        runs = look.history(ledger, job=job, limit=limit, failed=failed, started_after=started_after)
        if job and not runs:
            _see_that_it_is_known(job, read, ledger)
    if json:
        print_json([run_record(run) for run in runs])
    elif runs:
        titles = ["STARTED", "JOB", "DUE", "NODE", "TOOK", "RUN", "STATE"]
        print_table(titles, [_row(run, read, now) for run in runs])
    else:
        put(_none(job, failed, since, read))


def _schedule(option: str | None) -> Schedule:
    path = find_schedule(option)
    if not os.path.lexists(path):
        raise UsageError(
            f"{path}: there is no such file; a ledger holds many namespaces, and the schedule tells which one to"
            " look at: name it by --schedule or CRONLEDGER_SCHEDULE"
        )
    return load(path)


def _see_that_it_is_known(job: str, schedule: Schedule, ledger: Ledger) -> None:
    names = {one.name for one in schedule.jobs}
    if job not in names and look.last_run(ledger, job) is None:
        names |= {run.job for run in look.history(ledger, limit=1000)}
        raise unknown_job(job, names, f"in {schedule.path}, nor in the ledger")


def _row(run: Run, schedule: Schedule, now: datetime) -> list[str]:
    due = _due(run, local(run.due_at, schedule.zone, run.started_at, seconds=run.due_at.second > 0))
    return [moment(run.started_at, schedule.zone), run.job, due, run.node, took(run), run.id[-8:], _state(run, now)]


def _due(run: Run, at: str) -> str:
    """Its slot; a run by hand has none, and one that was missed was made up."""
    return {"manual": "by hand", "catch_up": f"{at}, made up"}.get(run.cause, at)


def took(run: Run) -> str:
    """How long it took; "" for a run that goes on."""
    return "" if run.duration_ms is None else duration(run.duration_ms)


def _state(run: Run, now: datetime) -> str:
    if run.state != "running":
        state = f"{run.state}{_attempted(run)}"
        return f"{state}: {run.failure_reason}" if run.failure_reason else state
    age = duration(max(0, round((now - run.started_at) / timedelta(milliseconds=1))))
    over = (
        f"; its {'lease' if run.lease else 'window'} is over, the next tick reaps it" if run.expires_at <= now else ""
    )
    return f"running for {age}{_attempted(run)}{over}"


def _attempted(run: Run) -> str:
    """Which attempt it is, or how many there were; "" for the first one."""
    number = run.attempts or 1
    which = f" after {number} attempts" if run.state == "failed" else f" on attempt {number}"
    return which if number > 1 else ""


def _none(job: str | None, failed: bool, since: str | None, schedule: Schedule) -> str:
    kind = "failed run" if failed else "run"
    of = f" of {job}" if job else ""
    started = f" started in the last {since}" if since else " yet"
    return f"no {kind}{of} in namespace {schedule.namespace}{started}"


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A job's name (its last run), or enough of an id, from either end.", callback=named
        ),
    ],
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    json: AsJson = False,
) -> None:
    """Show one run whole, with the output that was kept of it.

    \b
    Examples:
        cronledger show reports:build           its last run
        cronledger show 5c1e9a7b                the run whose id ends so
        cronledger show 5c1e9a7b --json | jq -r .output
    """
    read = _schedule(schedule)
    with opened(read, dsn) as ledger:
        found = look.whole_run(ledger, look.find_run(ledger, run))
        now = ledger.clock.now()
    if json:
        print_json(run_record(found) | {"output": found.output})
        return
    print_fields(_fields(found, read, now), state="state")
    if found.output:
        put("\n" + harmless(found.output).removesuffix("\n"))


def _fields(run: Run, schedule: Schedule, now: datetime) -> list[tuple[str, str]]:
    def at(instant: datetime | None) -> str:
        return moment(instant, schedule.zone, seconds=True) if instant else ""

    due = _due(run, moment(run.due_at, schedule.zone, seconds=run.due_at.second > 0))
    is_running, renewed = run.state == "running", " and its lease not renewed" if run.lease else ""
    shown = [
        ("run", run.id),
        ("job", run.job),
        ("state", _state(run, now)),
        ("due", due),
        ("node", run.node + (f", pid {run.pid}" if run.pid else "")),
        ("started", at(run.started_at)),
        ("until", f"{at(run.started_at + run.window)}, its stale_after" if is_running and run.window else ""),
        ("lease", lasting(run.lease) if run.lease else ""),
        ("reaped", f"from {at(run.expires_at)} on, if it should still be running{renewed}" if is_running else ""),
        ("lock", run.held_lock or ""),
        ("finished", at(run.finished_at)),
        ("took", took(run)),
        ("exit", "" if run.exit_code is None else str(run.exit_code)),
        ("output", "" if run.output else _why_no_output(run)),
    ]
    return [(name, value) for name, value in shown if value]


def _why_no_output(run: Run) -> str:
    if run.state == "running":
        return "none yet: it is kept when the run ends, as the job's keep_output says"
    if run.output is not None:
        return "none: the command printed nothing"
    if run.state == "completed":
        return 'not kept: of a run that completed only keep_output = "always" keeps it'
    return 'not kept: it was reaped, its tick was gone when it ended, or its job has keep_output = "never"'


def run_record(run: Run) -> dict[str, object]:
    """The run's columns for `--json`."""
    values = {key: getattr(run, key) for key in _KEYS}
    return {key: utc(value) if isinstance(value, datetime) else value for key, value in values.items()}
