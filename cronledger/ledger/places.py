"""The places of a node: with max_running each of its runs holds one, by a unique index like all else."""

from collections.abc import Iterable
from dataclasses import replace

from cronledger.ledger.run import Claim, Claimed, NoPlace, Run
from cronledger.ledger.runs import Ledger

_HERE = "SELECT place FROM cronledger_runs WHERE namespace = %(namespace)s AND state = 'running' AND node = %(node)s"


class Places:
    """The places 1 to `most` of this node; `running`: what the ledger has just said to be running, anywhere.

    A run without a place (by hand, of an older program, from before there was a limit) leaves one place fewer to take.
    """

    def __init__(self, ledger: Ledger, most: int, running: Iterable[Run]) -> None:
        self._ledger = ledger
        self.most = most
        self._see([run.place for run in running if run.node == ledger.node])

    def _see(self, held: list[int | None]) -> None:
        free = [place for place in range(1, self.most + 1) if place not in held]
        self._free = free[: max(0, self.most - len(held))]
        self.running = len(held)

    def claim(self, run: Run) -> Claim:
        """Take the slot of `run`, a draft, together with a place. Raises LedgerError as Ledger.claim does."""
        looked = False
        while self._free or not looked:
            if not self._free:
                looked = True
                self._look()
                continue
            claim = self._ledger.claim(replace(run, place=self._free[0]))
            if isinstance(claim, Claimed | NoPlace):
                del self._free[0]
            if not isinstance(claim, NoPlace):
                return claim
        return NoPlace()

    def _look(self) -> None:
        values = {"namespace": self._ledger.namespace, "node": self._ledger.node}
        rows = self._ledger.link.send(_HERE, values).rows
        self._see([None if row["place"] is None else int(str(row["place"])) for row in rows])
