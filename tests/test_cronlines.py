"""A crontab line by line: read as cron reads it, and what cannot be kept is said with its line and the repair."""

import pytest

from cronledger.crontab.lines import Reading


def read(text: str) -> Reading:
    reading = Reading("crontab", system=False)
    reading.read(text)
    return reading


def remarks(text: str) -> str:
    return "\n".join(map(str, read(text).remarks))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        (" A = b c ", "b c"),
        ("A=' b '", " b "),
        ('"A"="b"', "b"),
        ("A=", ""),
        ("A=$B", "$B"),
        ("A=b # c", "b # c"),
        ("A=it's", "it's"),
    ],
)
def test_assignments_are_read_as_cron_reads_them(line: str, value: str) -> None:
    """Blanks around = and value go, matching quotes go, nothing is expanded."""
    assert read(f"{line}\n* * * * * x\n").entries[0].settings == {"A": value}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("MAILTO=ops", "crontab:1: MAILTO is not carried over: mail is not sent"),
        ('MAILTO=""', "crontab:1: MAILTO is not carried over: a tick prints a line for each run"),
        ('MAILTO=""x', "crontab:1: MAILTO is not carried over: it has an open quote or text after the closing one"),
        ("MAILTO=root HOME=/", "set HOME on a line of its own"),
        ("RANDOM_DELAY=5", "crontab:1: RANDOM_DELAY is not carried over: jobs now start within their minute"),
        ("CRON_TZ=Mars/Phobos", 'unknown time zone "Mars/Phobos"'),
        ("CRON_TZ=", "it is empty, so the jobs below it are due by the node's clock"),
        ("CRON_TZ=Asia/Tokyo", "due by the clock of Asia/Tokyo, as with cronie; Debian's cron ignores CRON_TZ"),
        ("TZ=UTC", "TZ is the zone of what the commands print"),
        ("SHELL=/bin/bash↲", "SHELL is '/bin/bash↲', which is hardly the path of a shell"),
        ("SHELL=", "SHELL is not carried over: it names no shell"),
        ("A-B=c", "a variable's name is made of letters, digits and _"),
        ("CRONLEDGER_DSN=sqlite:///x", "keep it in the crontab, above the line of `cronledger tick`"),
        ("DB_PASSWORD=x", "DB_PASSWORD looks like a secret: move it to the schedule's env_file"),
        ("HOME=here", "HOME is 'here', which is no absolute path"),
        (f"A={'x' * 200_000}", "A is not carried over: it is longer than the 128 KiB"),
        ("* * * * * cronledger tick", "crontab:1: runs `cronledger tick`: no job"),
        ("* * * * * cd /srv; /opt/bin/cronledger tick --quiet", "the one line that stays in the crontab"),
        ("0 0 * * * a \\", "crontab:1: ends in a backslash: cron knows no continuation"),
        ("0 0 * * * a\x02", "the command holds control characters"),
        (r"0 0 * * * a\\b", r"cron reads \\ in a command as \, so it is written that way now"),
        ("0 0 * * * cat%x", "crontab:1: what stands after the first % is the command's input"),
        ("0 0 * * * a\r", "crontab: its lines end in CRLF"),
    ],
)
def test_what_changes_is_said_with_its_line(line: str, said: str) -> None:
    """Whatever is carried over differently, or not at all, is a remark; no job is left out for it."""
    reading = read(f"{line}\n5 4 * * * other\n")
    assert said in remarks(f"{line}\n5 4 * * * other\n")
    assert reading.left_out == 0
    assert reading.entries[-1].command == "other"


@pytest.mark.parametrize(
    ("command", "is_said"),
    [(r"a\\b%x", True), (r"\%\\%x", True), (r"cat%\n\\x%", False), (r"a\%b\c%\\", False), (r"a\b", False)],
)
def test_two_backslashes_are_told_of_the_command_only(command: str, is_said: bool) -> None:
    """In its input they are left alone, by cron as here."""
    assert (r"cron reads \\ in a command" in remarks(f"0 6 * * * {command}\n")) is is_said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("@reboot x", "@reboot is no time; keep the line in the crontab, or make it a service"),
        ("0/5 * * * * x", 'minute "0/5" puts a step on a single value; write "0-59/5"'),
        ("0 30 * * * x", 'hour "30" is out of range 0-23'),
        ("0~5 * * * * x", 'minute "0~5" uses ~'),
        (
            "-*/5 * * * * x",
            "the - before '*/5 * * * *' (it keeps cronie from logging) is no part of the time; remove it",
        ),
        ("@every_minute x", 'unknown macro "@every_minute"'),
        ("0 0 31 2 * x", "'0 0 31 2 *' is never due"),
        ("true > /dev/null", "'true > /dev/null' is neither five fields and a command nor NAME=VALUE"),
        ("0 0 * * *", "'0 0 * * *' is followed by no command"),
        ("@daily", "'@daily' is followed by no command"),
        ("0 0 * * * %x", "nothing stands before the first %"),
        ("0 0 * * * a\0b", "the line holds a NUL character"),
        ("0 0 * * * caf\udce9", "the line is not UTF-8"),
        (f"0 0 * * * {'x' * 131_072}", "the command is longer than the 128 KiB that Linux starts"),
    ],
)
def test_a_job_that_cannot_be_kept_is_left_out_with_the_repair(line: str, why: str) -> None:
    """Its line, what is wrong and what to do are said; the other jobs are carried over."""
    reading = read(f"5 4 * * * other\n{line}\n")
    assert len(reading.remarks) == reading.left_out == 1
    assert str(reading.remarks[0]).startswith(f"crontab:2: left out: {why}")
    assert [entry.command for entry in reading.entries] == ["other"]


@pytest.mark.parametrize("line", ["A=b", 'A="-v B=c"', "PATH=/bin:/usr/bin", "# A=b C=d", "HOME=/srv", "* * * * * x"])
def test_what_changes_nothing_is_not_remarked_on(line: str) -> None:
    """A crontab that is carried over as it stands is read in silence."""
    assert remarks(f"{line}\n5 4 * * * other\n") == ""


def test_a_continued_line_is_told_from_a_mistyped_one() -> None:
    """What follows a backslash at the end of a line is said to belong to it."""
    assert "crontab:2: left out" in remarks("0 0 * * * a \\\n  --b\n")
    assert "join it to the line above" in remarks("0 0 * * * a \\\n  --b\n")


def test_a_last_line_without_newline_counts() -> None:
    """cron ignores it, so that it is carried over and said."""
    assert read("0 0 * * * x").entries[0].command == "x"
    assert "crontab:1: the file ends without a newline" in remarks("0 0 * * * x")
    assert "newline" not in remarks("0 0 * * * x\n# end")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("a >/dev/null 2>&1", "/dev/null"),
        ("a >> /dev/null", "/dev/null"),
        ("a &>/dev/null &", "/dev/null"),
        ("(a; b 2> /dev/null)", "/dev/null"),
        ("flock -n /run/a.lock a", "flock"),
        ("cd /srv && /usr/bin/flock -w 10 /run/a.lock a", "flock"),
        ("flock -n /run/a.lock a >/dev/null 2>&1", "/dev/null flock"),
        ("which a >/dev/null && a", ""),
        ("a </dev/null", ""),
        ("unflock a", ""),
    ],
)
def test_what_cron_needed_and_the_ledger_does_is_said_once(command: str, said: str) -> None:
    """Output thrown away would be kept, an overlap is prevented; the command stays what it was."""
    reading = read(f"5 4 * * * {command}\n")
    texts = [remark.text for remark in reading.remarks]
    assert [word for text in texts for word in ("/dev/null", "flock") if word in text] == said.split()
    assert len(texts) == len(said.split())
    assert reading.entries[0].command == command


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    """An editor's mark at the start changes nothing."""
    assert read("\ufeff0 0 * * * x\n").entries[0].expression == "0 0 * * *"


@pytest.mark.parametrize(
    ("comment", "description"),
    [
        ("# Rotate the logs\n#   of today.", "Rotate the logs of today."),
        ("#### Backups ####", "Backups"),
        ("# gone\n\n# stays", "stays"),
        ("# before\n# 0 5 * * 1 tar zcf x\n# after", "after"),
        ("# 0 5 * * 1 tar zcf x", ""),
        ("#*/5 * * * * x", ""),
        ("#@daily x", ""),
        ("# MAILTO=ops", ""),
        ("# m h  dom mon dow   command", ""),
        ("# .---------- minute (0 - 59)\n# | .-------- hour (0 - 23)\n# * * * * * user command", ""),
        ("# ---------", ""),
        ("#", ""),
        ("# far\n", ""),
        ("# caf\udce9", ""),
    ],
)
def test_a_comment_in_words_right_above_a_job_describes_it(comment: str, description: str) -> None:
    """Prose becomes the description; jobs commented out, drawings and heads of tables do not."""
    first, second = read(f"{comment}\n0 1 * * * x\n0 2 * * * y\n").entries
    assert first.description == description
    assert second.description == ""
