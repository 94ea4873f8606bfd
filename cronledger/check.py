"""What in a valid schedule is likely not meant: warnings, each with a code that an operator can allow."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import islice

from cronledger import catchup
from cronledger.cron import Cron
from cronledger.events import lasting
from cronledger.every import Every
from cronledger.schedule import Job, Schedule, anyone_may_write
from cronledger.year import DAYS, Span, first, local_minutes, slots, spans

TEXTS = {
    "no-timezone": "timezone is not set: each node goes by its own clock, and nodes that differ take different slots; "
    'write timezone = "Europe/Paris", or timezone = "local" if that is meant',
    "no-namespace": 'namespace is not set: it is "default", and applications that share a ledger would take each '
    'other\'s slots; write namespace = "billing"',
    "sqlite": "the ledger is SQLite, which serves one machine; write a DSN of PostgreSQL, MySQL or MariaDB for more",
    "env-file-open": "anyone may read {path}, and what it holds is often secret; write chmod o-r {path}",
    "schedule-open": "anyone may write {path}, or replace it in its folder, and so run commands as the tick's user "
    "(root's tick refuses it); write chmod o-w on both",
    "both-days": 'cron "{cron}" restricts both day fields: it is due when either matches, not when both do; write * '
    "in one of them and, if both must hold, test for the other in the command",
    "long-step": 'cron "{cron}" has a step of {step} in a field of {size} {units}: only 0 is left of it; write 0 '
    'if that is meant, or, for an interval up to a day, every = "90m" in place of cron',
    "often-without-star": 'cron "{cron}" is due more than once an hour, but neither its minute nor its hour begins '
    "with a star: it keeps silent when {time} comes again on {day} in {zone}, where the clock is set back; "
    "write {instead}",
    "dst-skip": "{time} does not occur on {day} in {zone}, where the clock is set forward: there is no run then; "
    "write a time of day that the change leaves alone",
    "dst-repeat": "{time} occurs twice on {day} in {zone}, where the clock is set back: it runs at the first only; "
    "write a time of day that the change leaves alone",
    "uneven-interval": 'every = "{every}" does not divide a day: it is due at other times each day; '
    'write one that does, such as "90s" or "2h"',
    "catch-up-unused": 'catch_up makes nothing up: {why}; write catch_up = "", or leave it out',
    "node-scope-lock": 'scope = "node" runs it on every node, but of those one at a time may hold its lock {lock}: the '
    "others stand down; write one of the two only",
    "retries-too-long": "its {retries} retries, {delay} apart, do not fit into its stale_after of {stale_after}; "
    "write fewer retries, a shorter retry_delay, or a longer stale_after",
    "lease-too-long": "its lease of {lease} is longer than its stale_after of {stale_after} and so never needed; "
    'write a shorter lease, such as lease = "5m", or leave it out',
    "shared-lock-minute": "shares the lock {lock} and a minute with job {other}, first at {time} on {day} in {zone}: "
    "one of the two stands down each time; write another minute, or another lock",
}
"""The codes, in the order in which they are said, and what each says."""

_Found = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class CheckWarning:
    """One warning. `line` is that of the job's [[job]]; for the schedule as a whole it is 0 and `job` is ""."""

    code: str
    line: int
    job: str
    text: str


def warnings(schedule: Schedule, now: datetime) -> list[CheckWarning]:
    """Every warning, those of the whole schedule first, then job by job; looks at the 12 months from the aware `now`.

    Disabled jobs are left out. Nothing is read but the modes of the schedule and of its env_file.
    """
    jobs = [job for job in schedule.jobs if job.enabled]
    start = now.astimezone(UTC).replace(second=0, microsecond=0)
    years = {zone: spans(zone, start) for zone in {job.zone for job in jobs}}
    shared = {job.name: found for job, found in _of_locks(jobs, years)}
    said = [CheckWarning(code, 0, "", TEXTS[code].format(**facts)) for code, facts in _of_schedule(schedule)]
    for job in jobs:
        year = years[job.zone]
        found = [*_of_timing(job, year), *_of_windows(job), *_of_catch_up(job, year), *_of_scope(job)]
        found += shared.get(job.name, [])
        said += [CheckWarning(code, job.line, job.name, TEXTS[code].format(**facts)) for code, facts in found]
    return said


def _of_schedule(schedule: Schedule) -> Iterator[_Found]:
    if not schedule.has_timezone:
        yield "no-timezone", {}
    if not schedule.has_namespace:
        yield "no-namespace", {}
    if schedule.dsn and schedule.dsn.startswith("sqlite:"):
        yield "sqlite", {}
    if schedule.env_file and _anyone_may_read(schedule.env_file):
        yield "env-file-open", {"path": schedule.env_file}
    if anyone_may_write(schedule.path):
        yield "schedule-open", {"path": schedule.path}


def _anyone_may_read(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _of_timing(job: Job, year: list[Span]) -> Iterator[_Found]:
    if isinstance(job.timing, Cron):
        yield from _of_cron(job.timing)
        yield from _of_clock(job.timing, job.zone, year)
    elif not job.timing.divides_a_day:
        yield "uneven-interval", {"every": job.timing.text}


def _of_cron(cron: Cron) -> Iterator[_Found]:
    if cron.both_days:
        yield "both-days", {"cron": cron.expression}
    for field, size, units in zip(cron.expression.split(), (60, 24), ("minutes", "hours"), strict=False):
        step = field.removeprefix("*/")
        if step != field and step.isdecimal() and int(step) > size:
            yield "long-step", {"cron": cron.expression, "step": step, "size": size, "units": units}


def _of_clock(cron: Cron, zone: tzinfo, year: list[Span]) -> Iterator[_Found]:
    """The fixed times that a change of the job's clock skips or repeats."""
    if not cron.fixed_time:
        return
    skipped = _first_local(cron, [span.skipped for span in year])
    repeated = _first_local(cron, [span.repeated for span in year])
    if repeated and cron.minutes.bit_count() > 1:
        yield "often-without-star", {"cron": cron.expression, "instead": _with_star(cron), **_when(repeated, zone)}
    if skipped:
        yield "dst-skip", _when(skipped, zone)
    if repeated:
        yield "dst-repeat", _when(repeated, zone)


def _with_star(cron: Cron) -> str:
    """How its minutes or else its hours are written with a star at the very same times, if they can be."""
    if minutes := _star(cron.minutes, 60):
        return f"the minutes as {minutes}"
    if hours := _star(cron.hours, 24):
        return f"the hours as {hours}"
    return "hours that the change leaves alone, or allow this warning if the silence is meant"


def _star(values: int, count: int) -> str:
    """The star, with a step or alone, that means these values of the `count` from 0 on; "" for none."""
    steps = (step for step in range(1, count) if values == sum(1 << value for value in range(0, count, step)))
    step = next(steps, 0)
    return f"*/{step}" if step > 1 else "*" * step


def _first_local(cron: Cron, stretches: list[tuple[datetime, int]]) -> datetime | None:
    """The first local minute of these stretches (start, minutes) at which it is due."""
    for start, count in stretches:
        if count and (due := local_minutes(cron, start, count)):
            return start + first(due)
    return None


def _of_catch_up(job: Job, year: list[Span]) -> Iterator[_Found]:
    if job.catch_up and (why := catchup.no_effect(job) or _always_barred(job, year)):
        yield "catch-up-unused", {"why": why}


def _always_barred(job: Job, year: list[Span]) -> str | None:
    """Why no slot of a cron job can be made up: with every minute comes a run, which bars it till it is too old."""
    if isinstance(job.timing, Every) or job.overlap or slots(job.timing, year).bit_count() < DAYS * 1440:
        return None
    return f'with cron = "{job.timing.expression}" it is due again each minute, and that run bars a missed one'


def _of_scope(job: Job) -> Iterator[_Found]:
    if job.scope == "node" and job.lock:
        yield "node-scope-lock", {"lock": job.lock}


def _of_windows(job: Job) -> Iterator[_Found]:
    if job.stale_after and job.retries * job.retry_delay >= job.stale_after:
        facts = {"retries": job.retries, "delay": lasting(job.retry_delay), "stale_after": lasting(job.stale_after)}
        yield "retries-too-long", facts
    if job.lease and job.stale_after and job.lease > job.stale_after:
        yield "lease-too-long", {"lease": lasting(job.lease), "stale_after": lasting(job.stale_after)}


def _of_locks(jobs: list[Job], years: dict[tzinfo, list[Span]]) -> Iterator[tuple[Job, list[_Found]]]:
    """Each job that is due in a minute of one before it that has the same lock; interval jobs pass over quietly."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        if job.lock and not isinstance(job.timing, Every):
            groups.setdefault(job.lock, []).append(job)
    for lock, sharing in groups.items():
        for job, other, minute in _collisions(sharing, years):
            when = _when(minute.astimezone(job.zone), job.zone)
            yield job, [("shared-lock-minute", {"lock": lock, "other": other.name, **when})]


def _collisions(jobs: list[Job], years: dict[tzinfo, list[Span]]) -> Iterator[tuple[Job, Job, datetime]]:
    """A job, one before it that is due in the same minute, and the first such minute (UTC)."""
    if len(jobs) < 2:
        return
    taken = 0
    for index, job in enumerate(jobs):
        year = years[job.zone]
        assert isinstance(job.timing, Cron)
        due = slots(job.timing, year)
        if due & taken:
            minute = year[0].start + first(due & taken)
            yield job, next(other for other in islice(jobs, index) if other.due(minute)), minute
        taken |= due


def _when(local: datetime, zone: tzinfo) -> dict[str, object]:
    return {"time": f"{local:%H:%M}", "day": f"{local:%Y-%m-%d}", "zone": zone}
