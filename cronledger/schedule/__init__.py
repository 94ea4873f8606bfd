"""The schedule: a TOML file read into jobs, whole or not at all, and which of them are due at an instant."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import partial
from types import MappingProxyType
from typing import Any

from cronledger.errors import EnvironmentMissing
from cronledger.every import Every
from cronledger.schedule import env_file, values
from cronledger.schedule.job import Job, Slot, aware
from cronledger.schedule.paths import absolute, anyone_may_write
from cronledger.schedule.source import Source
from cronledger.schedule.toml_lines import Where
from cronledger.schedule.values import Reader, is_name, parse_duration
from cronledger.schedule.zones import LOCAL

__all__ = ["LOCAL", "Job", "Schedule", "Slot", "absolute", "anyone_may_write", "is_name", "load", "parse_duration"]


_JOB_KEYS: dict[str, Reader] = {
    "name": values.name,
    "cron": values.cron,
    "every": values.every,
    "command": values.command,
    "stale_after": values.droppable(values.window),
    "lease": values.droppable(values.window),
    "retries": values.retries,
    "retry_delay": values.retry_delay,
    "catch_up": values.droppable(values.catch_up),
    "description": values.text,
    "enabled": values.boolean,
    "timezone": values.timezone,
    "cwd": values.some_text,
    "env": values.table,
    "shell": values.some_text,
    "lock": values.droppable(values.name),
    "overlap": values.boolean,
    "scope": values.one_of("cluster", "node"),
    "keep_output": values.one_of("failed", "always", "never"),
    "report": values.one_of("all", "problems"),
    "on_failure": values.droppable(values.command),
    "on_recovery": values.droppable(values.command),
}
_OF_ONE_JOB = ("name", "cron", "every", "command", "description")
_DEFAULTS_KEYS = _JOB_KEYS | dict.fromkeys(_OF_ONE_JOB, values.not_shared)
_LEDGER_KEYS: dict[str, Reader] = {"dsn": values.some_text, "keep": values.keep}
_TOP_KEYS: dict[str, Reader] = {
    "timezone": values.timezone,
    "namespace": values.name,
    "env_file": values.some_text,
    "max_running": values.count,
    "ledger": values.table,
    "defaults": values.table,
    "job": values.array,
}
_PLACES = {
    "the top": _TOP_KEYS.keys() - {"ledger", "defaults", "job"},
    "[ledger]": _LEDGER_KEYS.keys(),
    "[[job]]": _JOB_KEYS.keys(),
    "[defaults]": _JOB_KEYS.keys() - set(_OF_ONE_JOB),
}
_REQUIRED = {"name": '"sessions:prune"', "cron": '"15 3 * * *"', "command": '"bin/prune-sessions"'}
_STALE_AFTER = timedelta(minutes=60)  # of a job without a lease that says nothing else
_BUILT_IN: dict[str, Any] = {
    **dict.fromkeys(("stale_after", "lease", "catch_up", "lock", "report", "on_failure", "on_recovery")),
    "retries": 0,
    "retry_delay": timedelta(seconds=30),
    "description": "",
    "enabled": True,
    "env": MappingProxyType[str, str]({}),
    "shell": "/bin/sh",
    "overlap": False,
    "scope": "cluster",
    "keep_output": "failed",
}
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule without mistakes. `path`, `folder` and `env_file` are absolute; `dsn` still holds its ${NAME}."""

    path: str
    zone: tzinfo
    has_timezone: bool
    namespace: str
    has_namespace: bool
    env_file: str | None
    max_running: int | None
    dsn: str | None = field(repr=False)
    jobs: tuple[Job, ...]
    keep: timedelta | None = None

    @property
    def folder(self) -> str:
        """The folder that its relative paths count from."""
        return os.path.dirname(self.path)

    @property
    def zone_name(self) -> str:
        """The zone as the schedule names it, or "local"."""
        return str(self.zone)

    def due(self, moment: datetime) -> list[Job]:
        """The enabled jobs that are due in the minute of `moment`, those with `every` in its second; in file order.

        Raises ValueError if `moment` is naive.
        """
        instant = aware(moment)
        local = {zone: instant.astimezone(zone) for zone in {job.zone for job in self.jobs}}
        return [job for job in self.jobs if job.enabled and job.timing.due(local[job.zone])]

    def slots(self, minute: datetime) -> list[Slot]:
        """The slots of a minute, a UTC instant cut to it: in the order of their instants, then of the file."""
        slots = [Slot(job, minute) for job in self.due(minute) if not isinstance(job.timing, Every)]
        for job in self.jobs:
            if job.enabled and isinstance(job.timing, Every):
                slots += [Slot(job, due_at) for due_at in job.timing.between(minute, minute + _MINUTE)]
        return sorted(slots, key=lambda slot: (slot.due_at, slot.job.line))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` overlaid with the variables of the env_file, read now. Raises EnvironmentMissing."""
        return {**base, **env_file.read(self.env_file)} if self.env_file else dict(base)

    def expand(self, text: str, environment: Mapping[str, str]) -> str:
        """`text` with each ${NAME} replaced once; a lone $ and $NAME stay. Raises EnvironmentMissing."""
        expanded, *parts = text.split("${")
        for part in parts:
            name, closed, rest = part.partition("}")
            if closed and not (name.isidentifier() and name.isascii()):
                raise EnvironmentMissing(f"{self.path} has ${{…}} around what is no variable's name; write ${{NAME}}")
            if closed and name not in environment:
                looked = f"the environment and {self.env_file}" if self.env_file else "the environment"
                there = "set it there" if self.env_file else "name an env_file in the schedule, and set it there"
                raise EnvironmentMissing(f"${{{name}}} of {self.path} is not set; looked in {looked}: {there}")
            expanded += environment[name] + rest if closed else "${" + part
        return expanded


def load(path: str | os.PathLike[str]) -> Schedule:
    """The schedule at `path`. Raises ScheduleRefused with every mistake in it; opens neither ledger nor env_file."""
    source = Source(os.fspath(path), _PLACES)
    top = source.read((), source.toml, _TOP_KEYS)
    ledger = source.read(("ledger",), top.get("ledger", {}), _LEDGER_KEYS)
    where = absolute(source.path)
    zone = top["timezone"] if "timezone" in top else _node_zone(source)
    built_in = {**_BUILT_IN, "timezone": zone, "cwd": os.path.dirname(where)}
    inherited = _job_values(source, ("defaults",), top.get("defaults", {}), built_in)
    jobs = _jobs(source, top.get("job", []), inherited)
    source.refuse_mistakes()
    return Schedule(
        path=where,
        zone=zone,
        has_timezone="timezone" in top,
        namespace=top.get("namespace", "default"),
        has_namespace="namespace" in top,
        env_file=absolute(top["env_file"], os.path.dirname(where)) if "env_file" in top else None,
        max_running=top.get("max_running"),
        dsn=ledger.get("dsn"),
        keep=ledger.get("keep"),
        jobs=tuple(jobs),
    )


def _node_zone(source: Source) -> tzinfo:
    """The zone of a schedule that names none."""
    if "timezone" not in source.toml:
        source.read((), {"timezone": "local"}, _TOP_KEYS)  # notes a TZ that names no zone
    return LOCAL


def _jobs(source: Source, tables: list[Any], inherited: dict[str, Any]) -> list[Job]:
    jobs = []
    names: dict[str, int] = {}
    locks: dict[str, Where] = {}
    for index, (line, table) in enumerate(zip(source.job_lines(len(tables)), tables, strict=True)):
        where = ("job", index)
        if not isinstance(table, dict):
            source.mistake(where, f"is {values.described(table)}", "write a [[job]] with name, cron and command")
            continue
        job = _job_values(source, where, table, inherited)
        _check_required(source, where, table)
        if "name" in job and (other := names.setdefault(job["name"].lower(), index)) != index:
            wrong = f"has the name of job {tables[other]['name']} on line {source.line(('job', other, 'name'))}"
            source.mistake((*where, "name"), wrong, "write another (case does not tell two names apart)")
        if job["lock"]:
            _check_overlap(source, where, table, job)
            locks.setdefault(job["lock"], (*where, "lock") if "lock" in table else ("defaults", "lock"))
        if not source.mistakes:
            timing = job.pop("every", None) or job.pop("cron")
            # Of an interval job each run would be a line a few seconds apart.
            report = job.pop("report") or ("problems" if isinstance(timing, Every) else "all")
            if job["lease"] is None:
                job["stale_after"] = job["stale_after"] or _STALE_AFTER
            jobs.append(Job(line=line, timing=timing, zone=job.pop("timezone"), report=report, **job))
    _check_locks(source, locks)
    if source.toml.get("job", []) == []:
        source.mistake((), "there is no job", "write a [[job]] with name, cron and command")
    return jobs


def _job_values(source: Source, where: Where, table: dict[str, Any], inherited: dict[str, Any]) -> dict[str, Any]:
    """The values of `table` over the inherited ones; cwd counted from the schedule's folder, env merged by name."""
    own = source.read(where, table, _JOB_KEYS if where[0] == "job" else _DEFAULTS_KEYS)
    if "cwd" in own:
        own["cwd"] = absolute(own["cwd"], os.path.dirname(absolute(source.path)))
    if "env" in own:
        readers: dict[str, Reader] = {name: partial(values.variable, name) for name in own["env"]}
        env = source.read((*where, "env"), own["env"], readers)
        own["env"] = MappingProxyType({**inherited["env"], **env})
    return {**inherited, **own}


def _check_required(source: Source, where: Where, table: dict[str, Any]) -> None:
    for key in [key for key in _REQUIRED if key not in table]:
        either = ("cron", "every") if key == "cron" else (key,)
        if not any(one in table or (*where, one) in source.meant for one in either):
            source.mistake((*where, key), "is missing", f"write {key} = {_REQUIRED[key]}")
    if "cron" in table and "every" in table:
        source.mistake((*where, "every"), "excludes cron", "leave one of the two out")


def _check_overlap(source: Source, where: Where, table: dict[str, Any], job: dict[str, Any]) -> None:
    if job["overlap"]:
        key = "lock" if "lock" in table and "overlap" not in table else "overlap"
        excluded = f'the lock "{job["lock"]}"' if key == "overlap" else "overlap = true"
        source.mistake((*where, key), f"excludes {excluded}", 'write overlap = false, or lock = "" to drop the lock')


def _check_locks(source: Source, locks: dict[str, Where]) -> None:
    first: dict[str, str] = {}
    for lock, where in locks.items():
        other = first.setdefault(lock.lower(), lock)
        if other != lock:
            wrong = f'"{lock}" differs only in case from "{other}" on line {source.line(locks[other])}'
            source.mistake(where, wrong, "write both alike, or names that differ otherwise")
