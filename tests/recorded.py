"""Runs written into a ledger as rows, so that what is shown of them can be told to the letter."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess

from conftest import Database

Run = Callable[..., CompletedProcess[str]]

SCHEDULE = """\
timezone = "Europe/Paris"
namespace = "billing"

[[job]]
name = "sessions:prune"
cron = "15 3 1 1 *"
command = "true"

[[job]]
name = "reports:build"
cron = "0 4 1 1 *"
timezone = "America/New_York"
command = "true"

[[job]]
name = "loads:eu"
cron = "@hourly"
command = "true"
enabled = false
"""
KEYS = [
    *["id", "namespace", "job", "scope_node", "due_at", "state", "active_job", "held_lock", "cause", "node", "owner"],
    *["pid", "started_at", "expires_at", "finished_at", "duration_ms", "exit_code", "failure_reason"],
    *["created_at", "updated_at", "lease_ms", "stale_after_ms", "attempts"],
]
HOSTILE = "exit 3: [bold]\x1b[2Jred[/bold]\nsecond \u202e line é"
HARMLESS = "exit 3: [bold]\\x1b[2Jred[/bold] second \\u202e line é"
DUE = datetime(2026, 3, 1, 2, 15, tzinfo=UTC)


def installed(database: Database, folder: Path) -> Database:
    """A ledger beside a schedule that names it."""
    (folder / "schedule.toml").write_text(f'{SCHEDULE}\n[ledger]\ndsn = "{database.dsn}"\n')
    database.install()
    return database


def record(ledger: Database, number: int, job: str = "sessions:prune", **columns: object) -> str:
    """Write a run that ended well, but for `columns`, `number` days after the first; returns its id."""
    due_at = DUE + timedelta(days=number)
    started_at = due_at + timedelta(seconds=1)
    values: dict[str, object] = {
        "id": f"0197a0e0-0000-7000-8000-0000{number:08x}",
        "namespace": "billing",
        "job": job,
        "scope_node": "",
        "due_at": due_at,
        "state": "completed",
        "cause": "schedule",
        "node": "web2",
        "owner": "",
        "pid": 4711,
        "started_at": started_at,
        "expires_at": started_at + timedelta(minutes=61),
        "finished_at": started_at + timedelta(seconds=1, milliseconds=400),
        "duration_ms": 1400,
        "exit_code": 0,
        "token": "",
        "created_at": started_at,
        "updated_at": started_at,
    }
    values |= columns
    texts = ", ".join(_literal(value, ledger.kind) for value in values.values())
    ledger.sql(f"INSERT INTO cronledger_runs ({', '.join(values)}) VALUES ({texts})")
    return str(values["id"])


def _literal(value: object, kind: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return f"'{value:%Y-%m-%d %H:%M:%S.%f}{'+00' if kind == 'postgres' else ''}'"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def failed(ledger: Database, number: int, job: str = "sessions:prune", reason: str = HOSTILE, **columns: object) -> str:
    """Write a run that failed."""
    ending = {"state": "failed", "failure_reason": reason, "exit_code": 3, "duration_ms": 12_000}
    return record(ledger, number, job, **(ending | columns))


def running(ledger: Database, number: int, job: str = "sessions:prune", **columns: object) -> str:
    """Write a run that goes on, started a minute ago and with a window of an hour."""
    started_at = datetime.now(UTC) - timedelta(minutes=1)
    open_end: dict[str, object] = dict.fromkeys(["finished_at", "duration_ms", "exit_code"])
    open_end |= {"state": "running", "active_job": job, "started_at": started_at}
    open_end |= {"expires_at": started_at + timedelta(minutes=61)}
    return record(ledger, number, job, **(open_end | columns))
