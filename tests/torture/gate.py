"""What stands between the nodes and their database, and lets that go away: the server's own end, or a TCP relay."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from machine import free_port
from servers import OwnServer, Server


class Gate(Protocol):
    """A way to a server that can be closed."""

    def dsn(self, dsn: str) -> str:
        """The DSN that leads through it."""

    def shut(self) -> None:
        """Cut all connections, refuse new ones."""

    def open(self) -> None:
        """Let all through again, after `shut`."""

    def hold(self) -> None:
        """Accept, and say nothing."""

    def release(self) -> None:
        """Go on, after `hold`."""


class Own:
    """A server of our own: it is killed, started again on its data, and paused."""

    def __init__(self, server: OwnServer) -> None:
        self._server = server

    def dsn(self, dsn: str) -> str:
        return dsn

    def shut(self) -> None:
        self._server.stop("immediate")

    def open(self) -> None:
        self._server.start()

    def hold(self) -> None:
        self._server.pause()

    def release(self) -> None:
        self._server.resume()


class Relay:
    """A TCP relay in front of a server that is not ours to stop."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.dsn)
        default = 5432 if server.kind == "postgres" else 3306
        self._server = (parts.hostname or "127.0.0.1", parts.port or default)
        self._port = free_port()
        self._flows = threading.Event()
        self._flows.set()
        self._lines: list[socket.socket] = []
        self.open()

    def dsn(self, dsn: str) -> str:
        parts = urlsplit(dsn)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{self._port}").geturl()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        for line in (self._listener, *self._lines):
            _end(line)
        self._listener.close()
        self._lines.clear()
        self._flows.set()

    def hold(self) -> None:
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._server)
            except OSError:
                near.close()
                continue
            self._lines += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                sink.sendall(data)
        _end(source)
        _end(sink)
        source.close()


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def gate_of(server: Server) -> Iterator[Gate]:
    """The gate of a server; whatever was done to it is undone."""
    if isinstance(server, OwnServer):
        try:
            yield Own(server)
        finally:
            server.resume()
            if not server.is_up:
                server.start()
        return
    relay = Relay(server)
    try:
        yield relay
    finally:
        relay.shut()
