"""Who is alive is read from proc(5): whether a tick is, whether anything of a run is, and what may be signalled."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import group_alive
from machine import wait_for

from cronledger import process
from cronledger.process import Owner, start_time

RUN = "0190b6d2-run"
SLEEP = "exec sleep 1000"
Shell = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def shell() -> Iterator[Shell]:
    """`shell(script)` runs a script in a session of its own, with the id of a run; its group is killed afterwards."""
    started = []

    def shell(script: str, run_id: str = RUN, **options: object) -> subprocess.Popen[bytes]:
        env = os.environ | {"CRONLEDGER_RUN_ID": run_id}
        options = {"start_new_session": True, "stdout": subprocess.PIPE, "env": env} | options
        started.append(subprocess.Popen(["/bin/sh", "-c", script], **options))
        return started[-1]

    yield shell
    for child in started:
        child.stdout.close()
        process.signal_group(child.pid, None, RUN, signal.SIGKILL)
        child.kill()
        child.wait()


def said(child: subprocess.Popen[bytes]) -> int:
    """The pid that a script printed."""
    return int(child.stdout.readline())


def lives(child: subprocess.Popen[bytes], start: int | None = None, since: int = 0) -> bool:
    return process.lives(child.pid, start, RUN, since)


def stat_line(
    pid: int, *, name: str = "sh", state: str = "S", group: int = 1, session: int = 1, flags: int = 0, threads: int = 1
) -> str:
    """A line of /proc/PID/stat of a process that started at 500."""
    return f"{pid} ({name}) {state} 1 {group} {session} 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 500 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Callable[..., str]:
    """`proc({PID: line}, PID…)` is a procfs in a folder that shows these, the real ones second, and always pid 1."""

    def proc(lines: dict[int, str], *real: int) -> str:
        for pid in real:
            (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        for pid, line in {1: stat_line(1), os.getpid(): stat_line(os.getpid())}.items() | lines.items():
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            (tmp_path / str(pid) / "stat").write_text(line)
        return str(tmp_path)

    return proc


# Owners


def test_this_process_is_an_owner_that_lives():
    """A tick knows itself by boot, PID namespace, pid and start time, and its text reads back."""
    owner = process.own()
    assert owner is not None
    assert owner.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (owner.pid, owner.start) == (os.getpid(), start_time(os.getpid()))
    assert owner.text == f"{owner.boot}/{owner.pid_namespace}/{owner.pid}/{owner.start}"
    assert Owner.parse(owner.text) == owner
    assert owner.is_alive()


@pytest.mark.parametrize(
    "text", ["", "boot", "boot/1/2", "boot/1/2/x", "/1/2/3", "boot/1/2/3/4", "boot/1/-2/3", "b/1/²/3"]
)
def test_a_text_that_names_no_owner_is_none(text):
    """What another version may have written is no owner, and no error."""
    assert Owner.parse(text) is None


@pytest.mark.parametrize(("boot", "namespace", "same"), [("b", 4, True), ("c", 4, False), ("b", 5, False)])
def test_only_the_same_boot_and_namespace_may_look(boot, namespace, same):
    """A pid means something only within its boot and PID namespace."""
    assert Owner("b", 4, 7, 8).same_machine(Owner(boot, namespace, 9, 10)) is same


def test_an_owner_is_dead_when_its_process_is_a_zombie_gone_or_another(shell):
    """A pid that was given again, a zombie and a process that is gone do not live; one that is stopped does."""
    child = shell(SLEEP)
    owner = Owner("b", 1, child.pid, start_time(child.pid))
    assert owner.is_alive()
    assert not Owner("b", 1, child.pid, owner.start + 1).is_alive()
    assert not owner.is_stopped()
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert owner.is_alive()
    assert owner.is_stopped()
    assert not Owner("b", 1, child.pid, owner.start + 1).is_stopped()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.is_alive()
    assert not owner.is_stopped()
    child.wait()
    assert not owner.is_alive()


def test_where_proc_cannot_tell_nothing_is_concluded(tmp_path, shell):
    """Without procfs, or with one that hides processes, everything counts as alive and we are nobody."""
    child = shell("exit 0")
    child.wait()
    nowhere = str(tmp_path)
    assert process.own(nowhere) is None
    assert start_time(os.getpid(), nowhere) is None
    assert Owner("b", 1, child.pid, 1).is_alive(nowhere)
    assert process.lives(child.pid, 1, RUN, 0, nowhere)
    assert process.lives(None, None, RUN, 0, nowhere)
    assert process.living_groups(nowhere) is None
    assert not process.signal_group(os.getpgrp(), 1, RUN, signal.SIGKILL, nowhere)


def test_the_proc_of_another_namespace_does_not_tell_who_we_are(proc, tmp_path):
    """A procfs in which /proc/self is somebody else is not ours."""
    (tmp_path / "self").symlink_to("1")
    assert process.own(proc({})) is None


# What stat says


@pytest.mark.parametrize("name", ["a b", ") R 1 (", "x)\n(y", "))))"])
def test_a_name_cannot_disguise_a_process(shell, name):
    """The name of a process may hold blanks, parentheses and newlines."""
    rename = f"open('/proc/self/comm', 'w').write({name!r}); print(1, flush=True); input()"
    child = shell(f'exec {sys.executable} -c "{rename}"'.replace("\\n", "\\\\n"), stdin=subprocess.PIPE)
    before = start_time(child.pid)
    said(child)
    assert start_time(child.pid) == before
    assert group_alive(child.pid)
    child.stdin.close()


@pytest.mark.parametrize(
    ("fields", "alive"),
    [
        ({"state": "S"}, True),
        ({"state": "Z"}, False),
        ({"state": "X"}, False),
        ({"state": "Z", "threads": 2}, True),  # its first thread ended, others go on
        ({"state": "S", "flags": 0x00200000}, False),  # a kernel thread
    ],
)
def test_what_counts_as_living(proc, fields, alive):
    """Zombies and kernel threads are nothing of a run; a process whose first thread ended is."""
    assert process.lives(77, 500, RUN, 0, proc({77: stat_line(77, **fields)})) is alive


# Runs


def test_a_command_lives_until_it_is_dead(shell):
    """The recorded command lives, also when its start time was not recorded; as a zombie it does not."""
    child = shell(SLEEP)
    assert lives(child)
    assert lives(child, start_time(child.pid))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not lives(child)


def test_a_pid_that_was_given_again_is_not_the_run(shell):
    """A process with another start time only bears the number of a run that is dead."""
    child = shell(SLEEP)
    assert not lives(child, start_time(child.pid) + 1)


def test_a_member_of_the_group_keeps_the_run_alive(shell):
    """When the command itself is dead its run lives on in its group."""
    child = shell("sleep 1000 & echo $!")
    member = said(child)
    child.wait()
    assert lives(child, 1)
    assert group_alive(child.pid)
    os.kill(member, signal.SIGKILL)
    wait_for(lambda: not lives(child, 1))
    assert not group_alive(child.pid)


def test_a_member_of_the_session_keeps_the_run_alive(shell):
    """So it does in another group of its session, as a shell with job control starts it."""
    move = "import os; os.setpgid(0, 0); print(os.getpid(), flush=True); os.execlp('sleep', 'sleep', '1000')"
    child = shell(f'{sys.executable} -c "{move}" &')
    member = said(child)
    child.wait()
    assert os.getpgid(member) == member
    assert lives(child, 1)
    os.kill(member, signal.SIGKILL)
    wait_for(lambda: not lives(child, 1))


def test_a_daemon_that_left_is_not_of_a_recorded_run(shell, proc):
    """A daemon in a session of its own does not count, unless no pid was recorded: then its environment tells."""
    child = shell("setsid sh -c 'echo $$; exec sleep 1000' & exit 0")
    daemon = said(child)
    child.wait()
    assert not lives(child, 1)
    root = proc({}, daemon)
    assert process.lives(None, None, RUN, 0, root)
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: not process.lives(None, None, RUN, 0, root))


def test_without_a_pid_the_environment_tells(shell, proc):
    """Where no pid was recorded, whatever carries the id of the run counts, if it started with its tick or later."""
    child = shell("echo 1; exec sleep 1000")
    said(child)
    start, root = start_time(child.pid), proc({}, child.pid)
    assert process.lives(None, None, RUN, start, root)
    assert not process.lives(None, None, RUN, start + 1, root)
    assert not process.lives(None, None, RUN + "0", 0, root)
    assert not process.lives(None, None, RUN[:-1], 0, root)


def test_without_a_pid_what_cannot_be_read_counts(proc, tmp_path):
    """A process whose environment may not be read may be of the run, if it started with its tick or later."""
    (tmp_path / "77" / "environ").mkdir(parents=True)
    root = proc({77: stat_line(77)})
    assert process.lives(None, None, RUN, 500, root)
    assert not process.lives(None, None, RUN, 501, root)


def test_we_are_not_of_the_run(proc, tmp_path):
    """A tick that carries the id of the run itself, as when a run starts one, does not keep it alive."""
    root = proc({})
    (tmp_path / str(os.getpid()) / "environ").write_text(f"CRONLEDGER_RUN_ID={RUN}\0")
    assert not process.lives(None, None, RUN, 0, root)


# Signals


def test_a_group_is_signalled_when_its_leader_is_the_recorded_one(shell):
    """The start time proves that a group is that of the run."""
    child = shell(SLEEP, run_id="another")
    assert process.signal_group(child.pid, start_time(child.pid), RUN, signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def test_one_that_becomes_another_program_is_seen(shell, tmp_path):
    """Amid execve(2) it shows no environment: that is no proof that it is not of the run."""
    loop = tmp_path / "loop"
    loop.write_text(f"exec /bin/sh {loop}\n")
    since = process.start_time(os.getpid())
    shell(f"exec /bin/sh {loop}")
    wait_for(lambda: process.lives(None, None, RUN, since))
    assert all(process.lives(None, None, RUN, since) for _ in range(300))


def test_a_group_without_leader_is_signalled_when_a_member_carries_the_run(shell):
    """When the leader is gone the environment of a member proves it."""
    child = shell("sleep 1000 & echo $!")
    said(child)
    child.wait()
    assert not process.signal_group(child.pid, 1, "another", signal.SIGTERM)
    assert group_alive(child.pid)
    # While the member becomes `sleep`, for a moment it shows no environment (execve(2)).
    wait_for(lambda: process.signal_group(child.pid, 1, RUN, signal.SIGTERM))
    wait_for(lambda: not group_alive(child.pid))


@pytest.mark.parametrize("pid", [None, 0, 1])
def test_nothing_else_is_ever_signalled(pid, shell):
    """No pid, our own group (0), init and a pid that was given again are left alone."""
    child = shell(SLEEP)
    assert not process.signal_group(pid, start_time(pid or 1), RUN, signal.SIGKILL)
    assert not process.signal_group(child.pid, start_time(child.pid) + 1, RUN, signal.SIGKILL)
    assert child.poll() is None


def test_a_group_that_is_gone_is_no_error(shell):
    """Nobody is left to be signalled: that is normal."""
    child = shell("exit 0")
    start = start_time(child.pid)
    child.wait()
    assert not process.signal_group(child.pid, start, RUN, signal.SIGTERM)
