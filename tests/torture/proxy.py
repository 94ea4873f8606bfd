"""A TCP proxy between a tick and its database that does one bad thing at one chunk of what passes, or delays answers.

A chunk is what one recv(2) gives: both protocols wait for each other's answers, so it is a message or several at once.
"""

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

PORTS = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306}
NEVER = 1_000_000

Direction = Literal["up", "down"]  # to the server, and from it


@dataclass(slots=True)
class Strike:
    """What happens at the `number`th chunk of a direction, which is delivered or not: `do()`, then `and_then`.

    "cut" closes the line, "mute" leaves it open and lets nothing pass any more, "go on" does nothing to it.
    """

    direction: Direction
    number: int
    delivered: bool
    and_then: Literal["cut", "mute", "go on"] = "cut"
    do: Callable[[], object] = bool
    landed: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        return f"{self.and_then} at {self.direction} {self.number}, {'' if self.delivered else 'not '}delivered"


def no_strike() -> Strike:
    """One that never lands."""
    return Strike("up", NEVER, True)


class Proxy:
    """Lines to the server of `dsn`; `self.dsn` leads through here. Use as a context manager.

    Each chunk from the server comes `delay` seconds late.
    """

    def __init__(self, dsn: str, strike: Strike | None = None, delay: float = 0.0) -> None:
        parts = urlsplit(dsn)
        self._server = (parts.hostname or "127.0.0.1", parts.port or PORTS[parts.scheme])
        self._listener = socket.create_server(("127.0.0.1", 0))
        place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._listener.getsockname()[1]}"
        plain = {"query": "sslmode=disable&gssencmode=disable"} if PORTS[parts.scheme] == 5432 else {}
        self.dsn = parts._replace(netloc=place, **plain).geturl()
        self.refused = 0
        self._delay, self._over = delay, threading.Event()
        self.counts: dict[str, int] = {}
        self.arm(strike or no_strike())
        self._lines: dict[socket.socket, tuple[socket.socket, Direction]] = {}
        self._mute: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._mode: Literal["open", "frozen", "refusing", "closed"] = "open"
        self._thread = threading.Thread(target=self._serve, name="proxy")

    def __enter__(self) -> "Proxy":
        for one in (self._listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._set("closed")
        self._thread.join()
        for line in [*self._lines, self._listener, self._wake, self._woken]:
            line.close()
        self._selector.close()

    def arm(self, strike: Strike) -> None:
        """Count from zero, and strike when it is time."""
        self.counts, self.strike = {"up": 0, "down": 0}, strike

    def freeze(self) -> None:
        """Let nothing pass any more; connections are still taken, by the kernel, and nobody answers."""
        self._set("frozen")

    def refuse(self) -> None:
        """Cut all lines, and each new one at once."""
        self._set("refusing")

    def let(self) -> None:
        """Let all pass again."""
        self._set("open")

    @property
    def is_idle(self) -> bool:
        """Whether no line is open."""
        return not self._lines

    def _set(self, mode: Literal["open", "frozen", "refusing", "closed"]) -> None:
        self._mode = mode
        self._wake.send(b"x")

    def _serve(self) -> None:
        while self._mode != "closed":
            for key, _ in self._selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one is self._woken:
                    self._changed()
                elif self._mode == "frozen":
                    self._woken.recv(1)  # sleeps until the mode changes
                elif one is self._listener:
                    self._accept()
                elif one in self._lines:
                    self._pass(one)

    def _changed(self) -> None:
        self._woken.recv(1)
        if self._mode == "refusing":
            for line in list(self._lines):
                self._close(line)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._mode == "refusing":
            client.close()
            self.refused += 1
            return
        server = socket.create_connection(self._server)
        ways: tuple[tuple[socket.socket, socket.socket, Direction], ...]
        ways = ((client, server, "up"), (server, client, "down"))
        for line, other, direction in ways:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines[line] = (other, direction)
            self._selector.register(line, selectors.EVENT_READ)

    def _pass(self, line: socket.socket) -> None:
        other, direction = self._lines[line]
        try:
            data = line.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._close(line)
        elif line not in self._mute:
            self._chunk(line, other, direction, data)

    def _chunk(self, line: socket.socket, other: socket.socket, direction: Direction, data: bytes) -> None:
        self.counts[direction] += 1
        strike = self.strike
        strikes = (direction, self.counts[direction]) == (strike.direction, strike.number)
        if direction == "down":
            self._over.wait(self._delay)  # holds up all lines, which are those of one tick
        if strike.delivered or not strikes:
            with suppress(OSError):  # whoever is gone is noticed when its line is read
                other.sendall(data)
        if strikes:
            strike.do()
            if strike.and_then == "cut":
                self._close(line)
            elif strike.and_then == "mute":
                self._mute |= {line, other}
            strike.landed.set()

    def _close(self, line: socket.socket) -> None:
        if line in self._lines:
            other, _ = self._lines[line]
            for one in (line, other):
                del self._lines[one]
                self._mute.discard(one)
                self._selector.unregister(one)
                one.close()
