"""Install and upgrade: at once, interrupted, of older and newer schemas, by roles that may do little."""

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import KINDS, Database
from deployed import Deployed, Run, complained, said
from servers import Server
from torture import schemas
from torture.conftest import Tally

from cronledger.ledger import schema

SERVERS = [kind for kind in KINDS if kind != "sqlite"]
RAN = r"ran ok in \d\.\ds"


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[schemas.Site]:
    """A schedule whose nodes install and tick."""
    site = schemas.Site(tmp_path / "site", database.kind)
    yield site
    site.close()


@pytest.fixture
def counted() -> Tally:
    """A tally that no table shows."""
    return Tally("", "")


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A released ledger, and a schedule."""
    schemas.make(database)
    return Deployed(tmp_path, database, run)


def test_the_kept_ddl_is_what_is_released(database: Database, run: Run) -> None:
    """A schema that changes gets a version of its own, and those before it are kept as they were."""
    printed = run("install", "--print-sql", "--dsn", database.dsn).stdout
    assert [one.strip() for one in printed.split(";\n") if one.strip()] == schemas.kept_ddl(
        database, schema.SCHEMA_VERSION
    )


@pytest.mark.parametrize("version", range(schemas.NEWEST + 1))
def test_many_installs_at_once(database: Database, site: schemas.Site, counted: Tally, version: int) -> None:
    """On an empty ledger and on each released one all of them succeed, and each thing is made once."""
    if version:
        schemas.make(database, version)
    schemas.many_at_once(site, database, counted, nodes=5)


def test_an_interrupted_install_is_taken_up(
    database: Database, site: schemas.Site, counted: Tally, tmp_path: Path
) -> None:
    """Killed at any moment, the next one makes the ledger whole."""
    chance = random.Random(2)
    for _ in range(2):
        schemas.interrupted(site, schemas.fresh(database, tmp_path / "ledgers"), counted, chance)


def test_a_lost_part_is_put_back(database: Database, site: schemas.Site, counted: Tally) -> None:
    """One of each kind: a table, a column, an index, a mutex, a version."""
    schemas.make(database)
    kinds = {part[0]: part for part in schemas.parts(database)}
    assert len(kinds) >= 4
    for part in kinds.values():
        schemas.without(site, database, part, counted)
        database.sql("DELETE FROM cronledger_runs")


def test_installs_among_ticks(database: Database, site: schemas.Site, counted: Tally) -> None:
    """An index is put back while three nodes tick: each slot runs once, and no tick is in trouble."""
    schemas.make(database)
    schemas.take_away(database, ("index", "cronledger_runs", "cronledger_runs_last"))
    schemas.among_ticks(site, database, iter(range(5)), counted)
    counted.holds()


def test_the_older_program_ticks_on_a_newer_schema(deployed: Deployed) -> None:
    """After a rollback: an upgrade only adds, so the older program ticks on, and its install takes nothing back."""
    deployed.database.sql(f"UPDATE cronledger_meta SET value = {schemas.NEWEST + 1} WHERE name = 'schema_version'")
    deployed.database.sql("ALTER TABLE cronledger_runs ADD COLUMN to_come INTEGER NULL")
    deployed.database.sql("CREATE INDEX cronledger_runs_to_come ON cronledger_runs (to_come)")
    said(deployed.tick(), RAN, status=0)
    assert deployed.cli("install").stdout.startswith("already installed on ")
    kept = deployed.database.sql("SELECT value FROM cronledger_meta ORDER BY name")
    assert kept == [(schema.OLDEST_VERSION,), (schemas.NEWEST + 1,)]


def test_a_newer_schema_may_bar_the_older_program(deployed: Deployed) -> None:
    """It claims nothing then, and says what to do; its install changes nothing."""
    deployed.database.sql(f"UPDATE cronledger_meta SET value = {schemas.NEWEST + 1}")
    newer = "made by a newer cronledger; .*: deploy the newer one on this node"
    complained(deployed.tick(), f"{newer}; not claimed here: ok$")
    complained(deployed.cli("install"), f"{newer}$")
    assert deployed.rows("id") == []


@pytest.fixture
def writer(deployed: Deployed) -> Iterator[Deployed]:
    """As a user who may read and write the three tables, and nothing else."""
    server, parts = deployed.database.server, urlsplit(deployed.dsn)
    assert server is not None
    schema, name, postgres = parts.path[1:], f"w{parts.path[-12:]}", server.kind == "postgres"
    user = name if postgres else f"{name}@'%'"
    server.sql(f"CREATE {'ROLE' if postgres else 'USER'} {user}")
    server.sql(
        f"ALTER {'ROLE' if postgres else 'USER'} {user} {'LOGIN PASSWORD' if postgres else 'IDENTIFIED BY'} 'few'"
    )
    for table in ("runs", "jobs", "meta"):
        place = f"cronledger_{table}" if postgres else f"{schema}.cronledger_{table}"
        (deployed.database if postgres else server).sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {place} TO {user}")
    owner, deployed.dsn = deployed.dsn, parts._replace(netloc=f"{name}:few@{parts.netloc.rpartition('@')[2]}").geturl()
    yield deployed
    if postgres:
        server.rows(owner, f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}")
    server.sql(f"DROP {'ROLE' if postgres else 'USER'} {user}")


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_role_that_may_only_write(writer: Deployed) -> None:
    """It ticks, and its install finds all there; what it would have to create is refused with the GRANT to give."""
    said(writer.tick(), RAN, status=0)
    assert writer.cli("install").stdout.startswith("already installed on ")
    schemas.take_away(writer.database, ("index", "cronledger_runs", "cronledger_runs_last"))
    complained(writer.cli("install"), "may not do this .*GRANT|must be owner")


def test_a_schema_further_down_the_search_path(postgres: Server, run: Run, tmp_path: Path) -> None:
    """The ledger is found, used and mended where it is; nothing is made in the schema in front of it."""
    dsn = postgres.fresh_database()
    name = urlsplit(dsn).path[1:]
    database = Database("postgres", dsn, postgres)
    for statement in ("CREATE SCHEMA first", "CREATE SCHEMA second", f"ALTER DATABASE {name} SET search_path = second"):
        database.sql(statement)
    schemas.make(database)
    database.sql(f"ALTER DATABASE {name} SET search_path = first, second")
    deployed = Deployed(tmp_path, database, run)
    assert deployed.cli("install").stdout.startswith("already installed on ")
    said(deployed.tick(), RAN, status=0)
    schemas.take_away(database, ("mutex", "cronledger_runs", "cronledger_runs_slot"))
    complained(deployed.tick(), "lost a mutex")
    assert "made mutex cronledger_runs_slot" in deployed.cli("install").stdout
    said(deployed.tick("--at", "2026-01-05T10:00"), RAN, status=0)
    made = "SELECT COUNT(*) FROM pg_class WHERE relnamespace = 'first'::regnamespace"
    assert database.sql(made) == [(0,)]


def test_a_search_path_that_leads_nowhere(postgres: Server, run: Run) -> None:
    """Install says that its tables have no schema, and how to give them one."""
    dsn = postgres.fresh_database()
    postgres.rows(dsn, f"ALTER DATABASE {urlsplit(dsn).path[1:]} SET search_path = nowhere")
    complained(run("install", "--dsn", dsn), r"no schema to be made in \(.*\); CREATE SCHEMA")
