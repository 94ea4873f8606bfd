"""A run in flight: its command, or the wait for the next of its attempts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cronledger.command import Outcome
from cronledger.endings import Ending
from cronledger.events import lasting, utc
from cronledger.leases import Lease
from cronledger.ledger import Run
from cronledger.schedule import Job

PUT_OFF = 1.0
"""Seconds after which an attempt is tried again that found no place on this node."""


@dataclass(slots=True)
class Flying:
    """One of them. Moments are of `elapsed()`.

    `launch` starts the command of an attempt and returns its pid. `attempt` is the number of the one in flight, or of
    the last one while `failed` says how that ended: the next begins at `again_at`. A run that was adopted has no `job`,
    and no further attempt.
    """

    run: Run
    deadline: float
    begun: float
    job: Job | None = None
    launch: Callable[[int], int | None] = lambda _: None
    pid: int | None = None
    is_new: bool = False
    attempt: int = 1
    failed: Outcome | None = None
    again_at: float = math.inf

    def start(self, attempt: int) -> None:
        """Start the command of this attempt."""
        self.attempt, self.failed, self.again_at = attempt, None, math.inf
        self.pid = self.launch(attempt)
        self.is_new = self.pid is not None

    def put_off(self, now: float) -> None:
        """Let its next attempt wait a little longer."""
        self.again_at = now + PUT_OFF

    def tries_again(self, outcome: Outcome, now: float) -> bool:
        """Whether there is to be another attempt after this end of one: then it waits for that."""
        if self.job is None or outcome.reason is None or outcome.was_ended or self.attempt > self.job.retries:
            return False
        again_at = now + self.job.retry_delay.total_seconds()
        if again_at >= self.deadline:
            return False
        self.failed, self.again_at, self.is_new = outcome, again_at, False
        return True

    def too_late(self, lease: Lease | None, now: float) -> str | None:
        """Why its command is not to be started any more."""
        if self.run.window is not None and now >= self.deadline:
            return f"not started: its window of {lasting(self.run.window)} was over"
        if lease is not None and now >= lease.until:
            return f"not started: its {self.run.limit} was about to end"
        return None

    def ending(self, outcome: Outcome, now: float) -> Ending:
        """It is over, and how. Of several attempts the time of all counts."""
        if self.attempt > 1 or self.failed:
            outcome = replace(outcome, duration_ms=round((now - self.begun) * 1000))
        keep = self.job.keep_output if self.job else "never"
        return Ending(self.run, outcome, now, keep, self.pid, attempts=self.attempt)


def variables(run: Run, job: Job, environment: Mapping[str, str], schedule: str) -> dict[str, str]:
    """What the commands of a run find in their environment."""
    named = {"CRONLEDGER_JOB": job.name, "CRONLEDGER_RUN_ID": run.id, "CRONLEDGER_NODE": run.node}
    # The schedule's path too, so that a job such as `cronledger prune` means this one, wherever it runs.
    named |= {"CRONLEDGER_DUE_AT": utc(run.due_at), "CRONLEDGER_SCHEDULE": schedule}
    return {**environment, **job.env, **named}
