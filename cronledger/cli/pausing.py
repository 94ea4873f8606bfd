"""`pause`, `resume`, `drain` and `undrain`: what is not to be claimed for a while, without a deployment."""

import os
import pwd
from datetime import timedelta
from typing import Annotated

import typer

from cronledger import pauses
from cronledger.cli.opening import duration_of, find_schedule, job_of, node_name, opened
from cronledger.cli.parameters import AsJson, DsnText, NodeName, SchedulePath, named
from cronledger.cli.tables import moment, print_json, put, tell
from cronledger.errors import UsageError
from cronledger.events import one_line, utc
from cronledger.ledger import Ledger, look
from cronledger.ledger.jobs import (
    EVERY_JOB,
    Remembered,
    drained_elsewhere,
    remembered,
    remembered_of,
    ticking_elsewhere,
)
from cronledger.schedule import Schedule, is_name, load

LONGEST = timedelta(days=7)
SHORTEST = timedelta(minutes=1)
_LONGEST_REASON = 500
_LONGEST_NAME = 128

Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for whoever wonders.")]
All = Annotated[bool, typer.Option("--all", help="All jobs of the namespace, in place of one.")]
JobName = Annotated[
    str | None, typer.Argument(metavar="JOB", help="The job's name.", show_default=False, callback=named)
]
Drained = Annotated[str, typer.Argument(metavar="NODE", help="The node's name, as in the ledger.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(pause)
    app.command()(resume)
    app.command()(drain)
    app.command()(undrain)


def pause(
    job: JobName = None,
    all_jobs: All = False,
    window: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="So long, such as 2h; at most 7d.")
    ] = None,
    until_resumed: Annotated[bool, typer.Option("--until-resumed", help="Until somebody resumes it.")] = False,
    reason: Reason = None,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """Let no node claim a job, or any job, for a while. What runs now is not ended.

    Slots that fall into the pause are not run, nor made up afterwards. After a day, and each day, a tick says it.

    \b
    Examples:
        cronledger pause reports:build --for 2h --reason "the warehouse moves"
        cronledger pause --all --for 30m
        cronledger pause loads:eu --until-resumed
    """
    length, why = _length(window, until_resumed), _reason(reason)
    _see_that_one_is_named(job, all_jobs)
    read = load(find_schedule(schedule))
    of = job_of(read, job).name if job else EVERY_JOB
    with opened(read, dsn, node_name(node)) as ledger:
        before, after = pauses.pause(ledger, of, window=length, by=_who(ledger), reason=why)
        until = f"until {moment(after.resumes_at, read.zone)}" if after.resumes_at else "until resumed"
        undo = f"`cronledger resume {of or '--all'}` ends it"
        replaced = _in_place_of(read, ledger, before)
    print_json(_record(after)) if json else put(f"paused {of or 'all jobs'} {until}; {undo}{replaced}")


def _length(window: str | None, until_resumed: bool) -> timedelta | None:
    """How long; None until it is resumed. One of the two is said, so that no pause is forgotten by mistake."""
    if (window is None) != until_resumed:
        raise UsageError("say how long: either --for 2h (at most 7d), or --until-resumed")
    if window is None:
        return None
    length = duration_of("--for", window)
    if not SHORTEST <= length <= LONGEST:
        raise UsageError(f"--for {window}: a pause lasts from 1m to 7d; for longer say --until-resumed")
    return length


def _reason(text: str | None) -> str | None:
    reason = one_line(text or "")
    if len(reason) > _LONGEST_REASON:
        raise UsageError(f"--reason is longer than {_LONGEST_REASON} characters; write a shorter one")
    return reason or None


def _see_that_one_is_named(job: str | None, all_jobs: bool) -> None:
    if bool(job) == all_jobs:
        raise UsageError("say what: either the name of one JOB, or --all")


def _who(ledger: Ledger) -> str:
    """Such as `alice on web1`: of sudo, who called it."""
    uid = os.getuid()
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:  # a container's user that has no name
            user = f"user {uid}"
    plain = one_line(user).encode("ascii", "backslashreplace").decode()
    return f"{plain} on {ledger.node}"[:_LONGEST_NAME]


def _in_place_of(schedule: Schedule, ledger: Ledger, before: Remembered) -> str:
    goes_on = pauses.is_paused(before, ledger.clock.now())
    return f"; in place of: {pauses.told(ledger, before).sentence(schedule.zone)}" if goes_on else ""


def resume(
    job: JobName = None,
    all_jobs: All = False,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """End the pause of a job, or of all jobs, now.

    --all ends the pause that --all began; a job that was paused by its name stays so until it is resumed by its name.

    \b
    Examples:
        cronledger resume reports:build
        cronledger resume --all
    """
    _see_that_one_is_named(job, all_jobs)
    read = load(find_schedule(schedule))
    with opened(read, dsn, node_name(node)) as ledger:
        of = job or EVERY_JOB
        if of and remembered_of(ledger, of).paused_at is None:  # what is paused may have left the schedule
            job_of(read, of)
        ended = pauses.resume(ledger, of)
        row = remembered_of(ledger, of)
        said = f"{_resumed(read, ledger, of, ended)}{_still(read, ledger, of)}"
    print_json(_record(row)) if json else put(said)


def _resumed(schedule: Schedule, ledger: Ledger, job: str, ended: Remembered | None) -> str:
    what = job or "all jobs"
    if ended is None:
        return f"{job} is not paused: nothing to do" if job else "there is no pause of all jobs: nothing to do"
    told = pauses.told(ledger, ended)
    return f"resumed {what}; ended: {told.sentence(schedule.zone)}"


def _still(schedule: Schedule, ledger: Ledger, job: str) -> str:
    """What still keeps it from running, after one pause has ended."""
    now = ledger.clock.now()
    others = [row for row in pauses.active(remembered(ledger), now) if not row.scope_node and row.job != job]
    if job:
        everything = [row for row in others if row.job == EVERY_JOB]
        told = [pauses.told(ledger, row).because(schedule.zone) for row in everything]
        return "".join(f"; but {one}: `cronledger resume --all` ends it" for one in told)
    named = ", ".join(row.job for row in others)
    return f"; still paused, each by itself: {named}" if named else ""


def drain(
    drained: Drained,
    reason: Reason = None,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """Let a node's ticks claim nothing until it is undrained.

    For maintenance: what runs there comes to its end. The other nodes take its share. After a day, and each day, a tick
    says it. This holds in the schedule's namespace; other schedules on that node go on.

    \b
    Examples:
        cronledger drain web2 --reason "new disk"
        cronledger list | grep 'running since .* on web2'        what still runs there
    """
    why, name, read = _reason(reason), _node(drained), load(find_schedule(schedule))
    with opened(read, dsn, node_name(node)) as ledger:
        before, after = pauses.pause(ledger, EVERY_JOB, name, window=None, by=_who(ledger), reason=why)
        known = before.seen_at is not None or look.has_run(ledger, name)
        others = ticking_elsewhere(ledger, name)
        replaced = _in_place_of(read, ledger, before)
    here = f"in namespace {read.namespace}"
    if not known:
        tell(
            f"cronledger: warning: no tick of a node {name} is known {here}; is that its name? Case tells two apart,"
            " and `cronledger history` shows them"
        )
    said = f"drained {name} {here}: its ticks there claim nothing until `cronledger undrain {name}`{replaced}"
    print_json(_record(after)) if json else put(said)
    if others:
        tell(f"cronledger: {name} also ticks in: {', '.join(others)}; drain it there too, by that schedule")


def undrain(
    drained: Drained,
    schedule: SchedulePath = None,
    dsn: DsnText = None,
    node: NodeName = None,
    json: AsJson = False,
) -> None:
    """Let a node's ticks claim again, in the schedule's namespace.

    \b
    Examples:
        cronledger undrain web2
    """
    name, read = _node(drained), load(find_schedule(schedule))
    with opened(read, dsn, node_name(node)) as ledger:
        ended = pauses.resume(ledger, EVERY_JOB, name)
        row = remembered_of(ledger, EVERY_JOB, name)
        others = drained_elsewhere(ledger, name)
    here = f"in namespace {read.namespace}"
    if json:
        print_json(_record(row))
    elif ended is None:
        put(f"{name} is not drained {here}: nothing to do")
    else:
        put(f"undrained {name} {here}; ended: {pauses.told(ledger, ended).sentence(read.zone)}")
    if others:
        tell(f"cronledger: {name} is drained in: {', '.join(others)}; undrain it there too, by that schedule")


def _node(name: str) -> str:
    if not is_name(name):
        raise UsageError(
            f"{name!a} is not a node's name: at most 128 ASCII letters, digits and . _ : / -, a letter or digit first"
        )
    return name


def _record(row: Remembered) -> dict[str, object]:
    """What --json shows of it."""
    instants = {name: getattr(row, name) for name in ("paused_at", "resumes_at", "resumed_at")}
    shown = {"job": row.job, "scope_node": row.scope_node}
    shown |= {name: instant and utc(instant) for name, instant in instants.items()}
    return shown | {"paused_by": row.paused_by, "pause_reason": row.pause_reason}
