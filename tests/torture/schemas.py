"""Ledgers that are empty, older, newer or half there, and what makes them whole again."""

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from conftest import ROOT, Database

from cronledger.ledger import open_link, schema
from cronledger.ledger.dsn import parse
from cronledger.ledger.link import Link
from torture.conftest import Tally
from torture.installing import Asked, Nodes

KEPT = Path(__file__).resolve().parent.parent / "schemas"
HEAD = 'timezone = "UTC"\nnamespace = "app"\n'
SCHEDULE = f'{HEAD}[[job]]\nname = "ok"\ncron = "* * * * *"\ncommand = ["true"]\noverlap = true\n'
NEWEST = schema.SCHEMA_VERSION
Part = tuple[str, str, str]
"""What kind of thing, of which table, its name."""


def fresh(database: Database, folder: Path) -> Database:
    """Another empty database of the same kind."""
    if database.server is not None:
        return Database(database.kind, database.server.fresh_database(), database.server)
    folder.mkdir(exist_ok=True)
    number = len(list(folder.glob("*.db")))
    return Database("sqlite", f"sqlite:///{folder}/{number}.db", None)


def kept_ddl(database: Database, version: int) -> list[str]:
    """The statements of a released schema, as its `install --print-sql` printed them."""
    kind = "mysql" if database.kind == "mariadb" else database.kind
    return [one.strip() for one in (KEPT / f"{version}-{kind}.sql").read_text().split(";\n") if one.strip()]


def make(database: Database, version: int = NEWEST) -> None:
    """Make a ledger of a released schema, or of this program's."""
    for statement in kept_ddl(database, version):
        database.sql(statement)


def link_to(database: Database) -> Link:
    dsn = parse(database.dsn, "/")
    return open_link(dsn, install=True)


def inside(database: Database) -> dict[Part, bool]:
    """Each part that a whole ledger has, and whether it is there."""
    link = link_to(database)
    found: dict[Part, bool] = {}
    try:
        for table in schema.TABLES:
            asked = {"table": table.name}
            columns = {str(row["name"]) for row in link.send(link.dialect.columns, asked).rows}
            indexes = {str(row["name"]) for row in link.send(link.dialect.indexes, asked).rows}
            mutexes = {str(row["columns"]) for row in link.send(link.dialect.mutexes, asked).rows}
            found["table", table.name, table.name] = bool(columns)
            found |= {("column", table.name, name): name in columns for name, _, _ in table.columns}
            found |= {("index", table.name, name): name in indexes for name, _ in table.indexes}
            found |= {("mutex", table.name, name): keys in mutexes for name, keys in table.mutexes}
        versions = link.send("SELECT name, value FROM cronledger_meta").rows if columns else []
        found["row", "cronledger_meta", "both"] = len(versions) == 2
        return found
    finally:
        link.close()


def take_away(database: Database, part: Part) -> None:
    """Drop one part of a ledger, a column with the indexes that hold it."""
    kind, table, name = part
    if kind == "table":
        database.sql(f"DROP TABLE {table}")
    elif kind == "row":
        database.sql("DELETE FROM cronledger_meta WHERE name = 'oldest_version'")
    elif kind == "column":
        for other, _, index in holding(name, table):
            take_away(database, (other, table, index))
        database.sql(f"ALTER TABLE {table} DROP COLUMN {name}")
    elif database.kind == "postgres":
        database.sql(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}")  # an index alone once install made it
        database.sql(f"DROP INDEX IF EXISTS {name}")
    elif database.kind == "sqlite":
        database.sql(f"DROP INDEX {name}")
    else:
        database.sql(f"ALTER TABLE {table} DROP INDEX {name}")


def holding(column: str, table: str) -> list[Part]:
    """The indexes that hold a column."""
    [found] = [one for one in schema.TABLES if one.name == table]
    indexes = [("mutex", *one) for one in found.mutexes] + [("index", *one) for one in found.indexes]
    return [(kind, table, name) for kind, name, columns in indexes if column in columns.split(",")]


def parts(database: Database) -> list[Part]:
    """What can be taken away, and put back by install."""
    tables = [table for table in schema.TABLES if table is not schema.META]  # which has rows
    columns = [(table, *column) for table in tables for column in table.columns]
    kept = [("column", table.name, name) for table, name, _, constraint in columns if _addable(database, constraint)]
    if database.kind == "sqlite":
        kept = [part for part in kept if not any(one[0] == "mutex" for one in holding(part[2], part[1]))]
    others = [part for part in inside(database) if part[0] != "column"]
    # SQLite keeps a unique constraint within its table.
    return kept + [part for part in others if database.kind != "sqlite" or part[0] != "mutex"]


def _addable(database: Database, constraint: str) -> bool:
    return constraint == "NULL" if database.kind == "sqlite" else "PRIMARY" not in constraint


class Site:
    """A schedule, and the installs and ticks of its nodes: forked, so that they take milliseconds."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "schedule.toml").write_text(SCHEDULE)
        driver = "mysql" if kind == "mariadb" else kind
        nodes = Nodes(driver, {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)})
        self.at_once, self.close = nodes.at_once, nodes.close

    def install(self, database: Database, after: float | None = None) -> Asked:
        """An install, killed `after` so many seconds."""
        return ["install", "--dsn", database.dsn, "--schedule", f"{self.folder}/schedule.toml"], after

    def tick(self, database: Database, minute: int) -> Asked:
        """A tick of a minute of the past."""
        at = ["--at", f"2026-01-05T10:{minute:02}:00Z", "--node", "web1"]
        return ["tick", "--dsn", database.dsn, "--schedule", f"{self.folder}/schedule.toml", *at], None


def whole(site: Site, database: Database) -> None:
    """Nothing is missing, a further install finds nothing to do, and a tick works."""
    assert [part for part, there in inside(database).items() if not there] == []
    [(status, out, _)] = site.at_once(site.install(database))
    assert (status, out.partition(" installed on ")[0]) == (0, "already"), out
    [(status, out, err)] = site.at_once(site.tick(database, 59))
    assert (status, err, " ran ok in " in out) == (0, "", True), (out, err)


def many_at_once(site: Site, database: Database, tally: Tally, nodes: int = 10) -> None:
    """Many installs of one ledger: all succeed, and each thing is made once."""
    ended = site.at_once(*[site.install(database) for _ in range(nodes)])
    assert {status for status, _, _ in ended} == {0}, ended
    made = [word for _, out, _ in ended for word in out.splitlines()[0].partition(": ")[2].split(", ")]
    created = [word for word in made if word.startswith(("created table", "made mutex", "created index"))]
    assert len(created) == len(set(created)), created
    whole(site, database)
    tally.inflicted += nodes


def interrupted(site: Site, database: Database, tally: Tally, chance: random.Random) -> None:
    """Installs killed at any moment; the next one that is let be makes the ledger whole."""
    ended = site.at_once(*[site.install(database, chance.uniform(0.0, 0.25)) for _ in range(chance.choice([1, 1, 3]))])
    assert {status for status, _, _ in ended} <= {0, -9}, ended
    [(status, out, err)] = site.at_once(site.install(database))
    assert status == 0, (out, err)
    whole(site, database)
    tally.inflicted += len(ended)


def without(site: Site, database: Database, part: Part, tally: Tally) -> None:
    """A part that was lost: no tick claims without what it needs, install puts it back among ticks."""
    take_away(database, part)
    if part[0] in ("column", "table") or part[:2] == ("mutex", "cronledger_runs"):
        [(_, out, err)] = site.at_once(site.tick(database, 1))
        assert (out, err.count("run `cronledger install`"), part[2] in err) == ("", 1, True), err
    _, (status, out, said) = site.at_once(site.tick(database, 2), site.install(database))
    assert (status, part[0] == "row" or part[2] in out) == (0, True), (out, said)
    whole(site, database)
    tally.inflicted += 1


def among_ticks(site: Site, database: Database, minutes: Iterator[int], tally: Tally) -> None:
    """Installs while three nodes tick each minute: each slot runs once, and no tick is in trouble."""
    asked = [site.tick(database, minute) for minute, _ in product(minutes, range(3))]
    asked[2:2] = [site.install(database)] * 4
    ended = site.at_once(*asked)
    assert {(status, err) for status, _, err in ended if "warning" not in err} == {(0, "")}, ended
    slots = len(asked) // 3 - 1
    tally.inflicted += 4
    tally.expected += slots
    tally.seen += sum(out.count(" ran ok in ") for _, out, _ in ended)
    rows = database.sql("SELECT due_at, state FROM cronledger_runs")
    tally.doubles += len(rows) - len(set(rows))
    tally.lost += slots - len(rows)
    tally.running += sum(state != "completed" for _, state in rows)
