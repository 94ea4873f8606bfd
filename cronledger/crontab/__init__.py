"""A crontab into a schedule: what cron ran on one machine, written down for several."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import tomli_w

from cronledger.crontab.lines import Entry, Reading, Remark
from cronledger.crontab.names import name_after, unique
from cronledger.events import one_line

STALE_AFTER = "24h"  # cron knows no limit; a run that takes longer than a day is taken for dead

_NAMESPACE = """# namespace = "NAME"  # the application's, where several share a ledger
# env_file = ".env"   # with DATABASE_URL=… in it: cron's environment has none

# [ledger]
# dsn = "${DATABASE_URL}"
""".rstrip()
_USUAL_USER = re.compile(r"root|www-data|nginx|apache|daemon|nobody|operator|postgres|redis|ubuntu|deploy")
_USUAL_PROGRAM = re.compile(r"cd|test|\[|php|python3?|perl|ruby|node|sh|bash|env|curl|wget|nice|flock|echo|exec")
_SHELL_WITH_PRINTF = re.compile(r"(.*/)?(sh|bash|dash|ksh|zsh|ash)")
_ONE_SIMPLE_COMMAND = re.compile(r"""[\w./ =:,@+'"-]+""")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A schedule's text, "" when no job could be carried over; what to know of it; how many jobs were left out."""

    toml: str
    remarks: tuple[Remark, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    entry: Entry
    keys: Mapping[str, str]
    env: Mapping[str, str]
    runs: bool = True


def convert(text: str, *, system: bool, source: str) -> Conversion:
    """The crontab `text` as a schedule that `cronledger check` accepts.

    `system` says that a user stands before each command; `source` names the crontab in the remarks, which come in the
    order of its lines. Bytes that are not UTF-8 are lone surrogates in `text` (`errors="surrogateescape"`).
    Raises nothing: whatever cannot be carried over is a remark.
    """
    reading = Reading(source, system)
    reading.read(text)
    jobs = _jobs(reading)
    _remark_on_the_whole(reading, jobs)
    remarks = tuple(sorted(reading.remarks, key=lambda remark: remark.line))
    return Conversion(_schedule(jobs, source) if jobs else "", remarks, reading.left_out)


def _jobs(reading: Reading) -> list[_Job]:
    """The jobs that the schedule gets; the reasons for what it does not get are added to the remarks."""
    entries = [entry for entry in reading.entries if _can_be_fed(entry, reading)]
    names = unique(name_after(entry.command) for entry in entries)
    most = Counter(entry.user for entry in entries).most_common(1)
    jobs = [_job(name, entry, runs=entry.user == most[0][0]) for name, entry in zip(names, entries, strict=True)]
    for job in jobs:
        reading.remark(job.entry.line, f"named {job.name}" + ("" if job.runs else _for_another_user(job.entry.user)))
    return jobs


def _can_be_fed(entry: Entry, reading: Reading) -> bool:
    shell = entry.settings.get("SHELL", "/bin/sh")
    if not entry.stdin or _SHELL_WITH_PRINTF.fullmatch(shell):
        return True
    reading.leave_out(entry.line, f"its input (after the first %) cannot be written for {shell}; put it into a script")
    return False


def _for_another_user(user: str) -> str:
    own = f"a schedule and a `cronledger tick` line of {user}'s own"
    return f"; disabled, since it ran as {user} and a tick runs all its jobs as one user: give it {own}"


def _job(name: str, entry: Entry, *, runs: bool) -> _Job:
    env = dict(entry.settings)
    keys = {key: env.pop(name) for key, name in (("timezone", "CRON_TZ"), ("shell", "SHELL")) if name in env}
    if keys.get("shell") == "/bin/sh":
        del keys["shell"]  # the default of both
    if env.get("HOME", "").startswith("/"):
        keys["cwd"] = env["HOME"]  # where cron starts a command
    return _Job(name, entry, keys, env, runs)


def _remark_on_the_whole(reading: Reading, jobs: list[_Job]) -> None:
    if not jobs:
        reading.remark(0, "no job could be carried over, so there is no schedule")
        return
    if any("cwd" not in job.keys for job in jobs):
        reading.remark(
            0, "cron starts commands in the user's home, a tick in the schedule's folder: set cwd if it matters"
        )
    first_words = [job.entry.user or job.entry.command.split()[0] for job in jobs]
    if reading.system and all(map(_USUAL_PROGRAM.fullmatch, first_words)):
        reading.remark(0, "the user column holds programs, not users: perhaps this is one to import without --system")
    if not reading.system and all(map(_USUAL_USER.fullmatch, first_words)):
        reading.remark(0, "every command begins with a user's name: if that is a user column, import it with --system")


def _schedule(jobs: list[_Job], source: str) -> str:
    """The text of the schedule: what all jobs share at the top and in [defaults], then each job."""
    keys = _shared([job.keys for job in jobs])
    env = _shared([job.env for job in jobs])
    top = [*_heading(jobs, source), _assigned("timezone", keys.get("timezone", "local")), _NAMESPACE]
    defaults = ["[defaults]", _assigned("stale_after", STALE_AFTER)]
    defaults += [_assigned(key, value) for key, value in keys.items() if key != "timezone"]
    tables = [_table(job, keys, env) for job in jobs]
    return "\n\n".join("\n".join(lines) for lines in [top, defaults + _assigned_env(env), *tables]) + "\n"


def _heading(jobs: list[_Job], source: str) -> list[str]:
    user = next(job.entry.user for job in jobs if job.runs)
    return [
        f"# Made by `cronledger import` from {one_line(source)}; read it through, then try `cronledger check`.",
        "# Each job now runs on one node only, and never beside its own previous run.",
        *([f"# Its jobs ran as {user}: the line `cronledger tick` belongs into that user's crontab."] if user else []),
    ]


def _table(job: _Job, keys: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The lines of one [[job]], without what it shares with all others."""
    ran_as = "" if job.runs else f", where it ran as {job.entry.user}"
    own = {"name": job.name, "cron": job.entry.expression, "command": _command(job.entry)}
    own |= {"description": job.entry.description} if job.entry.description else {}
    own |= {key: value for key, value in job.keys.items() if key not in keys}
    return [
        f"# line {job.entry.line}{ran_as}",
        "[[job]]",
        *(_assigned(key, value) for key, value in own.items()),
        *([] if job.runs else ["enabled = false"]),
        *_assigned_env({name: value for name, value in job.env.items() if name not in env}),
    ]


def _command(entry: Entry) -> str:
    """The command on one line, fed by printf with what cron would have written to its standard input."""
    if not entry.stdin:
        return entry.command
    shell = shlex.quote(entry.settings.get("SHELL", "/bin/sh"))
    plain = _ONE_SIMPLE_COMMAND.fullmatch(entry.command) is not None
    fed = entry.command if plain else f"{shell} -c {shlex.quote(entry.command)}"
    return f"printf '%s\\n' {shlex.join(entry.stdin)} | {fed}"


def _shared(mappings: list[Mapping[str, str]]) -> dict[str, str]:
    """What is the same in all of `mappings`."""
    first, *others = mappings
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _assigned(key: str, value: str) -> str:
    return tomli_w.dumps({key: value}).rstrip("\n")


def _assigned_env(env: Mapping[str, str]) -> list[str]:
    return [f"env = {{ {', '.join(_assigned(name, value) for name, value in env.items())} }}"] if env else []
