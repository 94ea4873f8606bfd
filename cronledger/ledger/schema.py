"""The tables, their mutexes, and install: it creates what is missing and upgrades what is older, by adding only."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from cronledger.errors import LedgerError, LedgerNotInstalled
from cronledger.ledger.dialect import Dialect, Duplicate, Exists, Types, lacking
from cronledger.ledger.link import Link

SCHEMA_VERSION = 2
"""The schema this program writes."""
OLDEST_VERSION = 1
"""The oldest schema whose programs may still tick on this one."""


PLACE = "cronledger_runs_place"
"""The mutex that is about max_running only."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: columns as name, type (a field of Types) and constraint; mutexes and indexes as name and columns."""

    name: str
    columns: tuple[tuple[str, str, str], ...]
    mutexes: tuple[tuple[str, str], ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()


RUNS = Table(
    "cronledger_runs",
    (
        ("id", "word", "NOT NULL PRIMARY KEY"),
        ("namespace", "name", "NOT NULL"),
        ("job", "name", "NOT NULL"),
        ("scope_node", "name", "NOT NULL"),
        ("due_at", "instant", "NOT NULL"),
        ("state", "word", "NOT NULL"),
        ("active_job", "name", "NULL"),
        ("held_lock", "name", "NULL"),
        ("cause", "word", "NOT NULL"),
        ("node", "name", "NOT NULL"),
        ("owner", "name", "NOT NULL"),
        ("pid", "number", "NULL"),
        ("pid_start", "number", "NULL"),
        ("started_at", "instant", "NOT NULL"),
        ("expires_at", "instant", "NOT NULL"),
        ("finished_at", "instant", "NULL"),
        ("duration_ms", "number", "NULL"),
        ("exit_code", "number", "NULL"),
        ("failure_reason", "text", "NULL"),
        ("output", "output", "NULL"),
        ("token", "word", "NOT NULL"),
        ("created_at", "instant", "NOT NULL"),
        ("updated_at", "instant", "NOT NULL"),
        ("place", "number", "NULL"),
        ("lease_ms", "number", "NULL"),
        ("stale_after_ms", "number", "NULL"),
        ("attempts", "number", "NULL"),
        ("notice", "word", "NULL"),
    ),
    mutexes=(
        ("cronledger_runs_slot", "namespace,job,scope_node,due_at"),
        ("cronledger_runs_active", "namespace,scope_node,active_job"),
        ("cronledger_runs_lock", "namespace,held_lock"),
        (PLACE, "namespace,node,place"),
    ),
    indexes=(
        ("cronledger_runs_expiry", "namespace,state,expires_at"),
        ("cronledger_runs_last", "namespace,job,started_at"),
        ("cronledger_runs_history", "namespace,started_at"),
        ("cronledger_runs_prune", "namespace,finished_at,id"),
        ("cronledger_runs_notice", "namespace,notice"),
    ),
)
JOBS = Table(
    "cronledger_jobs",
    (
        ("namespace", "name", "NOT NULL"),
        ("job", "name", "NOT NULL"),
        ("scope_node", "name", "NOT NULL"),
        ("stood_down_at", "instant", "NULL"),
        ("token", "word", "NOT NULL"),
        ("created_at", "instant", "NOT NULL"),
        ("updated_at", "instant", "NOT NULL"),
        ("timing", "text", "NULL"),
        ("timed_at", "instant", "NULL"),
        ("paused_at", "instant", "NULL"),
        ("resumes_at", "instant", "NULL"),
        ("paused_by", "name", "NULL"),
        ("pause_reason", "text", "NULL"),
        ("resumed_at", "instant", "NULL"),
        ("reminded_at", "instant", "NULL"),
        ("seen_at", "instant", "NULL"),
    ),
    mutexes=(("cronledger_jobs_one", "namespace,job,scope_node"),),
)
META = Table("cronledger_meta", (("name", "word", "NOT NULL PRIMARY KEY"), ("value", "number", "NOT NULL")))
TABLES = (RUNS, JOBS, META)

# Meets every column that a tick may come to need, and reads no row: a lost one shows before anything is claimed.
_EVERY_COLUMN = "".join(
    f" UNION ALL SELECT NULL FROM (SELECT {columns} FROM {table} WHERE 1 = 0) AS {table}"
    for table, columns in (
        (table.name, ", ".join(f"{table.name}.{name}" for name, _, _ in table.columns)) for table in (RUNS, JOBS)
    )
)
_VERSIONS = "SELECT name, value FROM cronledger_meta"
_META_ROWS = {"schema_version": SCHEMA_VERSION, "oldest_version": OLDEST_VERSION}


def check(link: Link) -> None:
    """Whether a tick may use this ledger. Raises LedgerNotInstalled, with what to do."""
    versions = {str(row["name"]): int(str(row["value"])) for row in link.send(_VERSIONS).rows}
    found, oldest = versions.get("schema_version", 0), versions.get("oldest_version", 0)
    if found < SCHEMA_VERSION:
        raise lacking(f"the ledger's schema is version {found}, this program needs {SCHEMA_VERSION}")
    if oldest > SCHEMA_VERSION:
        raise LedgerNotInstalled(
            f"the ledger's schema is version {found}, made by a newer cronledger; this one knows {SCHEMA_VERSION}"
            " and may no longer tick: deploy the newer one on this node"
        )
    if missing := _missing_mutexes(link, RUNS, beside=_EVERY_COLUMN):
        named = ", ".join(f"{name} ({columns})" for name, columns in missing)
        only_place = {name for name, _ in missing} == {PLACE}
        could = "more jobs could run at once than max_running" if only_place else "jobs could run twice"
        raise lacking(f"the ledger has lost a mutex, the unique index {named}: without it {could}")


def _missing_mutexes(link: Link, table: Table, beside: str = "") -> list[tuple[str, str]]:
    """The mutexes that are not there; `beside` is asked in the same statement."""
    there = {row["columns"] for row in link.send(link.dialect.mutexes + beside, {"table": table.name}).rows}
    return [(name, columns) for name, columns in table.mutexes if columns not in there]


def statements(dialect: Dialect) -> list[str]:
    """The whole DDL of a new ledger, in order, for a DBA who applies it by hand."""
    made = [_create_table(dialect.types, table) for table in TABLES]
    made += [_create_index(table, name, columns) for table in TABLES for name, columns in table.indexes]
    return made + [
        f"INSERT INTO cronledger_meta (name, value) VALUES ('{name}', {value})" for name, value in _META_ROWS.items()
    ]


def _create_table(types: Types, table: Table) -> str:
    lines = [f"{name} {getattr(types, kind)} {constraint}" for name, kind, constraint in table.columns]
    lines += [f"CONSTRAINT {name} UNIQUE ({columns.replace(',', ', ')})" for name, columns in table.mutexes]
    return f"CREATE TABLE {table.name} (\n  " + ",\n  ".join(lines) + f"\n){types.table}"


def _create_index(table: Table, name: str, columns: str, unique: str = "") -> str:
    return f"CREATE {unique}INDEX {name} ON {table.name} ({columns.replace(',', ', ')})"


def install(link: Link) -> list[str]:
    """Make the ledger what this program needs; returns what was done, in words, nothing when all was there.

    Safe to run again, by several nodes at once and after an interruption. Raises LedgerError, also for what it will
    not mend: it only adds.
    """
    if link.dialect.preparation:
        link.send(link.dialect.preparation)
    done = [word for table in TABLES for word in _install_table(link, table)]
    done += _install_versions(link)
    check(link)
    _check_nulls(link)
    return done


def _install_table(link: Link, table: Table) -> Iterator[str]:
    there = {row["name"] for row in link.send(link.dialect.columns, {"table": table.name}).rows}
    if not there and _define(link, _create_table(link.dialect.types, table)):
        yield f"created table {table.name}"
    missing = [column for column in table.columns if there and column[0] not in there]
    _see_that_none_needs_a_value(link, table, missing)
    for name, kind, constraint in missing:
        if _define(
            link, f"ALTER TABLE {table.name} ADD COLUMN {name} {getattr(link.dialect.types, kind)} {constraint}"
        ):
            yield f"added column {table.name}.{name}"
    for name, columns in _missing_mutexes(link, table):
        if _make_mutex(link, table, name, columns):
            yield f"made mutex {name} ({columns}) again"
    indexes = {row["name"] for row in link.send(link.dialect.indexes, {"table": table.name}).rows}
    for name, columns in table.indexes:
        if name not in indexes and _define(link, _create_index(table, name, columns)) and there:
            yield f"created index {name}"


def _see_that_none_needs_a_value(link: Link, table: Table, missing: list[tuple[str, str, str]]) -> None:
    """MySQL would make one up."""
    needy = [name for name, _, constraint in missing if "NOT NULL" in constraint and "DEFAULT" not in constraint]
    if needy and (not link.dialect.adds_not_null or link.send(f"SELECT 1 FROM {table.name} LIMIT 1").rows):
        raise LedgerError(
            f"the table {table.name} lacks {', '.join(needy)}, and install cannot make up what stood there: restore it"
            f" from a backup, or, while no job runs, DROP TABLE {table.name} (what it knows is forgotten), then run"
            " `cronledger install` again"
        )


def _make_mutex(link: Link, table: Table, name: str, columns: str) -> bool:
    """Whether it was this call that did it. Raises LedgerError, saying what is in the way."""
    try:
        link.send(_create_index(table, name, columns, unique="UNIQUE "))
    except Duplicate as error:
        if (name, columns) not in _missing_mutexes(link, table):
            return False
        if isinstance(error, Exists):
            raise LedgerError(
                f"the index {name} is there, but is no unique index of {table.name} on {columns}; install only adds,"
                " so drop that index, then run `cronledger install` again"
            ) from None
        raise LedgerError(
            f"the mutex {name} ({columns}) cannot be made again: rows of {table.name} collide; remove those, then run"
            " `cronledger install` again"
        ) from None
    return True


def _define(link: Link, statement: str) -> bool:
    """Whether it was this call that did it: another install may have come first."""
    try:
        link.send(statement)
    except Duplicate:
        return False
    return True


def _check_nulls(link: Link) -> None:
    """Whether each column takes NULL where that is meant, and nowhere else."""
    wrong: list[str] = []
    for table in TABLES:
        nullable = {row["name"]: row["nullable"] for row in link.send(link.dialect.columns, {"table": table.name}).rows}
        for name, _, constraint in table.columns:
            if nullable[name] != ("NOT NULL" not in constraint):
                wrong.append(f"{table.name}.{name} is {'NULL' if nullable[name] else 'NOT NULL'}")
    if wrong:
        raise LedgerError(
            f"not as `cronledger install --print-sql` has it: {', '.join(wrong)}; install only adds: change that by"
            " hand, then run it again"
        )


def _install_versions(link: Link) -> Iterator[str]:
    guard = link.dialect.insert_guard
    for name, value in _META_ROWS.items():
        with contextlib.suppress(Duplicate):
            link.send(
                f"INSERT INTO cronledger_meta (name, value) VALUES (%(name)s, %(value)s){guard}",
                {"name": name, "value": value},
            )
        raised = "UPDATE cronledger_meta SET value = %(value)s WHERE name = %(name)s AND value < %(value)s"
        if link.send(raised, {"name": name, "value": value}).count:
            yield f"raised {name} to {value}"
