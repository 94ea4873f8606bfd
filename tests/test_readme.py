"""Every block of the README is used: it runs and prints what it shows, or it is read by what it is meant for."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import servers

from cronledger import cron, schedule
from cronledger.cli.options import TICK, WORK, read_plainly

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
NOT_RUN = "<!-- not run: "
ONE_JOB = '\n[[job]]\nname = "a"\ncron = "@daily"\ncommand = "true"\n'

# What the commands of the README's schedule do.
PROGRAMS = {
    "prune-sessions": "echo removed 1204 sessions",
    "poll": "true",
    "extract": "true",
    "build-report": "echo 'could not connect to warehouse' >&2; exit 3",
}
MASKS = [
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"\b(\d+m\d+s|\d+h\d+m|\d+\.\ds)\b", "DURATION"),
    (r'("duration_ms":) \d+', r"\1 N"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8}\b", "ID"),
    (r"\bpid \d+", "pid N"),
    (r"\bby \S+ on web1", "by USER on web1"),
    (r"(PostgreSQL) [\d.]+", r"\1 VERSION"),
    (r"(?m)^( *\* \* \* \* \*) [\w-]+ /", r"\1 USER /"),
    (r" +", " "),
    (r"(?m) $", ""),
]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the line of its fence, its language, its text, and whether it is to be run."""

    line: int
    language: str
    text: str
    runs: bool


def blocks(language: str = r"\w*") -> Iterator[Block]:
    """The blocks of a language, or all, in order."""
    for found in re.finditer(rf"^( *)```({language})\n(.*?)^\1```$", README, re.MULTILINE | re.DOTALL):
        before = README[: found.start()]
        runs = not before.rstrip().rpartition("\n")[2].strip().startswith(NOT_RUN)
        yield Block(before.count("\n") + 1, found[2], textwrap.dedent(found[3]), runs)


def each(language: str) -> pytest.MarkDecorator:
    """A test for each block of a language, named by its line."""
    return pytest.mark.parametrize("block", [pytest.param(one, id=f"line {one.line}") for one in blocks(language)])


@pytest.fixture
def app(tmp_path: Path, postgres: servers.Server) -> Path:
    """The folder /srv/app of the README, below `tmp_path`: its schedule, env_file and commands, on a PostgreSQL."""
    folder = tmp_path / "srv/app"
    (folder / "bin").mkdir(parents=True)
    (folder / "schedule.toml").write_text(next(blocks("toml")).text)
    variables = {"DATABASE_URL": postgres.fresh_database(), "PATH": f"{folder}/bin:/usr/bin:/bin"}
    (folder / ".env").write_text("".join(f"{name}='{value}'\n" for name, value in variables.items()))
    (folder / ".env").chmod(0o600)
    for name, line in PROGRAMS.items():
        _make_program(folder / "bin" / name, f"#!/bin/sh\n{line}\n")
    start = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom cronledger.__main__ import main\nsys.exit(main())\n"
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    _make_program(tmp_path / "usr/local/bin/cronledger", f"#!{sys.executable}\n{start}")
    return folder


def _make_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_console_blocks_print_what_they_show(app: Path, tmp_path: Path) -> None:
    """The README's commands, one after another in /srv/app, print what it shows but for times, ids and the like."""
    status = 0
    for block in (block for block in blocks("console") if block.runs):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            done = subprocess.run(
                ["/bin/bash", "-c", f"(exit {status}); {command}"],
                cwd=app,
                env={"PATH": f"{tmp_path}/usr/local/bin:/usr/bin:/bin", "CRONLEDGER_NODE": "web1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            status = done.returncode
            assert masked(done.stdout.replace(str(tmp_path), "")) == masked(shown), f"README.md:{block.line}: {command}"


def masked(text: str) -> str:
    """`text` without what differs from one run to the next."""
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return text.strip("\n")


@each("python")
def test_python_blocks_run(block: Block, app: Path) -> None:
    """A Python block is a file that pytest passes, beside the README's schedule."""
    (app / "test_schedule.py").write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_schedule.py"],
        cwd=app,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@each("toml")
def test_toml_blocks_are_schedules(block: Block, tmp_path: Path) -> None:
    """A TOML block is a schedule, or becomes one with a job."""
    path = tmp_path / "schedule.toml"
    path.write_text(block.text if "[[job]]" in block.text else block.text + ONE_JOB)
    assert schedule.load(path).jobs


@each("env")
def test_env_blocks_are_read(block: Block, tmp_path: Path) -> None:
    """An env_file block has the variable that the README's schedule names."""
    (tmp_path / ".env").write_text(block.text)
    (tmp_path / "schedule.toml").write_text(next(blocks("toml")).text)
    read = schedule.load(tmp_path / "schedule.toml")
    assert read.expand(read.dsn or "", read.environment({})).startswith("postgresql://")


@each("crontab")
def test_crontab_blocks_are_right(block: Block) -> None:
    """A line is a variable, or five fields and a tick by an absolute path, without a percent sign and a DSN."""
    for line in block.text.splitlines():
        if not re.match(r"[A-Z_]+=", line):
            *fields, program, command, options = line.split(maxsplit=7)
            assert cron.parse(" ".join(fields))
            assert (program[0], command, "%" in line) == ("/", "tick", False)
            values = read_plainly(options.split(), TICK)
            assert values is not None
            assert "dsn" not in values


def test_units_are_right(tmp_path: Path) -> None:
    """systemd-analyze (package systemd) has nothing to say of any unit, once its program is there."""
    names = ["cronledger.service", "cronledger-tick.service", "cronledger-tick.timer"]
    program = tmp_path / "cronledger"
    _make_program(program, "#!/bin/sh\n")
    for name, block in zip(names, blocks("ini"), strict=True):
        assert f"`/etc/systemd/system/{name}`" in README or f"`{name}`" in README
        text = block.text.replace("/usr/local/bin/cronledger", str(program)).replace("User=deploy", "User=root")
        (tmp_path / name).write_text(text)
    verify = [
        "systemd-analyze",
        "--man=no",
        "--recursive-errors=no",
        "verify",
        *(str(tmp_path / name) for name in names),
    ]
    done = subprocess.run([*verify, *(str(tmp_path / name) for name in names)], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("language", ["ini", "yaml"])
def test_supervisors_start_what_there_is(language: str) -> None:
    """Each command line of a unit or a container is one that the program takes, without a DSN."""
    for block in blocks(language):
        for line in re.findall(r"^ *(?:ExecStart=|command: )(.*)", block.text, re.MULTILINE):
            words = line.split() if language == "ini" else json.loads(line)
            at = words.index("/usr/local/bin/cronledger")
            values = read_plainly(words[at + 2 :], {"tick": TICK, "work": WORK}[words[at + 1]])
            assert values is not None
            assert "dsn" not in values


@each("sh")
def test_shell_blocks_name_what_there_is(block: Block) -> None:
    """Each `make` of the README is a target of the Makefile."""
    targets = re.findall(r"^(\w+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", block.text)) <= set(targets)


def test_no_block_is_left_out() -> None:
    """Every block is of a language that is looked at, and at most one is marked as not run."""
    known = {"console", "crontab", "env", "ini", "python", "sh", "text", "toml", "yaml"}
    assert {block.language for block in blocks()} == known
    assert sum(not block.runs for block in blocks()) <= 1
