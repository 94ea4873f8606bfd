"""The tally of all that was inflicted, printed at the end: doubles, lost track of and left running must be 0."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import pytest


@dataclass(slots=True)
class Tally:
    """One fault on one database. `lost` counts runs of which neither row nor line says how they ended.

    `slowed`: by how many seconds the slowest tick amid the fault took longer than the slowest before it, if measured.
    """

    fault: str
    database: str
    inflicted: int = 0
    expected: int = 0
    seen: int = 0
    doubles: int = 0
    lost: int = 0
    running: int = 0
    slowed: float | None = None

    def holds(self) -> None:
        """Fail the test unless nothing ran twice, nothing was lost track of, and no row is left running."""
        assert (self.doubles, self.lost, self.running) == (0, 0, 0), self
        assert self.seen <= self.expected, self
        assert self.inflicted > 0, self


TALLY = "tally"
TITLES = ("fault", "database", "inflicted", "expected", "seen", "doubles", "lost track of", "left running", "slowed by")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """The tally of this test; named after its first words, kept whatever comes of it."""
    database = request.node.callspec.id if hasattr(request.node, "callspec") else ""
    row = Tally((request.function.__doc__ or request.node.name).strip().splitlines()[0].rstrip("."), database)
    yield row
    request.node.user_properties.append((TALLY, astuple(row)))  # so that it comes from other processes, too


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for some in terminalreporter.stats.values() for one in some if isinstance(one, pytest.TestReport)]
    ended = sorted((one for one in reports if one.when == "teardown"), key=lambda report: report.nodeid)
    tallies = [row for report in ended for name, row in report.user_properties if name == TALLY]
    if not tallies:
        return
    rows = [TITLES, *(tuple(map(_cell, row)) for row in tallies)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    for row in rows:
        cells = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        terminalreporter.write_line("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.2f} s" if isinstance(value, float) else str(value)
