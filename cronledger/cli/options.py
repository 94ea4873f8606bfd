"""The options of a plain `tick` or `work`, once: read here without typer, and by typer for help and wrong usage."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """`--name`; without a `metavar` it is a flag. `variable`: the environment variable that stands in for it."""

    name: str
    help: str
    metavar: str = ""
    variable: str = ""


SCHEDULE = Option("schedule", "The schedule file; else ./schedule.toml.", "PATH", "CRONLEDGER_SCHEDULE")
DSN = Option(
    "dsn",
    "The ledger's database; else [ledger] dsn of the schedule. Better there: all users see a command line.",
    "DSN",
    "CRONLEDGER_DSN",
)
NODE = Option("node", "This node's name; else its host name.", "NAME", "CRONLEDGER_NODE")
JSON = Option("json", "Print JSON: an object per line.")
QUIET = Option("quiet", "Leave out the lines of jobs that ran.")
AT = Option(
    "at",
    "A minute in place of now (ISO 8601; without an offset in the schedule's zone): makes up a missed slot, once.",
    "TIME",
)
DRY_RUN = Option("dry-run", "Claim nothing; say what would happen and why.")

GRACE = Option(
    "grace",
    "How long a command that runs may go on after TERM, INT or HUP before it is ended; 7s by default, 0 for ever.",
    "DURATION",
)
MAX_RUNTIME = Option(
    "max-runtime", "Claim nothing more after so long, and exit 0 when all that runs is over.", "DURATION"
)

TICK = (SCHEDULE, DSN, NODE, QUIET, JSON, AT, DRY_RUN)
WORK = (SCHEDULE, DSN, NODE, QUIET, JSON, GRACE, MAX_RUNTIME)


def read_plainly(arguments: list[str], options: tuple[Option, ...]) -> dict[str, str | bool] | None:
    """The values of `options` in `arguments`; None for anything that is not plain: typer then says what is wrong."""
    known = {f"--{option.name}": option for option in options}
    values: dict[str, str | bool] = {}
    rest = list(arguments)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        option = known.get(word)
        if option is None or option.name in values or (equals and not option.metavar):
            return None
        if not option.metavar:
            values[option.name] = True
        elif equals or (rest and not rest[0].startswith("-")):
            values[option.name] = value if equals else rest.pop(0)
        else:
            return None
    return values
