"""A million settled runs, made inside the database: of twenty jobs `job:0` to `job:19`, over the last year."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

BATCH = 100_000
BATCHES = 10
STEP = 31  # seconds from one run to the next

_DIGIT = "SELECT 0 AS n " + " ".join(f"UNION ALL SELECT {digit}" for digit in range(1, 10))
_DIGITS = " CROSS JOIN ".join(f"({_DIGIT}) AS d{place}" for place in range(5))
_NUMBER = " + ".join(f"{10**place} * d{place}.n" for place in range(5))


@dataclass(frozen=True, slots=True)
class Words:
    """How one kind of database says it: texts made of n, instants {seconds} after {base}, and what to do last."""

    id: str
    job: str
    instant: str
    last: str


_UUID = "01900000-0000-7000-8000-"
_MYSQL = Words(
    f"CONCAT('{_UUID}', LPAD(n, 12, '0'))",
    "CONCAT('job:', n % 20)",
    "TIMESTAMP'{base}' + INTERVAL ({seconds}) SECOND",
    "ANALYZE TABLE cronledger_runs",
)
WORDS = {
    "sqlite": Words(
        f"'{_UUID}' || printf('%012d', n)",
        "'job:' || (n % 20)",
        "strftime('%Y-%m-%d %H:%M:%f', '{base}', ({seconds}) || ' seconds') || '000'",
        "PRAGMA wal_checkpoint",
    ),
    "postgres": Words(
        f"'{_UUID}' || lpad(n::text, 12, '0')",
        "'job:' || (n % 20)",
        "TIMESTAMPTZ '{base}+00' + ({seconds}) * INTERVAL '1 second'",
        "VACUUM ANALYZE cronledger_runs",
    ),
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
}


def fill(kind: str, namespace: str, execute: Callable[[str], object]) -> None:
    """Fill the ledger of an installed database of this kind; `execute` sends it one statement.

    Half a second off the full minute, so that no slot of a tick is taken.
    """
    words = WORDS[kind]
    base = datetime.now(UTC) - timedelta(seconds=STEP * BATCH * BATCHES)
    start = base.replace(microsecond=500_000, tzinfo=None).isoformat(" ")

    def instant(after: int) -> str:
        return words.instant.format(base=start, seconds=f"{STEP} * n + {after}")

    columns = {"id": words.id, "namespace": f"'{namespace}'", "job": words.job, "scope_node": "''", "node": "'web1'"}
    columns |= {"state": "'completed'", "cause": "'schedule'", "owner": "'none'", "token": "'none'", "exit_code": "0"}
    columns |= {"due_at": instant(0), "started_at": instant(0), "created_at": instant(0), "updated_at": instant(9)}
    columns |= {"expires_at": instant(3660), "finished_at": instant(9), "duration_ms": "9000"}
    insert = f"INSERT INTO cronledger_runs ({', '.join(columns)}) SELECT {', '.join(columns.values())}"
    for batch in range(BATCHES):
        execute(f"{insert} FROM (SELECT {_NUMBER} + {batch * BATCH} AS n FROM {_DIGITS}) AS numbers")
    execute(words.last)
