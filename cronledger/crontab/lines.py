"""What a crontab says, line by line: its jobs, each with the settings that hold for it, and what cannot be kept.

Rules: crontab(5) of Debian's cron and, for CRON_TZ and RANDOM_DELAY, of cronie; `%` as in do_command.c of Vixie cron.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cronledger import cron
from cronledger.crontab.doubts import of_command, of_setting
from cronledger.events import one_line
from cronledger.schedule.zones import zone

MOST_BYTES = 131_071  # of one argument or variable: MAX_ARG_STRLEN of execve(2), without its NUL

_NOT_CARRIED_OVER = {
    "MAILTO": "mail is not sent by cronledger: a tick prints failures, which cron mails to the MAILTO of its own line",
    "MAILFROM": "mail is not sent by cronledger: set it above the line of `cronledger tick`",
    "CONTENT_TYPE": "mail is not sent by cronledger: set it above the line of `cronledger tick`",
    "CONTENT_TRANSFER_ENCODING": "mail is not sent by cronledger: set it above the line of `cronledger tick`",
    "RANDOM_DELAY": "jobs now start within their minute: spread their minutes by hand",
    "LOGNAME": "cron ignores it and gives each job its own user's name",
}
_SILENT = (
    'a tick prints a line for each run: report = "problems" under [defaults] keeps those that succeed silent, and'
    " MAILTO belongs to the tick's own line"
)

_BLANKS = " \t"
_ASSIGNMENT = re.compile(r"""("[^"=]*"|'[^'=]*'|[^\s"'=][^\s=]*)\s*=\s*(.*)""", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z0-9_][^\s\x00-\x1f\x7f/<>|&;()'\"`$=*]*\$?")
_TICK = re.compile(r"""(^|[\s/;&|("'])cronledger["']?\s+tick($|[\s;&|)"'])""")
_LIKE_A_FIELD = re.compile(r"[\d*][\d*,/-]*|[A-Za-z]{3}(-[A-Za-z]{3})?")
_HEAD_OF_A_TABLE = re.compile(r"(^|\s)(dom|dow|day-of-month|day-of-week)(\s|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Remark:
    """What the reader of the schedule should know of a line of the crontab; `line` 0 is the file as a whole."""

    source: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return one_line(f"{place}: {self.text}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One job of a crontab. `settings` are the variables that hold for it, SHELL and a known CRON_TZ among them.

    `stdin` has the lines that cron would have fed to the command; `user` is "" without a user column.
    """

    line: int
    expression: str
    user: str
    command: str
    stdin: tuple[str, ...]
    settings: Mapping[str, str]
    description: str


@dataclass(slots=True)
class Reading:
    """A crontab being read: what was found so far."""

    source: str
    system: bool
    entries: list[Entry] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    left_out: int = 0
    _settings: dict[str, str] = field(default_factory=dict)
    _comment: list[str] = field(default_factory=list)
    _continues: bool = False

    def read(self, text: str) -> None:
        """Reads a whole crontab; a byte that was not UTF-8 is a lone surrogate in `text`."""
        lines = text.removeprefix("\ufeff").split("\n")
        if any(line.endswith("\r") for line in lines):
            self.remark(0, "its lines end in CRLF, where cron takes the CR as part of the command: read without the CR")
        for number, line in enumerate(lines, 1):
            self._line(number, line.removesuffix("\r").strip(_BLANKS))
        if (last := lines[-1].strip()) and not last.startswith("#"):
            self.remark(len(lines), "the file ends without a newline: cron ignores such a line or file, here it counts")

    def remark(self, line: int, text: str) -> None:
        """Adds what somebody should know of `line`."""
        self.remarks.append(Remark(self.source, line, text))

    def leave_out(self, line: int, why: str) -> None:
        """Counts a job that cannot be carried over, and says why and what to do."""
        self.left_out += 1
        self.remark(line, f"left out: {why}")

    def _line(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self._remember(line)
            return
        if not line:
            self._comment.clear()
            self._continues = False
        elif broken := _broken(line):
            self.leave_out(number, f"the line {broken}: write it anew")
        elif assignment := _ASSIGNMENT.fullmatch(line):
            self._assign(number, assignment[1].strip("\"'"), assignment[2])
        else:
            self._job(number, line)
        self._comment.clear()

    def _remember(self, comment: str) -> None:
        """Keeps a comment that may describe the next job; anything else ends what was kept."""
        words = comment.lstrip("#").strip(_BLANKS)
        bare = words.strip(_BLANKS + "#=-_*~")
        if _is_prose(words, bare):
            self._comment.append(bare)
        else:
            self._comment.clear()

    def _assign(self, number: int, name: str, written: str) -> None:
        value = _unquoted(written)
        if value is None:
            wrong = "it has an open quote or text after the closing one, which cron refuses"
            self.remark(number, f'{name} is not carried over: {wrong}; write {name}="value"')
            return
        if value == written and (second := re.search(r"\s([A-Za-z_]\w*)=", written)):
            self.remark(number, f"{name} is {value!r} for cron too: set {second[1]} on a line of its own")
        if refusal := _refusal(name, value):
            self.remark(number, f"{name} is not carried over: {refusal}")
            self._settings.pop(name, None)
            return
        self._settings[name] = value
        if doubt := of_setting(name, value):
            self.remark(number, doubt)

    def _job(self, number: int, line: str) -> None:
        after_backslash, self._continues = self._continues, line.endswith("\\")
        fields = 1 if line.startswith("@") else 5
        words = re.split(f"[{_BLANKS}]+", line, maxsplit=fields + self.system)
        expression, rest = " ".join(words[:fields]), words[fields:]
        if wrong := _wrong_schedule(words[:fields], fields):
            joined = "; cron knows no continuation: join it to the line above" if after_backslash else ""
            self.leave_out(number, wrong + joined)
        elif len(rest) <= self.system:
            self.leave_out(
                number, f"{expression!r} is followed by no {'user and command' if self.system else 'command'}"
            )
        elif self.system and not _USER.fullmatch(rest[0]):
            hint = "import a user's own crontab without --system"
            self.leave_out(number, f"{rest[0]!r} stands in the user column and is no user's name; {hint}")
        else:
            self._carry_over(number, expression, rest[0] if self.system else "", rest[-1])

    def _carry_over(self, number: int, expression: str, user: str, written: str) -> None:
        if _TICK.search(written):
            self.remark(number, "runs `cronledger tick`: no job, but the one line that stays in the crontab")
            return
        command, stdin = taken_apart(written)
        if not command.strip():
            self.leave_out(
                number, "nothing stands before the first %, which ends the command; write \\% for a percent sign"
            )
            return
        if len(command.encode()) > MOST_BYTES:
            self.leave_out(number, "the command is longer than the 128 KiB that Linux starts; move it into a script")
            return
        for doubt in of_command(written, command, stdin):
            self.remark(number, doubt)
        described = one_line(" ".join(self._comment))
        self.entries.append(Entry(number, expression, user, command, stdin, dict(self._settings), described))


def taken_apart(written: str) -> tuple[str, tuple[str, ...]]:
    r"""The command of a crontab line, and the lines of its standard input.

    In the command `\%` is `%` and `\\` is `\`; the first other `%` ends it, and each further one ends a line of input.
    """
    marks = re.finditer(r"\\.|%", written, re.DOTALL)
    end = next((mark.start() for mark in marks if mark[0] == "%"), len(written))
    lines = re.split(r"(?<!\\)%", written[end + 1 :])
    if not lines[-1]:
        lines.pop()
    return re.sub(r"\\([\\%])", r"\1", written[:end]), tuple(line.replace(r"\%", "%") for line in lines)


def _broken(line: str) -> str:
    if "\0" in line:
        return "holds a NUL character"
    return "is not UTF-8" if any("\ud800" <= character <= "\udfff" for character in line) else ""


def _is_prose(words: str, bare: str) -> bool:
    """Whether a comment says something in words: no job or variable commented out, no drawing, no head of a table."""
    if _broken(words) or _ASSIGNMENT.fullmatch(words) or _looks_like_a_job(words):
        return False
    if re.search(r"[|│]|---|──", bare) or _HEAD_OF_A_TABLE.search(bare):
        return False
    return re.search(r"[^\W\d_]{2}", bare) is not None


def _looks_like_a_job(words: str) -> bool:
    fields = words.split()[:5]
    return words.startswith("@") or (len(fields) == 5 and all(map(_LIKE_A_FIELD.fullmatch, fields)))


def _unquoted(written: str) -> str | None:
    """The value of an assignment, or None where its quotes do not match."""
    if written[:1] not in ("'", '"'):
        return written
    return written[1:-1] if len(written) > 1 and written.find(written[0], 1) == len(written) - 1 else None


def _refusal(name: str, value: str) -> str:
    if name == "MAILTO" and not value:
        return _SILENT
    if name in _NOT_CARRIED_OVER:
        return _NOT_CARRIED_OVER[name]
    if name.startswith("CRONLEDGER_"):
        return "it is for the tick: keep it in the crontab, above the line of `cronledger tick`"
    if name == "CRON_TZ":
        return _unknown_zone(value)
    if name == "SHELL" and not value:
        return "it names no shell; the jobs below it run by /bin/sh"
    if not _VARIABLE.fullmatch(name):
        return "a variable's name is made of letters, digits and _; set it in the command"
    if len(f"{name}={value}".encode()) > MOST_BYTES:
        return "it is longer than the 128 KiB that Linux passes to a program"
    return ""


def _unknown_zone(name: str) -> str:
    if not name:
        return "it is empty, so the jobs below it are due by the node's clock"
    try:
        zone(name)
    except cron.Refused as refused:
        return f"{refused}; the jobs below it are due by the node's clock until their `timezone` says another"
    return ""


def _wrong_schedule(words: list[str], fields: int) -> str:
    """Why the first words of a line are no schedule that can be kept, and what to write; "" when they are one."""
    expression = " ".join(words)
    if len(words) < fields:
        return f"{expression!r} is neither five fields and a command nor NAME=VALUE; write one of them"
    if expression.lower() == "@reboot":
        return "@reboot is no time; keep the line in the crontab, or make it a service of the machine"
    if expression.startswith("-"):
        return f"the - before {expression[1:]!r} (it keeps cronie from logging) is no part of the time; remove it"
    try:
        never = cron.parse(expression).never
    except cron.CronError as refused:
        return str(refused)
    return f"{expression!r} is never due, since no year has such a day; write another day" if never else ""
