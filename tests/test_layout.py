"""The shape of the code: imports go one way, and each thing that touches the world has one place.

__main__ -> cli -> work, tick -> command, schedule, ledger and the like -> cron, dialects, events, errors
"""

import ast
import graphlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 300

DIALECTS = {"ledger.postgres", "ledger.mysql", "ledger.sqlite", "ledger.dialect", "ledger.dsn"}
BARE = {"cron", "events", "errors"}  # import the standard library only
EDGE = {"__main__", "cli"}  # where the clock is read, lines are printed and exit statuses given

ONLY_IN = {
    "subprocess": {"command"},
    "typer": {"cli"},
    "rich": {"cli"},
    "psycopg": {"ledger.postgres"},
    "pymysql": {"ledger.mysql"},
    "sqlite3": {"ledger.sqlite"},
    "tomli_w": {"crontab", "cli"},
    "logging": EDGE,
}
AT_THE_EDGE = {"print", "input", "SystemExit", "sys.exit", "sys.stdout", "sys.stderr"}
AT_THE_EDGE |= {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def layer(module: str) -> int:
    """How far a module is from the top; it may import from its own layer and from those below."""
    upper = {"__main__": 0, "cli": 1, "tick": 2, "plan": 2, "work": 2}
    return 4 if module in DIALECTS | BARE | {""} else upper.get(module.split(".")[0], 3)


def within(module: str, places: set[str]) -> bool:
    """Whether a module is one of these places or inside one."""
    return any(module == place or module.startswith(place + ".") for place in places)


def modules(root: Path) -> dict[str, Path]:
    """The modules of cronledger below `root` by their names in it; "" is the package itself."""
    package = root / "cronledger"
    paths = sorted(package.rglob("*.py"))
    return {
        ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").strip("."): path
        for path in paths
    }


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of all that is imported, inside functions too; of `from a import b`, `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{'.' * node.level}{node.module}.{name.name}") for name in node.names)


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every bare name and of every `name.attribute`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def own(name: str, known: dict[str, Path]) -> str | None:
    """The module of cronledger that an imported name means, or None for one of somebody else."""
    if name.split(".")[0] != "cronledger":
        return None
    inner = name.split(".")[1:]
    return next(".".join(inner[:end]) for end in range(len(inner), -1, -1) if ".".join(inner[:end]) in known)


def violations(root: Path) -> list[str]:
    """All that is not as it should be, as `path:line: what`."""
    known = modules(root)
    found = []
    for module, path in known.items():
        text = path.read_text()
        tree = ast.parse(text)
        at = path.relative_to(root)
        wrong = [*_wrong_imports(module, tree, known), *_wrong_uses(module, tree)]
        found += [f"{at}:{line}: {what}" for line, what in wrong]
        if text.count("\n") > LONGEST:
            found.append(f"{at}:{LONGEST}: is longer than {LONGEST} lines")
    return found + _circles(known)


def _wrong_imports(module: str, tree: ast.AST, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    for line, name in imports(tree):
        target = own(name, known)
        if name.startswith("."):
            yield line, "imports by a relative name"
        if target is not None and (layer(target) < layer(module) or (target and module in BARE)):
            yield line, f"imports {target}, which is above it"
        places = ONLY_IN.get(name.split(".")[0])
        if places is not None and not within(module, places):
            yield line, f"imports {name.split('.')[0]}, which only {', '.join(sorted(places))} may"


def _wrong_uses(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if not within(module, EDGE):
        imported = ((line, ".".join(name.split(".")[-2:])) for line, name in imports(tree))
        for line, name in [*uses(tree), *imported]:
            if name in AT_THE_EDGE:
                yield line, f"uses {name}, which only __main__ and cli may"


def _circles(known: dict[str, Path]) -> list[str]:
    graph = {}
    for module, path in known.items():
        targets = {own(name, known) for _, name in imports(ast.parse(path.read_text()))}
        graph[module] = targets - {None, module}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [f"cronledger: a circle of imports: {' -> '.join(map(str, error.args[1]))}"]
    return []


def test_layout_holds() -> None:
    """The code has the shape that is told at the top of this file."""
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("module", "line", "what"),
    [
        ("events.py", "from cronledger import cron", "imports cron, which is above it"),
        ("cron.py", "import cronledger.ledger.dsn", "imports ledger.dsn, which is above it"),
        ("ledger/dsn.py", "def f():\n    from cronledger.ledger import runs", "imports ledger.runs, which is above it"),
        ("ledger/runs.py", "from cronledger.tick import tick", "imports tick, which is above it"),
        ("tick.py", "import cronledger.cli", "imports cli, which is above it"),
        ("errors.py", "from . import events", "imports by a relative name"),
        ("schedule.py", "import subprocess", "imports subprocess, which only command may"),
        ("tick.py", "from rich.table import Table", "imports rich, which only cli may"),
        ("ledger/mysql.py", "import psycopg.rows", "imports psycopg, which only ledger.postgres may"),
        ("tick.py", "import logging", "imports logging, which only __main__, cli may"),
        ("command.py", "print(1)", "uses print, which only __main__ and cli may"),
        ("tick.py", "import sys\nsys.exit(1)", "uses sys.exit, which only __main__ and cli may"),
        ("clock.py", "import time\ntime.time()", "uses time.time, which only __main__ and cli may"),
        ("clock.py", "from time import time", "uses time.time, which only __main__ and cli may"),
        ("schedule.py", "datetime.now()", "uses datetime.now, which only __main__ and cli may"),
        ("cron.py", "\n" * LONGEST, f"is longer than {LONGEST} lines"),
    ],
)
def test_violation_is_seen(tmp_path: Path, module: str, line: str, what: str) -> None:
    """A line planted in a copy of the code is found, with its place."""
    shutil.copytree(ROOT / "cronledger", tmp_path / "cronledger")
    with (tmp_path / "cronledger" / module).open("a") as file:
        file.write(f"\n{line}\n")
    found = violations(tmp_path)
    assert any(each.startswith(f"cronledger/{module}:") and each.endswith(what) for each in found), found


def test_circle_is_seen(tmp_path: Path) -> None:
    """Modules of one layer that import one another are found."""
    package = tmp_path / "cronledger"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "command.py").write_text("from cronledger import process\n")
    (package / "process.py").write_text("def f():\n    from cronledger.command import run\n")
    assert violations(tmp_path) == ["cronledger: a circle of imports: command -> process -> command"]
