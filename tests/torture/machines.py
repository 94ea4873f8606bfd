"""A node whose disk is full, whose limits are reached, whose folder is gone, whose clock is off or jumps."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from conftest import ROOT, Database
from deployed import Deployed

from torture.conftest import Tally

PLAIN = "import runpy; runpy.run_module('cronledger', run_name='__main__', alter_sys=True)"
OFF = f"""
import sys, time
read, by = time.time, float(sys.argv.pop(1))
time.time = lambda: read() + by
{PLAIN}
"""
"""The program on a node whose clock is off by as many seconds as the first argument says."""

JUMPS = f"""
import os, sys, time
read, clock, (mark, by, how) = time.time, time.clock_gettime, sys.argv[1:4]
late = lambda: float(by) if os.path.exists(mark) else 0.0
time.time = lambda: read() + late()
if how == "suspended":
    time.clock_gettime = lambda which: clock(which) + late()
del sys.argv[1:4]
{PLAIN}
"""
"""The program on a node whose wall clock jumps once a file is there; `suspended`: so does the clock of ages."""

FEW = f"""
import os, resource, runpy, sys, urllib.parse, zoneinfo
import cronledger.cli.options, cronledger.cli.tick, cronledger.flight, cronledger.ledger.sqlite
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
{PLAIN}
"""
"""The program as a plain user who may have so many processes; all is imported while it may still be read."""


FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -n 32; exec "$@"', "sh")
"""To be put before a command: 32 of them."""


def start(
    deployed: Deployed,
    code: str,
    *arguments: str,
    before: Sequence[str] = (),
    stdout: int = subprocess.PIPE,
    **env: str,
) -> subprocess.Popen[str]:
    """A tick, by a program that stands before cronledger's own."""
    command = [*before, sys.executable, "-c", code, *arguments, "tick"]
    cron = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(deployed.folder)} | deployed.env | env
    place = {"cwd": deployed.folder, "stdin": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(command, env=cron, stdout=stdout, stderr=subprocess.PIPE, text=True, **place)  # type: ignore[call-overload, no-any-return]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out or "", err


def count(deployed: Deployed, tally: Tally, expected: int) -> None:
    """Add to the tally what the rows say of so many slots."""
    rows = deployed.rows("job, due_at, state")
    tally.inflicted += 1
    tally.expected += expected
    tally.seen += len(rows)
    tally.doubles += len(rows) - len({row[:2] for row in rows})
    tally.lost += max(0, expected - len(rows))
    tally.running += sum(row[2] == "running" for row in rows)


def skewed(deployed: Deployed, tally: Tally) -> None:
    """31 s off either way claims nothing and says so, with both times; 5 s off works."""
    for off in ("+31", "-31"):
        status, out, err = ended(start(deployed, OFF, off))
        assert (status, out) == (1, ""), (out, err)
        word = "ahead of" if off == "+31" else "behind"
        assert re.fullmatch(
            rf"cronledger: this node's clock is 3[01] s {word} the database's \(.* against .*\n", err
        ), err
        assert deployed.rows("id") == []
    status, out, err = ended(start(deployed, OFF, "+5"))
    assert (status, err, out.count(" ran ok in ")) == (0, "", 1), (out, err)
    count(deployed, tally, 1)


def ages(deployed: Deployed) -> tuple[object, ...]:
    """Whether each time of the only run is that of the database, and its window an hour and a minute."""
    postgres, sqlite = deployed.database.kind == "postgres", deployed.database.kind == "sqlite"
    [(started, finished, expires)] = deployed.rows("started_at, finished_at, expires_at")
    now = "CURRENT_TIMESTAMP" if postgres or sqlite else "UTC_TIMESTAMP(6)"
    [(read,)] = deployed.database.sql(f"SELECT {now}")
    if sqlite:
        from datetime import datetime

        started, finished, expires, read = (
            datetime.fromisoformat(str(one)) for one in (started, finished, expires, read)
        )
    near = abs((read - started).total_seconds()) < 60 and abs((read - finished).total_seconds()) < 60  # type: ignore[operator]
    return near, (expires - started).total_seconds()  # type: ignore[operator]


def zones(deployed: Deployed, tally: Tally, zone: str) -> None:
    """A node in another zone, maybe within a change of its clock: no age moves."""
    deployed.database.sql("DELETE FROM cronledger_runs")
    done = deployed.tick(TZ=zone)
    assert (done.returncode, done.stderr, done.stdout.count(" ran ok in ")) == (0, "", 1), done
    assert ages(deployed) == (True, 3660.0)
    count(deployed, tally, 1)


def jumping(deployed: Deployed, tally: Tally, by: float, how: str, folder: Path) -> None:
    """The wall clock jumps while a command runs: nothing changes. Suspended past the window, it is ended."""
    deployed.database.sql("DELETE FROM cronledger_runs")
    (folder / "started").unlink(missing_ok=True)
    deployed.write(f'name = "long"\ncommand = "touch {folder}/started; sleep {300 if how == "suspended" else 2}"')
    status, out, err = ended(start(deployed, JUMPS, f"{folder}/started", str(by), how))
    assert err == "", err
    if how == "suspended":
        assert re.search(r" failed long in \S+: ended after 60m0s, its stale_after", out), out
        assert (status, deployed.rows("state")) == (1, [("failed",)])
    else:
        assert (status, out.count(" ran long in ")) == (0, 1), out
        assert ages(deployed) == (True, 3660.0)
    count(deployed, tally, 1)


def few_descriptors(deployed: Deployed, tally: Tally, jobs: int = 60) -> None:
    """With 32 descriptors for as many jobs that are due at once, all of them run."""
    deployed.write(*(f'name = "j{n}"\ncommand = "sleep 0.05"' for n in range(jobs)))
    status, out, err = ended(start(deployed, PLAIN, before=FEW_DESCRIPTORS))
    assert (status, err, out.count(" ran ")) == (0, "", jobs), (out, err)
    count(deployed, tally, jobs)


def half_deployed(deployed: Deployed, tally: Tally) -> None:
    """Missing programs are named, their slots left to a node that has them, which runs them in the same minute."""
    program = deployed.folder / "bin" / "job"
    deployed.write('name = "ok"\ncommand = "true"', f'name = "gone"\ncommand = {json.dumps([str(program)])}')
    minute = ("--at", "2026-01-05T10:00")
    first = deployed.tick(*minute)
    assert re.fullmatch(
        r"cronledger: gone cannot start on this node: .*/bin/job is not there; its slot is left .*\n", first.stderr
    )
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    second = deployed.tick(*minute, CRONLEDGER_NODE="web2")
    assert (first.stdout.count(" ran ok "), second.stdout.count(" ran gone "), second.stderr) == (1, 1, "")
    count(deployed, tally, 2)


def no_folder(deployed: Deployed, tally: Tally) -> None:
    """The folder that the tick was started in is deleted: it works."""
    gone = deployed.folder / "gone"
    gone.mkdir()
    vanish = ["sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh"]
    status, out, err = ended(
        start(
            deployed,
            PLAIN,
            before=vanish,
            CRONLEDGER_SCHEDULE=f"{deployed.folder}/schedule.toml",
        )
    )
    assert (status, err, out.count(" ran ok in ")) == (0, "", 1), (out, err)
    count(deployed, tally, 1)


def unread(deployed: Deployed, tally: Tally, ticks: int = 3) -> None:
    """Ticks with a full pipe for stdout all end, and their runs are recorded."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    deployed.write(*(f'name = "j{n}"\ncommand = "true"\noverlap = true' for n in range(3)))
    going = []
    for minute in range(ticks):
        code = f"import sys; sys.argv[2:] = ['--at', '2026-01-05T10:{minute:02}']\n{PLAIN}"
        going.append(start(deployed, code, stdout=writer))
    assert [ended(one)[::2] for one in going] == [(0, "")] * ticks
    os.close(reader)
    os.close(writer)
    count(deployed, tally, 3 * ticks)


def full_disk(deployed: Deployed, tally: Tally) -> None:
    """SQLite on a disk that is full: nothing runs unrecorded, one line says so; with room again all works."""
    small = deployed.folder / "small"
    small.mkdir()
    tick = f"{sys.executable} -m cronledger tick"
    script = (
        f"mount -t tmpfs -o size=1m none {small} && cp ledger.db {small}/ && head -c 2000000 /dev/zero >{small}/fill;"
        f" {tick} >full.out 2>full.err; echo $? >full.status; rm {small}/fill; {tick} >free.out 2>free.err;"
        f" cp {small}/* ."
    )
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)} | deployed.env
    env["CRONLEDGER_DSN"] = f"sqlite:///{small}/ledger.db"
    command = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c", script]
    subprocess.run(command, cwd=deployed.folder, env=env, check=True, timeout=120, stderr=subprocess.DEVNULL)
    said = {name: (deployed.folder / name).read_text() for name in ("full.out", "full.err", "full.status", "free.err")}
    assert re.fullmatch(r"cronledger: .*check the disk it is on.*; not claimed here: ok\n", said["full.err"]), said
    assert (said["full.out"], said["full.status"], said["free.err"]) == ("", "1\n", ""), said
    count(deployed, tally, 1)


def from_the_future(deployed: Deployed, tally: Tally) -> None:
    """A run that started in the future, for the database's clock was set back: its age is 0, and it is not reaped."""
    deployed.tick("--at", "2026-01-05T10:00")
    utc = "+00" if deployed.database.kind == "postgres" else ""
    deployed.database.sql(
        "UPDATE cronledger_runs SET state = 'running', active_job = 'ok', finished_at = NULL, owner = 'elsewhere',"
        f" started_at = '2199-01-05 10:00:01.000000{utc}', expires_at = '2199-01-05 11:01:01.000000{utc}'"
    )
    done = deployed.tick("--at", "2026-01-05T10:01")
    assert done.stderr == ""
    assert re.fullmatch(r"\S+ stood down ok: run of .* still going on web1 for 0\.0s\n", done.stdout), done.stdout
    reaped = deployed.cli("reap", "ok", "--yes")
    assert (reaped.returncode, reaped.stderr) == (0, ""), reaped
    count(deployed, tally, 1)


def few_processes(deployed: Deployed, tally: Tally, folder: Path, jobs: int = 40) -> None:
    """A plain user who may have few processes, with many jobs due at once: all run, none is lost track of."""
    user = os.geteuid() or 65534
    tasks = 0
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError):  # it has just ended
            tasks += one.stat().st_uid == user
    deployed.write(*(f'name = "j{n}"\ncommand = ["sleep", "0.2"]' for n in range(jobs)))
    folder.chmod(0o777)
    for file in deployed.folder.iterdir():
        os.rename(file, folder / file.name)
        (folder / file.name).chmod(0o666)
    deployed.folder = folder
    deployed.dsn = f"sqlite:///{folder}/ledger.db"
    status, out, err = ended(start(deployed, FEW, str(tasks + 8)))
    said = out.count(" ran ") + out.count(" failed ")
    assert (status, err, out.count(" ran ")) == (0, "", jobs), (out, err)
    rows = Database("sqlite", deployed.dsn, None).sql("SELECT job, state FROM cronledger_runs")
    tally.inflicted, tally.expected, tally.seen = tally.inflicted + 1, jobs, len(rows)
    tally.doubles = len(rows) - len(set(rows))
    tally.lost = len(rows) - said
    tally.running = sum(state == "running" for _, state in rows)
