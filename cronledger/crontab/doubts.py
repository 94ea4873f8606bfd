"""What is carried over from a crontab and yet deserves a look."""

import re

_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|(^|_)KEY$", re.IGNORECASE)
_SECRET_URL = re.compile(r"://[^/\s]*:[^/\s]*@")
_THROWN_AWAY = re.compile(r"(\d?|&)>[>&|]?\s*/dev/null(\s*\d>\s*&\s*\d)*[\s;)&]*$")
_DOUBLED = re.compile(r"(\\[^\\]|[^\\%])*\\\\")  # before the % that ends the command
_FLOCK = re.compile(r"(^|[\s;&|(/])flock\s")


def of_setting(name: str, value: str) -> str:
    """What somebody should look at in a variable that was carried over; "" for nothing."""
    if name == "CRON_TZ":
        return f"the jobs below it are due by the clock of {value}, as with cronie; Debian's cron ignores CRON_TZ"
    if name == "TZ":
        return "TZ is the zone of what the commands print, not of the jobs' times, with cron as here; CRON_TZ is that"
    if name == "SHELL" and not (value.isascii() and value.startswith("/")):
        return f"SHELL is {value!r}, which is hardly the path of a shell: a job cannot start until `shell` names one"
    if name == "HOME" and not value.startswith("/"):
        return f"HOME is {value!r}, which is no absolute path: the commands see it, but do not start there"
    if _SECRET_NAME.search(name) or _SECRET_URL.search(value):
        return f"{name} looks like a secret: move it to the schedule's env_file before others read the schedule"
    return ""


def of_command(written: str, command: str, stdin: tuple[str, ...]) -> list[str]:
    """What somebody should look at in a command that was carried over."""
    found = []
    if stdin:
        found.append(
            "what stands after the first % is the command's input: it comes from printf now, look at the command"
        )
    if _DOUBLED.match(written):
        found.append(r"cron reads \\ in a command as \, so it is written that way now")
    if written.endswith("\\"):
        found.append("ends in a backslash: cron knows no continuation, the command ends here; write it on one line")
    if re.search(r"[\x01-\x08\x0a-\x1f\x7f]", command):
        found.append("the command holds control characters: carried over as they are")
    if _THROWN_AWAY.search(command):
        found.append(
            "what it prints still goes to /dev/null: without that redirection the ledger keeps it when the run failed,"
            " and the tick's line ends with its last words"
        )
    if _FLOCK.search(command):
        found.append(
            "flock is carried over as it is: the ledger already keeps a job from running beside its own previous run,"
            " on all nodes, and `lock` keeps jobs apart that share something"
        )
    return found
