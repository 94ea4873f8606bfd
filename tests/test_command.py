"""Commands are started as the contract says, what they print is kept, and how they ended is named."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import PATH, finish, in_child, outcome, start, start_argv

from cronledger.command import Commands, Outcome, missing
from cronledger.masking import LIMIT, Mask
from cronledger.process import start_time


@pytest.fixture
def commands() -> Iterator[Commands]:
    with Commands(mask=Mask("correct horse"), expected=1) as commands:
        yield commands


# Whether it can start here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """bin/tool is a program, bin/old lacks its interpreter, bin/text is not executable, bin/sub is a folder."""
    (tmp_path / "bin" / "sub").mkdir(parents=True)
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\necho tool $0\n")
    (tmp_path / "bin" / "tool").chmod(0o755)
    (tmp_path / "bin" / "old").write_text("#! /no/such/python -u\nprint('old')\n")
    (tmp_path / "bin" / "crlf").write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    (tmp_path / "bin" / "bare").write_text("#! \t\ntrue\n")
    for name in ("old", "crlf", "bare"):
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin" / "text").write_text("text")
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "cwd", "path", "why"),
    [
        (("bin/tool",), "", PATH, None),
        (("tool",), "", "/nowhere:{0}/bin", None),
        (("tool",), "", "bin", None),  # an entry of PATH may be relative: it counts from cwd
        (("/bin/sh", "-c", "anything"), "", PATH, None),
        (("sh",), "", None, None),
        (("tool",), "bin", PATH, f"program tool is not on its PATH {PATH}"),
        (("bin/nothing",), "", PATH, "program {0}/bin/nothing is not there"),
        (("bin/text",), "", PATH, "program {0}/bin/text is not executable"),
        (("text",), "", "/nowhere:{0}/bin", "program {0}/bin/text is not executable"),
        (("bin/sub",), "", PATH, "program {0}/bin/sub is a directory"),
        (("bin/old",), "", PATH, "/no/such/python, the interpreter of program {0}/bin/old, is not there"),
        (("bin/crlf",), "", PATH, "/bin/sh\r, the interpreter of program {0}/bin/crlf, is not there"),
        (("bin/bare",), "", PATH, None),
        (("old",), "", "{0}/bin", "/no/such/python, the interpreter of program {0}/bin/old, is not there"),
        (("/bin/nosh", "-c", "true"), "", PATH, "shell /bin/nosh is not there"),
        (("nosh", "-c", "true"), "", PATH, f"shell nosh is not on its PATH {PATH}"),
        (("sh",), "nowhere", PATH, "cwd {0}/nowhere is not there"),
        (("sh",), "bin/tool", PATH, "cwd {0}/bin/tool is not there"),
        (("s\0h",), "", PATH, f"program s\0h is not on its PATH {PATH}"),
    ],
)
def test_what_is_missing_is_named(folder, argv, cwd, path, why):
    """A cwd, a shell or a program that is not there is named with its path, before anything is claimed."""
    env = {} if path is None else {"PATH": path.format(folder)}
    assert missing(argv, os.path.normpath(folder / cwd), env) == (why and why.format(folder))


@pytest.mark.parametrize(("argv", "path"), [(["bin/tool"], PATH), (["tool"], "{0}/bin"), (["tool"], "bin")])
def test_what_is_not_missing_starts(commands, folder, argv, path):
    """A program is started from the place in which it was looked for."""
    start_argv(commands, *argv, cwd=str(folder), env={"PATH": path.format(folder)})
    assert finish(commands)["job"].output.startswith("tool ")


# What it is given


def test_a_command_gets_its_place_and_nothing_else(commands, folder):
    """Its cwd, exactly its environment, stdin at its end, and no descriptor but 0 to 2."""
    leak = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leak, True)
    ended = outcome(commands, "pwd; env; cat; ls /proc/$$/fd", cwd=str(folder), env={"PATH": PATH, "A": "é\udcff"})
    os.close(leak)
    lines = ended.output.split()
    assert lines[0] == str(folder)
    assert {"A=é\ufffd", f"PATH={PATH}"} < set(lines)
    assert lines[-3:] == ["0", "1", "2"]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_closed_standard_descriptors_do_no_harm(closed):
    """Where our caller closed descriptors 0 to 2, those of a command are its own all the same."""
    code = f"""
import os
kept = [os.dup(descriptor) for descriptor in range(3)]
for descriptor in {closed}:
    os.close(descriptor)
with Commands(mask=Mask(None), expected=1) as commands:
    ended = outcome(commands, "cat; echo out; echo err >&2")
for descriptor in range(3):
    os.dup2(kept[descriptor], descriptor)
print(ended.output)
"""
    assert in_child(code) == "out\nerr\n\n"


def test_a_command_leads_its_own_session(commands):
    """Each run is its own session and process group, whose pid and start time are known while it is in flight."""
    pid = start(commands, "read -r stat </proc/$$/stat; echo $stat")
    began = commands.start_of("job")
    assert began == start_time(pid)
    fields = finish(commands)["job"].output.split()
    assert fields[0] == fields[4] == fields[5] == str(pid)
    assert int(fields[21]) == began
    assert commands.start_of("job") is None


@pytest.mark.parametrize(
    ("inherited", "field", "signum", "there"),
    [
        ("signal.signal(signal.SIGPIPE, signal.SIG_IGN)", "SigIgn", signal.SIGPIPE, False),
        ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "SigIgn", signal.SIGCHLD, False),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})", "SigBlk", signal.SIGUSR1, False),
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", "SigIgn", signal.SIGHUP, True),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "SigIgn", signal.SIGINT, True),
    ],
)
def test_signals_are_as_the_contract_says(inherited, field, signum, there):
    """SIGPIPE and SIGCHLD are at their defaults, nothing is blocked, an ignored HUP or INT stays ignored."""
    code = (
        f"{inherited}\nwith Commands(mask=Mask(None), expected=1) as commands:\n"
        "    print(outcome(commands, 'exec cat /proc/self/status').output)\n"
        "    assert outcome(commands, 'exit 7').exit_code == 7\n"
    )
    line = next(line for line in in_child(code).splitlines() if line.startswith(field))
    assert bool(int(line.split()[1], 16) & 1 << signum - 1) is there


# How it ended


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("true", 0, None),
        ("echo fine", 0, None),
        ("exit 3", 3, "exit 3"),
        ("echo one; echo could not connect >&2; echo; exit 3", 3, "exit 3: could not connect"),
        ("kill -KILL $$", None, "killed by SIGKILL"),
        ("echo on my way; kill -TERM $$", None, "killed by SIGTERM: on my way"),
        ("kill -40 $$", None, "killed by signal 40"),
        ("echo to mysql://u:correct%20horse@db; exit 1", 1, "exit 1: to mysql://u:***@db"),
        ("head -c 100 /dev/zero | tr '\\0' x; kill -PIPE $$", None, f"killed by SIGPIPE: {'x' * 100}"),
        ("yes | head -1; exit 2", 2, "exit 2: y"),
    ],
)
def test_the_end_is_named(commands, script, code, reason):
    """The status or the signal is named, with the last line that was printed; no reason means that nothing failed."""
    ended = outcome(commands, script)
    assert (ended.exit_code, ended.reason) == (code, reason)


@pytest.mark.parametrize(
    ("argv", "options", "reason"),
    [
        (["/bin/echo", "x" * 200_000], {}, "Argument list too long"),
        (["/bin/echo", "a\0b"], {}, "embedded null byte"),
        (["/bin/sh"], {"env": {"A": "a\0b"}}, "embedded null byte"),
        (["/bin/sh"], {"env": {"A=B": "c"}}, "illegal environment variable name"),
        (["bin/text"], {}, "Permission denied: bin/text"),
        (["bin/bare"], {}, "Exec format error: bin/bare"),
        (["bin/nothing"], {}, "No such file or directory: bin/nothing"),
        (["nothing"], {}, "No such file or directory: nothing"),
        (["/bin/sh"], {"cwd": "/nowhere"}, "No such file or directory: /nowhere"),
        (["/bin/correct horse"], {}, "No such file or directory: /bin/***"),
    ],
)
def test_what_cannot_be_started_is_an_outcome(commands, folder, argv, options, reason):
    """A command that cannot be started is a failed run like any other, in flight until `wait` told how it ended."""
    (folder / "bin" / "bare").write_text("echo no interpreter\n")
    (folder / "bin" / "bare").chmod(0o755)
    assert start_argv(commands, *argv, **{"cwd": str(folder)} | options) is None
    assert (len(commands), commands.keys()) == (1, ["job"])
    assert finish(commands) == {"job": Outcome(None, f"cannot start: {reason}", 0, "")}


def test_many_at_once_end_each_for_itself(commands):
    """A slow command delays no other, and each outcome is its own."""
    for number in range(30):
        start(commands, f"exec 2>&1; echo {number}; exit {number}", key=str(number))
    start(commands, "exec sleep 1000", key="slow")
    ended: dict[str, Outcome] = {}
    while len(commands) > 1:
        ended |= commands.wait(1)
    assert {key: one.exit_code for key, one in ended.items()} == {str(number): number for number in range(30)}
    commands.stop(signal.SIGKILL)
    assert finish(commands)["slow"].reason == "ended by SIGKILL to the tick"


# What it prints


def test_both_streams_are_one(commands):
    """stdout and stderr are kept together, in their order."""
    assert outcome(commands, "echo a; echo b >&2; echo c").output == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("script", "size"),
    [
        ("yes | head -c 5000000", 5_000_000),
        ("head -c 5000000 /dev/zero | tr '\\0' x", 5_000_000),
        ("head -c 1000000 /dev/zero | tr '\\0' x & head -c 1000000 /dev/zero | tr '\\0' x >&2; wait", 2_000_000),
    ],
)
def test_the_last_64_kib_are_kept(commands, script, size):
    """However much is printed, in whatever lines, the tail is kept and the first line says how much was cut."""
    mark, _, kept = outcome(commands, script).output.partition("\n")
    assert (mark, len(kept)) == (f"[{size - LIMIT:,} bytes cut]", LIMIT)


def test_memory_stays_flat():
    """200 MB of output cost no memory."""
    code = (
        "import resource\ndef peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with Commands(mask=Mask('correct horse'), expected=1) as commands:\n"
        "    outcome(commands, 'yes | head -c 1M'); before = peak()\n"
        "    assert outcome(commands, 'yes correct horse | head -c 200M; exit 3').reason.startswith('exit 3: ')\n"
        "    print(peak() - before)"
    )
    assert int(in_child(code)) < 4096  # KiB


def test_a_background_child_that_keeps_the_pipe_does_not_keep_the_run(commands, wait_for, tmp_path):
    """The run is over when the command exits; what the child prints then is drained, and not kept."""
    go, done = tmp_path / "go", tmp_path / "done"
    child = f"mkfifo {go}; (read -r _ <{go}; head -c 1M /dev/zero; echo >{done}) & echo $!"
    ended = outcome(commands, child)
    assert (ended.reason, ended.output.strip().isdecimal()) == (None, True)
    go.write_text("\n")
    wait_for(lambda: commands.wait(0.05) or done.exists())
    assert len(commands) == 0


def test_a_background_child_that_prints_without_end_does_not_either(commands):
    """Nor does one that never stops printing."""
    ended = outcome(commands, "yes & echo $! >&2; exit 3")
    assert ended.reason.startswith("exit 3: ")


def test_live_output_comes_masked_and_at_once(commands):
    """Lines come as they are printed, a prompt soon after, and no password ever."""
    shown = bytearray()
    start(commands, "echo correct horse; printf 'Go on? correct '; exec sleep 1000", live=shown.extend)
    while b"Go on? " not in shown:
        commands.wait(1)
    assert bytes(shown) == b"***\nGo on? "
    commands.stop(signal.SIGTERM)
    finish(commands)
    assert bytes(shown) == b"***\nGo on? correct "
