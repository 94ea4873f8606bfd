"""`explain`: when an expression or a job is due, in words and in times."""

import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Annotated

import typer

from cronledger import check, cron
from cronledger.cli.opening import find_schedule, job_of
from cronledger.cli.parameters import AsJson, SchedulePath, named, start_of
from cronledger.cli.tables import moment, print_fields, print_json
from cronledger.cron import Cron, CronError
from cronledger.errors import UsageError
from cronledger.events import utc
from cronledger.every import Every
from cronledger.schedule import LOCAL, Job, Schedule, is_name, load
from cronledger.words import describe

_NEXT = 5


def explain(
    context: typer.Context,
    asked: Annotated[
        str,
        typer.Argument(
            metavar="EXPR-OR-JOB", help="An expression in quotes (or @daily and its like), or a job.", callback=named
        ),
    ],
    schedule: SchedulePath = None,
    json: AsJson = False,
) -> None:
    """Say in words when an expression or a job is due.

    Then the next five times, and what to beware of.

    An expression is read in the schedule's zone; without a schedule in the node's own.

    \b
    Examples:
        cronledger explain '*/10 9-17 * * 1-5'
        cronledger explain @weekly
        cronledger explain sessions:prune
    """
    now = start_of(context).wall
    explained = _of_job(asked, load(find_schedule(schedule))) if is_name(asked) else _of_expression(asked, schedule)
    next_at = list(islice(explained.timing.upcoming(now, explained.zone), _NEXT))
    found = explained.warnings(now)
    if json:
        print_json(
            {
                "expression": explained.timing.expression,
                "words": describe(explained.timing),
                "timezone": str(explained.zone),
                "next_at": [utc(due_at) for due_at in next_at],
                "warnings": [asdict(one) for one in found],
            }
        )
        return
    seconds = isinstance(explained.timing, Every)
    times = [moment(due_at, explained.zone, seconds=seconds) for due_at in next_at]
    times = times or ["never: no month that it names has such a day"]
    told = [*explained.fields(), ("next", times[0]), *(("", time) for time in times[1:])]
    print_fields([*told, *(("warning", f"{one.code}: {one.text}") for one in found)])


@dataclass(frozen=True, slots=True)
class _Explained:
    """An expression, or that of `job`, in its zone."""

    timing: Cron | Every
    zone: tzinfo
    has_schedule: bool
    job: Job | None = None

    def fields(self) -> list[tuple[str, str]]:
        """What can be said of it without a clock."""
        zone = str(self.zone) + ("" if self.has_schedule else ": this node's own zone, since there is no schedule here")
        named = [("job", self.job.name)] if self.job else []
        disabled = [("enabled", "no: it is not run")] if self.job and not self.job.enabled else []
        timing = self.timing
        named += [("cron", timing.expression) if isinstance(timing, Cron) else ("every", timing.text)]
        said = [("in words", describe(self.timing)), ("timezone", zone)]
        return [*named, *said, *disabled]

    def warnings(self, now: datetime) -> list[check.CheckWarning]:
        """What `check` says of it, as of a schedule that holds nothing else."""
        job = replace(self.job or _job_at(self.timing, self.zone), enabled=True, lock=None)
        alone = Schedule(
            path="",
            zone=self.zone,
            has_timezone=True,
            namespace="",
            has_namespace=True,
            env_file=None,
            max_running=None,
            dsn=None,
            jobs=(job,),
        )
        name = self.job.name if self.job else ""
        return [replace(one, job=name) for one in check.warnings(alone, now) if one.job]


def _job_at(timing: Cron | Every, zone: tzinfo) -> Job:
    """A job of which nothing is known but when it is due."""
    return Job(
        line=0,
        name=timing.expression,
        timing=timing,
        command="",
        stale_after=timedelta(hours=1),
        lease=None,
        description="",
        enabled=True,
        zone=zone,
        cwd="/",
        env={},
        shell="/bin/sh",
        lock=None,
        overlap=False,
        scope="cluster",
        keep_output="never",
        report="all",
    )


def _of_expression(text: str, option: str | None) -> _Explained:
    """In the zone of the schedule, if there is one. Raises UsageError for what is none."""
    try:
        parsed = cron.parse(text)
    except CronError as error:
        raise UsageError(f"explain: {error}") from None
    path = find_schedule(option)
    if path == "schedule.toml" and not os.path.lexists(path):
        return _Explained(parsed, LOCAL, has_schedule=False)
    return _Explained(parsed, load(path).zone, has_schedule=True)


def _of_job(name: str, schedule: Schedule) -> _Explained:
    job = job_of(schedule, name)
    return _Explained(job.timing, job.zone, has_schedule=True, job=job)
