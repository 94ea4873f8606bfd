"""`install`, `reap` and `prune`, as somebody types them or a job runs them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from conftest import Database
from deployed import AT, Deployed, Run, complained

Spawn = Callable[..., Popen[str]]
WaitFor = Callable[..., None]


@pytest.fixture
def fresh(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """A schedule beside a database without tables."""
    return Deployed(tmp_path, database, run)


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run)


def test_install_says_what_it_did_and_prints_the_line(fresh: Deployed) -> None:
    """What was made and where, the crontab line with absolute paths in both forms, and never the DSN."""
    first, second = fresh.cli("install"), fresh.cli("install")
    assert re.match(r"installed on \w+ [\d.]+: created table cronledger_runs, ", first.stdout)
    assert re.match(r"already installed on \w+ [\d.]+: nothing to do\n", second.stdout)
    for done in (first, second):
        lines = re.findall(r"^    (\* \* \* \* \* .*)$", done.stdout, re.MULTILINE)
        assert len(lines) == 2
        assert all(line.endswith(f" tick --schedule {fresh.folder}/schedule.toml") for line in lines)
        assert all(line.split()[-6].startswith("/") for line in lines)
        assert fresh.dsn not in done.stdout + done.stderr
        assert done.returncode == 0


def test_install_warns_of_a_dsn_that_cron_will_not_have(fresh: Deployed) -> None:
    """From the shell only: a warning. From an env_file: none."""
    assert "the DSN came from this shell only (CRONLEDGER_DSN)" in fresh.cli("install").stderr
    top = 'env_file = ".env"\n[ledger]\ndsn = "${DATABASE_URL}"'
    fresh.write('name = "ok"\ncommand = "true"', top=top)
    (fresh.folder / ".env").write_text("OTHER=1\n")
    shell_only = fresh.cli("install", CRONLEDGER_DSN="", DATABASE_URL=fresh.dsn)
    assert "this shell has what cron will not have: ${DATABASE_URL}" in shell_only.stderr
    (fresh.folder / ".env").write_text(f"DATABASE_URL='{fresh.dsn}'\n")
    assert fresh.cli("install", CRONLEDGER_DSN="").stderr == ""
    other = fresh.cli("install", CRONLEDGER_DSN=f"sqlite:///{fresh.folder}/other.db")
    assert "the DSN of this shell (CRONLEDGER_DSN) names another server or database than the schedule's" in other.stderr
    assert fresh.cli("install").stderr == ""


def test_the_printed_ddl_can_be_applied_by_hand(fresh: Deployed) -> None:
    """--print-sql connects to nothing and prints all that install would make; a tick then works."""
    printed = fresh.cli("install", "--print-sql")
    assert printed.returncode == 0
    listed = json.loads(fresh.cli("install", "--print-sql", "--json").stdout)
    assert ";\n\n".join(listed) + ";\n" == printed.stdout
    for statement in printed.stdout.split(";\n"):
        if statement.strip(" ;\n"):
            fresh.database.sql(statement.strip(" ;\n"))
    assert "already installed" in fresh.cli("install").stdout
    assert fresh.tick().returncode == 0


def test_a_percent_in_a_path_is_escaped_on_the_crontab_line(embedded: Deployed, run: Run) -> None:
    """On a crontab line a % is a newline, and a blank parts words."""
    folder = embedded.folder / "50% off"
    folder.mkdir()
    (folder / "schedule.toml").write_text((embedded.folder / "schedule.toml").read_text())
    done = run("install", "--json", cwd=folder, env=embedded.env)
    assert json.loads(done.stdout)["crontab"].endswith(
        rf" tick --schedule '{folder}/schedule.toml'".replace("%", r"\%")
    )


def test_install_without_a_schedule_makes_the_tables(run: Run, tmp_path: Path) -> None:
    """--dsn is enough; the line needs a schedule, and that is said."""
    done = run("install", "--dsn", "sqlite:///ledger.db")
    assert done.returncode == 0
    assert "Write a schedule.toml" in done.stdout
    assert (tmp_path / "ledger.db").exists()


def test_install_without_a_schedule_and_a_dsn(run: Run) -> None:
    """Both are said: in the wrong folder the schedule is what is missing."""
    wrong = "no ledger is named: .*; {} is not there either: name the schedule by --schedule"
    complained(run("install"), wrong.format("schedule.toml"), status=2)
    complained(run("install", env={"CRONLEDGER_SCHEDULE": "a.toml"}), wrong.format("a.toml"), status=2)


def test_install_by_a_role_that_may_not_create(postgres: object, run: Run, tmp_path: Path) -> None:
    """PostgreSQL 15 lets nobody create in public by default: the reason and the GRANT are named."""
    dsn = postgres.fresh_database()  # type: ignore[attr-defined]
    name = dsn.rpartition("/")[2]
    postgres.sql(f"ALTER DATABASE {name} OWNER TO postgres")  # type: ignore[attr-defined]
    complained(run("install", "--dsn", dsn), "GRANT USAGE, CREATE ON SCHEMA public")
    postgres.sql(f"ALTER DATABASE {name} OWNER TO cronledger")  # type: ignore[attr-defined]


def _running(deployed: Deployed, spawn: Spawn, wait_for: WaitFor) -> Popen[str]:
    deployed.installed().write('name = "slow"\ncommand = "exec sleep 300"')
    tick = spawn("tick", cwd=deployed.folder, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    return tick


def test_reap_asks_first(embedded: Deployed, spawn: Spawn, wait_for: WaitFor) -> None:
    """Off a terminal only with --yes; the node, the age and the danger are shown; then it is done, once."""
    _running(embedded, spawn, wait_for)
    asked = embedded.cli("reap", "slow")
    assert asked.returncode == 2
    assert "its command may still be alive there" in asked.stderr
    assert re.search(r"slow: run of \d\d:\d\d on web1, running for \d+\.\ds", asked.stderr)
    assert embedded.rows("state") == [("running",)]
    done = embedded.cli("reap", "slow", "--yes")
    assert re.fullmatch(rf"{AT} reaped slow: run of .*, by hand on web1\n", done.stdout)
    assert done.returncode == 0
    complained(embedded.cli("reap", "slow", "--yes"), "is over: failed since")


def test_prune_as_a_job(fresh: Deployed) -> None:
    """Old settled runs go, the newest of a job stays; said in one line; a day at least."""
    fresh.installed()
    for minute in range(3):
        fresh.tick("--at", f"2026-01-05T10:0{minute}")
    old = "'2026-01-05 10:00:00+00'" if fresh.database.kind == "postgres" else "'2026-01-05 10:00:00'"
    fresh.database.sql(f"UPDATE cronledger_runs SET finished_at = {old}")
    done = fresh.cli("prune", "--older-than", "30d")
    assert re.fullmatch(r"pruned 2 runs that finished before \d{4}-\d\d-\d\d \d\d:\d\d\+00:00\n", done.stdout)
    assert len(fresh.rows("id")) == 1
    again = json.loads(fresh.cli("prune", "--older-than", "1d", "--json").stdout)
    assert again["deleted"] == 0


@pytest.mark.parametrize(
    ("window", "instead"),
    [
        ("23h", "write 1d or more"),
        ("30", 'write "30d" for days'),
        ("1d2d", "write whole d, h, m, s in this order"),
        ("0d", "write 1d or more"),
        ("soon", "write whole d, h, m, s"),
    ],
)
def test_prune_refuses_what_is_too_young(embedded: Deployed, window: str, instead: str) -> None:
    """Less than a day, or no duration: exit 2 and what to write."""
    done = embedded.installed().cli("prune", "--older-than", window)
    complained(done, f"--older-than {window}: .*; {instead}", status=2)


def test_a_near_miss_of_a_command_is_answered(embedded: Deployed) -> None:
    """With the nearest one, exit 2."""
    done = embedded.cli("histroy")
    assert done.returncode == 2
    assert "history" in done.stderr


@pytest.mark.parametrize("words", [["--schedule", "x", "tick"], ["--dsn=postgresql://u:p@ss@h/d", "list"], ["--json"]])
def test_an_option_before_the_command_is_answered(embedded: Deployed, words: list[str]) -> None:
    """It is said where options stand, without the value: exit 2."""
    first = words[0].partition("=")[0]
    complained(embedded.cli(*words), f"{first} stands before the command; write it after, as in", status=2)


def test_the_version_and_help(embedded: Deployed) -> None:
    """--version says the package's; every command has help with examples."""
    assert re.fullmatch(r"cronledger \d+\.\d+\.\d+\n", embedded.cli("--version").stdout)
    for command in ["tick", "install", "check", "list", "history", "show", "run", "reap", "prune", "explain", "import"]:
        done = embedded.cli(command, "--help")
        assert done.returncode == 0
        assert "Examples:" in done.stdout, command
        assert "\x1b" not in done.stdout
