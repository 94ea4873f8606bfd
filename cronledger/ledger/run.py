"""A run as a row, and what came of trying to claim one."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronledger.events import Holder, lasting

MARGIN = timedelta(seconds=60)
"""Between the end of a run's window, when its own tick ends it, and `expires_at`, when any node may reap it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of cronledger_runs; the columns' names. Instants are UTC. `output` only where it was asked for."""

    id: str
    namespace: str
    job: str
    scope_node: str
    due_at: datetime
    state: str
    active_job: str | None
    held_lock: str | None
    cause: str
    node: str
    owner: str
    pid: int | None = None
    pid_start: int | None = None
    started_at: datetime
    expires_at: datetime
    finished_at: datetime | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    failure_reason: str | None = None
    output: str | None = None
    token: str
    created_at: datetime
    updated_at: datetime
    place: int | None = None
    lease_ms: int | None = None
    stale_after_ms: int | None = None
    attempts: int | None = None

    @property
    def lease(self) -> timedelta | None:
        """How long it is taken to live after each renewal of `expires_at`; None: it is not renewed."""
        return _timedelta(self.lease_ms)

    @property
    def window(self) -> timedelta | None:
        """The longest that the run may take: the job's stale_after when it was claimed. None: as long as its lease.

        Longer if `expires_at` is later than that: older programs wrote only this, and newer ones may move it.
        """
        if self.lease_ms is None:
            until_reaped = self.expires_at - self.started_at - MARGIN
            return max(until_reaped, _timedelta(self.stale_after_ms) or until_reaped)
        return _timedelta(self.stale_after_ms)

    @property
    def limit(self) -> str:
        """What is over when `expires_at` has passed: `window of 60m0s`, or `lease of 5m0s`."""
        kind = "window" if self.lease is None else "lease"
        return f"{kind} of {lasting(self.lease or self.window or timedelta())}"

    @property
    def scoped(self) -> tuple[str, str]:
        """The job as the mutexes know it: with a `scope_node` each node has its own."""
        return self.job, self.scope_node

    def bars(self, other: "Run") -> bool:
        """Whether this run, which is in flight, keeps `other` from being claimed: as the same job, or by its lock."""
        same_job = self.scoped == other.scoped and self.active_job is not None and other.active_job is not None
        return same_job or (self.held_lock is not None and self.held_lock == other.held_lock)

    def holder(self) -> Holder:
        """The run as an event names it."""
        return Holder(
            run_id=self.id,
            job=self.job,
            due_at=self.due_at,
            node=self.node,
            started_at=self.started_at,
            manual=self.cause == "manual",
            scope_node=self.scope_node,
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    """The slot is ours."""


@dataclass(frozen=True, slots=True)
class ClaimedElsewhere:
    """The slot has another node's row: nothing to say."""


@dataclass(frozen=True, slots=True)
class Barred:
    """The slot is free, but a run in flight holds the job itself or its lock."""

    run: Run


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The slot is free and nothing bars it, but another run of this node holds the place that was asked for, or all."""


Claim = Claimed | ClaimedElsewhere | Barred | NoPlace


def milliseconds(window: timedelta | None) -> int | None:
    """A window as a column holds it."""
    return None if window is None else window // timedelta(milliseconds=1)


_LONGEST_MS = 100 * 366 * 86_400_000
"""Milliseconds: a number in a row, written by hand, may be beyond what Python can add to an instant."""


def _timedelta(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=max(0, min(milliseconds, _LONGEST_MS)))


def new_token() -> str:
    """Who wrote a row last: one for each UPDATE."""
    return os.urandom(8).hex()


def uuid7(instant: datetime) -> str:
    """A UUIDv7 (RFC 9562, section 5.7) of `instant`: 48 bits of milliseconds, then chance."""
    milliseconds = int(instant.astimezone(UTC).timestamp() * 1000)
    bits = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    bits = bits & ~(0xF << 76) | (0x7 << 76)
    bits = bits & ~(0x3 << 62) | (0x2 << 62)
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
