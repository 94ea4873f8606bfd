"""What a tick would do, and why: the same decisions as `tick`, with nothing claimed, reaped or started."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from cronledger import catchup, pauses
from cronledger.claiming import drafted, stood_down
from cronledger.command import missing
from cronledger.events import Crowded, local, utc
from cronledger.every import Every
from cronledger.fate import Dead, Orphan, fate_of
from cronledger.ledger import Ledger, Run
from cronledger.ledger.jobs import EVERY_JOB, Remembered, remembered
from cronledger.ledger.look import run_of_slot
from cronledger.schedule import Schedule, Slot

Planned = tuple[str, dict[str, object]]


def plan(
    schedule: Schedule,
    ledger: Ledger,
    environment: Callable[[], Mapping[str, str]],
    slots: Sequence[Slot],
    *,
    minute: datetime,
    is_now: bool,
) -> Iterator[Planned]:
    """For each running run that a tick would reap or adopt, and for each slot: a sentence, and a record.

    `is_now`: of the present minute, in which missed slots would be made up too.
    """
    held: list[Run] = []
    to_start: list[Run] = []
    for run in ledger.running():
        would, why = _of_running(ledger, run)
        if would != "reap":
            held.append(run)
        if would:
            of = run.holder().run_of(schedule.zone, ledger.clock.now())
            yield _planned(would, run.job, run.due_at, f"{of} on {run.node}, {why}")
    rows = remembered(ledger)
    paused = pauses.active(rows, ledger.clock.now())
    for slot in [*_first(slots, ledger.clock.now()), *(catchup.missed(ledger, schedule, rows) if is_now else [])]:
        would, why = _of_slot(schedule, ledger, environment, slot, held, to_start, paused)
        yield _planned(would, slot.job.name, slot.due_at, why)
    if not slots:
        local_minute = minute.astimezone(schedule.zone).isoformat(" ", "minutes")
        everything = pauses.barring(paused, EVERY_JOB, ledger.node)
        why = pauses.told(ledger, everything).because(schedule.zone) if everything else ""
        sentence = f"nothing is due at {local_minute}" + (f"; {why}" if why else "")
        yield sentence, {"would": "nothing", "due_at": utc(minute), "reason": why}


def _first(slots: Sequence[Slot], now: datetime) -> Iterable[Slot]:
    """What a tick would try first: of an interval job the last slot that has passed, and none of those to come."""
    first: dict[str, Slot] = {}
    for slot in slots:
        if slot.job.name not in first or slot.due_at <= now:
            first[slot.job.name] = slot
    return first.values()


def _planned(would: str, job: str, due_at: datetime, why: str) -> Planned:
    return f"would {would} {job}: {why}", {
        "would": would.replace(" ", "_"),
        "job": job,
        "due_at": utc(due_at),
        "reason": why,
    }


def _of_running(ledger: Ledger, run: Run) -> tuple[str, str]:
    match fate_of(ledger, run):
        case Dead(why):
            return "reap", why
        case Orphan():
            return "adopt", "its tick is gone, but it lives on"
    return "", ""


def _of_slot(
    schedule: Schedule,
    ledger: Ledger,
    environment: Callable[[], Mapping[str, str]],
    slot: Slot,
    held: list[Run],
    to_start: list[Run],
    paused: list[Remembered],
) -> tuple[str, str]:
    now, job, due_at = ledger.clock.now(), slot.job, slot.due_at
    run = drafted(ledger, job, due_at, slot.cause)
    if taken := run_of_slot(ledger, run):
        started = local(taken.started_at, schedule.zone, now, seconds=True)
        return "pass over", f"its slot was claimed on {taken.node} at {started} and is {taken.state}"
    if why := pauses.why_barred(ledger, paused, job, schedule.zone):
        return "pass over", why
    if why := missing(job.argv, job.cwd, {**environment(), **job.env}):
        return "leave", f"it cannot start on this node: {why}"
    is_late = slot.cause == "catch_up"
    if holder := next((other for other in (*held, *to_start) if other.bars(run)), None):
        would = "wait to make up" if is_late else "stand down"
        return would, stood_down(ledger, run, holder).because(schedule.zone)
    running, most = sum(other.node == ledger.node for other in held), schedule.max_running
    if most and running + len(to_start) >= most:
        full = Crowded(at=now, job=job.name, due_at=due_at, node=ledger.node, running=running, places=most).because()
        full += f" and {len(to_start)} to start before it" if to_start else ""
        if is_late:
            return "wait to make up", full
        return "wait", f"{full}; it is left to the other nodes, and tried again while its minute lasts"
    to_start.append(run)
    at = local(due_at, schedule.zone, now, seconds=isinstance(job.timing, Every))
    if is_late:
        return "make up", f"no node ran its slot of {at}, and nothing bars it"
    return "run", f"due at {at}, its slot is free and nothing bars it"
