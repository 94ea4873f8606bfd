"""A job's name, made from its command: the program that a reader would say the job is about."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable

MOST_CHARACTERS = 128

_MOST_WORDS = (
    64  # of a simple command that are looked at: whoever wraps a program deeper than that needs no name for it
)

# Programs that run another one: their options that take a value, and how many operands stand before the command.
_INTERPRETERS = {
    "sh": ("-o -O", 0),
    "bash": ("-o -O", 0),
    "dash": ("-o", 0),
    "ksh": ("-o", 0),
    "zsh": ("-o", 0),
    "python": ("-W -X", 0),
    "perl": ("-I -M", 0),
    "ruby": ("-I -r", 0),
    "php": ("-c -d", 0),
    "node": ("-r --require", 0),
    "java": ("-cp -classpath --class-path", 0),
}
_WRAPPERS = _INTERPRETERS | {
    "env": ("-u -C -S", 0),
    "nice": ("-n", 0),
    "ionice": ("-c -n", 0),
    "chrt": ("", 1),
    "taskset": ("", 1),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "exec": ("-a", 0),
    "time": ("-f -o", 0),
    "chronic": ("", 0),
    "cronic": ("", 0),
    "timeout": ("-k -s", 1),
    "flock": ("-w -E", 1),
    "sudo": ("-u -g -C -D -h -p -r -t", 0),
    "doas": ("-u -C", 0),
    "su": ("-s -g -G", 0),
    "runuser": ("-u -s -g -G", 0),
    "systemd-cat": ("-t -p", 0),
    "stdbuf": ("-i -o -e", 0),
    "chroot": ("", 1),
    "bundle": ("", 1),
    "npm": ("", 1),
}
_TAKES_A_COMMAND_LINE = re.compile(r"(sh|bash|dash|ksh|zsh|su|runuser|flock) -[a-z]*c")
_FRONT = re.compile(r"artisan|manage\.py|console|rake|rails|run-parts|make|yarn|composer|occ|drush|wp")
_PREAMBLE = re.compile(r"cd|for|case|test|\[\[?|:|\.|source|export|set|unset|umask|ulimit|sleep|pushd|eval")
_KEYWORD = re.compile(r"[{}!]|if|then|else|elif|fi|while|until|do|done")

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATORS = frozenset(";&|()")
_REDIRECTIONS = frozenset("<>")


def name_after(command: str) -> str:
    """The name of a job that runs `command`, within the grammar of job names; `job` when nothing in it can be one.

    Skips what only surrounds the work: `cd x &&`, tests, assignments, interpreters, `nice`, `flock`, `timeout`.
    """
    programs = [program for words in _simple_commands(command) if (program := _program(words[:_MOST_WORDS]))]
    telling = [program for program in programs if not _PREAMBLE.fullmatch(program)]
    return _grammatical(next(iter(telling or programs), ""))


def unique(names: Iterable[str]) -> list[str]:
    """`names` in their order, a later equal one (whatever its case) with `-2`, `-3` after it."""
    taken: set[str] = set()
    seen: Counter[str] = Counter()
    told_apart = []
    for name in names:
        candidate = name
        while candidate.lower() in taken:
            seen[name.lower()] += 1
            suffix = f"-{seen[name.lower()] + 1}"
            candidate = name[: MOST_CHARACTERS - len(suffix)] + suffix
        taken.add(candidate.lower())
        told_apart.append(candidate)
    return told_apart


def _simple_commands(command: str) -> list[list[str]]:
    """The words of each simple command of a shell's command line, without redirections."""
    commands: list[list[str]] = [[]]
    words = iter(_words(command))
    for word in words:
        if word and _OPERATORS.issuperset(word):
            commands.append([])
        elif _REDIRECTIONS.intersection(word[:1]):
            next(words, None)
        else:
            commands[-1].append(word)
    return commands


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # an open quote: the shell will complain, a name is made all the same
        return command.split()


def _program(words: list[str]) -> str:
    """The program that the simple command `words` is about; "" for none."""
    while words and (_KEYWORD.fullmatch(words[0]) or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words:
        return ""
    program = _basename(words[0])
    wrapper = re.sub(r"[\d.]+$", "", program)
    if wrapper in _WRAPPERS:
        return _wrapped(wrapper, words[1:]) or program
    if _FRONT.fullmatch(program):
        return next((_basename(word) for word in words[1:] if not word.startswith("-")), program)
    return program


def _wrapped(wrapper: str, words: list[str]) -> str:
    """The program that `wrapper` runs when it is given `words`; "" when they name none."""
    with_value, operands = _WRAPPERS[wrapper]
    while words:
        word, words = words[0], words[1:]
        if _TAKES_A_COMMAND_LINE.fullmatch(f"{wrapper} {word}"):
            return name_after(words[0]) if words else ""
        if word in with_value.split():
            words = words[1:]
        elif word.startswith("-") and word != "--":
            continue
        elif operands:
            operands -= 1
        elif word != "--":
            return _program([word, *words])
    return ""


def _basename(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _grammatical(text: str) -> str:
    """`text` without a program's usual extension, cut down to what a job's name may hold."""
    stem = re.sub(r"(?<=.)\.(sh|bash|py|pl|rb|php|phar|js|jar)$", "", text)
    name = re.sub(r"[^A-Za-z0-9._:/-]+", "-", stem).strip("-").lstrip("._:/-")
    return name[:MOST_CHARACTERS] or "job"
