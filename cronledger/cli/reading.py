"""`check`, `explain` and `import`: what a schedule, an expression or a crontab says. None of them needs the ledger."""

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import islice
from typing import Annotated

import typer

from cronledger import cron
from cronledger.check import CODES, Warning, warnings
from cronledger.cli.opening import find_schedule
from cronledger.cli.parameters import AsJson, SchedulePath, start_of
from cronledger.cli.tables import moment, print_fields, print_json, put
from cronledger.cron import Cron, CronError
from cronledger.errors import CronledgerError, Mistake, ScheduleRefused, UsageError
from cronledger.events import one_line, utc
from cronledger.schedule import LOCAL, Job, Schedule, is_name, load
from cronledger.words import describe

_NEXT = 5


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(check)
    app.command()(explain)
    app.command("import")(import_crontab)


def check(
    context: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when there are warnings.")] = False,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CODE", help="Leave out warnings of this code; repeatable.")
    ] = None,
    schedule: SchedulePath = None,
    json: AsJson = False,
) -> None:
    """Look for mistakes in the schedule, without the ledger and its environment: for CI of the deploy repository.

    Exit status: 2 with mistakes, which stand on stderr; else 0, and with --strict 1 when there are warnings.

    \b
    Examples:
        cronledger check
        cronledger check --strict --allow no-namespace --schedule deploy/schedule.toml
    """
    allowed = _known(allow or [])
    path = find_schedule(schedule)
    try:
        read = load(path)
    except ScheduleRefused as refused:
        if json:
            print_json({"schedule": path, "mistakes": [_mistake(one) for one in refused.mistakes], "warnings": []})
        raise
    found = [one for one in warnings(read, start_of(context).wall) if one.code not in allowed]
    if json:
        print_json({"schedule": path, "mistakes": [], "warnings": [_warning(one) for one in found]})
    else:
        put("\n".join(_lines(path, found)) if found else _good(path, read))
    raise typer.Exit(1 if strict and found else 0)


def _known(allow: list[str]) -> set[str]:
    if unknown := sorted(set(allow) - set(CODES)):
        raise UsageError(f"--allow {unknown[0]}: no warning has this code; the codes are {', '.join(CODES)}")
    return set(allow)


def _lines(path: str, found: Iterable[Warning]) -> list[str]:
    return [
        one_line(f"{path}:{one.line}: {f'job {one.job}: ' if one.job else ''}warning {one.code}: {one.text}")
        for one in found
    ]


def _good(path: str, schedule: Schedule) -> str:
    count = len(schedule.jobs)
    disabled = sum(not job.enabled for job in schedule.jobs)
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    return f"{path}: no mistakes, no warnings; {jobs}" + (f", {disabled:,} of them disabled" if disabled else "")


def _mistake(mistake: Mistake) -> dict[str, object]:
    return {key: getattr(mistake, key) for key in ("line", "job", "key", "wrong", "instead")}


def _warning(warning: Warning) -> dict[str, object]:
    return {key: getattr(warning, key) for key in ("code", "line", "job", "text")}


def explain(
    context: typer.Context,
    asked: Annotated[
        str,
        typer.Argument(metavar="EXPR|JOB", help="An expression, in quotes, or @daily and its like; or a job's name."),
    ],
    schedule: SchedulePath = None,
    json: AsJson = False,
) -> None:
    """Say in words when an expression or a job is due, the next five times, and what to beware of.

    An expression is read in the schedule's zone; without a schedule in the node's own.

    \b
    Examples:
        cronledger explain '*/10 9-17 * * 1-5'
        cronledger explain @weekly
        cronledger explain sessions:prune
    """
    now = start_of(context).wall
    explained = _job(asked, load(find_schedule(schedule))) if is_name(asked) else _expression(asked, schedule)
    next_at = list(islice(explained.cron.upcoming(now, explained.zone), _NEXT))
    found = explained.warnings(now)
    if json:
        print_json(
            {
                "expression": explained.cron.expression,
                "words": describe(explained.cron),
                "timezone": explained.zone_name,
                "next_at": [utc(due_at) for due_at in next_at],
                "warnings": [_warning(one) for one in found],
            }
        )
        return
    times = [moment(due_at, explained.zone) for due_at in next_at] or ["never: no month that it names has such a day"]
    told = [*explained.fields(), ("next", times[0]), *(("", time) for time in times[1:])]
    print_fields([*told, *(("warning", f"{one.code}: {one.text}") for one in found)])


@dataclass(frozen=True, slots=True)
class _Explained:
    """An expression, or that of `job`, in its zone."""

    cron: Cron
    zone: tzinfo
    zone_name: str
    schedule: Schedule | None
    job: Job | None = None

    def fields(self) -> list[tuple[str, str]]:
        """What can be said of it without a clock."""
        bare = "" if self.schedule else ": this node's own zone, since there is no schedule here"
        named = [("job", self.job.name)] if self.job else []
        disabled = [("enabled", "no: it is not run")] if self.job and not self.job.enabled else []
        said = [("cron", self.cron.expression), ("in words", describe(self.cron)), ("timezone", self.zone_name + bare)]
        return [*named, *said, *disabled]

    def warnings(self, now: datetime) -> list[Warning]:
        """Those of `check` that concern an expression."""
        return []


def _expression(text: str, option: str | None) -> _Explained:
    """In the zone of the schedule, if there is one. Raises UsageError for what is none."""
    try:
        parsed = cron.parse(text)
    except CronError as error:
        raise UsageError(f"explain: {error}") from None
    path = find_schedule(option)
    if path == "schedule.toml" and not os.path.lexists(path):
        return _Explained(parsed, LOCAL, "local", None)
    schedule = load(path)
    return _Explained(parsed, schedule.zone, schedule.zone_name, schedule)


def _job(name: str, schedule: Schedule) -> _Explained:
    for job in schedule.jobs:
        if job.name == name:
            return _Explained(job.cron, job.zone, job.zone_name, schedule, job)
    raise unknown_job(name, {job.name for job in schedule.jobs}, f"in {schedule.path}")


def unknown_job(name: str, names: set[str], where: str) -> CronledgerError:
    """The error for a job that is not there, which names the nearest of `names`."""
    from difflib import get_close_matches

    spelled = {one.lower(): one for one in sorted(names)}
    near = get_close_matches(name.lower(), spelled, 1)
    hint = f"did you mean {spelled[near[0]]}?" if near else "`cronledger list` shows the jobs"
    return CronledgerError(f"there is no job {name} {where}; {hint}")


def import_crontab(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The crontab; - or nothing for stdin.")] = None,
    system: Annotated[
        bool, typer.Option("--system", help="A user stands before each command, as in /etc/crontab and /etc/cron.d.")
    ] = False,
) -> None:
    """Turn a crontab into a schedule on stdout.

    What could not be carried over stands on stderr, with its line. Exit status: 1 if a job was left out.

    \b
    Examples:
        crontab -l | cronledger import > schedule.toml
        cronledger import --system /etc/cron.d/app > schedule.toml
    """
    from cronledger.crontab import convert

    conversion = convert(_crontab(file), system=system, source="stdin" if file in (None, "-") else file)
    for remark in conversion.remarks:
        typer.echo(str(remark), err=True)
    if conversion.toml:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as TOML is, whatever the locale
        put(conversion.toml.removesuffix("\n"))
    raise typer.Exit(1 if conversion.left_out or not conversion.toml else 0)


def _crontab(file: str | None) -> str:
    """The crontab's text; what is not UTF-8 is left to the reader as lone surrogates. Raises UsageError."""
    if file is None and os.isatty(0):
        raise UsageError("import reads a crontab: name a file, or type: crontab -l | cronledger import > schedule.toml")
    is_stdin = file is None or file == "-"
    try:
        with open(0 if is_stdin else file, "rb", closefd=not is_stdin) as source:
            return source.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"{file or 'stdin'}: {error.strerror}; name a crontab that you may read") from None
