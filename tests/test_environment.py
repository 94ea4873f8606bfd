"""What a schedule takes from around it: its folder, the env_file, the environment and the node's own clock."""

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cronledger.errors import EnvironmentMissing, ScheduleRefused
from cronledger.schedule import LOCAL, Schedule, absolute, anyone_may_write, load

HEAD = 'timezone = "UTC"\nnamespace = "test"\n'
JOB = '[[job]]\nname = "a"\ncron = "* * * * *"\ncommand = "true"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TZ", raising=False)
    return tmp_path


@pytest.fixture
def node_zone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The means to set TZ, undone for the C library too."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def loaded(text: str) -> Schedule:
    Path("schedule.toml").write_text(text)
    return load("schedule.toml")


def test_paths_count_from_the_schedule_and_keep_symbolic_links(folder: Path) -> None:
    """A deploy's `current` stays `current`, in the current folder too, and `..` is not folded over a link."""
    (folder / "releases" / "7").mkdir(parents=True)
    (folder / "current").symlink_to("releases/7")
    (folder / "current" / "s.toml").write_text(f'env_file = "x/../.env"\n{HEAD}{JOB}cwd = "./bin"\n')
    read = load("current/s.toml")
    assert (read.path, read.folder) == (f"{folder}/current/s.toml", f"{folder}/current")
    assert (read.env_file, read.jobs[0].cwd) == (f"{folder}/current/x/../.env", f"{folder}/current/bin")


def test_the_current_folder_has_the_name_that_the_shell_gives_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PWD is believed while it is true."""
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    monkeypatch.chdir(folder / "link")
    monkeypatch.setenv("PWD", f"{folder}/link")
    assert absolute("x") == f"{folder}/link/x"
    monkeypatch.setenv("PWD", "/nowhere")
    assert absolute("x") == f"{folder}/real/x"
    (folder / "link").unlink()
    (folder / "real").rmdir()
    assert (absolute("x"), absolute("/x")) == ("x", "/x")
    with pytest.raises(ScheduleRefused, match=r"^x: cannot be read: No such file or directory; "):
        load("x")


def test_the_environment_is_laid_under_the_env_file(folder: Path) -> None:
    """Quotes go, comments go, nothing is expanded; the file is read when it is asked for."""
    read = loaded(f'env_file = ".env"\n{HEAD}{JOB}')
    lines = [
        "\ufeff# c\r",
        "\r",
        "export A=1\r",
        " B = two words # c",
        "C='a \"b\" #c' # c",
        'D="$A\\n"',
        "E=",
        "F=x#y",
    ]
    Path(".env").write_bytes("\n".join([*lines, "G=# c", "H=a=b"]).encode())
    assert read.environment({"A": "0", "Z": "z"}) == {
        "A": "1",
        "Z": "z",
        "B": "two words",
        "C": 'a "b" #c',
        "D": "$A\\n",
        "E": "",
        "F": "x#y",
        "G": "",
        "H": "a=b",
    }


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"A=1\nsecret", '.env:2: not a variable; write KEY=VALUE, or "# " before a comment'),
        (b"=secret", '.env:1: not a variable; write KEY=VALUE, or "# " before a comment'),
        (b"A B=secret", '.env:1: not a variable; write KEY=VALUE, or "# " before a comment'),
        (b"A='secret", ".env:1: the quote is not closed on its line; close it, or write the value without quotes"),
        (
            b'A="secret"x',
            ".env:1: something follows the closing quote; put the whole value in the other kind of quotes",
        ),
        (b"\n\xff", ".env:2: not UTF-8; save the env_file as UTF-8"),
        (
            None,
            (
                "env_file {}/.env cannot be read: No such file or directory;"
                " let this user find and read it there, or drop the key"
            ),
        ),
    ],
)
def test_an_env_file_that_does_not_serve_is_one_line(folder: Path, data: bytes | None, sentence: str) -> None:
    """It names path and line, and never what the file holds."""
    read = loaded(f'env_file = ".env"\n{HEAD}{JOB}')
    if data is not None:
        Path(".env").write_bytes(data)
    expected = sentence.format(folder) if data is None else f"{folder}/{sentence}"
    with pytest.raises(EnvironmentMissing, match=f"^{re.escape(expected)}$"):
        read.environment({})


def test_names_in_the_dsn_are_looked_up_when_it_is_asked_for(folder: Path) -> None:
    """${NAME} is replaced once, all else stays; a name that is not set says where it was looked for."""
    read = loaded(f'{HEAD}env_file = ".env"\n[ledger]\ndsn = "${{URL}}"\n{JOB}')
    assert read.dsn == "${URL}"
    assert read.expand("$A ${A}$${ ${A}", {"A": "${A}"}) == "$A ${A}$${ ${A}"
    sentence = (
        f"${{URL}} of {folder}/schedule.toml is not set; looked in the environment and {folder}/.env: set it there"
    )
    with pytest.raises(EnvironmentMissing, match=f"^{re.escape(sentence)}$"):
        read.expand("${URL}", {})


def test_what_may_be_secret_is_not_in_what_python_prints_of_a_schedule(folder: Path) -> None:
    """Neither the DSN nor a variable shows in a repr."""
    read = loaded(f"{HEAD}[ledger]\ndsn = 'sqlite:///hunter2.db'\n{JOB}env.A = 'hunter2'\n")
    assert "hunter2" not in repr(read)


def test_local_is_the_clock_of_the_node_with_fold(node_zone: pytest.MonkeyPatch) -> None:
    """Both passes of a repeated hour come back to the instant they came from, by a rule of POSIX as by a name."""
    for name in "Europe/Paris", ":Europe/Paris", "CET-1CEST,M3.5.0,M10.5.0/3", "<+01>-1<+02>,M3.5.0,M10.5.0/3":
        node_zone.setenv("TZ", name)
        time.tzset()
        zone = loaded(f'timezone = "local"\n{JOB}').zone
        assert zone is LOCAL
        for minute in range(0, 240, 10):
            moment = datetime(2026, 10, 25, tzinfo=UTC) + timedelta(minutes=minute)
            there, paris = moment.astimezone(zone), moment.astimezone(ZoneInfo("Europe/Paris"))
            assert (there.replace(tzinfo=None), there.fold) == (paris.replace(tzinfo=None), paris.fold)
            assert there.astimezone(UTC) == moment


def test_a_tz_that_names_no_zone_is_a_mistake_where_the_nodes_clock_counts(node_zone: pytest.MonkeyPatch) -> None:
    """The C library would silently take UTC; without `timezone` too, but not where another zone is named."""
    node_zone.setenv("TZ", "Europe/Pariss")
    wrong = "the environment has TZ=Europe/Pariss, which names no zone and would silently be UTC"
    for text in f'timezone = "local"\n{JOB}', JOB:
        with pytest.raises(ScheduleRefused, match=f"^schedule.toml:1: timezone: {wrong}; write TZ=Europe/Paris$"):
            loaded(text)
    assert loaded(HEAD + JOB).zone is UTC


@pytest.mark.parametrize(
    ("rule", "is_taken"),
    [
        *[
            (rule, True)
            for rule in ("ABC23", "ABC-22DEF", "EST5EDT", "EST+5:00:00EDT4,M3.2.0", "<-03>3<-02>,M3.5.0,M10.5.0")
        ],
        *[(rule, False) for rule in ("ABC24", "ABC99999999999999999", "ABC-23DEF", "ABC5DEF99", "AB5", "ABC")],
    ],
)
def test_a_rule_of_posix_is_less_than_a_day_from_utc(node_zone: pytest.MonkeyPatch, rule: str, is_taken: bool) -> None:
    """In summer too; what is not would be no zone to Python either."""
    node_zone.setenv("TZ", rule)
    time.tzset()
    if is_taken:
        zone = loaded(JOB).zone
        assert all(datetime(2026, month, 1, tzinfo=UTC).astimezone(zone).utcoffset() is not None for month in (1, 7))
    else:
        with pytest.raises(
            ScheduleRefused, match=f"TZ={rule}, which names no zone .*; write a name such as TZ=Europe/"
        ):
            loaded(JOB)


def test_a_file_that_anyone_may_change_or_replace_is_known(folder: Path) -> None:
    """A sticky folder keeps others from replacing it."""
    Path("x").touch(0o644)
    assert not anyone_may_write("x")
    for mode, file, open_ in (0o755, 0o646, True), (0o777, 0o644, True), (0o1777, 0o644, False):
        os.chmod(folder, mode)
        os.chmod("x", file)
        assert anyone_may_write("x") is open_
    assert not anyone_may_write("nothing")
