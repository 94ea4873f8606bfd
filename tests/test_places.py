"""A tick at the limit of descriptors or processes waits for a place, and then starts what it claimed."""

from launching import in_child


def test_the_limit_is_raised_for_us_and_given_back_to_commands():
    """The soft limit grows as far as the expected commands need it; they get the old one back."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 5000))
with Commands(mask=Mask(None), expected=600) as commands:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1200
    print(outcome(commands, "ulimit -n; ulimit -Hn").output.split())
"""
    assert in_child(code) == "['256', '5000']\n"


def test_the_limit_is_left_alone_where_it_suffices():
    """For a few commands nothing is raised, so that they are started in the fastest way."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 5000))
with Commands(mask=Mask(None), expected=10) as commands:
    print(resource.getrlimit(resource.RLIMIT_NOFILE), commands._places.restore)
"""
    assert in_child(code) == "(256, 5000) None\n"


def test_hundreds_run_at_once_beyond_the_soft_limit():
    """200 commands are in flight at once with a soft limit of 64."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 5000))
with Commands(mask=Mask(None), expected=200) as commands:
    for number in range(200):
        assert commands.has_place() and start(commands, "read -r _", str(number))
    print(sum(one.exit_code for one in finish(commands).values()))
"""
    assert in_child(code) == "200\n"


def test_without_descriptors_there_is_no_place():
    """At the hard limit there is no place until a command has ended; none that had one fails to start."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
started = ended = most = 0
with Commands(mask=Mask(None), expected=60) as commands:
    while started < 60:
        if commands.has_place():
            assert start(commands, "exec sleep 0.01", str(started))
            started += 1
            most = max(most, len(commands))
        else:
            ended += len([one for _, one in commands.wait(1) if one.reason is None])
    ended += len(finish(commands))
print(ended, 5 < most < 20)
"""
    assert in_child(code) == "60 True\n"


# As root no limit of processes holds, so become somebody else; 1 is us.
FULL = """
import os, resource
from cronledger import command
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
def limit(processes):
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, hard))
"""


def test_without_processes_there_is_no_place():
    """While no process can be had there is no place; when one can again there is."""
    code = f"""{FULL}
with Commands(mask=Mask(None), expected=1) as commands:
    limit(1)
    print(commands.has_place(), commands.has_place())
    limit(soft)
    print(commands.has_place(), outcome(commands, "exit 5").reason)
"""
    assert in_child(code) == "False False\nTrue exit 5\n"


def test_a_start_waits_for_a_process():
    """A start that the kernel refuses is tried again, while the other commands are looked after."""
    code = f"""{FULL}
with Commands(mask=Mask(None), expected=2) as commands:
    start(commands, "echo; exit 4", "other", live=lambda _: limit(soft))
    limit(1)
    assert start(commands, "exit 5") is not None
    print(sorted((key, one.reason) for key, one in finish(commands).items()))
"""
    assert in_child(code) == "[('job', 'exit 5'), ('other', 'exit 4')]\n"


def test_a_start_does_not_wait_for_ever():
    """A job whose start the kernel goes on refusing has failed, with what the kernel says."""
    code = f"""{FULL}
command.START_WITHIN = 0.3
with Commands(mask=Mask(None), expected=1) as commands:
    limit(1)
    print(start(commands, "true"), finish(commands)["job"].reason)
"""
    assert in_child(code) == "None cannot start: Resource temporarily unavailable\n"
