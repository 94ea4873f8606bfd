"""Leases: a run of any length is held in the ledger by renewing its `expires_at` while its command runs."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cronledger.clock import Clock, elapsed
from cronledger.ledger import Ledger, Run, read_clock
from cronledger.ledger.holding import renew
from cronledger.ledger.runs import SETTLE_WITHIN

EARLY = timedelta(seconds=30)
"""Before its lease ends a command is ended, at half of the lease at the latest: others may reap it at the end."""
_TRIES = 4
_PUT_OFF = 1.0


@dataclass(frozen=True, slots=True)
class Lease:
    """One run's, in moments of `elapsed()`: to be renewed at `renew_at`, which is `since`, else ended at `until`."""

    run: Run
    since: datetime
    renew_at: float
    until: float


class Leases:
    """Those of the runs in flight here; a run without one is passed over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leases: dict[str, Lease] = {}

    def take(self, run: Run) -> None:
        """Hold a run that was claimed, or adopted, by its `expires_at`."""
        if run.lease:
            self._hold(run, self._ledger.clock, run.expires_at)

    def of(self, run: Run) -> Lease | None:
        """The lease of a run that is held."""
        return self._leases.get(run.id)

    def drop(self, run: Run) -> None:
        """Hold it no more."""
        self._leases.pop(run.id, None)

    def due(self) -> list[Run]:
        """The runs whose leases are to be renewed now. One whose command is to end is not renewed any more."""
        now = elapsed()
        return [lease.run for lease in self._leases.values() if lease.renew_at <= now < lease.until]

    @property
    def next_at(self) -> float:
        """When the next one is to be renewed; infinity when there is none."""
        now = elapsed()
        return min((lease.renew_at for lease in self._leases.values() if now < lease.until), default=math.inf)

    @property
    def patience(self) -> float:
        """Seconds to wait at most until a renewal that failed is tried again: a few more tries must fit."""
        until = min((lease.until for lease in self._leases.values()), default=math.inf)
        return max(0.5, (until - elapsed()) / _TRIES)

    def put_off(self, run: Run) -> None:
        """Renew it a little later, if then."""
        lease = self._leases[run.id]
        self._leases[run.id] = replace(lease, renew_at=elapsed() + _PUT_OFF)

    def renew(self, run: Run) -> bool:
        """Renew it by the database's clock of this moment. False: the run is not ours any more. Raises LedgerError."""
        assert run.lease is not None
        clock = read_clock(self._ledger.link, within=SETTLE_WITHIN, tries=2)
        now = clock.now()
        if not renew(self._ledger, run, expires_at=now + run.lease, now=now):
            self.drop(run)
            return False
        if run.id in self._leases:  # it may have ended meanwhile
            self._hold(run, clock, now + run.lease)
        return True

    def _hold(self, run: Run, clock: Clock, expires_at: datetime) -> None:
        assert run.lease is not None
        since, until = expires_at - run.lease * 2 / 3, expires_at - min(EARLY, run.lease / 2)
        self._leases[run.id] = Lease(run, since, clock.reached(since), clock.reached(until))
