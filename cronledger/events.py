"""What is worth a line: events as data, and the sentences an operator reads.

Instants are aware datetimes; `zone` is the schedule's. Sentences show local times of `zone`, records show UTC.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import ClassVar

TAIL_CHARACTERS = 200

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_CONTROL |= {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}


def harmless(text: str) -> str:
    r"""`text` with everything that could drive a terminal written out (`\x1b`); newline and tab stay.

    Lone surrogates, which no database driver takes, are written out too.
    """
    return text.translate(_CONTROL).encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """`text` made harmless and on one line, whatever it holds."""
    return " ".join(harmless(text).split())


def tail(output: str) -> str:
    """The last line of `output` that is not empty, at most 200 characters of it; "" without one."""
    lines = (line.strip() for line in reversed(output.splitlines()))
    return one_line(next((line for line in lines if line), ""))[:TAIL_CHARACTERS]


def duration(milliseconds: int) -> str:
    """`1.4s` under 60 s, `10m0s` under 2 h, `26h5m` above."""
    if milliseconds < 60_000 - 50:
        return f"{milliseconds / 1000:.1f}s"
    seconds = (milliseconds + 500) // 1000
    if seconds < 7200:
        return f"{seconds // 60}m{seconds % 60}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60}m"


def lasting(window: timedelta) -> str:
    """A window, likewise."""
    return duration(round(window / timedelta(milliseconds=1)))


def utc(instant: datetime) -> str:
    """RFC 3339 in UTC with Z, to the microsecond where there is one: what `--json` and CRONLEDGER_DUE_AT hold."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def local(instant: datetime, zone: tzinfo, beside: datetime, seconds: bool = False) -> str:
    """The time of day of `instant` in `zone`, with the date where it is not that of `beside`."""
    there, here = instant.astimezone(zone), beside.astimezone(zone)
    day = "" if there.date() == here.date() else "%Y-%m-%d "
    return there.strftime(day + ("%H:%M:%S" if seconds else "%H:%M"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing worth one line: when it was seen, of which slot (None: of none), by which node."""

    at: datetime
    job: str
    due_at: datetime | None
    node: str
    run_id: str | None = None

    name: ClassVar[str]
    is_failure: ClassVar[bool]

    def sentence(self, zone: tzinfo) -> str:
        """What happened, without the time of the line."""
        raise NotImplementedError

    def line(self, zone: tzinfo) -> str:
        """The whole line, without its newline."""
        return one_line(f"{self.at.astimezone(zone).isoformat(timespec='seconds')} {self.sentence(zone)}")

    def record(self) -> dict[str, object]:
        """The same for `--json`."""
        named = {"at": utc(self.at), "event": self.name, "job": self.job, "due_at": self.due_at and utc(self.due_at)}
        return named | {"node": self.node, "run_id": self.run_id} | self.carried()

    def carried(self) -> dict[str, object]:
        """What this kind of event carries beside."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """A command ended, the last of its run's `attempts`. `cause` is that of the run: schedule, manual or catch_up."""

    duration_ms: int
    cause: str = "schedule"
    attempts: int = 1

    def took(self, zone: tzinfo, attempts: str) -> str:
        """`reports:build in 1.4s`; how it took several `attempts`; for which slot, where that was made up."""
        several = f" {attempts}" if self.attempts > 1 else ""
        missed = ""
        if self.cause == "catch_up" and self.due_at:
            missed = f", for its missed slot of {local(self.due_at, zone, self.at)}"
        return f"{self.job} in {duration(self.duration_ms)}{several}{missed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran(Ended):
    """With exit status 0."""

    name = "ran"
    is_failure = False

    def sentence(self, zone: tzinfo) -> str:
        return f"ran {self.took(zone, f'on attempt {self.attempts}')}"

    def carried(self) -> dict[str, object]:
        return {"cause": self.cause, "duration_ms": self.duration_ms, "exit_code": 0, "attempts": self.attempts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Ended):
    """Otherwise: it could not be started, was ended, exited with another status, or ended after its run was reaped."""

    exit_code: int | None
    reason: str

    name = "failed"
    is_failure = True

    def sentence(self, zone: tzinfo) -> str:
        return f"failed {self.took(zone, f'after {self.attempts} attempts')}: {self.reason}"

    def carried(self) -> dict[str, object]:
        ended = {"cause": self.cause, "duration_ms": self.duration_ms, "exit_code": self.exit_code}
        return {**ended, "attempts": self.attempts, "reason": one_line(self.reason)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The run that bars a job: in flight since `started_at` on `node`."""

    run_id: str
    job: str
    due_at: datetime
    node: str
    started_at: datetime
    manual: bool = False
    scope_node: str = ""

    def run_of(self, zone: tzinfo, beside: datetime) -> str:
        """`run of 03:00`, or `manual run of 03:02:17`: a run by hand has no slot."""
        kind = "manual run" if self.manual else "run"
        return f"{kind} of {local(self.due_at, zone, beside, seconds=self.manual)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodDown(Event):
    """A job was due, but a run still going bars it: its own previous run, or one that holds its `lock`."""

    holder: Holder
    lock: str | None = None

    name = "stood_down"
    is_failure = False

    def sentence(self, zone: tzinfo) -> str:
        return f"stood down {self.job}: {self.because(zone)}"

    def because(self, zone: tzinfo) -> str:
        """Who holds it, since when."""
        run = self.holder.run_of(zone, self.at)
        elsewhere = self.holder.scope_node not in ("", self.node)  # a run of the same job, in that node's own slots
        if self.lock is not None and (self.holder.job != self.job or elsewhere):
            return f"lock {self.lock} held by {self.holder.job}, {run} on {self.holder.node}"
        age = self.at - self.holder.started_at
        return f"{run} still going on {self.holder.node} for {duration(max(0, round(age.total_seconds() * 1000)))}"

    def carried(self) -> dict[str, object]:
        holder = {"run_id": self.holder.run_id, "job": self.holder.job, "due_at": utc(self.holder.due_at)}
        holder |= {"node": self.holder.node, "started_at": utc(self.holder.started_at)}
        return {"reason": one_line(self.because(UTC)), "lock": self.lock, "holder": holder}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded(Event):
    """A job was due, but found no place until its minute ended: `running` runs went on, the node has `places`."""

    running: int
    places: int

    name = "stood_down"
    is_failure = False

    def sentence(self, zone: tzinfo) -> str:
        return f"stood down {self.job}: {self.because()}"

    def because(self) -> str:
        """What went on instead."""
        return f"no place on {self.node}, {self.running} of max_running = {self.places} runs going"

    def carried(self) -> dict[str, object]:
        return {"reason": self.because(), "lock": None, "holder": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped(Event):
    """A dead run was marked failed: its window is over, or its tick is gone and nothing of it lives."""

    holder: Holder
    why: str

    name = "reaped"
    is_failure = True

    def sentence(self, zone: tzinfo) -> str:
        run = f"{self.holder.run_of(zone, self.at)} on {self.holder.node}"
        started = local(self.holder.started_at, zone, self.at, seconds=True)
        return f"reaped {self.job}: {run}, started {started}, {self.why}"

    def carried(self) -> dict[str, object]:
        return {"reason": self.why, "started_at": utc(self.holder.started_at), "run_node": self.holder.node}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """A pause of a job, of all jobs (`job` is "") or, with a `scope_node`, of that node's ticks: said once a day."""

    scope_node: str
    paused_at: datetime
    resumes_at: datetime | None
    paused_by: str
    reason: str | None

    name = "paused"
    is_failure = True

    def sentence(self, zone: tzinfo) -> str:
        done = f"drained {self.scope_node}" if self.scope_node else f"paused {self.job or 'all jobs'}"
        return f"{done} {self._since(zone)}"

    def because(self, zone: tzinfo) -> str:
        """The same, as the reason for which a job is not claimed."""
        done = f"{self.scope_node} is drained" if self.scope_node else "paused" if self.job else "all jobs are paused"
        return f"{done} {self._since(zone)}"

    def _since(self, zone: tzinfo) -> str:
        until = f" until {local(self.resumes_at, zone, self.at)}" if self.resumes_at else ""
        reason = f": {one_line(self.reason)}" if self.reason else ""
        return f"by {self.paused_by} since {local(self.paused_at, zone, self.at)}{until}{reason}"

    def carried(self) -> dict[str, object]:
        until = self.resumes_at and utc(self.resumes_at)
        named: dict[str, object] = {"scope_node": self.scope_node, "paused_at": utc(self.paused_at)}
        return named | {"resumes_at": until, "paused_by": self.paused_by, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps the tick from doing its work: one line for stderr. A failure, unless somebody wants it so."""

    text: str
    is_failure: bool = True
