"""A process that stays: it ticks each minute by itself, follows its schedule, and ends as it is told."""

import itertools
import os
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import machine
import pytest
import servers
from conftest import Database
from deployed import AT, Deployed, Run, complained
from torture.gate import Gate, gate_of
from torture.proxy import Proxy
from worker import Worker

from cronledger.events import utc

Spawn = Callable[..., subprocess.Popen[str]]
WaitFor = Callable[..., None]

TRACE = "echo $CRONLEDGER_JOB $CRONLEDGER_DUE_AT >>trace"
UNTIL_GO = f"{TRACE}; while [ ! -e go ]; do sleep 0.05; done"


class Place(Deployed):
    """A schedule whose ledger is installed, and the workers of it; `web1` is the first one's node."""

    def __init__(self, folder: Path, database: Database, run: Run, env: dict[str, str]) -> None:
        super().__init__(folder, database, run)
        self._env = env
        self.workers: list[Worker] = []

    def work(self, *options: str, prefix: tuple[str, ...] = (), **env: str) -> Worker:
        self.workers.append(Worker(self.folder, self._env | self.env | env, *options, prefix=prefix))
        return self.workers[-1]

    def completes(self, runs: int) -> None:
        """Wait until so many runs are completed."""
        machine.wait_for(lambda: len(self.rows("id", "state = 'completed'")) == runs, 60, f"{runs} are completed")

    def starts(self, commands: int) -> None:
        """Wait until so many commands have left their trace."""
        machine.wait_for(lambda: len(self.slots()) == commands, 60, f"{commands} have started")

    def slots(self) -> list[tuple[str, str]]:
        """Job and slot of each command that started."""
        path = self.folder / "trace"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(job, due_at) for job, due_at in map(str.split, lines)]

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()


@pytest.fixture
def env(cron_environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """A worker's; what still works in the test's folder afterwards is killed."""
    yield cron_environment
    machine.send(signal.SIGKILL, tmp_path)


@pytest.fixture
def place(database: Database, run: Run, tmp_path: Path, env: dict[str, str]) -> Iterator[Place]:
    """On each kind of database."""
    with closing(Place(tmp_path, database, run, env)) as place:
        place.installed()
        yield place


@pytest.fixture(params=["postgres", "mariadb"])
def gated(
    request: pytest.FixtureRequest, run: Run, tmp_path: Path, env: dict[str, str]
) -> Iterator[tuple[Place, Gate]]:
    """On each kind of server, behind a gate that lets it go away."""
    server: servers.Server = request.getfixturevalue(request.param)
    with gate_of(server) as gate:
        database = Database(request.param, gate.dsn(server.fresh_database()), server)
        with closing(Place(tmp_path, database, run, env)) as place:
            place.installed()
            yield place, gate


@pytest.fixture
def embedded(run: Run, tmp_path: Path, env: dict[str, str]) -> Iterator[Place]:
    """On SQLite, for what is not about the database."""
    database = Database("sqlite", f"sqlite:///{tmp_path}/ledger.db", None)
    with closing(Place(tmp_path, database, run, env)) as place:
        place.installed()
        yield place


def test_it_ticks_each_minute(place: Place) -> None:
    """The present minute at once, then each one at its start; a line and a row each; TERM ends it with 0."""
    place.write(f'name = "ok"\ncommand = "{TRACE}"')
    worker = place.work()
    place.completes(1)
    minutes = [worker.minute, worker.next_minute()]
    place.completes(2)
    minutes.append(worker.next_minute(before=2.5))  # with the time to make ready for it
    place.completes(3)
    worker.send(signal.SIGTERM)
    assert worker.ends() == (0, [])
    assert [re.fullmatch(rf"{AT} ran ok in \d\.\ds", line) is None for line in worker.out] == [False] * 3
    assert place.slots() == [("ok", utc(minute)) for minute in minutes]


def test_slots_within_the_minute(place: Place, wait_for: WaitFor) -> None:
    """Interval jobs run when they are due, each slot once, beside a long run."""
    place.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    with (place.folder / "schedule.toml").open("a") as file:
        file.write(f'[[job]]\nname = "often"\nevery = "1s"\ncommand = "{TRACE}"\nreport = "all"\n')
    worker = place.work()
    wait_for(lambda: len(worker.out) >= 3, what="some slots")
    (place.folder / "go").touch()
    wait_for(lambda: any(" ran long " in line for line in worker.out), what="the long one ended")
    worker.send(signal.SIGINT)
    assert worker.ends() == (0, [])
    assert set(Counter(place.slots()).values()) == {1}
    states = {state for (state,) in place.rows("state")}
    assert states == {"completed"}


def test_work_and_ticks_share_the_slots(place: Place, spawn: Spawn, wait_for: WaitFor) -> None:
    """Two of each on one ledger: each slot once, whoever has it."""
    place.write(f'name = "ok"\ncommand = "{TRACE}"')
    with (place.folder / "schedule.toml").open("a") as file:
        file.write(f'[[job]]\nname = "often"\nevery = "1s"\ncommand = "{TRACE}"\n')
    workers = [place.work("--node", node) for node in ("web1", "web2")]
    ticks = [spawn("tick", "--node", node, cwd=place.folder, env=place.env) for node in ("web3", "web4")]
    wait_for(lambda: len(place.slots()) >= 8, what="some slots")
    for process in (*(worker.process for worker in workers), *ticks):
        process.send_signal(signal.SIGTERM)
    errors = [error for tick in ticks for error in tick.communicate(timeout=30)[1].splitlines()]
    assert [worker.ends() for worker in workers] == [(0, [])] * 2
    assert all("ended by SIGTERM" in error for error in errors), errors
    assert set(Counter(place.slots()).values()) == {1}


def test_the_clock_jumps(embedded: Place) -> None:
    """Forward, as after a freeze, or far back: on with the present minute. Back by a little: no minute twice."""
    embedded.write(f'name = "ok"\ncommand = "{TRACE}"')
    worker = embedded.work()
    embedded.completes(1)
    worker.set_clock(600)
    embedded.completes(2)
    again = worker.next_minute()
    embedded.completes(3)
    worker.set_clock(-30)
    assert worker.next_minute() == again
    after = worker.next_minute()
    embedded.completes(4)
    worker.set_clock(-3600)
    ago = worker.next_minute()
    embedded.completes(5)
    assert [due_at for _, due_at in embedded.slots()][2:] == [utc(again), utc(after), utc(ago)]
    assert len(set(embedded.slots())) == 5


def test_it_follows_its_schedule(embedded: Place) -> None:
    """A good new file counts from the next minute on; a bad one is reported once, and the last good one goes on."""
    schedule = embedded.folder / "schedule.toml"
    embedded.write(f'name = "one"\ncommand = "{TRACE}"')
    worker = embedded.work()
    embedded.completes(1)

    def ticks(job: str) -> None:
        minute = worker.next_minute()
        embedded.completes(len(embedded.slots()) + 1)
        assert embedded.slots()[-1] == (job, utc(minute))

    other = embedded.folder / "other.toml"
    good = schedule.read_text().replace('name = "one"', 'name = "two"')
    other.write_text(good)
    schedule.unlink()
    schedule.symlink_to(other)
    ticks("two")
    other.write_text(good.replace('"* * * * *"', '"* * * *"') + "nonsense = 1\n")
    ticks("two")
    ticks("two")
    assert len(worker.err) == 3, worker.err
    refused = rf"{re.escape(str(schedule))}:\d+: job two: "
    assert re.fullmatch(refused + r"cron: .*; write .*", worker.err[0])
    assert re.fullmatch(refused + r"nonsense: unknown key; .*", worker.err[1])
    goes_on = rf"cronledger: the schedule as it was read at {AT} goes on until that is mended"
    assert re.fullmatch(goes_on, worker.err[2])
    schedule.unlink()
    ticks("two")
    assert len(worker.err) == 5, worker.err
    os.mkfifo(schedule)
    ticks("two")
    assert len(worker.err) == 7, worker.err
    assert "is not a regular file" in worker.err[5]
    schedule.unlink()
    schedule.write_text(good.replace('name = "two"', 'name = "three"'))
    ticks("three")
    schedule.write_text(good.replace('namespace = "app"', 'namespace = "other"'))
    ticks("two")
    assert len(worker.err) == 8, worker.err
    assert worker.err[7].startswith("cronledger: another namespace is named for the ledger now; this process keeps to")
    assert {*embedded.rows("namespace")} == {("app",)}
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_it_follows_a_symbolic_link_of_its_folder(embedded: Place) -> None:
    """A deploy makes `current` another folder, while the process stands in the one that it was."""
    releases = [embedded.folder / name for name in ("one", "two")]
    current = embedded.folder / "current"
    for release in releases:
        embedded.write(f'name = "{release.name}"\ncommand = "cd ..; {TRACE}"')
        release.mkdir()
        (embedded.folder / "schedule.toml").rename(release / "schedule.toml")
    current.symlink_to("one")
    worker = embedded.work(prefix=("env", f"--chdir={current}"), PWD=str(current))
    embedded.completes(1)
    current.unlink()
    current.symlink_to("two")
    worker.next_minute()
    embedded.completes(2)
    assert [job for job, _ in embedded.slots()] == ["one", "two"]


def test_another_dsn_needs_a_restart(embedded: Place) -> None:
    """Said once, also when it changed in the env_file; the ledger of the start stays the ledger."""
    embedded.write(f'name = "ok"\ncommand = "{TRACE}"', top='env_file = ".env"\nledger = { dsn = "${LEDGER}" }')
    variables = embedded.folder / ".env"
    variables.write_text("LEDGER=sqlite:///ledger.db\n")
    worker = embedded.work(CRONLEDGER_DSN="")
    embedded.completes(1)
    variables.write_text("LEDGER=sqlite:///elsewhere.db\n")
    for count in (2, 3):
        worker.next_minute()
        embedded.completes(count)
    assert len(worker.err) == 1
    assert worker.err[0].startswith("cronledger: another DSN is named for the ledger now; this process keeps to")
    variables.write_text("LEDGER=sqlite:///ledger.db\n")
    worker.next_minute()
    embedded.completes(4)
    assert len(worker.err) == 1


def test_a_new_password_is_masked_too(embedded: Place, wait_for: WaitFor) -> None:
    """The commands get it from the env_file, while this process keeps to the old one."""
    embedded.write(
        'name = "loud"\ncommand = "echo $URL; exit 1"', top='env_file = ".env"\nledger = { dsn = "${LEDGER}" }'
    )
    url, dsn = "postgresql://app:Secret-Pass-2@db/app", "sqlite:///ledger.db"
    variables = embedded.folder / ".env"
    variables.write_text(f"LEDGER={dsn}\nURL={url}\n")
    worker = embedded.work(CRONLEDGER_DSN="")
    wait_for(lambda: len(worker.out) == 1)
    assert url in worker.out[0]
    variables.write_text(f"LEDGER={url}\nURL={url}\n")
    worker.next_minute()
    wait_for(lambda: len(worker.out) == 2)
    assert worker.out[1].endswith("exit 1: postgresql://app:***@db/app")
    [(output,)] = embedded.rows("output", "failure_reason LIKE '%***%'")
    assert output == "postgresql://app:***@db/app\n"


def test_an_embedded_ledger_that_is_replaced(embedded: Place, wait_for: WaitFor) -> None:
    """What is recorded in a file that was moved away is lost: said, and the file that is there then counts."""
    embedded.write(f'name = "ok"\ncommand = "{TRACE}"')
    worker = embedded.work()
    embedded.completes(1)
    [old, new] = [embedded.folder / name for name in ("ledger.db", "old.db")]
    for suffix in ("", "-wal", "-shm"):
        if (file := old.with_name(old.name + suffix)).exists():
            file.rename(new.with_name(new.name + suffix))
    worker.next_minute()
    wait_for(lambda: worker.err)
    assert worker.err[0].startswith("cronledger: the ledger is not installed (there is no file ")
    assert worker.err[0].endswith("; not claimed here: ok")
    embedded.installed()
    worker.next_minute()
    embedded.completes(1)


@pytest.mark.parametrize(
    ("arguments", "wrong", "status"),
    [
        ((), r"schedule.toml:5: job ok: cron: ", 2),
        (("--grace", "soon"), "--grace soon: .* is not a duration", 2),
        (("--max-runtime", "0s"), "--max-runtime 0s: ", 2),
        (("--max-runtime", "0"), "--max-runtime 0: would claim nothing at all", 2),
        (("--grace", ""), '--grace : "" is not a duration', 2),
        (("--node", "web 1"), "is not a name", 2),
        (("--dsn", ""), "--dsn is empty", 2),
        (("--schedule", ""), "--schedule is empty", 2),
    ],
)
def test_what_is_wrong_at_the_start(embedded: Place, arguments: tuple[str, ...], wrong: str, status: int) -> None:
    """It ends it, as it does a tick: a schedule that is refused, wrong usage."""
    if not arguments:
        schedule = embedded.folder / "schedule.toml"
        schedule.write_text(schedule.read_text().replace("* * * * *", "* * * *"))
    complained(embedded.cli("work", *arguments), wrong, status)


def test_a_ledger_that_is_not_there_yet(database: Database, run: Run, tmp_path: Path, env: dict[str, str]) -> None:
    """Before `install` each minute has one line, which names what was due; afterwards it works."""
    with closing(Place(tmp_path, database, run, env)) as place:
        worker = place.work()
        worker.says("; not claimed here: ok")
        worker.next_minute()
        worker.says("; not claimed here: ok", times=2)
        assert len(worker.err) == 2, worker.err
        place.installed()
        worker.next_minute()
        place.completes(1)
        assert len(worker.err) == 2, worker.err


def test_a_ledger_that_goes_away(gated: tuple[Place, Gate], tmp_path: Path, wait_for: WaitFor) -> None:
    """At the start, amid slots and runs, and while one ends: what was due within its patience runs, all is recorded."""
    place, gate = gated
    place.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    gate.shut()
    worker = place.work()
    worker.next_minute(before=-1)
    gate.open()
    wait_for(lambda: place.rows("id", "pid IS NOT NULL"), what="it runs")
    gate.shut()
    (tmp_path / "go").touch()
    worker.next_minute(before=1)
    gate.open()
    place.completes(2)
    worker.send(signal.SIGTERM)
    assert worker.ends() == (0, [])
    assert set(Counter(place.slots()).values()) == {1}


def test_a_slot_that_a_stall_took_is_named(gated: tuple[Place, Gate]) -> None:
    """The ledger says nothing in the last seconds of a minute: what was due in them is not lost in silence."""
    place, gate = gated
    place.write(f'name = "ok"\ncommand = "{TRACE}"', 'name = "rare"\nevery = "59s"\ncommand = "true"')
    worker = place.work()
    place.starts(1)
    seconds = itertools.count(int(worker.now.timestamp()))
    at_59 = next(second for second in seconds if second % 59 == 0 and second % 60 == 59)
    worker.set_clock(at_59 - 9 - worker.now.timestamp())
    place.starts(2)
    worker.pass_time(until=at_59 - 2)
    gate.hold()
    worker.pass_time(until=at_59 + 2)
    gate.release()
    worker.says("not claimed here: rare")
    place.starts(3)


@pytest.mark.parametrize("by", ["tick", "work"])
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_a_ledger_slower_than_the_slots(place: Place, by: str, wait_for: WaitFor, spawn: Spawn) -> None:
    """The next slot is due before the last one could be claimed: what ended is recorded all the same."""
    place.write('name = "often"\nevery = "1s"\ncommand = "true"')
    wait_for(lambda: datetime.now(UTC).second < 20, 60, "time enough within this minute")
    with Proxy(place.dsn, delay=0.7) as proxy:
        through = {"CRONLEDGER_DSN": proxy.dsn}
        process = spawn("tick", env=place.env | through) if by == "tick" else place.work(**through).process
        wait_for(lambda: len(place.rows("id", "state = 'completed'")) >= 3, 30, "some are recorded")
        process.kill()
        process.wait()


@pytest.mark.parametrize("by", ["tick", "work"])
def test_a_killed_one_has_its_runs_adopted(place: Place, by: str, wait_for: WaitFor, run: Run, spawn: Spawn) -> None:
    """By a tick of its node, or another work there, which says that how it ended is unknown."""
    place.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    worker = place.work()
    wait_for(lambda: place.rows("id", "pid IS NOT NULL"), what="it runs")
    worker.process.kill()
    worker.wait()
    [(owner,)] = place.rows("owner")
    place.write('name = "long"\ncommand = "true"\nenabled = false')
    adopter = spawn("tick", cwd=place.folder, env=place.env) if by == "tick" else place.work().process
    wait_for(lambda: place.rows("owner") != [(owner,)], what="it is adopted")
    (place.folder / "go").touch()
    wait_for(lambda: place.rows("id", "state = 'failed'"), what="it is settled")
    assert place.rows("failure_reason") == [("its tick died; how it ended is unknown",)]
    adopter.send_signal(signal.SIGTERM)
    adopter.wait(30)


def test_a_run_that_it_has_lost_is_reaped(embedded: Place, wait_for: WaitFor) -> None:
    """A row that came to life after its claim was given up: the next minute reaps it, though its owner lives."""
    embedded.write('name = "ok"\ncommand = "true"')
    worker = embedded.work()
    embedded.completes(1)
    embedded.database.sql("UPDATE cronledger_runs SET state = 'running', active_job = 'ok', pid = NULL")
    worker.next_minute()
    wait_for(lambda: len(embedded.rows("id", "state <> 'running'")) == 2, what="reaped, and the next one ran")
    reaped = rf"{AT} reaped ok: run of \d\d:\d\d on web1, started \d\d:\d\d:\d\d, given up by its tick"
    assert re.fullmatch(reaped, worker.out[1])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_commands_finish(place: Place, wait_for: WaitFor, signum: signal.Signals) -> None:
    """Within the grace: nothing more is claimed, the run is recorded as it ended, exit 0."""
    place.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    with (place.folder / "schedule.toml").open("a") as file:
        file.write(f'[[job]]\nname = "often"\nevery = "1s"\ncommand = "{TRACE}"\n')
    worker = place.work("--grace", "1m")
    wait_for(lambda: place.rows("id", "job = 'long' AND pid IS NOT NULL"), what="it runs")
    worker.send(signum)
    counts = []
    for _ in range(2):
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(1.5)
        counts.append(len(place.rows("id")))
    assert counts[0] == counts[1]
    (place.folder / "go").touch()
    assert worker.ends() == (0, [])
    assert {state for (state,) in place.rows("state")} == {"completed"}


def test_told_to_end_it_reads_no_schedule_any_more(embedded: Place) -> None:
    """A deploy puts the new file there and then restarts it: nothing is said of what will not be ticked."""
    embedded.write(f'name = "ok"\ncommand = "{TRACE}"')
    worker = embedded.work()
    embedded.completes(1)
    worker.next_minute(before=30)
    (embedded.folder / "schedule.toml").write_text("nonsense = 1\n")
    worker.send(signal.SIGTERM)
    assert (worker.wait(), worker.err) == (0, [])


def test_after_its_grace_commands_are_ended(embedded: Place, wait_for: WaitFor) -> None:
    """As by a tick that is told to end: with the signal, recorded as such, exit 1."""
    embedded.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    worker = embedded.work("--grace", "1s")
    wait_for(lambda: embedded.rows("id", "pid IS NOT NULL"), what="it runs")
    worker.send(signal.SIGTERM)
    assert worker.ends() == (1, [])
    assert embedded.rows("state, failure_reason") == [("failed", "ended by SIGTERM to the tick")]


def test_a_second_signal_ends_commands_now(embedded: Place, wait_for: WaitFor) -> None:
    """Though its grace be endless; what ignores TERM is killed."""
    embedded.write(f'name = "long"\ncommand = "trap \'\' TERM; {UNTIL_GO}"')
    worker = embedded.work("--grace", "0")
    wait_for(lambda: embedded.rows("id", "pid IS NOT NULL") and embedded.slots(), what="it runs")
    worker.send(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(1)
    worker.send(signal.SIGTERM)
    assert worker.ends() == (1, [])
    assert embedded.rows("state, failure_reason") == [("failed", "ended by SIGTERM to the tick")]


def test_after_its_time_it_ends(embedded: Place, wait_for: WaitFor) -> None:
    """No claims any more, the runs finish without limit, exit 0."""
    embedded.write(f'name = "long"\ncommand = "{UNTIL_GO}"')
    worker = embedded.work("--max-runtime", "1s", "--grace", "1s")
    wait_for(lambda: embedded.rows("id", "pid IS NOT NULL"), what="it runs")
    worker.next_minute(before=-1)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(3)
    (embedded.folder / "go").touch()
    assert worker.ends() == (0, [])
    assert embedded.rows("state") == [("completed",)]


@pytest.mark.parametrize("name", ["{}/notify", "@{}/notify"])
def test_a_supervisor_is_told(embedded: Place, wait_for: WaitFor, name: str) -> None:
    """READY=1 when it works, STOPPING=1 when it ends, to a socket of either kind; its commands do not see it."""
    embedded.write('name = "ok"\ncommand = "test -z \\"$NOTIFY_SOCKET\\""')
    address = name.format(embedded.folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(address.replace("@", "\0"))
        notify.settimeout(30)
        worker = embedded.work(NOTIFY_SOCKET=address)
        assert notify.recv(100) == b"READY=1"
        wait_for(lambda: embedded.rows("id", "state <> 'running'"), what="it ran")
        worker.send(signal.SIGTERM)
        assert notify.recv(100) == b"STOPPING=1"
        assert worker.wait() == 0
    assert embedded.rows("state") == [("completed",)]


def test_what_falls_to_pid_1_is_buried(embedded: Place, wait_for: WaitFor) -> None:
    """As PID 1 of a container no dead process is left to it, and its own commands' ends are not missed."""
    left = "(setsid sh -c 'sleep 0.3; touch left' &); exit 3"
    embedded.write(f'name = "ok"\ncommand = "{left}"')
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    worker = embedded.work(prefix=("unshare", *user, "--pid", "--fork", "--mount-proc"))
    wait_for(lambda: embedded.rows("id", "exit_code = 3"), what="it ended with its own status")
    wait_for((embedded.folder / "left").exists)
    [inner] = children(worker.process.pid)
    wait_for(lambda: not children(inner), what="nothing is left to it")
    os.kill(inner, signal.SIGTERM)
    assert worker.ends() == (0, [])


def children(pid: int) -> list[int]:
    """The children of a process, dead ones included."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
