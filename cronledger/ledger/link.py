"""The one way to the database: bounded in time, and every statement of the ledger may be sent again."""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from cronledger.clock import elapsed
from cronledger.errors import LedgerBusy, LedgerError, LedgerUnreachable
from cronledger.events import one_line
from cronledger.ledger.dialect import EARLIEST, LATEST, Again, Dialect, Fault, Lost, Result, Row, Unstorable, Value
from cronledger.masking import Mask

BUDGET = 30.0
ATTEMPT = 10.0
CONNECT = 5.0
BUSY = 7.0
"""Seconds after which a row that others hold is given up: longer than the bound of two locks."""
HURRIED = 2.0
"""Seconds for an attempt once the process was told to end."""
SHORTEST = 0.1
"""Seconds for an attempt that another duty follows."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a statement gave. `again`: it was sent more than once, so an earlier copy may have taken effect."""

    rows: list[Row]
    count: int
    again: bool


class Link:
    """A connection that is made when it is needed and made anew when it was lost.

    All calls without `within` share one budget of seconds; when it is spent, LedgerUnreachable is raised. The text of
    whatever is raised is on one line and holds no password. `mask` masks the ledger's password, and learns one that the
    driver found by itself (PGPASSWORD, .pgpass) when it connects.

    `until`, a moment of `elapsed()`, bounds all calls beside: after it none is tried again, and an attempt is short.
    `meanwhile` is given the seconds between two attempts, to sleep or to see to something else, and none before one.
    """

    longest: ClassVar[int] = 400

    def __init__(self, dialect: Dialect, mask: Mask, budget: float = BUDGET, attempt: float = ATTEMPT) -> None:
        self.dialect = dialect
        self.mask = mask
        self._left = budget
        self._attempt = attempt
        self._used_at = elapsed()
        self._hurried = False
        self.until = math.inf
        self.meanwhile: Callable[[float], object] = time.sleep

    def send(
        self,
        statement: str,
        values: Mapping[str, Value] | None = None,
        *,
        within: float | None = None,
        tries: int = 10_000,
    ) -> Sent:
        """Send `statement` until it comes through, within the budget or `within` seconds, at most `tries` times.

        Raises Duplicate, Unstorable, LedgerUnreachable, LedgerBusy, and another LedgerError when trying again is of no
        use.
        """
        begun = elapsed()
        try:
            return self._send(statement, values or {}, begun + (self._left if within is None else within), tries)
        except LedgerError as error:
            raise type(error)(self._safe(str(error))) from None
        finally:
            self._used_at = elapsed()
            if within is None:
                self._left -= self._used_at - begun

    def _send(self, statement: str, values: Mapping[str, Value], deadline: float, tries: int) -> Sent:
        again = False
        pause = 0.05
        busy_from = elapsed()
        while True:
            self.meanwhile(0.0)
            try:
                if not self.dialect.is_open:
                    self._connect(min(CONNECT, self._share(deadline)))
                    busy_from = elapsed()
                result = self._execute(statement, values, self._share(deadline))
                return Sent(result.rows, result.count, again)
            except Fault as fault:
                again = True
                tries -= 1
                over = (
                    tries <= 0
                    or self._hurried
                    or elapsed() + pause >= min(deadline - self.dialect.shortest, self.until)
                )
                if isinstance(fault, Again) and (over or elapsed() - busy_from >= min(BUSY, self._attempt)):
                    raise LedgerBusy(f"ledger busy ({self._short(fault)})") from None
                if over:
                    raise LedgerUnreachable(f"ledger unreachable ({self._short(fault)})") from None
            self._wait(pause)
            pause = min(2 * pause, 2.0)

    def _wait(self, pause: float) -> None:
        over = elapsed() + pause
        while (left := over - elapsed()) > 0 and not self._hurried:
            self.meanwhile(left)

    def _execute(self, statement: str, values: Mapping[str, Value], seconds: float) -> Result:
        try:
            return self.dialect.execute(statement, values, seconds)
        except UnicodeEncodeError:
            raise Unstorable("a text that is not UTF-8 cannot be sent to the ledger") from None

    def _connect(self, seconds: float) -> None:
        try:
            self.dialect.connect(seconds)
        except ValueError as error:  # its text may repeat the DSN
            raise Lost(f"the driver fails at the DSN, or at what answers there, {type(error).__name__}") from None
        if password := self.dialect.password:
            self.mask.learn(password)

    def _share(self, deadline: float) -> float:
        """How long one attempt may take: what is left, but not so long that no second one fits."""
        now = elapsed()
        share = max(0.5, min(HURRIED if self._hurried else self._attempt, deadline - now))
        return max(SHORTEST, min(share, self.until - now))

    def _short(self, said: object) -> str:
        text = self._safe(str(said))
        return text if len(text) <= self.longest else text[: self.longest] + "…"

    def _safe(self, text: str) -> str:
        return one_line(self.mask.text(text))

    def refill(self, seconds: float) -> None:
        """Give the calls to come `seconds`, whatever was left to them."""
        self._left = seconds

    def extend(self, seconds: float) -> None:
        """Give the calls to come `seconds` more."""
        self._left += seconds

    def rest(self, idle: float) -> None:
        """Close the connection when it has not been used for `idle` seconds."""
        if self.dialect.is_open and elapsed() - self._used_at >= idle:
            self.dialect.close()

    def hurry(self) -> None:
        """The process is to end: a call that waits for the database gives up, later ones get one short attempt each.

        May be called by a signal handler.
        """
        self._hurried = True
        self.hang_up()

    def hang_up(self) -> None:
        """Break the connection off, under a call that waits on it too."""
        if (descriptor := self.dialect.descriptor()) is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
                line.shutdown(socket.SHUT_RDWR)

    def instant(self, value: object) -> datetime | None:
        """An instant read from a row, in UTC, from EARLIEST to LATEST. Raises LedgerError for what is none."""
        try:
            return None if value is None else max(EARLIEST, min(self.dialect.instant(value), LATEST))
        except ValueError:
            raise LedgerError(
                f"a row of the ledger has the instant {self._short(value)}; write 2026-11-30 03:15:00.000000, in UTC"
            ) from None

    def close(self) -> None:
        """Close the connection; the next statement makes a new one."""
        self.dialect.close()
