"""Lines for people and pipes: flushed at once, never wrapped, never waited for, never a reason to fail."""

import os
import select
import time
from contextlib import suppress
from functools import cache

PATIENCE_MS = 1000
_PIECE = 4096
_AGAIN_MS = 10


class Lines:
    """Writes whole lines to a descriptor. A broken, full or closed one loses lines and changes nothing else.

    A pipe or a terminal that nobody reads is waited for once, a second by default: a tick must not hang on its reader.
    With a patience of -1 it is waited for as long as it takes.
    """

    def __init__(self, descriptor: int, encoding: str, patience_ms: int = PATIENCE_MS) -> None:
        self._descriptor = _not_blocking(descriptor)
        self._encoding = encoding
        self._patience_ms = patience_ms
        self._is_amid_a_line = False

    def write(self, line: str) -> None:
        """Write one line; what the encoding does not have is escaped."""
        self.write_bytes(f"{line}\n".encode(self._encoding, "backslashreplace"))

    def write_bytes(self, data: bytes) -> None:
        """Write `data` as it is."""
        self._is_amid_a_line = not data.endswith(b"\n")
        tries = self._patience_ms // _AGAIN_MS
        with suppress(OSError):
            while data and self._is_ready():
                try:
                    # A poll promises PIPE_BUF bytes, 4096 on Linux (pipe(7)): more could block.
                    data = data[os.write(self._descriptor, data[:_PIECE]) :]
                except BlockingIOError:  # a terminal that has room, but not for what a newline becomes
                    if tries == 0:
                        return
                    tries -= 1
                    time.sleep(_AGAIN_MS / 1000)

    def end_line(self) -> None:
        """Let what comes next begin a line."""
        if self._is_amid_a_line:
            self.write_bytes(b"\n")

    def _is_ready(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        if poll.poll(self._patience_ms):
            return True
        self._patience_ms = 0
        return False


@cache
def _not_blocking(descriptor: int) -> int:
    """Of a terminal one of our own: a poll promises nothing there, and who shares this one wants it to block."""
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return descriptor
