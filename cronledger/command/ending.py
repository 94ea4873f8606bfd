"""How a run in flight comes to its end: by itself, at its window, with its lease, or because its tick was told to stop.

Times are seconds of `clock.elapsed()`.
"""

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass

from cronledger import process

KILL_AFTER = 7.0  # seconds from TERM to KILL: docker stop gives ten
GIVE_UP_AFTER = 30.0  # seconds after which a group that survives even KILL, or may not be signalled, is let go
SETTLING = 0.1  # seconds between two looks at a run that is being ended
WATCHING = 1.0  # seconds between two looks at any other; no sleep is longer, so that a suspension is noticed
UNKNOWN = "its tick died; how it ended is unknown"

Groups = Callable[[], frozenset[int] | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    `reason` is None for exit status 0, else a part of a sentence; `exit_code` is None where the command did not exit by
    itself; `output` is the tail of what it printed, harmless and masked. `survives`: it did
    not end: its process group lives on, although it was killed. `was_ended`: it was told to end.
    """

    exit_code: int | None
    reason: str | None
    duration_ms: int
    output: str
    survives: bool = False
    was_ended: bool = False


class Run:
    """A run in flight. `because` says why it is being ended, `at_window` why when its window is over.

    `deadline` is infinity for a run without a window. "" as `because` leaves it to its exit to tell how it ended.
    """

    def __init__(self, *, started: float, deadline: float, at_window: str) -> None:
        self.started, self.deadline, self.at_window = started, deadline, at_window
        self.held_until, self.unheld = math.inf, ""
        self.because: str | None = None
        self.survives = False
        self.kill_at = self.give_up_at = math.inf

    def signal(self, signum: int) -> None:
        """Sends `signum` to its whole process group, where it may."""
        raise NotImplementedError

    def has_ended(self, now: float, groups: Groups) -> bool:
        """Whether it, or all of its group where it was told to end, is dead. `groups` looks for those that live."""
        raise NotImplementedError

    def is_over(self, now: float, groups: Groups) -> bool:
        """Whether there is nothing more to wait for."""
        if self.has_ended(now, groups):
            return True
        self.survives = now >= self.give_up_at
        return self.survives

    def outcome(self, now: float) -> Outcome:
        """How it ended; to be asked once, when it is over."""
        raise NotImplementedError

    def end(self, because: str, signum: int, now: float) -> None:
        """Tells its group to end. What it was told first is why it ended."""
        self.because = self.because or because
        self.kill_at = min(self.kill_at, now + KILL_AFTER)
        self.give_up_at = min(self.give_up_at, now + GIVE_UP_AFTER)
        self.signal(signum)

    def hold(self, until: float, unheld: str) -> None:
        """Its lease lasts until then; when it is not held again before, it is ended for the reason `unheld`."""
        self.held_until, self.unheld = until, unheld

    def look(self, now: float) -> None:
        """Ends it at its window or with its lease, and kills what has not ended in time."""
        for moment, because in ((self.deadline, self.at_window), (self.held_until, self.unheld)):
            if self.because is None and now >= moment:
                late = now >= moment + KILL_AFTER
                self.end(because, signal.SIGKILL if late else signal.SIGTERM, now)
        if now >= self.kill_at:
            self.signal(signal.SIGKILL)

    def look_again_at(self, now: float) -> float:
        """When to look at it again, should nothing happen before."""
        pause = WATCHING if self.because is None else SETTLING
        moments = (self.deadline, self.held_until, self.kill_at)
        return min([now + pause, *(moment for moment in moments if moment > now)])

    def duration_ms(self, now: float) -> int:
        """Milliseconds since its start."""
        return max(0, round((now - self.started) * 1000))


class Adopted(Run):
    """A run whose tick died: watched from outside, so that all that can be known is when nothing of it lives."""

    def __init__(
        self, pid: int | None, start: int | None, run_id: str, *, since: int, started: float, deadline: float
    ) -> None:
        super().__init__(started=started, deadline=deadline, at_window=UNKNOWN)
        self._pid, self._start, self._run_id, self._since = pid, start, run_id, since
        self._ask_at = 0.0

    def signal(self, signum: int) -> None:
        process.signal_group(self._pid, self._start, self._run_id, signum)

    def is_seen(self) -> bool:
        """Whether something lives that is certainly of it."""
        return process.lives(self._pid, self._start, self._run_id, self._since, in_doubt=False)

    def has_ended(self, now: float, groups: Groups) -> bool:
        if now < self._ask_at:
            return False
        self._ask_at = self.look_again_at(now)
        return not process.lives(self._pid, self._start, self._run_id, self._since)

    def outcome(self, now: float) -> Outcome:
        return Outcome(None, self.because or UNKNOWN, self.duration_ms(now), "", self.survives)
