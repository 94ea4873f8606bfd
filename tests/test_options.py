"""The plain way and typer's way into `tick` and `work` take the same options."""

import pytest
import typer

from cronledger.cli.options import TICK, WORK, Option, read_plainly


@pytest.mark.parametrize(("name", "table"), [("tick", TICK), ("work", WORK)])
def test_the_table_and_typer_hold_the_same_options(name: str, table: tuple[Option, ...]) -> None:
    """Every option of the table is in `--help` with the same help and kind, and no other."""
    from cronledger.cli.app import app

    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option.opts[0]: (option.is_flag, option.metavar) for option in command.params}
    known.pop("--help", None)  # typer's own, where it is listed
    assert known == {f"--{option.name}": (not option.metavar, option.metavar or None) for option in table}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["--quiet", "--json"], {"quiet": True, "json": True}),
        (["--schedule", "a.toml", "--at=2026-01-01T00:00"], {"schedule": "a.toml", "at": "2026-01-01T00:00"}),
        (["--dsn=postgresql://a:b=c@d/e"], {"dsn": "postgresql://a:b=c@d/e"}),
        (["--node="], {"node": ""}),
    ],
)
def test_plain_options_are_read(words: list[str], values: dict[str, object]) -> None:
    """With a blank or an equals sign, in any order."""
    assert read_plainly(words, TICK) == values


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-q"],
        ["--quite"],
        ["extra"],
        ["--quiet=yes"],
        ["--quiet", "--quiet"],
        ["--schedule"],
        ["--schedule", "--quiet"],
        ["--"],
    ],
)
def test_anything_else_is_left_to_typer(words: list[str]) -> None:
    """Help, abbreviations, wrong usage: not for the plain way."""
    assert read_plainly(words, TICK) is None
