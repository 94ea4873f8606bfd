"""What a command printed, fit to be shown: the ledger's password masked, the last 64 KiB kept, controls written out."""

import re
from collections.abc import Sequence
from functools import cached_property

from cronledger.events import harmless

LIMIT = 64 * 1024
BARE_FROM = 8
_USER = 512
_CONTINUATION = bytes(range(0x80, 0xC0))
_NEVER = rb"(?!)"


class Mask:
    """Writes `***` for each password of the ledger that it learnt.

    In any mix of raw and percent-encoded bytes (RFC 3986), `+` for a blank, and of characters escaped as JSON may have
    them (RFC 8259, section 7). From 8 characters on wherever it stands; a shorter one, which may be a word like any
    other, only in a URL: as `scheme://user:PASSWORD@` (the user may be missing, and has at most 512 bytes) and as
    `scheme://…?password=PASSWORD`. Without one everything is left as it is.
    `margin` is the length in bytes of the longest match.
    """

    def __init__(self, password: str | None) -> None:
        self._anywhere: list[bytes] = []
        self._in_urls: list[bytes] = []
        self.margin = 0
        self.learn(password)

    def learn(self, password: str | None) -> None:
        """Mask this one too from now on, for all who hold this mask."""
        secret = (password or "").encode("utf-8", "surrogatepass")
        known = self._anywhere if len(password or "") >= BARE_FROM else self._in_urls
        if not secret or secret in known:
            return
        known.append(secret)
        known.sort(key=len, reverse=True)  # one that begins with another is masked whole
        for pattern in ("_match", "_begun"):
            self.__dict__.pop(pattern, None)
        self.margin = max(
            self.margin,
            len(r"\u0000") * len(secret) + (0 if known is self._anywhere else _USER + len(r":\/\/&password=@")),
        )

    @property
    def _knows_any(self) -> bool:
        return bool(self._anywhere or self._in_urls)

    def text(self, text: str) -> str:
        """`text` with every match masked."""
        if not self._knows_any:
            return text
        return self.bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def settled(self, data: bytes) -> int:
        """How many bytes of `data`, from its start, nothing that follows can make part of a match."""
        if not self._knows_any:
            return len(data)
        matches = self._match.finditer(data, max(0, len(data) - 2 * self.margin))
        last = max((match.end() for match in matches), default=0)
        begun = self._begun.search(data, max(last, len(data) - self.margin))
        return begun.start() if begun else len(data)

    @cached_property
    def _match(self) -> re.Pattern[bytes]:
        anywhere, in_urls = (b"|".join(map(_spelled, secrets)) or _NEVER for secrets in (self._anywhere, self._in_urls))
        in_url = rb"(:(?:\\?/){2}\S{0,%d}?(?::(?=(?:%b)@)|[?&]password=))(?:%b)" % (_USER, in_urls, in_urls)
        return re.compile(rb"(?:%b)|%b" % (anywhere, in_url))

    @cached_property
    def _begun(self) -> re.Pattern[bytes]:
        """A beginning of a match up to the end of the data, the empty one included."""
        anywhere, in_urls = (b"|".join(map(_begins, secrets)) or _NEVER for secrets in (self._anywhere, self._in_urls))
        before = rb"(?::|\Z)(?:\\?(?:/|\Z)){2}\S{0,%d}?" % (_USER + len("&password="))
        return re.compile(rb"(?:(?:%b)|%b(?:%b))\Z" % (anywhere, before, in_urls))

    def bytes(self, data: bytes) -> bytes:
        """`data` with every match masked."""
        if not (self._knows_any and data):
            return data
        return self._match.sub(lambda match: (match[1] or b"") + b"***", data)


def without_credentials(text: str) -> str:
    """`text` without the user and password of a URL in it, whosever they are: a DSN in the wrong place.

    It may be malformed, so all from the first `://` to the last `@` goes, and without an `@` all that follows a `:`, up
    to the end of the word: rather too much than a part of a password.
    """
    start, end = text.find("://"), text.rfind("@")
    if 0 <= start < end:
        text = f"{text[:start]}://***{text[end:]}"
    return re.sub(r"://[^\s/@:]*:[^\s@]*", "://***@", text)


_Spelling = Sequence[bytes]
"""A pattern for each byte of it."""
_SHORT = dict(zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True))
"""The characters that JSON may escape by a `\\` and another one."""


def _spelled(secret: bytes, *, partly: bool = False) -> bytes:
    """The pattern of a password; `partly`: also of what it begins with, at the end of the data.

    A backslash is one throughout, or two throughout as in JSON: else each combination of the two would be tried.
    """
    text = secret.decode("utf-8", "surrogatepass")
    spelled = [
        b"".join(_character(character, in_json, partly) for character in text)
        for in_json in ([True, False] if "\\" in text else [False])
    ]
    return b"(?:%b)" % b"|".join(spelled)


def _character(character: str, in_json: bool, partly: bool) -> bytes:
    raw = b"".join(_one_of(_of_byte(byte), partly) for byte in character.encode("utf-8", "surrogatepass"))
    if character != "\\":
        return _one_of([*_escaped(character), [raw]], partly)
    return _one_of(_escaped(character), partly) if in_json else raw


def _begins(secret: bytes) -> bytes:
    return _spelled(secret, partly=True)


def _one_of(spellings: Sequence[_Spelling], partly: bool) -> bytes:
    patterns = [b"".join(spelling) for spelling in spellings]
    if partly:
        patterns += [rb"%b\Z" % _beginning(spelling) for spelling in spellings if len(spelling) > 1] + [rb"\Z"]
    return b"(?:%b)" % b"|".join(patterns)


def _beginning(spelling: _Spelling) -> bytes:
    rest = b""
    for unit in reversed(spelling[1:-1]):
        rest = b"(?:%b%b)?" % (unit, rest)
    return spelling[0] + rest


def _of_byte(byte: int) -> list[_Spelling]:
    """Percent-encoded first, so that all of `%25` is matched for a `%`."""
    return [[b"%", *_hex(f"{byte:02x}")], [re.escape(bytes([byte]))], *([[rb"\+"]] if byte == ord(" ") else [])]


def _escaped(character: str) -> list[_Spelling]:
    """As JSON may have it: by one or two `\\u0000`, and some by two characters."""
    digits = character.encode("utf-16-be", "surrogatepass").hex()
    by_number = [unit for at in range(0, len(digits), 4) for unit in (rb"\\", b"u", *_hex(digits[at : at + 4]))]
    short = _SHORT.get(character)
    return [by_number, *([[rb"\\", re.escape(short.encode())]] if short else [])]


def _hex(digits: str) -> list[bytes]:
    return [f"[{digit}{digit.upper()}]".encode() for digit in digits]


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
        """The last 64 KiB, made harmless; where something was cut, the first line says how much: `[1,234 bytes cut]`.

        Masked before the cut, so that no half of a password is left.
        """
        shown, cut = self._masked()
        kept = shown[-LIMIT:]
        if cut or len(kept) < len(shown):
            # The rest of a character that was parted: UTF-8 has 4 bytes at most (RFC 3629).
            kept = kept[:3].lstrip(_CONTINUATION) + kept[3:]
        cut += len(shown) - len(kept)
        text = harmless(_as_left_on_screen(kept.decode("utf-8", "replace")))
        return f"[{cut:,} bytes cut]\n{text}" if cut else text

    def _masked(self) -> tuple[bytes, int]:
        """What to show, and how many bytes before it are not: the margin holds what the cut left of a password."""
        kept = bytes(self._kept)
        shown = self._mask.bytes(kept)
        if not self._dropped:
            return shown, 0
        skipped = len(self._mask.bytes(kept[: self._mask.margin]))
        return shown[skipped:], self._dropped + self._mask.margin


def _as_left_on_screen(text: str) -> str:
    """`text` without carriage returns: of a line that was drawn over and over (a progress bar) the last drawing."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
