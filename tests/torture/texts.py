"""What commands print and what passwords hold, and every place where a secret must not show."""

import json
import random
import string
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

from conftest import Database
from deployed import Deployed

from torture.conftest import Tally

RUDE = {
    "controls": rb"a\000b\033[2J\033]0;title\007\r\b\177\302\233c",
    "wide": rb"\360\237\230\200\342\200\256\342\200\250\303\251",
    "invalid": rb"\377\376\300\200\355\240\200\360\237x",
    "sql": rb"\047; DROP TABLE cronledger_runs; -- \\ %%s %%(id)s \" \140 \$1 ?",
}
"""By printf(1)'s escapes: NUL and controls, 4-byte characters and marks that turn text round, invalid UTF-8, SQL."""

PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F))
PASSWORDS = [
    *(PRINTABLE[start : start + 32] for start in range(0, len(PRINTABLE), 32)),
    *("x", "%", "@", "'", "\\", "%41", "a%2Fb", "p@ss/w:rd?#[]", "*x*", "correct horse battery staple"),
    *("pässwörd-😀", "пароль", "密码密码密码密码", "é" * 20, " leading and trailing ", string.punctuation),
]


def hostile_output(deployed: Deployed, tally: Tally) -> None:
    """Jobs that print what no terminal and no database likes; each is settled, in rows and lines that are harmless."""
    jobs = [f"printf '{text.decode()}'; echo; exit 9" for text in RUDE.values()]
    jobs += [f"head -c 300000 /dev/zero | tr '\\0' '{one}'; exit 9" for one in ("x", "\\377", "\\033")]
    more = '\nkeep_output = "always"\n'
    deployed.write(*(f'name = "rude{n}"\ncommand = {json.dumps(one)}{more}' for n, one in enumerate(jobs)))
    done = deployed.tick()
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    rows = deployed.rows("job, state, failure_reason, output")
    for text in (*lines, *(str(row[2]) for row in rows), *(str(row[3]) for row in rows)):
        assert all(one.isprintable() or one in "\n\t" for one in text.replace("\u202e", "!").replace("\u2028", "!"))
    assert all("exit 9" in line for line in lines)
    assert all(len(str(output)) <= 65536 * len(r"\x1b") + 100 for *_, output in rows)
    count(deployed, tally, len(jobs), len(lines))


def count(deployed: Deployed, tally: Tally, expected: int, said: int) -> None:
    """Add to the tally: rows and lines against what was due."""
    rows = deployed.rows("job, due_at, state")
    tally.inflicted += expected
    tally.expected += expected
    tally.seen += len(rows)
    tally.doubles += len(rows) - len({row[:2] for row in rows})
    tally.lost += abs(expected - len(rows)) + abs(expected - said)
    tally.running += sum(row[2] == "running" for row in rows)


def passwords(seed: int, number: int) -> list[str]:
    """Any characters but controls, 1 to 40 of them."""
    chance = random.Random(seed)
    letters = PRINTABLE + " äßЖ密😀\u00a0"
    return ["".join(chance.choices(letters, k=chance.randint(1, 40))) for _ in range(number)]


@contextmanager
def user_with(database: Database, password: str) -> Iterator[str]:
    """The DSN of a real user with this password, who may use the database."""
    server, parts = database.server, urlsplit(database.dsn)
    assert server is not None
    name, schema, postgres = f"u{parts.path[-12:]}", parts.path[1:], server.kind == "postgres"
    literal = password.replace("'", "''") if postgres else password.replace("\\", "\\\\").replace("'", "''")
    if postgres:
        literal = f"E'{literal.replace(chr(92), chr(92) * 2)}'"
        statements = [f"CREATE ROLE {name} LOGIN PASSWORD {literal}", f"GRANT cronledger TO {name}"]
    else:
        statements = [f"CREATE USER {name}@'%' IDENTIFIED BY '{literal}'", f"GRANT ALL ON {schema}.* TO {name}@'%'"]
    for statement in statements:
        server.sql(statement)
    try:
        yield parts._replace(netloc=f"{name}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        server.sql(f"DROP ROLE {name}" if postgres else f"DROP USER {name}@'%'")


def shown_nowhere(deployed: Deployed, password: str, *texts: str) -> None:
    """Neither as it is nor percent-encoded; one of less than 8 characters not within a URL."""
    rows = deployed.database.sql("SELECT failure_reason, output, owner, node FROM cronledger_runs")
    everything = [*texts, *(str(cell) for row in rows for cell in row)]
    encoded = quote(password, safe="")
    for text in everything:
        assert f":{encoded}@" not in text, text
        assert f":{password}@" not in text, text
        if len(password) >= 8:
            assert password not in text, text
            assert encoded not in text, text


def awkward(deployed: Deployed, password: str, tally: Tally) -> None:
    """A tick whose user has this password works, and what its job prints of the DSN is masked."""
    deployed.database.sql("DELETE FROM cronledger_runs")
    owner = deployed.dsn
    with user_with(deployed.database, password) as dsn:
        deployed.dsn = dsn
        leak = "printenv CRONLEDGER_DSN; tr '\\0' ' ' </proc/$PPID/cmdline; echo; printenv CRONLEDGER_DSN >&2; exit 1"
        deployed.write(f'name = "leak"\ncommand = {json.dumps(leak)}')
        done = deployed.tick()
        assert done.stderr == ""
        assert done.stdout.count(" failed leak in ") == 1, done.stdout
        count(deployed, tally, 1, len(done.stdout.splitlines()))
        shown_nowhere(deployed, password, done.stdout)
        [(output,)] = deployed.rows("output")
        assert str(output).count(":***@") == 2, output
        wrong = dsn.replace(f":{quote(password, safe='')}@", f":{quote(password + 'x', safe='')}@")
        refused = deployed.cli("tick", CRONLEDGER_DSN=wrong)
        assert (refused.returncode, refused.stdout) == (1, ""), refused
        shown_nowhere(deployed, password + "x", refused.stderr)
    deployed.dsn = owner


def malformed(dsn: str, password: str) -> list[str]:
    """DSNs that hold the password raw, cut, doubled, or at a wrong place."""
    scheme, _, rest = dsn.partition("://")
    place = rest.rpartition("@")[2]
    return [
        f"{scheme}://u:{password}@{place}",
        f"{scheme}://u:{password}@x@{place}",
        f"{scheme}:/u:{password}@{place}",
        f"{scheme}//{password}",
        f"{password}://{place}",
        f"{scheme}://u@{place.partition('/')[0]}:{password}/x",
        f"{scheme}://u:x@{place}?password={password}&nonsense={password}",
        f"{scheme}://u:{quote(password, safe='')}@{place}#",
        f"{scheme}://u:{quote(password, safe='')}%@{place}",
    ]


def refused_without_a_word(deployed: Deployed, password: str, tally: Tally) -> None:
    """Malformed DSNs are refused, by every command, without the secret and without a traceback."""
    for text in malformed(deployed.dsn, password):
        done = deployed.cli("tick", CRONLEDGER_DSN=text)
        assert done.returncode in (1, 2), (text, done)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        assert password not in done.stderr, (text, done.stderr)
        tally.inflicted += 1
