"""What the manual pages and the README's tables say is what the program knows."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import typer
from test_events import LINES

from cronledger import check, errors, schedule
from cronledger.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
MANUAL = (ROOT / "man/cronledger.1").read_text()
FORMAT = (ROOT / "man/cronledger-schedule.5").read_text()
COMMAND = typer.main.get_command(app)
COMMANDS = COMMAND.commands  # type: ignore[attr-defined]
STATUSES = {0} | {kind.exit_status for kind in vars(errors).values() if hasattr(kind, "exit_status")}

# What the capitals of an event line in the manual stand for.
NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
TIME = r"(\d+\.\ds|\d+m\d+s|\d+h\d+m|(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?)"
PLACES = {
    "JOB": NAME,
    "NODE": NAME,
    "LOCK": NAME,
    "REASON": ".+",
    "N": r"\d+",
    "SIGNAL": "SIG[A-Z]+",
    "USER": r"\S+",
    "TIME": TIME,
}

# What the files of a project must not tell: folders of its developers' machines, hosts of package registries.
PRIVATE = re.compile(r"/(work|root|home/\w+|tmp/(venv|h))/|\bpypi\.[o]rg|pythonhosted\.[o]rg|[p]roxy\.golang")


def section(page: str, title: str) -> str:
    """The text of a section of a manual page, or of a subsection."""
    kind, text = re.split(rf"^(\.S[hs]) {re.escape(title)}$", page, maxsplit=1, flags=re.MULTILINE)[1:]
    return re.split(r"^\.Sh " if kind == ".Sh" else r"^\.S[hs] ", text, maxsplit=1, flags=re.MULTILINE)[0]


def flags(page: str) -> set[str]:
    """The options that a part of a manual page names."""
    return {f"-{name}" for name in re.findall(r"\bFl (-?[\w-]+)", page)}


def items(page: str, macro: str = "") -> list[str]:
    """The items of a part of a manual page that begin with `macro`."""
    return re.findall(rf"^\.It {macro}(.*)", page, re.MULTILINE)


def first_words(page: str, macro: str) -> set[str]:
    return {item.split()[0].strip("[]") for item in items(page, macro)}


def readme(title: str) -> str:
    """A section of the README."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    """The names in backquotes that begin a row of a table."""
    return {name.split()[-1].strip("[]") for name in re.findall(r"^\| `([^`]+)` +\|", text, re.MULTILINE)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_in_the_manual_with_its_options(name: str) -> None:
    """A command's synopsis names each of its options and arguments, and none that it does not have."""
    synopsis = section(MANUAL, name).partition("\n.Pp")[0]
    params = COMMANDS[name].params
    options = {option for param in params for option in param.opts if param.param_type_name == "option"}
    assert flags(synopsis) == options
    arguments = {param.metavar.strip("[]") for param in params if param.param_type_name == "argument"}
    assert arguments <= set(synopsis.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_alone_has_is_explained(name: str) -> None:
    """Options that only some commands have are explained below their synopsis, the others once, in OPTIONS."""
    _, _, text = section(MANUAL, name).partition("\n.Pp")
    common = {"--schedule", "--dsn", "--node", "--json"}
    options = {option for param in COMMANDS[name].params for option in param.opts if param.param_type_name == "option"}
    assert flags("\n".join(f"Fl {item}" for item in items(text, "Fl "))) == options - common


def test_the_manual_has_no_other_commands_and_the_common_options() -> None:
    """What COMMANDS and OPTIONS of the manual hold is what the program knows."""
    assert re.findall(r"^\.Ss (.*)", section(MANUAL, "COMMANDS"), re.MULTILINE) == sorted(COMMANDS, key=_place)
    own = {option for param in COMMAND.params for option in param.opts}
    assert flags(section(MANUAL, "OPTIONS")) == own | {"-h", "--help", "--schedule", "--dsn", "--node", "--json"}


def _place(command: str) -> int:
    return MANUAL.index(f"\n.Ss {command}\n")


def test_the_readme_names_all_commands() -> None:
    """The README's table has a row for each command."""
    assert first_column(readme("Commands")) == set(COMMANDS)


def test_each_key_of_a_schedule_is_documented() -> None:
    """cronledger-schedule(5) and the README's tables name every key that a schedule may have, and no other."""
    top = {*schedule._TOP_KEYS, *schedule._LEDGER_KEYS} - {"ledger"}
    job = set(schedule._JOB_KEYS)
    outer, _, inner = readme("The schedule").partition("\nKeys of a `[[job]]`:\n")
    assert first_column(outer) | {"job"} == top
    assert first_column(inner) == job
    assert first_words(section(FORMAT, "Keys of a job"), "Cm ") == job
    named = " ".join(re.sub(" No .*", "", item) for item in items(section(FORMAT, "Keys at the top"), "Cm "))
    assert set(re.findall(r"\w+", named)) - {"ledger"} == top


def test_each_warning_of_check_is_documented() -> None:
    """cronledger-schedule(5) explains each code that --allow takes."""
    assert first_words(section(FORMAT, "WARNINGS"), "Cm ") == set(check.TEXTS)


def test_each_exit_status_is_documented() -> None:
    """The manual and the README list the exit statuses that the errors have, and 0."""
    assert {int(status) for status in items(section(MANUAL, "EXIT STATUS"))} == STATUSES
    assert {int(status) for status in re.findall(r"^\| (\d) \|", README, re.MULTILINE)} == STATUSES


def test_each_promise_names_tests_that_exist() -> None:
    """The last column of the README's promises names files of tests, in each row."""
    rows = re.findall(r"^\|.* \| (.*) \|$", readme("What it promises, and what it costs"), re.MULTILINE)[2:]
    named = [re.findall(r"`(\w+\.py)`", cell) for cell in rows]
    assert rows
    assert all(named)
    known = {path.name for path in (ROOT / "tests").rglob("*_*.py")}
    assert {name for names in named for name in names} <= known


def test_the_example_of_the_manual_is_a_schedule(tmp_path: Path) -> None:
    """The example of cronledger-schedule(5) is one that is not refused."""
    path = tmp_path / "schedule.toml"
    path.write_text(section(FORMAT, "EXAMPLES").partition(".Bd -literal\n")[2].partition(".Ed\n")[0])
    assert schedule.load(path).jobs


EVENTS, PROBLEMS = (items(part) for part in section(MANUAL, "DIAGNOSTICS").split(".El\n", 1))


def is_explained(sentence: str) -> bool:
    """Whether an item of DIAGNOSTICS explains this sentence of an event."""
    shapes = ("".join(PLACES.get(word, re.escape(word)) for word in re.split(r"\b", item)) for item in EVENTS)
    return any(re.fullmatch(shape, sentence.replace("manual run", "run")) for shape in shapes)


@pytest.mark.parametrize("sentence", [line.partition(" ")[2] for _, line in LINES])
def test_each_event_line_is_in_the_manual(sentence: str) -> None:
    """DIAGNOSTICS explains every sentence of an event."""
    assert is_explained(sentence)


def test_event_lines_in_the_readme_are_possible() -> None:
    """Each line of the mail that the README begins with is one that a tick can print."""
    lines = re.findall(r"^\d{4}-\S+ (.*)", README.partition("```text")[2].partition("```")[0], re.MULTILINE)
    assert lines
    assert [line for line in lines if not is_explained(line)] == []


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_error_in_the_manual_exists(problem: str) -> None:
    """The words of an error that DIAGNOSTICS explains stand together in one function of the program."""
    words = set(re.findall(r"\b[a-z][\w']*", problem))
    assert any(words <= said for said in _said())


@cache
def _said() -> list[set[str]]:
    """The words in the texts of each function of the program."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "cronledger").rglob("*.py")]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    texts = [[node.value for node in ast.walk(one) if isinstance(node, ast.Constant)] for one in functions]
    return [set(re.findall(r"[\w']+", " ".join(map(str, constants)))) for constants in texts]


@pytest.mark.parametrize("page", ["cronledger.1", "cronledger-schedule.5"])
def test_manual_pages_are_clean(page: str) -> None:
    """mandoc (package mandoc) has nothing to say of it, be it a matter of style."""
    done = subprocess.run(["mandoc", "-T", "lint", f"man/{page}"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_file_tells_where_it_was_made() -> None:
    """No file names a folder of its developers' machines or the host of a package registry."""
    parts = [(path, path.relative_to(ROOT).parts) for path in ROOT.rglob("*") if path.is_file()]
    skipped = re.compile(r"\.(git|venv|demo|\w+_cache|hypothesis)|build|dist|\w+\.egg-info")
    own = [path for path, names in parts if not skipped.fullmatch(names[0]) and not {"cases", "__pycache__"} & {*names}]
    assert [str(path) for path in own if PRIVATE.search(path.read_text(errors="replace"))] == []
