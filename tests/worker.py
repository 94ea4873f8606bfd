"""`cronledger work` as a process of its own, whose clock the test sets, so that a minute need not last one.

python tests/worker.py CLOCK ARGUMENTS   work by the real time and the seconds that the file CLOCK has to add
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import machine


class Worker:
    """One of them, in `folder`, which may go on; what it says goes to files. `prefix` is put before its command."""

    def __init__(self, folder: Path, env: Mapping[str, str], *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        number = len(list(folder.glob("clock.*")))
        self._clock, self._out, self._err = (folder / f"{name}.{number}" for name in ("clock", "out", "err"))
        self._ahead = 0.0
        self._set()
        command = [*prefix, sys.executable, __file__, str(self._clock), *arguments]
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def now(self) -> datetime:
        """What its clock shows."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    @property
    def minute(self) -> datetime:
        """The minute that its clock shows."""
        return self.now.replace(second=0, microsecond=0)

    @property
    def out(self) -> list[str]:
        """The lines that it printed."""
        return self._out.read_text().splitlines()

    @property
    def err(self) -> list[str]:
        """Those of stderr."""
        return self._err.read_text().splitlines()

    def set_clock(self, seconds: float) -> None:
        """Set its clock forward by so many seconds, or back."""
        self._ahead += seconds
        self._set()

    def next_minute(self, before: float = 0.0) -> datetime:
        """Set its clock to so many seconds before the next minute, which is returned."""
        minute = self.minute + timedelta(minutes=1)
        self.set_clock((minute - self.now).total_seconds() - before)
        return minute

    def pass_time(self, until: float) -> None:
        """Wait until its clock shows so many seconds since the epoch."""
        time.sleep(max(0.0, until - self.now.timestamp()))

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(timeout)

    def ends(self) -> tuple[int, list[str]]:
        """The same, and what it said on stderr but for slots that a signal made it leave to others."""
        status = self.wait()
        return status, [line for line in self.err if not line.startswith("cronledger: ended by SIG")]

    def says(self, text: str, times: int = 1) -> None:
        """Wait until so many lines of stderr have this text in them."""
        machine.wait_for(lambda: sum(text in line for line in self.err) >= times, 60, f"{text!a}, not {self.err}")

    def _set(self) -> None:
        new = self._clock.with_suffix(".new")
        new.write_text(str(self._ahead))
        os.replace(new, self._clock)


def main(clock: str, *arguments: str) -> int:
    """The program."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from cronledger import ledger
    from cronledger.cli import working
    from cronledger.cli.options import WORK, read_plainly
    from cronledger.clock import elapsed

    def wall() -> tuple[datetime, float]:
        return datetime.fromtimestamp(time.time() + float(Path(clock).read_text()), UTC), elapsed()

    ledger.SKEW_LIMIT = timedelta.max
    working.wall = wall
    values = read_plainly(list(arguments), WORK)
    assert values is not None, arguments
    return working.work(values)


def one_minute(values: dict[str, str | bool]) -> int:
    """`work` in place of a tick with these options: of the minute of --at, or the present one, and of no other."""
    from cronledger import ledger
    from cronledger.cli import working
    from cronledger.clock import elapsed
    from cronledger.runner import Runner
    from cronledger.work import Work

    class Resting(Runner):
        """One that lets go of its connection as a tick does, which some tests wait for."""

        def __init__(self, *given: Any, stays: bool, **named: Any) -> None:
            super().__init__(*given, **named)

    class Once(Work):
        @property
        def _is_over(self) -> bool:
            is_done = self._last is not None and (self._tick is None or self._tick.next_at == math.inf)
            return is_done or super()._is_over

    at = values.pop("at", "")
    minute = datetime.fromisoformat(str(at)) if at else datetime.now(UTC)
    shift = minute.replace(tzinfo=minute.tzinfo or UTC) - datetime.now(UTC)
    working.wall = lambda: (datetime.now(UTC) + shift, elapsed())
    working.Work, working.Runner = Once, Resting  # type: ignore[misc]
    ledger.SKEW_LIMIT = timedelta.max
    return working.work(values)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
