"""One tick, as cron starts it: a real process, a real ledger, real commands."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import machine
import pytest
import servers
from conftest import ROOT, Database
from deployed import AT, Deployed, Run, complained, said
from launching import group_alive
from ticks import run_batches
from torture import machines

Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]


def at_a_terminal(deployed: Deployed, minute: str) -> str:
    """What a tick by hand for a minute of that day says there."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "cronledger", "tick", "--at", f"2026-01-05T{minute}"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)} | deployed.env
    subprocess.run(command, cwd=deployed.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as screen:
        return screen.read(4096).decode()


@pytest.fixture
def deployed(database: Database, run: Run, tmp_path: Path) -> Deployed:
    """On each kind of database."""
    return Deployed(tmp_path, database, run).installed()


@pytest.fixture
def embedded(run: Run, tmp_path: Path) -> Deployed:
    """On SQLite, for what is not about the database."""
    return Deployed(tmp_path, Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None), run).installed()


def test_a_job_runs_once_and_says_so(deployed: Deployed) -> None:
    """One line, exit 0, a completed row; the second tick of the minute is silent."""
    minute = "2026-01-05T10:00"
    said(deployed.tick("--at", minute), r"ran ok in \d\.\ds", status=0)
    said(deployed.tick("--at", minute), status=0)
    assert deployed.rows("job, state, exit_code, cause, node") == [("ok", "completed", 0, "schedule", "web1")]


def test_nothing_due_is_silence(deployed: Deployed) -> None:
    """Exit 0 and not a byte."""
    deployed.write('name = "ok"\ncommand = "true"\nenabled = false')
    said(deployed.tick(), status=0)


def test_a_failure_is_one_line_with_its_last_words(deployed: Deployed) -> None:
    """The exit status, then the last line it printed; the output is kept in the row."""
    deployed.write('name = "bad"\ncommand = "echo first; echo no warehouse >&2; exit 3"')
    said(deployed.tick(), r"failed bad in \d\.\ds: exit 3: no warehouse", status=1)
    kept = deployed.rows("state, exit_code, failure_reason, output")
    assert kept == [("failed", 3, "exit 3: no warehouse", "first\nno warehouse\n")]


@pytest.mark.parametrize(
    ("keep", "code", "kept"),
    [
        ("failed", 0, None),
        ("failed", 1, "hello\n"),
        ("always", 0, "hello\n"),
        ("always", 1, "hello\n"),
        ("never", 0, None),
        ("never", 1, None),
    ],
)
def test_output_is_kept_as_asked(embedded: Deployed, keep: str, code: int, kept: str | None) -> None:
    """keep_output decides whether the ledger has it; with never, not even its last line."""
    embedded.write(f'name = "a"\ncommand = "echo hello; exit {code}"\nkeep_output = "{keep}"')
    embedded.tick()
    [(output, reason)] = embedded.rows("output, failure_reason")
    assert output == kept
    assert reason == (None if not code else "exit 1" if keep == "never" else "exit 1: hello")


def test_a_job_stands_down_once_while_its_run_goes_on(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The next slot finds the run in flight: one line cluster-wide, no row, exit 0; afterwards it is free again."""
    wait_for(lambda: datetime.now(UTC).second < 40, what="time enough for three ticks of one minute")
    deployed.write(f'name = "slow"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    slow = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    utc = "+00" if deployed.database.kind == "postgres" else ""
    deployed.database.sql(f"UPDATE cronledger_runs SET due_at = '2026-01-05 10:00:00{utc}'")
    for minute, said_again in (("10:02", 0), ("10:01", 1)):  # of the last slot once, and of one before it nobody knows
        asked = [deployed.tick("--at", f"2026-01-05T{minute}", CRONLEDGER_NODE=node) for node in ("web2", "web3")]
        assert [len(done.stdout.splitlines()) for done in asked] == [1, said_again]
        assert [(done.stderr, done.returncode) for done in asked] == [("", 0)] * 2
    assert "slow is not claimed: run of 2026-01-05 10:00 still going on web1" in at_a_terminal(deployed, "10:02")
    lines = [deployed.tick(CRONLEDGER_NODE=node).stdout for node in ("web2", "web3")]
    assert re.fullmatch(rf"{AT} stood down slow: run of 2026-01-05 10:00 still going on web1 for \d\.\ds\n", lines[0])
    assert lines[1] == ""
    assert len(deployed.rows("id")) == 1
    assert re.search(r"stood down from .*; before that running since .* on web1", deployed.cli("list").stdout)
    (tmp_path / "go").touch()
    out, err = slow.communicate(timeout=30)
    assert re.fullmatch(rf"{AT} ran slow in \d+\.\ds\n", out)
    assert err == ""
    said(deployed.tick("--at", "2026-01-05T11:00"), r"ran slow in \d\.\ds", status=0)


def test_a_lock_holder_is_named(deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path) -> None:
    """A job whose lock is held says by whom."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    deployed.write(f'name = "build"\nlock = "warehouse"\ncommand = "{wait}"')
    slow = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    deployed.write('name = "load"\nlock = "warehouse"\ncommand = "true"')
    said(
        deployed.tick(),
        r"stood down load: lock warehouse held by build, run of \d\d:\d\d on web1",
        status=0,
    )
    (tmp_path / "go").touch()
    assert slow.wait(30) == 0


def test_a_run_past_its_window_is_reaped_and_the_job_runs_in_the_same_tick(deployed: Deployed) -> None:
    """Also a run of a job that has left the schedule; exit 1, since a run was lost."""
    deployed.tick("--at", "2026-01-05T10:00")
    utc = "+00" if deployed.database.kind == "postgres" else ""
    deployed.database.sql(
        "UPDATE cronledger_runs SET state = 'running', active_job = 'ok', finished_at = NULL, owner = 'elsewhere',"
        f" started_at = '2026-01-05 10:00:01{utc}', expires_at = '2026-01-05 11:01:01{utc}'"
    )
    said(
        deployed.tick("--at", "2026-01-05T12:00"),
        r"reaped ok: run of 2026-01-05 10:00 on web1, started 2026-01-05 10:00:01, window of 60m0s over",
        r"ran ok in \d\.\ds",
        status=1,
    )
    assert deployed.rows("state, failure_reason") == [("failed", "reaped: window of 60m0s over"), ("completed", None)]


def test_a_run_of_a_dead_tick_is_reaped_at_once_on_its_node(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """Tick and command killed: the next tick on the node says so, without waiting for the window."""
    deployed.write('name = "slow"\ncommand = "exec sleep 300"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    tick.kill()
    tick.wait(30)
    [(pid,)] = deployed.rows("pid")
    os.kill(int(str(pid)), signal.SIGKILL)
    deployed.write('name = "ok"\ncommand = "true"\nenabled = false')
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
    said(deployed.tick(), r"reaped slow: run of \d\d:\d\d on web1, started \d\d:\d\d:\d\d, its tick is gone", status=1)
    said(deployed.tick(), status=0)


def test_an_orphan_is_adopted_and_settled_by_the_next_tick(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The tick died, its command lives: one of the next ticks waits for the end, and says that it is unknown."""
    deployed.write(f'name = "slow"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    [(before,)] = deployed.rows("owner")
    tick.kill()
    tick.wait(30)
    deployed.write('name = "ok"\ncommand = "true"\nenabled = false')
    adopters = [spawn("tick", cwd=tmp_path, env=deployed.env) for _ in range(3)]
    wait_for(lambda: deployed.rows("owner") != [(before,)])
    (tmp_path / "go").touch()
    ended = [(*adopter.communicate(timeout=30), adopter.returncode) for adopter in adopters]
    spoken = [(out, status) for out, err, status in ended if out or err]
    assert len(spoken) == 1, ended
    assert re.fullmatch(rf"{AT} failed slow in \d+\.\ds: its tick died; how it ended is unknown\n", spoken[0][0])
    assert spoken[0][1] == 1
    assert deployed.rows("state") == [("failed",)]


@pytest.mark.parametrize("recorded", [True, False], ids=["pid recorded", "killed before the pid was recorded"])
def test_an_adopter_that_dies_is_succeeded(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path, recorded: bool
) -> None:
    """However many ticks die in turn, a run that lives is adopted, never reaped, and its job never runs beside it."""
    deployed.write(f'name = "slow"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    if not recorded:
        deployed.database.sql("UPDATE cronledger_runs SET pid = NULL, pid_start = NULL")
    for minute in range(3):
        before = deployed.rows("owner")
        tick.kill()
        tick.wait(30)
        tick = spawn("tick", "--at", f"2026-01-05T10:0{minute}", cwd=tmp_path, env=deployed.env)
        wait_for(lambda before=before: deployed.rows("owner") != before)
    (tmp_path / "go").touch()
    out, err = tick.communicate(timeout=30)
    lines = [line.split(" ", 1)[1] for line in out.splitlines()]
    assert re.fullmatch(r"stood down slow: run of .* still going on web1 for .*", lines[0]), lines
    assert re.fullmatch(r"failed slow in \d+\.\ds: its tick died; how it ended is unknown", lines[1]), lines
    assert (len(lines), err, deployed.rows("state")) == (2, "", [("failed",)])


def test_an_expired_run_whose_tick_lives_is_only_reaped(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """Its tick can end the command by itself: nobody else does, and one node says that the window is over."""
    deployed.write(f'name = "slow"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    deployed.database.sql("UPDATE cronledger_runs SET expires_at = created_at")
    deployed.write('name = "slow"\nenabled = false\ncommand = "true"')
    said(
        deployed.tick(CRONLEDGER_NODE="web2"),
        r"reaped slow: run of \d\d:\d\d on web1, started \d\d:\d\d:\d\d, window of 60m0s over",
        status=1,
    )
    (tmp_path / "go").touch()
    out, err = tick.communicate(timeout=30)
    assert re.fullmatch(rf"{AT} failed slow in \d+\.\ds: ended \(exit 0\) after it was reaped at \d\d:\d\d\n", out)
    assert (err, tick.returncode) == ("", 1)


def test_a_run_that_ends_after_it_was_reaped_has_its_own_line(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The row stays as the reaper left it."""
    deployed.write(f'name = "slow"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    reaped = deployed.cli("reap", "slow", "--yes", CRONLEDGER_NODE="web2")
    assert re.fullmatch(
        rf"{AT} reaped slow: run of \d\d:\d\d on web1, started \d\d:\d\d:\d\d, by hand on web2\n", reaped.stdout
    )
    (tmp_path / "go").touch()
    out, err = tick.communicate(timeout=30)
    assert re.fullmatch(rf"{AT} failed slow in \d+\.\ds: ended \(exit 0\) after it was reaped at \d\d:\d\d\n", out)
    assert (err, tick.returncode) == ("", 1)
    assert deployed.rows("state, failure_reason") == [("failed", "reaped: by hand on web2")]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_tick_ends_and_settles_its_runs(
    deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path, signum: signal.Signals
) -> None:
    """Forwarded to the groups, settled as failed with the signal named, exit 1, nothing left alive."""
    deployed.write('name = "a"\ncommand = "sleep 300; true"', 'name = "b"\ncommand = ["sleep", "300"]')
    tick = spawn("tick", cwd=tmp_path, env=deployed.env)
    wait_for(lambda: len(deployed.rows("pid", "pid IS NOT NULL")) == 2)
    groups = [int(str(pid)) for (pid,) in deployed.rows("pid")]
    tick.send_signal(signum)
    out, err = tick.communicate(timeout=30)
    lines = sorted(line.split(" ", 1)[1] for line in out.splitlines())
    assert [re.sub(r"\d+\.\d", "N", line) for line in lines] == [
        f"failed {name} in Ns: ended by {signum.name} to the tick" for name in ("a", "b")
    ]
    assert (err, tick.returncode) == ("", 1)
    assert deployed.rows("state") == [("failed",), ("failed",)]
    assert not any(group_alive(group) for group in groups)


def test_a_window_ends_its_run(deployed: Deployed, cron_environment: dict[str, str], tmp_path: Path) -> None:
    """TERM to the whole group, KILL to what ignores it, and the line says why; the next slot is free."""
    deployed.write(
        'name = "a"\ncommand = "echo started; sleep 300; true"', 'name = "b"\ncommand = "trap \'\' TERM; sleep 300"'
    )
    arguments = ["--schedule", str(tmp_path / "schedule.toml"), "--dsn", deployed.dsn, "--node", "web1"]
    [[(status, out, err)]] = run_batches([[arguments]], cron_environment, window=1.0)
    lines = sorted(line.split(" ", 1)[1] for line in out.splitlines())
    assert [re.sub(r"in \d+\.\ds", "in Ns", line) for line in lines] == [
        "failed a in Ns: ended after 1.0s, its stale_after: started",
        "failed b in Ns: ended after 1.0s, its stale_after",
    ]
    assert (status, err) == (1, "")
    assert deployed.rows("active_job") == [(None,), (None,)]


def test_what_a_job_sees(deployed: Deployed) -> None:
    """Its environment: the tick's, env_file, defaults.env, its own, and the four variables of its run; its folder."""
    (deployed.folder / ".env").write_text("A=file\nexport B='file'\nC=\"file\"\nD=file # not a comment in a value?\n")
    deployed.write(
        'name = "see"\nkeep_output = "always"\nenv = { C = "job" }\n'
        'command = "echo $CRONLEDGER_SCHEDULE; pwd; '
        'echo $A $B $C $E $CRONLEDGER_JOB $CRONLEDGER_RUN_ID $CRONLEDGER_DUE_AT $CRONLEDGER_NODE"',
        top='env_file = ".env"\n[defaults]\nenv = { B = "defaults", C = "defaults" }',
    )
    assert deployed.tick("--at", "2026-01-05T10:00", E="tick", A="tick").returncode == 0
    [(output, run_id)] = deployed.rows("output, id")
    assert str(output).splitlines() == [
        f"{deployed.folder}/schedule.toml",
        str(deployed.folder),
        f"file defaults job tick see {run_id} 2026-01-05T10:00:00Z web1",
    ]


def test_the_dsn_comes_from_the_env_file(deployed: Deployed) -> None:
    """${NAME} in the schedule's dsn, looked up in the env_file, so that cron needs to know nothing."""
    (deployed.folder / ".env").write_text(f"DATABASE_URL='{deployed.dsn}'\n")
    deployed.write('name = "ok"\ncommand = "true"', top='env_file = ".env"\n[ledger]\ndsn = "${DATABASE_URL}"')
    said(deployed.tick(CRONLEDGER_DSN=""), r"ran ok in \d\.\ds", status=0)


def test_a_job_that_cannot_start_here_leaves_its_slot(deployed: Deployed) -> None:
    """No claim: one line on stderr naming job and path, exit 1; the others run, and another node takes the slot."""
    deployed.write('name = "gone"\ncommand = ["bin/report"]', 'name = "ok"\ncommand = "true"')
    done = deployed.tick("--at", "2026-01-05T10:00")
    assert re.fullmatch(rf"{AT} ran ok in \d\.\ds\n", done.stdout)
    assert done.stderr == (
        f"cronledger: gone cannot start on this node: program {deployed.folder}/bin/report is not there;"
        " its slot is left to the other nodes\n"
    )
    assert done.returncode == 1
    (deployed.folder / "bin").mkdir()
    (deployed.folder / "bin/report").symlink_to("/bin/true")
    said(deployed.tick("--at", "2026-01-05T10:00", CRONLEDGER_NODE="web2"), r"ran gone in \d\.\ds", status=0)


def test_a_command_that_cannot_be_started_is_a_failed_run(embedded: Deployed) -> None:
    """An argument over 128 KiB is found out after the claim, and is a failure like any other."""
    embedded.write(f'name = "big"\ncommand = ["true", "{"x" * 200_000}"]')
    said(embedded.tick(), r"failed big in 0\.0s: cannot start: Argument list too long", status=1)
    assert embedded.rows("state") == [("failed",)]


@pytest.mark.parametrize("most", range(7, 10))
def test_a_node_without_descriptors_is_told(embedded: Deployed, most: int) -> None:
    """Too few even for the tick itself: one line says so, whatever of it wanted one more."""
    embedded.write('name = "ok"\ncommand = "true"')
    few = ("sh", "-c", f'ulimit -n {most}; exec "$@"', "sh")
    status, out, err = machines.ended(machines.start(embedded, machines.PLAIN, before=few))
    assert (status, out) == (1, "")
    assert re.fullmatch(r"cronledger: .*\(ulimit -n, ulimit -[uv]\).*\n", err)


def test_jobs_start_together(embedded: Deployed, tmp_path: Path) -> None:
    """Each of five jobs waits for the other four: only if all start at once does any of them end well."""
    command = f"touch {tmp_path}/at.$CRONLEDGER_JOB; while [ $(ls {tmp_path}/at.* | wc -l) -lt 5 ]; do sleep 0.02; done"
    embedded.write(*(f'name = "j{n}"\ncommand = "{command}"' for n in range(5)))
    done = embedded.tick()
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5)


def test_json_is_an_object_per_line(deployed: Deployed) -> None:
    """The keys of the contract, instants in UTC."""
    deployed.write('name = "ok"\ncommand = "true"', 'name = "bad"\ncommand = "exit 3"')
    done = deployed.tick("--json", "--at", "2026-01-05T10:00")
    records = {record["job"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert (records["ok"]["event"], records["bad"]["event"], records["bad"]["reason"]) == ("ran", "failed", "exit 3")
    assert records["bad"]["exit_code"] == 3
    assert {record["due_at"] for record in records.values()} == {"2026-01-05T10:00:00Z"}
    assert {record["run_id"] for record in records.values()} == {run_id for (run_id,) in deployed.rows("id")}


def test_quiet_and_report_leave_out_what_ran(embedded: Deployed) -> None:
    """--quiet for all jobs, report = "problems" for one; failures are always said."""
    embedded.write(
        'name = "hush"\ncommand = "true"\nreport = "problems"',
        'name = "ok"\ncommand = "true"',
        'name = "bad"\ncommand = "exit 3"\nreport = "problems"',
    )
    done = embedded.tick("--at", "2026-01-05T10:00")
    assert sorted(re.findall(r"(ran|failed) (\w+)", done.stdout)) == [("failed", "bad"), ("ran", "ok")]
    said(embedded.tick("--quiet", "--at", "2026-01-05T10:01"), r"failed bad in \d\.\ds: exit 3", status=1)


def test_a_dry_run_claims_nothing_and_says_why(deployed: Deployed) -> None:
    """What would run, what its slot says, what cannot start; also for a minute still to come."""
    deployed.tick("--at", "2026-01-05T10:00")
    deployed.write(
        'name = "ok"\ncommand = "true"', 'name = "new"\ncommand = "true"', 'name = "gone"\ncommand = ["no/such"]'
    )
    done = deployed.tick("--dry-run", "--at", "2026-01-05T10:00")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"would pass over ok: its slot was claimed on web1 at \S+ and is completed", lines[0])
    assert lines[1] == "would run new: due at 2026-01-05 10:00, its slot is free and nothing bars it"
    assert lines[2].startswith("would leave gone: it cannot start on this node: program ")
    assert len(deployed.rows("id")) == 1
    assert "would run ok" in deployed.tick("--dry-run", "--at", "2199-01-05T10:00").stdout


@pytest.mark.parametrize(
    ("at", "pattern"),
    [
        ("tomorrow", "--at tomorrow: not a time"),
        ("2026-01-05", "--at 2026-01-05: not a time"),
        ("2199-01-05T10:00", "still to come"),
        ("2026-10-25T02:30", r"occurs twice in Europe/Paris.*02:30:00\+02:00 or .*02:30:00\+01:00"),
        ("2026-03-29T02:30", "never occurs in Europe/Paris"),
    ],
)
def test_a_minute_that_cannot_be_meant_is_refused(embedded: Deployed, at: str, pattern: str) -> None:
    """With what to write instead, exit 2, nothing claimed."""
    path = embedded.folder / "schedule.toml"
    path.write_text(path.read_text().replace("UTC", "Europe/Paris"))
    complained(embedded.tick("--at", at), pattern, status=2)
    assert embedded.rows("id") == []


def test_a_slot_that_occurs_twice_can_be_made_up_by_its_offset(embedded: Deployed) -> None:
    """With an offset the minute is plain."""
    said(embedded.tick("--at", "2025-10-26T02:30+02:00"), r"ran ok in \d\.\ds", status=0)


def test_a_refused_schedule_runs_nothing(embedded: Deployed) -> None:
    """Every mistake on its own line, exit 2, also when other jobs are right."""
    embedded.write(
        'name = "ok"\ncommand = "true"',
        'name = "bad"\ncommand = "true"\nstale_after = 60',
        'name = "ok"\ncommand = "x"',
    )
    done = embedded.tick()
    assert (done.stdout, done.returncode) == ("", 2)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("schedule.toml:12: job bad: stale_after: ")
    assert len(lines) == 2
    assert embedded.rows("id") == []


def test_no_dsn_at_all_names_all_three_ways(embedded: Deployed) -> None:
    """Wrong usage: exit 2."""
    complained(embedded.tick(CRONLEDGER_DSN=""), r"--dsn.*CRONLEDGER_DSN.*\[ledger\]", status=2)


def test_an_interval_job_that_cannot_start_here_says_so_once(
    embedded: Deployed, spawn: Spawn, wait_for: WaitFor
) -> None:
    """Once a tick, not for each of its slots: the program is there for none of them."""
    embedded.write(
        'name = "gone"\nevery = "1s"\ncommand = ["bin/report"]',
        'name = "ok"\nevery = "1s"\ncommand = ["true"]\nreport = "all"',
    )
    tick = spawn("tick", cwd=embedded.folder, env=embedded.env)
    wait_for(lambda: len(embedded.rows("id")) > 2)
    tick.terminate()
    _, err = tick.communicate(timeout=30)
    assert err.count("gone cannot start on this node") == 1, err


def test_wrong_usage_of_a_plain_tick_goes_to_help(embedded: Deployed) -> None:
    """An unknown option is named and exits 2; nothing runs."""
    done = embedded.tick("--quite")
    assert done.returncode == 2
    assert "--quiet" in done.stderr
    assert embedded.rows("id") == []


@pytest.mark.parametrize("broken", ["closed", "full", "pipe"])
def test_a_broken_stdout_changes_nothing(embedded: Deployed, cron_environment: dict[str, str], broken: str) -> None:
    """Closed, on a full disk, or a pipe that nobody reads: the job runs, is recorded, and the tick ends well."""
    redirect = {"closed": ">&-", "full": ">/dev/full", "pipe": "| true"}[broken]
    shell = f"{{ python3 -m cronledger tick; echo $? >status; }} {redirect}"
    python = os.path.dirname(os.path.realpath(sys.executable))
    env = cron_environment | embedded.env | {"PATH": f"{os.path.dirname(sys.executable)}:{python}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", shell], cwd=embedded.folder, env=env, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert done.stderr == ""
    assert (embedded.folder / "status").read_text() == "0\n"
    assert embedded.rows("state") == [("completed",)]


def test_a_pipe_that_nobody_reads_does_not_hold_up_the_tick(embedded: Deployed, spawn: Spawn) -> None:
    """Full to the brim, it is waited for once, and the lines are lost, not the runs."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while os.write(writer, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(writer, True)
    embedded.write(*(f'name = "j{n}"\ncommand = "true"' for n in range(5)))
    arguments = [sys.executable, "-m", "cronledger", "tick"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent.parent)} | embedded.env
    done = subprocess.run(arguments, cwd=embedded.folder, env=env, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(reader)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert embedded.rows("state") == [("completed",)] * 5


def test_closed_descriptors_do_not_become_the_ledger(deployed: Deployed, cron_environment: dict[str, str]) -> None:
    """With 0 to 2 closed by the caller a command's output still goes to its pipe, not into a socket."""
    deployed.write(
        'name = "noisy"\ncommand = "echo out; echo err >&2; ls -l /proc/self/fd >&2"\nkeep_output = "always"'
    )
    env = cron_environment | deployed.env
    shell = f"exec {sys.executable} -m cronledger tick <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], cwd=deployed.folder, env=env, timeout=60).returncode == 0
    [(state, output)] = deployed.rows("state, output")
    assert state == "completed"
    assert str(output).startswith("out\nerr\n")
    assert "socket" not in str(output)


def test_hostile_output_is_kept_harmless(deployed: Deployed) -> None:
    """NUL, ESC, invalid UTF-8, 4-byte characters and 300 kB without a newline fail no settle and reach no terminal."""
    rude = r"printf 'a\000b\033[31mc\377d\360\237\230\200e'; head -c 300000 /dev/zero | tr '\0' x; "
    printf = rude + r"printf '\nlast\033[0m\n'; exit 9"
    command = json.dumps(printf)
    deployed.write(f'name = "rude"\ncommand = {command}')
    said(deployed.tick(), r"failed rude in \d\.\ds: exit 9: last\\x1b\[0m", status=1)
    [(output,)] = deployed.rows("output")
    assert re.fullmatch(r"\[234,490 bytes cut\]\nx{65526}\nlast\\x1b\[0m\n", str(output)), str(output)[:40]
    assert "\x1b" not in str(output)


def test_the_password_is_masked_wherever_a_command_prints_it(deployed: Deployed) -> None:
    """In the line, in the row, in the kept output; raw and percent-encoded."""
    if deployed.database.kind == "sqlite":
        return
    deployed.write('name = "leak"\ncommand = "echo $CRONLEDGER_DSN; exit 1"')
    done = deployed.tick()
    assert "***" in done.stdout
    [(output, reason)] = deployed.rows("output, failure_reason")
    secret = deployed.dsn.split("://")[1].split("@")[0].partition(":")[2]
    for text in (done.stdout, str(output), str(reason)):
        assert secret not in text
        assert "***" in text


def test_root_refuses_a_schedule_that_anyone_may_write(embedded: Deployed) -> None:
    """Else whoever writes the file runs as root."""
    (embedded.folder / "schedule.toml").chmod(0o666)
    done = embedded.tick()
    if os.geteuid() == 0:
        complained(done, r"anyone may write this schedule.*chmod o-w", status=2)
    else:
        said(done, r"ran ok in \d\.\ds", status=0)


def test_events_are_never_wrapped_nor_taken_for_markup(embedded: Deployed) -> None:
    """A long line with [bold] in it stays one line, as it is."""
    embedded.write(f'name = "long"\ncommand = "echo [bold]{"x" * 150}; exit 1"')
    done = embedded.tick(COLUMNS="40")
    assert re.fullmatch(rf"{AT} failed long in \d\.\ds: exit 1: \[bold\]x{{150}}\n", done.stdout)


def test_a_plain_tick_does_not_import_what_it_does_not_need(
    embedded: Deployed, cron_environment: dict[str, str]
) -> None:
    """No typer, no rich, no driver of another database, and nothing to start commands with when nothing starts."""
    embedded.write('name = "ok"\ncommand = "true"\nenabled = false')
    arguments = [sys.executable, "-X", "importtime", "-m", "cronledger", "tick"]
    done = subprocess.run(
        arguments, cwd=embedded.folder, env=cron_environment | embedded.env, capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "cronledger.tick" in imported
    assert imported.isdisjoint(
        {"typer", "rich", "psycopg", "pymysql", "subprocess", "asyncio", "pydantic", "difflib", "json"}
    )


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_the_server_is_taken_leave_of(deployed: Deployed, spawn: Spawn, wait_for: WaitFor, tmp_path: Path) -> None:
    """A connection that just breaks off is a line of the server's own log: none does, however a command ends."""
    deployed.write(f'name = "long"\ncommand = "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"')
    server = deployed.database.server
    assert isinstance(server, servers.MySQL)

    def aborted() -> object:
        others = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()"
        machine.wait_for(lambda: server.rows(server.admin_dsn, f"{others} AND COMMAND <> 'Daemon'") == [(0,)])
        return server.rows(server.admin_dsn, "SHOW GLOBAL STATUS LIKE 'Aborted_clients'")

    before = aborted()
    going = [spawn("tick", cwd=tmp_path, env=deployed.env)]
    wait_for(lambda: deployed.rows("pid", "pid IS NOT NULL"))
    assert deployed.tick("--dry-run").stdout.startswith("would ")
    complained(deployed.cli("run", "long"), "long does not run now: ")
    going.append(spawn("work", "--max-runtime", "1s", cwd=tmp_path, env=deployed.env))
    deployed.tick()
    (tmp_path / "go").touch()
    assert [one.wait(60) for one in going] == [0, 0]
    assert deployed.cli("history").returncode == 0
    assert aborted() == before


def test_a_schedule_that_nobody_writes_is_not_waited_for(deployed: Deployed) -> None:
    """A FIFO in its place is an empty file; a pipe is read to its end."""
    path = deployed.folder / "schedule.toml"
    text = path.read_text()
    path.unlink()
    os.mkfifo(path)
    complained(deployed.tick(), "schedule.toml:1: the file is empty", status=2)
    path.unlink()
    path.write_text(text)
    script = f"(sleep 0.2; cat {path}) | {sys.executable} -m cronledger check --schedule /dev/stdin"
    assert subprocess.run(["sh", "-c", script], env=os.environ | deployed.env, timeout=60).returncode == 0
