"""A schedule beside an installed ledger, and what a tick of it said."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess

from conftest import Database

Run = Callable[..., CompletedProcess[str]]

MINUTELY = 'cron = "* * * * *"\n'
AT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


class Deployed:
    """A schedule in `folder` whose ledger is installed, and the ways to tick it; jobs are due each minute."""

    def __init__(self, folder: Path, database: Database, run: Run) -> None:
        self.folder, self.database, self._run = folder, database, run
        self.dsn = database.dsn
        self.write('name = "ok"\ncommand = "true"')

    def write(self, *jobs: str, top: str = "") -> None:
        head = f'timezone = "UTC"\nnamespace = "app"\n{top}\n'
        text = head + "".join(f"[[job]]\n{'' if 'every = ' in job else MINUTELY}{job}\n" for job in jobs)
        (self.folder / "schedule.toml").write_text(text)

    @property
    def env(self) -> dict[str, str]:
        return {"CRONLEDGER_DSN": self.dsn, "CRONLEDGER_NODE": "web1"}

    def tick(self, *options: str, **env: str) -> CompletedProcess[str]:
        return self._run("tick", *options, cwd=self.folder, env=self.env | env)

    def cli(self, *arguments: str, **env: str) -> CompletedProcess[str]:
        return self._run(*arguments, cwd=self.folder, env=self.env | env)

    def rows(self, columns: str, where: str = "1 = 1") -> list[tuple[object, ...]]:
        return self.database.sql(f"SELECT {columns} FROM cronledger_runs WHERE {where} ORDER BY started_at")

    def ago(self, **age: float) -> str:
        """An instant that is so old, as SQL writes it."""
        return self.literal(datetime.now(UTC) - timedelta(**age))

    def literal(self, instant: datetime) -> str:
        """An instant in UTC, as SQL writes it."""
        return f"'{instant:%Y-%m-%d %H:%M:%S.%f}{'+00' if self.database.kind == 'postgres' else ''}'"

    def installed(self) -> "Deployed":
        """The same, once the tables are made."""
        self.database.install()
        return self


def said(done: CompletedProcess[str], *lines: str, status: int) -> None:
    """The whole of stdout, line by line as patterns, nothing on stderr, and the exit status."""
    assert done.stderr == ""
    printed = done.stdout.splitlines()
    assert len(printed) == len(lines), printed
    for line, pattern in zip(printed, lines, strict=True):
        assert re.fullmatch(f"{AT} {pattern}", line), line
    assert done.returncode == status


def complained(done: CompletedProcess[str], pattern: str, status: int = 1) -> None:
    """One line on stderr, nothing on stdout, no traceback, no password."""
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(pattern, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert not re.search(r"p@ss|p%40ss|rd-", done.stderr)
    assert done.returncode == status
