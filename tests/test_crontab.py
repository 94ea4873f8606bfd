"""A crontab into a schedule: every job arrives as it was, or its line says why not and what to do."""

import json
import random
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cronledger import schedule
from cronledger.crontab import Conversion, convert

CASES = Path(__file__).parent / "cases" / "crontabs"
INDEX = [json.loads(line) for line in (CASES / "INDEX.jsonl").read_text().splitlines()]


def converted(text: str, *, system: bool = False) -> Conversion:
    return convert(text, system=system, source="crontab")


def document(conversion: Conversion) -> dict[str, Any]:
    return tomllib.loads(conversion.toml)


def jobs(text: str, *, system: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(converted(text, system=system))["job"]
    return found


def remarks(text: str, *, system: bool = False) -> str:
    return "\n".join(map(str, converted(text, system=system).remarks))


def loaded(conversion: Conversion, folder: Path) -> schedule.Schedule:
    (folder / "schedule.toml").write_text(conversion.toml)
    return schedule.load(folder / "schedule.toml")


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["file"])
def test_crontabs_as_people_have_them_arrive(case: dict[str, Any], tmp_path: Path) -> None:
    """Each good job arrives as written, each other one is left out with its line, and the schedule is accepted."""
    text = (CASES / case["file"]).read_text()
    system = case["format"] == "system"
    conversion = convert(text, system=system, source=case["file"])
    good = [job for job in case["jobs"] if job["verdict"] == "ok"]
    bad = [job["line"] for job in case["jobs"] if job["verdict"] != "ok"]

    arrived = document(conversion)["job"]
    assert [job["cron"] for job in arrived] == [job["expr"] for job in good]
    lines = text.split("\n")
    assert [job["command"] for job in arrived] == [written(lines[job["line"] - 1], job["expr"], system) for job in good]
    assert [remark.line for remark in conversion.remarks if "left out" in remark.text] == bad
    assert conversion.left_out == len(bad)
    assert [job.name for job in loaded(conversion, tmp_path).jobs] == [job["name"] for job in arrived]


def written(line: str, expression: str, system: bool) -> str:
    """The command of a line whose schedule is `expression`, as a reader of crontab(5) sees it."""
    before = len(expression.split()) + system
    return line.split(None, before)[before].rstrip().replace(r"\%", "%")


NASTY = [
    r"""echo "double" 'single' `back` $(sub) \; \\n""".replace("\\\\", "\\"),
    "grep -c '^\t[[:space:]]' /var/log/{a,b} # {not a comment}",
    "echo 'é ü 漢字 🎉' \u2028 \x85",
    "awk '{ print $1 }' <<< \"\"\"''' = [x]",
    "true \x01\x1b[0m\x7f",
    "x" * 5000,
]


@pytest.mark.parametrize("command", NASTY)
def test_a_command_survives_whatever_it_holds(command: str, tmp_path: Path) -> None:
    """Quotes, backslashes, braces, tabs, control characters and every alphabet come back as they were."""
    conversion = converted(f'NAME="{command}"\n1 2 3 4 * {command}\n')
    found = document(conversion)
    assert found["job"][0]["command"] == command
    assert len(loaded(conversion, tmp_path).jobs) == 1


@pytest.mark.parametrize("value", [r"""it's {a} \n $HOME""", "a \t b", "漢字 🎉", "x=y # no comment"])
def test_a_variable_survives_whatever_it_holds(value: str) -> None:
    """A value is what stands between the quotes, without expansion."""
    assert document(converted(f'NAME = "{value}"\n* * * * * x\n'))["defaults"]["env"] == {"NAME": value}


def test_what_holds_for_all_jobs_is_a_default_and_the_rest_is_a_jobs_own() -> None:
    """A variable holds for the jobs below it, until it is set again."""
    found = document(converted("A=1\nB=1\n0 1 * * * x\nB=2\nSHELL=/bin/bash\nHOME=/srv\n0 2 * * * y\n"))
    assert found["defaults"] == {"stale_after": "24h", "env": {"A": "1"}}
    assert found["timezone"] == "local"
    first, second = found["job"]
    assert first == {"name": "x", "cron": "0 1 * * *", "command": "x", "env": {"B": "1"}}
    assert second["env"] == {"B": "2", "HOME": "/srv"}
    assert (second["shell"], second["cwd"]) == ("/bin/bash", "/srv")


def test_one_zone_for_all_is_the_schedules_and_another_is_the_jobs() -> None:
    """CRON_TZ becomes `timezone`: at the top when it holds for every job, else at each job below it."""
    assert document(converted("CRON_TZ=Europe/Paris\n0 1 * * * x\n"))["timezone"] == "Europe/Paris"
    found = document(converted("0 1 * * * x\nCRON_TZ=Asia/Tokyo\n0 1 * * * y\nCRON_TZ=\n0 1 * * * z\n"))
    assert found["timezone"] == "local"
    assert [job.get("timezone") for job in found["job"]] == [None, "Asia/Tokyo", None]


def test_nothing_to_carry_over_is_no_schedule() -> None:
    """Without a job there is no text, and a remark says so."""
    for text in ("", "\n", "# a comment\n", "A=b\n", "@reboot x\n"):
        assert converted(text).toml == ""
        assert "no job could be carried over" in remarks(text)


@pytest.mark.parametrize(
    ("command", "stdin", "seen"),
    [
        ("cat", r"one\%two%%three\x\\%", "one%two\n\nthree\\x\\%\n"),
        ("cat", "%", "\n"),
        ("cat", "", ""),
        ("cat", '-n it\'s $HOME `x` "q"%', '-n it\'s $HOME `x` "q"\n'),
        ("cat | tr a b; cat # done", "a%a", "b\nb\n"),
        ('read -r A; echo "$A"', "x y%z", "x y\n"),
    ],
)
def test_input_after_a_percent_sign_reaches_the_command(command: str, stdin: str, seen: str) -> None:
    """The command reads the very lines that cron would have written to it."""
    job = jobs(f"0 0 * * * {command}%{stdin}\n")[0]
    ran = subprocess.run(["/bin/sh", "-c", job["command"]], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert ran.stdout.decode() == seen


def test_input_that_no_shell_can_be_asked_for_is_left_out() -> None:
    """With a SHELL that is not one of the Bourne family nothing is guessed."""
    text = "SHELL=/usr/bin/fish\n0 0 * * * cat%x\n0 0 * * * y\n"
    assert [job["command"] for job in jobs(text)] == ["y"]
    assert "crontab:2: left out: its input (after the first %) cannot be written for /usr/bin/fish" in remarks(text)
    assert converted(text).left_out == 1


def test_jobs_of_other_users_are_kept_but_disabled(tmp_path: Path) -> None:
    """A tick runs all its jobs as one user: the most frequent one's are enabled."""
    conversion = converted("0 1 * * * svc a\n0 2 * * * root b\n0 3 * * * root c\n", system=True)
    assert [job.get("enabled", True) for job in document(conversion)["job"]] == [False, True, True]
    assert "# line 1, where it ran as svc\n[[job]]" in conversion.toml
    assert "# Its jobs ran as root" in conversion.toml
    assert any(remark.line == 1 and "it ran as svc" in remark.text for remark in conversion.remarks)
    assert len(loaded(conversion, tmp_path).jobs) == 3


@pytest.mark.parametrize(
    ("text", "system", "hint"),
    [
        ("* * * * * root a\n* * * * * www-data b\n", False, "if that is a user column, import it with --system"),
        ("* * * * * php a\n* * * * * cd b\n", True, "perhaps this is one to import without --system"),
        ("* * * * * /bin/a b\n* * * * * root b\n", True, "import a user's own crontab without --system"),
    ],
)
def test_a_crontab_of_the_other_format_is_hinted_at(text: str, system: bool, hint: str) -> None:
    """The format is never guessed, but what looks like the other one is said."""
    assert hint in remarks(text, system=system)


@pytest.mark.parametrize("control", ["\x01", "\x1b", "\x7f", "\x85"])
def test_a_control_character_is_in_no_users_name(control: str) -> None:
    """It would get into a comment, where TOML has no place for it."""
    assert f"'ro\\x{ord(control):02x}ot' stands in the user column" in remarks(
        f"* * * * * ro{control}ot a\n", system=True
    )


@pytest.mark.parametrize("text", ["* * * * * root a\n* * * * * b\n", "* * * * * rooted a\n"])
def test_a_users_own_crontab_gets_no_hint(text: str) -> None:
    """One command that happens to begin with a user's name is not enough."""
    assert "--system" not in remarks(text)


def test_a_source_with_a_strange_name_stays_within_its_comment() -> None:
    """A file's name cannot break the schedule."""
    tomllib.loads(convert("0 0 * * * x\n", system=False, source='a\n[[job]]\x1b"\udce9').toml)


PIECES = [
    *(
        "*",
        "*/5",
        "0",
        "15",
        "1-5",
        "MON",
        "jan",
        "0/5",
        "99",
        "*/0",
        "5-1",
        "31",
        "2",
        "?",
        "~",
        "-1",
        "@daily",
        "@reboot",
    ),
    *(
        "@",
        "root",
        "svc",
        "php",
        "/bin/true",
        "cd / && x",
        "%",
        r"\%",
        "\\",
        "\\\\",
        "'",
        '"',
        "`",
        "$(x)",
        "#",
        "# note",
    ),
    *(
        "SHELL=",
        "=",
        "HOME=/srv",
        "CRON_TZ=Europe/Paris",
        "CRON_TZ=x",
        "PATH=/bin",
        "MAILTO=",
        "A-B=1",
        "cronledger tick",
    ),
    *(
        "\t",
        " ",
        "  ",
        "\n",
        "\n",
        "\r\n",
        "\0",
        "\x1b",
        "\x7f",
        "\udcff",
        "é",
        "🎉",
        "\u2028",
        "\ufeff",
        "x" * 300,
        "{",
        "]]",
    ),
    *(
        "\n* * * * * ",
        "\n5 4 * * * ",
        "\n@daily ",
        "\n0 0 * * * root ",
        '"""',
        "'''",
        "-c",
        "env",
        "A=b",
        "SHELL=/bin/fish\n",
    ),
]


@pytest.mark.parametrize("seed", range(500))
def test_any_text_is_converted_and_what_comes_out_is_accepted(seed: int, tmp_path: Path) -> None:
    """Whatever the crontab holds: no error, a schedule that loads, and each job either in it or among the remarks."""
    chance = random.Random(seed)
    joint = chance.choice(["", " ", "\t"])
    text = joint.join(chance.choices(PIECES, k=chance.randrange(1, 120)))
    conversion = converted(text, system=chance.random() < 0.5)
    assert conversion.left_out == sum("left out: " in remark.text for remark in conversion.remarks)
    assert not re.search(r"[\n\0\x1b]", "".join(map(str, conversion.remarks)))
    if conversion.toml:
        assert len(loaded(conversion, tmp_path).jobs) == sum("named " in remark.text for remark in conversion.remarks)
