"""What a command printed, fit to be shown: the ledger's password masked, the last 64 KiB kept, controls written out."""

import re
from functools import cached_property

from cronledger.events import harmless

LIMIT = 64 * 1024
BARE_FROM = 8
_USER = 512
_CONTINUATION = bytes(range(0x80, 0xC0))
_MARK = len("[999,999,999,999,999 bytes cut]\n")


class Mask:
    """Writes `***` for the ledger's password, in any mix of raw and percent-encoded bytes (RFC 3986), `+` for a blank.

    From 8 characters on wherever it stands; a shorter one, which may be a word like any other, only in a URL: as
    `scheme://user:PASSWORD@` (the user may be missing, and has at most 512 bytes) and as `scheme://…?password=PASSWORD`.
    Without a password everything is left as it is. `margin` is the length in bytes of the longest match.
    """

    def __init__(self, password: str | None) -> None:
        self.learn(password)

    def learn(self, password: str | None) -> None:
        """Mask this one from now on, for all who hold this mask."""
        for pattern in ("_match", "_begun"):
            self.__dict__.pop(pattern, None)
        self._secret = (password or "").encode("utf-8", "surrogatepass")
        self._anywhere = len(password or "") >= BARE_FROM
        self.margin = 3 * len(self._secret) + (0 if self._anywhere else _USER + len("://&password=@"))
        if not self._secret:
            self.margin = 0

    def text(self, text: str) -> str:
        """`text` with every match masked."""
        if not self._secret:
            return text
        return self.bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def settled(self, data: bytes) -> int:
        """How many bytes of `data`, from its start, nothing that follows can make part of a match."""
        if not self._secret:
            return len(data)
        matches = self._match.finditer(data, max(0, len(data) - 2 * self.margin))
        last = max((match.end() for match in matches), default=0)
        begun = self._begun.search(data, max(last, len(data) - self.margin))
        return begun.start() if begun else len(data)

    @cached_property
    def _match(self) -> re.Pattern[bytes]:
        secret = b"".join(b"(?:%b)" % b"|".join(_spellings(byte)) for byte in self._secret)
        if self._anywhere:
            return re.compile(b"()" + secret)
        return re.compile(rb"(://\S{0,%d}?(?::(?=%b@)|[?&]password=))%b" % (_USER, secret, secret))

    @cached_property
    def _begun(self) -> re.Pattern[bytes]:
        """A beginning of a match up to the end of the data, the empty one included."""
        secret = b"".join(rb"(?:%b|%%[0-9a-fA-F]?\Z|\Z)" % b"|".join(_spellings(byte)) for byte in self._secret)
        before = b"" if self._anywhere else rb"(?::|\Z)(?:/|\Z)(?:/|\Z)\S{0,%d}?" % (_USER + len("&password="))
        return re.compile(before + secret + rb"\Z")

    def bytes(self, data: bytes) -> bytes:
        """`data` with every match masked."""
        return self._match.sub(rb"\1***", data) if self._secret and data else data


def without_credentials(text: str) -> str:
    """`text` with the user and password of every URL in it masked, whosever they are: a DSN in the wrong place."""
    return re.sub(r"://[^\s/@]*:[^\s@]*@|://[^\s/@:]*:[^\s@]*$", "://***@", text)


def _spellings(byte: int) -> list[bytes]:
    """The patterns of one byte of the password; percent-encoded first, so that all of `%25` is matched for a `%`."""
    high, low = (f"[{digit}{digit.upper()}]".encode() for digit in f"{byte:02x}")
    return [b"%" + high + low, re.escape(bytes([byte])), *([rb"\+"] if byte == ord(" ") else [])]


class Stream:
    """Live output: masked, and let go as soon as it can no longer be part of a password."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now: whole lines, and of a line over 64 KiB what is settled."""
        self._held += data
        lines = self._held.rfind(b"\n") + 1
        return self._release(lines if len(self._held) - lines <= LIMIT else len(self._held))

    def idle(self) -> bytes:
        """What may be shown of an unfinished line, when nothing more has come for a while."""
        return self._release(len(self._held))

    def flush(self) -> bytes:
        """All the rest: nothing more will come."""
        rest, self._held = self._held, b""
        return self._mask.bytes(rest)

    def _release(self, end: int) -> bytes:
        settled = self._mask.settled(self._held[:end])
        shown, self._held = self._held[:settled], self._held[settled:]
        return self._mask.bytes(shown)


class Tail:
    """The last 64 KiB of an output in flat memory, whatever its length and the length of its lines."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._kept = bytearray()
        self._dropped = 0

    def add(self, data: bytes | memoryview) -> None:
        """Takes what came next."""
        self._kept += data
        excess = len(self._kept) - LIMIT - self._mask.margin
        if excess > LIMIT:
            del self._kept[:excess]
            self._dropped += excess

    def text(self) -> str:
        """At most 64 KiB of UTF-8; where something was cut, the first line says how much, as `[1,234,567 bytes cut]`.

        Masked before the cut, so that no half of a password is left.
        """
        shown, cut = self._masked()
        text = harmless(_as_left_on_screen(shown.decode("utf-8", "replace"))).encode()
        if not cut and len(text) <= LIMIT:
            return text.decode()
        kept = text[-(LIMIT - _MARK) :]
        return f"[{cut + len(text) - len(kept):,} bytes cut]\n{kept.decode('utf-8', 'ignore')}"

    def _masked(self) -> tuple[bytes, int]:
        """What to show, and how many bytes before it are not: the margin holds what the cut left of a password."""
        kept = bytes(self._kept)
        shown = self._mask.bytes(kept)
        if not self._dropped:
            return shown, 0
        skipped = len(self._mask.bytes(kept[: self._mask.margin]))
        return shown[skipped:].lstrip(_CONTINUATION), self._dropped + self._mask.margin


def _as_left_on_screen(text: str) -> str:
    """`text` without carriage returns: of a line that was drawn over and over (a progress bar) the last drawing."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
