"""`scope = "node"`: every node runs the job, each once, in slots and beside runs of its own."""

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import machine
import pytest
from conftest import Database
from deployed import AT, Deployed, Run, said
from ticks import run_batches

MINUTE = "2026-01-05T10:00"
WEB2 = {"CRONLEDGER_NODE": "web2"}


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database, with one job that every node runs."""
    deployed = Deployed(tmp_path, database, run).installed()
    deployed.write('name = "rotate"\nscope = "node"\ncommand = "true"')
    return deployed


@pytest.fixture
def held(
    deployed: Deployed, spawn: Callable[..., subprocess.Popen[str]], wait_for: Callable[..., None], tmp_path: Path
) -> Callable[..., None]:
    """`held(job)`: a run of it goes on on web1 until the test is over."""

    def hold(job: str) -> None:
        deployed.write(f'{job}\ncommand = "while :; do sleep 0.05; done"')
        spawn("tick", "--at", MINUTE, cwd=tmp_path, env=deployed.env)
        wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL AND state = 'running'"))

    return hold


def test_each_node_runs_it_once(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """Three nodes with four ticks each at once: a run on each node, and none more; a job of the cluster has one."""
    deployed.write('name = "rotate"\nscope = "node"\ncommand = "true"', 'name = "one"\ncommand = "true"')
    place = ["--schedule", f"{deployed.folder}/schedule.toml", "--dsn", deployed.dsn, "--at", MINUTE]
    ticks = [[*place, "--node", f"web{number}"] for number in (1, 2, 3)] * 4
    [ended] = run_batches([ticks], cron_environment)
    assert {(status, err) for status, _, err in ended} == {(0, "")}
    rows = deployed.rows("scope_node, node", "job = 'rotate'")
    assert sorted(rows) == [(node, node) for node in ("web1", "web2", "web3")]
    assert deployed.rows("scope_node", "job = 'one'") == [("",)]


def test_a_run_bars_the_next_one_on_its_own_node_only(deployed: Deployed, held: Callable[..., None]) -> None:
    """web1 stands down while its run goes on, says so once, and web2 is not concerned; by hand likewise."""
    held('name = "rotate"\nscope = "node"')
    deployed.write('name = "rotate"\nscope = "node"\ncommand = "true"')
    machine.wait_for(lambda: datetime.now(UTC).second < 40, what="time enough for two ticks of one minute")
    for line in ([r"stood down rotate: run of 2026-01-05 10:00 still going on web1 for \d+\.\ds"], []):
        done = deployed.tick("--dry-run", "--at", "2026-01-05T10:01")
        assert done.stdout.startswith("would stand down rotate: run of ")
        said(deployed.tick(), *line, status=0)
    said(deployed.tick(**WEB2), r"ran rotate in \d\.\ds", status=0)
    assert deployed.cli("run", "rotate").returncode == 1
    said(deployed.cli("run", "rotate", **WEB2), r"ran rotate in \d\.\ds", status=0)


def test_a_slot_is_looked_at_on_its_own_node(deployed: Deployed) -> None:
    """--dry-run tells of this node's slot, whatever the others did."""
    said(deployed.tick("--at", MINUTE), r"ran rotate in \d\.\ds", status=0)
    assert deployed.tick("--dry-run", "--at", MINUTE).stdout.startswith("would pass over rotate: ")
    assert deployed.tick("--dry-run", "--at", MINUTE, **WEB2).stdout.startswith("would run rotate: ")


def test_a_lock_is_the_clusters(deployed: Deployed, held: Callable[..., None]) -> None:
    """With a lock one node at a time runs it, and the other one says who holds it."""
    held('name = "rotate"\nscope = "node"\nlock = "disk"')
    said(
        deployed.tick(**WEB2),
        "stood down rotate: lock disk held by rotate, run of 2026-01-05 10:00 on web1",
        status=0,
    )


def test_it_is_shown_with_its_node(deployed: Deployed, held: Callable[..., None]) -> None:
    """`list` names the node of the last run, and of the slot that it stood down from; --json has the scope."""
    deployed.tick("--at", MINUTE, **WEB2)
    assert re.search(r"completed .* on web2 in \d\.\ds$", deployed.cli("list").stdout, re.MULTILINE)
    held('name = "rotate"\nscope = "node"')
    assert re.fullmatch(rf"{AT} stood down .*\n", deployed.tick().stdout)
    listed = deployed.cli("list").stdout
    assert re.search(r"stood down from \S+ \S+ on web1; before that running since .* on web1$", listed, re.MULTILINE)
    [job] = json.loads(deployed.cli("list", "--json").stdout)
    assert (job["scope"], job["last_run"]["scope_node"], job["last_run"]["node"]) == ("node", "web1", "web1")
