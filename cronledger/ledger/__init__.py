"""The ledger: one row per run, in the database that the team already has."""

from datetime import datetime, timedelta

from cronledger.clock import Clock, elapsed
from cronledger.errors import LedgerError
from cronledger.ledger.dialect import Dialect
from cronledger.ledger.dsn import Dsn
from cronledger.ledger.link import ATTEMPT, BUDGET, Link
from cronledger.ledger.run import Barred, Claim, Claimed, ClaimedElsewhere, NoPlace, Run
from cronledger.ledger.runs import Ledger
from cronledger.ledger.schema import check
from cronledger.masking import Mask

__all__ = [
    "Barred",
    "Claim",
    "Claimed",
    "ClaimedElsewhere",
    "Ledger",
    "NoPlace",
    "Run",
    "checked_clock",
    "open_ledger",
    "open_link",
]

SKEW_LIMIT = timedelta(seconds=30)
INSTALL_SECONDS = 3600.0


def open_link(dsn: Dsn, *, budget: float = BUDGET, install: bool = False) -> Link:
    """The way to the database of `dsn`, not yet connected. Only the driver that is needed is imported.

    `install`: a statement may take long, and an SQLite file that is not there is made.
    """
    return Link(_dialect(dsn, install), Mask(dsn.password), budget, INSTALL_SECONDS if install else ATTEMPT)


def _dialect(dsn: Dsn, install: bool) -> Dialect:
    if dsn.kind == "postgres":
        from cronledger.ledger.postgres import Postgres

        return Postgres(dsn)
    if dsn.kind == "mysql":
        from cronledger.ledger.mysql import Mysql

        return Mysql(dsn, longest=INSTALL_SECONDS if install else 10.0)
    from cronledger.ledger.sqlite import Sqlite

    return Sqlite(dsn, create=install)


def open_ledger(link: Link, *, namespace: str, node: str, owner: str) -> Ledger:
    """Connect, see that the ledger may be used, and read its clock. Raises LedgerError."""
    return Ledger(link, namespace, node, owner, checked_clock(link))


def checked_clock(link: Link) -> Clock:
    """Connect, see that the ledger may be used, and read its clock. Raises LedgerError."""
    check(link)
    return read_clock(link)


def read_clock(link: Link, *, within: float | None = None, tries: int = 10_000) -> Clock:
    """The database's clock, read once. See Link.send for `within` and `tries`."""
    now = link.instant(link.send(link.dialect.now, within=within, tries=tries).rows[0]["now"])
    assert now is not None
    return Clock(now, elapsed())


def check_skew(clock: Clock, wall: datetime, read_at: float) -> None:
    """Whether the node's clock, which said `wall` at `read_at` of `elapsed()`, agrees with the database's.

    Raises LedgerError from 30 s on: on such a node neither what is due nor what is dead can be told.
    """
    here = clock.at(read_at)
    skew = wall - here
    if abs(skew) >= SKEW_LIMIT:
        off = f"{abs(skew).total_seconds():.0f} s {'ahead of' if skew > timedelta() else 'behind'} the database's"
        times = f"{wall:%Y-%m-%d %H:%M:%S} against {here:%Y-%m-%d %H:%M:%S} UTC"
        raise LedgerError(
            f"this node's clock is {off} ({times}), so nothing is claimed and nothing reaped here; set the clock right"
            " (is its NTP service running?)"
        )
