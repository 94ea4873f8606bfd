"""`check`, `explain` and `import`: what a schedule, an expression or a crontab says. None of them needs the ledger."""

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from cronledger import check
from cronledger.cli.explaining import explain
from cronledger.cli.opening import find_schedule
from cronledger.cli.parameters import AsJson, SchedulePath, start_of
from cronledger.cli.tables import print_json, put, tell
from cronledger.errors import Mistake, ScheduleRefused, UsageError
from cronledger.events import harmless, one_line
from cronledger.ledger import dsn
from cronledger.masking import without_credentials
from cronledger.schedule import Schedule, load
from cronledger.schedule.source import Source


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("check")(check_schedule)
    app.command()(explain)
    app.command("import")(import_crontab)


def check_schedule(
    context: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when there are warnings.")] = False,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CODE", help="Leave out warnings of this code; repeatable.")
    ] = None,
    schedule: SchedulePath = None,
    json: AsJson = False,
) -> None:
    """Look for mistakes in the schedule, without the ledger.

    Without its environment too: for CI of the deploy repository.

    Exit status: 2 with mistakes, which stand on stderr; else 0, and with --strict 1 when there are warnings.

    \b
    Examples:
        cronledger check
        cronledger check --strict --allow no-namespace --schedule deploy/schedule.toml
    """
    allowed = _known(allow or [])
    path = find_schedule(schedule)
    try:
        read = load(path)
        _check_dsn(path, read)
    except ScheduleRefused as refused:
        if json:
            mistakes = [_mistake(one) for one in refused.mistakes]
            print_json({"schedule": without_credentials(path), "mistakes": mistakes, "warnings": []})
        raise
    found = [one for one in check.warnings(read, start_of(context).wall) if one.code not in allowed]
    if json:
        print_json({"schedule": path, "mistakes": [], "warnings": [asdict(one) for one in found]})
    else:
        put("\n".join(_lines(path, found)) if found else _good(path, read))
    raise typer.Exit(1 if strict and found else 0)


def _check_dsn(path: str, schedule: Schedule) -> None:
    """Raises ScheduleRefused for a DSN that is malformed whatever the environment holds."""
    if schedule.dsn is None or "${" in schedule.dsn:
        return
    try:
        dsn.parse(schedule.dsn, schedule.folder)
    except dsn.Malformed as malformed:
        source = Source(path, {})
        source.mistake(("ledger", "dsn"), malformed.wrong, malformed.instead)
        source.refuse_mistakes()


def _known(allow: list[str]) -> set[str]:
    if unknown := sorted(set(allow) - set(check.TEXTS)):
        raise UsageError(f"--allow {unknown[0]}: no warning has this code; the codes are {', '.join(check.TEXTS)}")
    return set(allow)


def _lines(path: str, found: Iterable[check.CheckWarning]) -> list[str]:
    def place(one: check.CheckWarning) -> str:
        return (f"{path}:{one.line}" if one.line else path) + (f": job {one.job}" if one.job else "")

    return [one_line(f"{place(one)}: warning {one.code}: {one.text}") for one in found]


def _good(path: str, schedule: Schedule) -> str:
    count = len(schedule.jobs)
    disabled = sum(not job.enabled for job in schedule.jobs)
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    return f"{path}: no mistakes, no warnings; {jobs}" + (f", {disabled:,} of them disabled" if disabled else "")


def _mistake(mistake: Mistake) -> dict[str, object]:
    texts = {key: without_credentials(getattr(mistake, key)) for key in ("job", "key", "wrong", "instead")}
    return {"line": mistake.line, **texts}


def import_crontab(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The crontab; - or nothing for stdin.")] = None,
    system: Annotated[
        bool, typer.Option("--system", help="A user stands before each command, as in /etc/crontab and /etc/cron.d.")
    ] = False,
) -> None:
    """Turn a crontab into a schedule on stdout.

    What could not be carried over stands on stderr, with its line. Exit status: 1 if a job was left out.

    \b
    Examples:
        crontab -l | cronledger import > schedule.toml
        cronledger import --system /etc/cron.d/app > schedule.toml
    """
    from cronledger.crontab import convert

    conversion = convert(_crontab(file), system=system, source="stdin" if file in (None, "-") else file)
    for remark in conversion.remarks:
        tell(str(remark))
    if conversion.toml:
        toml = conversion.toml.removesuffix("\n")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as TOML is, whatever the locale
            toml = harmless(toml) if sys.stdout.isatty() else toml
        put(toml)
    raise typer.Exit(1 if conversion.left_out or not conversion.toml else 0)


def _crontab(file: str | None) -> str:
    """The crontab's text; what is not UTF-8 is left to the reader as lone surrogates. Raises UsageError."""
    if file is None and os.isatty(0):
        raise UsageError("import reads a crontab: name a file, or type: crontab -l | cronledger import > schedule.toml")
    named = 0 if file is None or file == "-" else file
    try:
        with open(named, "rb", closefd=named != 0) as source:
            return source.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"{file or 'stdin'}: {error.strerror}; name a crontab that you may read") from None
