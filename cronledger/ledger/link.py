"""The one way to the database: bounded in time, and every statement of the ledger may be sent again."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from cronledger.clock import elapsed
from cronledger.errors import LedgerError, LedgerUnreachable
from cronledger.events import one_line
from cronledger.ledger.dialect import Again, Dialect, Fault, Row, Value
from cronledger.masking import Mask

BUDGET = 30.0
ATTEMPT = 10.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What a statement gave. `again`: it was sent more than once, so an earlier copy may have taken effect."""

    rows: list[Row]
    count: int
    again: bool


class Link:
    """A connection that is made when it is needed and made anew when it was lost.

    All calls without `within` share one budget of seconds; when it is spent, LedgerUnreachable is raised. The text of
    whatever is raised is on one line and holds no password.
    """

    longest: ClassVar[int] = 400

    def __init__(self, dialect: Dialect, mask: Mask, budget: float = BUDGET, attempt: float = ATTEMPT) -> None:
        self.dialect = dialect
        self._mask = mask
        self._left = budget
        self._attempt = attempt
        self._used_at = elapsed()
        self._ends_at: float | None = None

    def send(
        self,
        statement: str,
        values: Mapping[str, Value] | None = None,
        *,
        within: float | None = None,
        tries: int = 10_000,
    ) -> Sent:
        """Send `statement` until it comes through, within the budget or `within` seconds, at most `tries` times.

        Raises Duplicate, Unstorable, LedgerUnreachable, and another LedgerError when trying again is of no use.
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
        while True:
            try:
                if not self.dialect.is_open:
                    self.dialect.connect(min(ATTEMPT, self._share(deadline)))
                result = self.dialect.execute(statement, values, self._share(deadline))
                return Sent(result.rows, result.count, again)
            except Fault as fault:
                again = True
                tries -= 1
                if tries <= 0 or elapsed() + pause >= self._bound(deadline):
                    kind = "busy" if isinstance(fault, Again) else "unreachable"
                    raise LedgerUnreachable(f"ledger {kind} ({self._safe(str(fault))})") from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _bound(self, deadline: float) -> float:
        return deadline if self._ends_at is None else min(deadline, self._ends_at)

    def _share(self, deadline: float) -> float:
        """How long one attempt may take: what is left, but not so long that no second one fits."""
        return max(0.5, min(self._attempt, self._bound(deadline) - elapsed()))

    def _safe(self, text: str) -> str:
        safe = one_line(self._mask.text(text))
        return safe if len(safe) <= self.longest else safe[: self.longest] + "…"

    def extend(self, seconds: float) -> None:
        """Give the calls to come `seconds` more."""
        self._left += seconds

    def rest(self, idle: float) -> None:
        """Close the connection when it has not been used for `idle` seconds."""
        if self.dialect.is_open and elapsed() - self._used_at >= idle:
            self.dialect.close()

    def hurry(self, seconds: float) -> None:
        """Let no call go on for longer than `seconds` from now; one that is waiting wakes. For a signal handler."""
        self._ends_at = elapsed() + seconds
        if (descriptor := self.dialect.descriptor()) is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
                line.shutdown(socket.SHUT_RDWR)

    def instant(self, value: object) -> datetime | None:
        """An instant read from a row, in UTC."""
        return None if value is None else self.dialect.instant(value)

    def close(self) -> None:
        """Close the connection; the next statement makes a new one."""
        self.dialect.close()
