"""Whose turn a slot is: when a tick tries each of its slots, and for how long it leaves one to the other nodes."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from cronledger import pauses
from cronledger.clock import elapsed
from cronledger.errors import LedgerError
from cronledger.every import Every
from cronledger.ledger import Ledger
from cronledger.ledger.jobs import EVERY_JOB, Remembered
from cronledger.ledger.look import slots_taken
from cronledger.schedule import Slot

HEAD_START = 0.18
"""Seconds for which a slot is left to the node whose turn it is, and by which it may so be late."""
LIVE = timedelta(seconds=150)
"""Two ticks of a node and a little more: so long it counts as one that ticks."""
SLACK = 2
"""Seconds: slots of an interval job that come more often are left to nobody first."""
AGAIN = 1.0
"""Seconds after which a slot that found no place on this node is tried again."""

_Entry = tuple[float, Slot]
"""A slot, and the moment of `elapsed()` at which it is to be tried."""


class Turns:
    """The slots of a tick, each with the moment of `elapsed()` at which it is due.

    One is waiting until it is due, or due, or left to the other nodes for a while, though not after `until`.
    """

    def __init__(self, ledger: Ledger, slots: Iterable[_Entry], *, until: float) -> None:
        self._ledger = ledger
        self._waiting = list(slots)
        self._due: deque[Slot] = deque()
        self._left: list[_Entry] = []
        self._until = until
        self._nodes: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether there is any that was not tried, or is to be tried again."""
        return bool(self._waiting or self._due or self._left)

    @property
    def next_at(self) -> float:
        """When the next slot is to be tried, as a moment of `elapsed()`; infinity when there is none."""
        return min((moment for moment, _ in (*self._waiting, *self._left)), default=math.inf)

    @property
    def left(self) -> list[Slot]:
        """What is left to the other nodes."""
        return [slot for _, slot in self._left]

    def share(self, nodes: Sequence[str]) -> None:
        """Leave what is the turn of another of these nodes, of which this one is one, to that one first."""
        self._nodes = nodes

    def gather(self) -> None:
        """What has become due is to be tried; of an interval job the last slot only, and never an earlier one after it.

        In one batch: what becomes due while that is tried waits for the next one, so that other duties come between.
        """
        now = elapsed()
        self._waiting, waited = _parted(self._waiting, now)
        last = {slot.job.name: slot for slot in sorted(waited, key=_due_at)}
        self._left = [entry for entry in self._left if entry[1].job.name not in last]
        self._left, left = _parted(self._left, now)
        mine = []
        for slot in last.values():
            if turn_of(slot, self._nodes) in (None, self._ledger.node):
                mine.append(slot)
            else:
                self._left.append((now + HEAD_START, slot))
        self._due.extend(sorted([*self.not_taken(left), *mine], key=_due_at))

    def next(self) -> Slot | None:
        """A slot of the batch."""
        return self._due.popleft() if self._due else None

    def not_taken(self, left: list[Slot]) -> list[Slot]:
        """What the other nodes did not take. Only a look, which spares the claims that would find it out."""
        with suppress(LedgerError):
            taken = slots_taken(self._ledger) if left else set()
            return [slot for slot in left if self._as_taken(slot) not in taken]
        return left

    def _as_taken(self, slot: Slot) -> tuple[str, str, datetime]:
        return slot.job.name, self._ledger.scope_node(slot.job.scope), slot.due_at

    def add(self, slots: Iterable[Slot]) -> None:
        """Try these too, now."""
        self._due.extend(slots)

    def leave(self, slot: Slot) -> bool:
        """Leave `slot`, and all that is due, to the other nodes for a while. False: its minute is over."""
        now = elapsed()
        if now >= self._until:
            return False
        again = min(now + AGAIN, self._until)
        self._left += [(again, one) for one in (slot, *self._due)]
        self._due.clear()
        return True

    def hasten(self) -> None:
        """What was left to the other nodes is to be tried now."""
        self._left = [(-math.inf, slot) for _, slot in self._left]

    def give_up(self, until: float = math.inf) -> list[Slot]:
        """All that was to be tried until this moment of `elapsed()`; neither that nor what is later will be."""
        _, waiting = _parted(self._waiting, until)
        given_up = [*self._due, *(slot for _, slot in self._left), *waiting]
        self._due.clear()
        self._left.clear()
        self._waiting.clear()
        return given_up


def ticking(ledger: Ledger, rows: Iterable[Remembered]) -> list[str]:
    """The nodes that may claim: this one, and those that ticked lately and are not drained, by what is remembered."""
    now = ledger.clock.now()
    live = (row for row in rows if row.job == EVERY_JOB and row.seen_at is not None and now - row.seen_at < LIVE)
    return sorted({ledger.node, *(row.scope_node for row in live if not pauses.is_paused(row, now))})


def turn_of(slot: Slot, nodes: Sequence[str]) -> str | None:
    """Whose turn it is: the same node on all of them, and each of them as often as another; None: everyone's.

    By rendezvous hashing: when a node goes, only its own turns go to others.
    """
    job = slot.job
    if len(nodes) < 2 or job.scope == "node" or (isinstance(job.timing, Every) and job.timing.seconds < SLACK):
        return None
    from hashlib import blake2b

    named = f"{job.name} {slot.due_at.isoformat()}"

    def weight(node: str) -> bytes:
        return blake2b(f"{node} {named}".encode(), digest_size=8).digest()

    return max(nodes, key=weight)


def _parted(entries: list[_Entry], now: float) -> tuple[list[_Entry], list[Slot]]:
    """The entries whose moment is still to come, and the slots of the others."""
    return [entry for entry in entries if entry[0] > now], [slot for moment, slot in entries if moment <= now]


def _due_at(slot: Slot) -> datetime:
    return slot.due_at
