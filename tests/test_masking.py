"""The password is masked in whatever was printed; the tail of an output stays small and harmless."""

import json
from random import Random
from urllib.parse import quote, quote_plus

import pytest

from cronledger.masking import LIMIT, Mask, Stream, Tail, without_credentials

LONG, SHORT = "correct horse%é/@", "a b%é"


@pytest.mark.parametrize("secret", [LONG, SHORT, "x", "?", "%", "::@", "\\d+.*"])
@pytest.mark.parametrize("spelled", [str, quote, quote_plus, lambda text: quote(text, safe="").lower()])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("postgresql://app:", "@db/app"),
        ("mysql://:", "@db"),
        ("x mysql://me@corp:", "@db\n"),
        ("postgresql://db/app?user=u&password=", "&sslmode=require"),
    ],
)
def test_a_url_with_the_password_is_masked(secret, spelled, before, after):
    """A URL that holds the password is masked whatever its length and spelling, with and without a user."""
    assert Mask(secret).text(before + spelled(secret) + after) == f"{before}***{after}"


@pytest.mark.parametrize("secret", [LONG, SHORT, "x", "/", '"\\', "a\tb", "😀<&>'"])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("slash", ["/", "\\/"])
def test_json_with_the_password_is_masked(secret, ascii_only, slash):
    """As Python or PHP write a URL in it; and each character by its number, as HTML-safe JSON may."""
    url, shown = (f"mysql://app:{password}@db" for password in (secret, "***"))
    printed, masked = (json.dumps([text], ensure_ascii=ascii_only).replace("/", slash) for text in (url, shown))
    assert Mask(secret).text(printed) == masked
    by_number = "".join(f"\\u{ord(character):04X}" for character in "p@ss/w<rd")
    assert Mask("p@ss/w<rd").text(by_number) == "***"


@pytest.mark.parametrize("tail", ["x", "/\\/\\/", "\\u005c"])
def test_backslashes_without_end_are_looked_through(tail):
    """Where each of them could be one or two, a password of 60 would be looked for until the end of time."""
    mask = Mask("\\" * 60 + tail)
    printed = b"\\" * 5000 + b"|" + b"\\/" * 5000 + b"|" + b"\\u005c" * 5000 + b"|"
    assert mask.bytes(printed) == printed
    for shown in ("\\" * 60 + tail, json.dumps("\\" * 60 + tail)[1:-1]):
        assert mask.text(f"<{shown}>") == "<***>"
    assert 0 < mask.settled(printed + b"\\" * 30) <= len(printed)


@pytest.mark.parametrize("seed", range(20))
def test_any_mix_of_raw_and_encoded_bytes_is_masked(seed):
    """Each byte of the password may be raw or percent-encoded, in either hex case."""
    chance = Random(seed)
    secret = "".join(chance.choice("a %+/@:é€😀\\^") for _ in range(12))
    mixed = b"".join(chance.choice([b"%c", b"%%%02x", b"%%%02X"]) % byte for byte in secret.encode())
    assert Mask(secret).bytes(b"<" + mixed + b">") == b"<***>"


def test_only_a_long_password_is_masked_outside_a_url():
    """From 8 characters on the bare password is masked; a shorter one may be a word like any other."""
    assert Mask("12345678").text("at 12345678!") == "at ***!"
    assert Mask("1234567").text("at 1234567!") == "at 1234567!"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql://u:word1@h/d", "mysql://***@h/d"),
        ("mysql://u:p@ssword1@h/d", "mysql://***@h/d"),
        ("mysql://u:pass word1@h/d", "mysql://***@h/d"),
        ("mysql://u:pass\nword1@h/d", "mysql://***@h/d"),
        ("mysql://u:/word1/@h/d", "mysql://***@h/d"),
        ("mysql://me@corp:word1@h/d", "mysql://***@h/d"),
        ("a://u:word1@h, b://u:word1@h", "a://***@h"),
        ("a://u:word1@h, b://u:word1", "a://***@h, b://***@"),
        ("'mysql://u:word1/d' is no name", "'mysql://***@ is no name"),
        ("me@corp: https://toml.io/en", "me@corp: https://toml.io/en"),
    ],
)
def test_a_url_in_the_wrong_place_loses_its_credentials(text, shown):
    """However malformed it is: rather too much goes than a part of the password stays."""
    assert without_credentials(text) == shown


@pytest.mark.parametrize("password", [None, ""])
def test_without_a_password_nothing_changes(password):
    """Without a password text, bytes and a stream are left as they are."""
    mask = Mask(password)
    assert (mask.margin, mask.text("://u:@h \udcff"), mask.bytes(b"\xff\x00")) == (0, "://u:@h \udcff", b"\xff\x00")
    assert Stream(mask).feed(b"line\n") == b"line\n"


@pytest.mark.parametrize("secret", [LONG, SHORT, "abcdabcd", "two\nlines"])
@pytest.mark.parametrize("seed", range(30))
def test_a_stream_shows_what_masking_the_whole_would(secret, seed):
    """However the output is cut into reads, what a stream shows is the whole output masked."""
    chance = Random(seed)
    parts = [b"correct", b" horse", b"://u:", b"abcd", b"\n", b"a", b"%", b"two"]
    parts += [b"mysql://u:" + quote(secret).encode() + b"@h"] * 4
    parts += [json.dumps(f"mysql://u:{secret}@h").replace("/", chance.choice(["/", "\\/"])).encode()] * 4
    whole = b"".join(chance.choices(parts, k=20))
    stream, shown, rest = Stream(Mask(secret)), b"", whole
    while rest:
        size = chance.randint(1, 9)
        shown, rest = shown + stream.feed(rest[:size]) + stream.idle(), rest[size:]
    assert shown + stream.flush() == Mask(secret).bytes(whole)


@pytest.mark.parametrize("secret", [LONG, SHORT, None])
def test_a_stream_shows_lines_at_once_and_a_prompt_when_idle(secret):
    """Whole lines are shown at once; the beginning of a line waits until nothing more has come for a while."""
    stream = Stream(Mask(secret))
    assert stream.feed(b"one\ntwo\nGo on? ") == b"one\ntwo\n"
    assert stream.idle() == b"Go on? "


@pytest.mark.parametrize(
    ("secret", "held"),
    [
        (LONG, b"corr"),
        (LONG, b"correct%2"),
        (LONG, b"c\\u00"),
        (SHORT, b":\\/"),
        (SHORT, b"://u"),
        (SHORT, b"://u:a%20b"),
        (SHORT, b":/"),
    ],
)
def test_a_stream_holds_what_may_become_the_password(secret, held):
    """What could still become a match is held back, and nothing else."""
    stream = Stream(Mask(secret))
    assert stream.feed(b"see " + held) + stream.idle() == b"see "
    assert stream.feed(b"\n") == held + b"\n"


def test_a_stream_does_not_keep_an_endless_line():
    """A line without end is shown in parts, so that memory stays flat."""
    stream = Stream(Mask(LONG))
    shown = [len(stream.feed(b"." * LIMIT)) for _ in range(50)]
    assert sum(shown) >= 49 * LIMIT


def tail_of(*pieces: bytes, password: str | None = None) -> str:
    tail = Tail(Mask(password))
    for piece in pieces:
        tail.add(memoryview(piece))
    return tail.text()


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        (b"", ""),
        (b"a\r\nb\r\r\nc\n", "a\nb\nc\n"),
        (b" 10%\r 50%\r100%\r\ndone\r", "100%\ndone"),
        (b"\x1b[31mred\x1b[0m\0\x07\tx", "\\x1b[31mred\\x1b[0m\\x00\\x07\tx"),
        (b"caf\xe9 caf\xc3\xa9 \xed\xa0\x80", "caf\ufffd café \ufffd\ufffd\ufffd"),
    ],
)
def test_the_tail_is_harmless(printed, kept):
    """Controls are written out, invalid UTF-8 is replaced, and a line that was drawn over is kept as it was left."""
    assert tail_of(printed) == kept


@pytest.mark.parametrize("size", [LIMIT + 1, 2 * LIMIT, 5_000_000])
def test_a_cut_says_how_much_it_cut(size):
    """The first line counts what is not there."""
    text = tail_of(*[b"x" * 1000] * (size // 1000), b"x" * (size % 1000))
    assert text == f"[{size - LIMIT:,} bytes cut]\n{'x' * LIMIT}"


@pytest.mark.parametrize("unit", ["é", "€", "😀", "x€"])
@pytest.mark.parametrize("password", [None, LONG])
@pytest.mark.parametrize("lead", [b"", b"1", b"12", b"123"])
def test_the_cut_is_between_characters(unit, password, lead):
    """No half character is left at the cut, and the parts of one that are left out are counted."""
    printed = lead + unit.encode() * 100_000
    mark, _, kept = tail_of(printed, password=password).partition("\n")
    assert "\ufffd" not in kept
    assert LIMIT - 4 < len(kept.encode()) <= LIMIT
    assert mark == f"[{len(printed) - len(kept.encode()):,} bytes cut]"


@pytest.mark.parametrize(
    ("printed", "shown"), [(b"\xff", "\ufffd"), (b"\x80", "\ufffd"), (b"\0", "\\x00"), (b"\x1b", "\\x1b")]
)
def test_the_limit_is_that_of_what_was_printed(printed, shown):
    """64 KiB of any bytes are kept whole, however much longer they become when they are made harmless."""
    assert tail_of(printed * LIMIT) == shown * LIMIT
    cut = tail_of(b"x" * 1000 + printed * LIMIT)
    assert cut.removeprefix("[1,000 bytes cut]\n").removeprefix("[1,003 bytes cut]\n").strip(shown) == ""


def test_each_password_that_was_learnt_is_masked():
    """A ledger's password may change while a process goes on: the old one stays a secret, and the new one is one."""
    mask = Mask(LONG)
    for password in (SHORT, LONG, f"{LONG} and more", None):
        mask.learn(password)
    text = f"{LONG} and more {quote(LONG)} x://u:{quote(SHORT)}@h {SHORT}"
    assert mask.text(text) == f"*** *** x://u:***@h {SHORT}"
    stream = Stream(mask)
    assert stream.feed(LONG[:4].encode()) + stream.idle() == b""
    assert stream.feed(f"{LONG[4:]} x://u:{SHORT[:2]}".encode()) + stream.idle() == b"*** x"
    assert stream.feed(f"{SHORT[2:]}@h\n".encode()) == b"://u:***@h\n"


@pytest.mark.parametrize("secret", [LONG, "abcabcab"])
@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_no_half_password_is_left_at_the_cut(secret, shift):
    """The password is masked before the cut, wherever the cut falls, also where masking makes the output short."""
    spelled = quote(secret).encode()
    text = tail_of(*[spelled + b"\n"] * 12_000, b"." * shift, password=secret)
    assert set(text.splitlines()[1:]) <= {"***", "**", "*", "." * shift}
