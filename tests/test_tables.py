"""What stands on a terminal, in a pipe and on a stdout that takes nothing more."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import Database
from recorded import HOSTILE, Run, failed, installed, record


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    """An installed ledger beside the schedule."""
    return installed(Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), tmp_path)


def at_terminal(
    columns: int, *args: str, folder: Path, environment: Mapping[str, str], variables: Mapping[str, str]
) -> list[str]:
    """The lines that `cronledger ARGS` shows on a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
    command = [sys.executable, "-m", "cronledger", *args]
    variables = {"TERM": "xterm", **variables}
    process = subprocess.Popen(command, cwd=folder, env={**environment, **variables}, stdin=slave, stdout=slave)
    os.close(slave)
    shown = b""
    with open(master, "rb", buffering=0) as screen:
        try:
            while data := screen.read(65536):
                shown += data
        except OSError:  # EIO: the program has closed the terminal
            pass
    assert process.wait(30) == 0
    return shown.decode().splitlines()


@pytest.mark.parametrize("command", ["list", "history"])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_terminal_is_never_overrun(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str], command: str, columns: int
) -> None:
    """On a terminal no line is wider than it, a long reason ends in an ellipsis, and no data drives the terminal."""
    failed(sqlite, 0, reason=f"{HOSTILE} {'long ' * 40}")
    screen = at_terminal(columns, command, folder=tmp_path, environment=cron_environment, variables={})
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen]
    assert max(map(len, plain)) <= columns
    assert any("failed" in line for line in plain)
    assert any(line.endswith("…") for line in plain)
    assert any("\x1b[31mfailed" in line for line in screen)
    assert any("sessions:prune" in line for line in plain)
    assert not any("\x1b[2J" in line or "\u202e" in line for line in screen)


def test_narrow_terminal_shows_a_field_a_line(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str]
) -> None:
    """Where a row does not fit even on two lines, each run is a list of its fields, so that nothing is lost."""
    record(sqlite, 0)
    variables = {"NO_COLOR": "1"}
    assert at_terminal(40, "history", folder=tmp_path, environment=cron_environment, variables=variables) == [
        "started  2026-03-01 03:15+01:00",
        "job      sessions:prune",
        "due      03:15",
        "node     web2",
        "took     1.4s",
        "run      00000000",
        "state    completed",
        "",
    ]


SIXTY = {
    "history": """\
STARTED                 JOB             DUE    NODE  TOOK
    RUN       STATE
2026-03-02 03:15+01:00  sessions:prune  03:15  web2  12.0s
    00000001  failed: exit 3: could not connect to warehouse
2026-03-01 03:15+01:00  sessions:prune  03:15  web2  1.4s
    00000000  completed""",
    "list": """\
JOB             CRON
    NEXT                    LAST RUN
sessions:prune  15 3 1 1 *
    NEXT-01-01 03:15+01:00  failed 2026-03-02 03:15+01:00: …
reports:build   0 4 1 1 * (America/New_York)
    NEXT-01-01 10:00+01:00  never ran
loads:eu        @hourly
    disabled                never ran""",
}


@pytest.mark.parametrize("command", SIXTY)
def test_a_row_takes_two_lines_before_anything_of_it_is_left_out(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str], command: str
) -> None:
    """On a terminal of 60 columns, where it does not fit, each column is still there."""
    record(sqlite, 0)
    failed(sqlite, 1, reason="exit 3: could not connect to warehouse")
    variables = {"NO_COLOR": "1"}
    screen = at_terminal(60, command, folder=tmp_path, environment=cron_environment, variables=variables)
    assert [re.sub(r"\b\d{4}-01-01 ", "NEXT-01-01 ", line) for line in screen] == SIXTY[command].splitlines()


def test_a_reason_goes_on_below_on_a_narrow_terminal(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str]
) -> None:
    """At 40 columns, where a run is a list of fields, its words are not cut."""
    failed(sqlite, 0, reason="exit 3: could not connect to warehouse")
    variables = {"NO_COLOR": "1"}
    screen = at_terminal(40, "history", folder=tmp_path, environment=cron_environment, variables=variables)
    assert screen[-3:] == ["state    failed: exit 3: could not", "         connect to warehouse", ""]


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_refused(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str], variables: dict[str, str]
) -> None:
    """NO_COLOR and a dumb terminal get no escape sequence at all."""
    failed(sqlite, 0)
    screen = at_terminal(120, "history", folder=tmp_path, environment=cron_environment, variables=variables)
    assert "\x1b" not in "".join(screen)


def test_import_does_not_drive_the_terminal(tmp_path: Path, cron_environment: dict[str, str]) -> None:
    """A control character of a crontab reaches a schedule's file, but no terminal."""
    (tmp_path / "tab").write_text("5 * * * * echo \x9b2J\n")
    screen = at_terminal(80, "import", "tab", folder=tmp_path, environment=cron_environment, variables={})
    assert 'command = "echo \\x9b2J"' in screen


def test_pipe_gets_no_colour_even_when_forced(sqlite: Database, run: Run) -> None:
    """Off a terminal nothing is coloured, wrapped or cut, whatever the environment says."""
    failed(sqlite, 0, reason="long " * 40)
    done = run("history", env={"FORCE_COLOR": "1", "COLUMNS": "40", "TERM": "xterm"})
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[1].endswith("failed: " + " ".join(["long"] * 40))


def test_stdout_that_cannot_take_a_character_gets_it_escaped(sqlite: Database, run: Run) -> None:
    """What the encoding of stdout does not have is escaped."""
    failed(sqlite, 0, reason="exit 3: é")
    assert run("history", env={"PYTHONIOENCODING": "ascii"}).stdout.endswith("failed: exit 3: \\xe9\n")


def test_reader_that_has_seen_enough_is_no_error(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str]
) -> None:
    """A closed pipe ends `history` silently with 0; a full disk is one line and exit status 1."""
    failed(sqlite, 0, reason="long " * 20_000)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cronledger", "history"]
    with open(writer, "wb") as closed, open("/dev/full", "wb") as full:
        results = [
            subprocess.run(
                command, cwd=tmp_path, env=cron_environment, stdout=stdout, stderr=subprocess.PIPE, timeout=60
            )
            for stdout in (closed, full)
        ]
    assert [(done.returncode, done.stderr) for done in results] == [
        (0, b""),
        (1, b"cronledger: cannot write to stdout: No space left on device\n"),
    ]


STATUSES = {
    "check --schedule nowhere.toml": 2,
    "explain '* * * *'": 2,
    "tick --bogus": 2,
    "tick --at 2026-13-01": 2,
    "nonsense": 2,
    "reap nothing": 1,
    "history nothing": 1,
    "run nothing": 1,
    "list": 0,
    "--help": 0,
}


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- 2>/dev/full"])
def test_stderr_that_takes_nothing_changes_no_exit_status(
    sqlite: Database, tmp_path: Path, cron_environment: dict[str, str], redirected: str
) -> None:
    """A stderr that is closed or full loses what is said there, and no more."""
    script = "".join(f"{sys.executable} -m cronledger {words} {redirected}; echo $? >&9\n" for words in STATUSES)
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec 9>statuses\n{script}"], cwd=tmp_path, env=cron_environment, capture_output=True
    )
    statuses = (tmp_path / "statuses").read_text().split()
    assert dict(zip(STATUSES, map(int, statuses), strict=True)) == STATUSES
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "variables", "wrong"),
    [
        *[([word], {}, "cannot write to stdout: No space left on device") for word in ("--help", "--version", "check")],
        (["install", "--print-sql"], {}, "cannot write to stdout: No space left on device"),
        (["install"], {}, "cannot write to stdout: No space left on device"),
        (["prune", "--older-than", "30d"], {}, "cannot write to stdout: No space left on device"),
        (["--install-completion", "bash"], {"HOME": "/proc/no"}, "cannot write to /proc/no.*: No such file .*"),
        ([], {"_CRONLEDGER_COMPLETE": "complete_bash", "COMP_WORDS": "", "COMP_CWORD": "x"}, "no completion: .*"),
        ([], {"_CRONLEDGER_COMPLETE": "complete_bash"}, "no completion: .*"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    sqlite: Database,
    tmp_path: Path,
    cron_environment: dict[str, str],
    words: list[str],
    variables: dict[str, str],
    wrong: str,
) -> None:
    """Whoever writes it, and also where a completion is asked for by what is no shell: no traceback, exit status 1."""
    command = [sys.executable, "-m", "cronledger", *words]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=cron_environment | variables, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert re.fullmatch(f"cronledger: {wrong}\n", done.stderr), done.stderr
    assert done.returncode == 1
