"""Many ticks at once, each a real process: forked from one that has imported all, so that hundreds take seconds.

    python tests/ticks.py   reads one JSON document from stdin and prints one

Input: {"batches": [[TICK, …], …]}; the ticks of a batch run at once, the batches one after the other. A TICK is a list
of `cronledger tick` arguments. Output: for each batch, for each tick, [exit status, stdout, stderr].
`"window"`: seconds that replace every job's stale_after, which a schedule cannot make shorter than a minute.
`"second"`: of the minute, at which the ticks take the node's clock to be; it is put off by less than 30 s for that.
`"late"`: the seconds by which each tick of a batch begins late; those that it does not name begin at once.
`"notice"`: seconds that replace the minute that a notice may take.

CRONLEDGER_TEST_BY=work lets `cronledger work` do each of them, see worker.one_minute; "mixed" every other process.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import zip_longest

import worker

BY = "CRONLEDGER_TEST_BY"
Tick = list[str]
Ended = tuple[int, str, str]


def run_batches(
    batches: list[list[Tick]],
    env: dict[str, str],
    window: float | None = None,
    second: float | None = None,
    notice: float | None = None,
    by: str | None = None,
    late: Sequence[float] = (),
) -> list[list[Ended]]:
    """The same, from a test: starts this file as a program with `env`."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps({"batches": batches, "window": window, "second": second, "notice": notice, "late": late}),
        env=done_by(env, by),
        text=True,
        capture_output=True,
        check=True,
    )
    return [[(status, out, err) for status, out, err in batch] for batch in json.loads(done.stdout)]


def done_by(env: Mapping[str, str], by: str | None) -> dict[str, str]:
    """`env` for ticks that are done by "tick", by "work" or "mixed"; else as CRONLEDGER_TEST_BY of the tests says."""
    return {**env, BY: by or os.environ.get(BY, "tick")}


def main() -> None:
    asked = json.load(sys.stdin)
    import cronledger.cli.tick
    import cronledger.cli.working
    import cronledger.flight
    import cronledger.ledger.mysql
    import cronledger.ledger.postgres
    import cronledger.ledger.sqlite
    import cronledger.notices

    cronledger.notices.WITHIN = asked["notice"] or cronledger.notices.WITHIN
    shorten(stale_after=asked["window"])
    json.dump([list(_at_once(batch, asked["second"], asked["late"])) for batch in asked["batches"]], sys.stdout)


def shorten(**seconds: float | None) -> None:
    """Seconds in place of these keys of each job, which a schedule cannot make shorter than a minute."""
    from cronledger.cli import opening, tick, working

    shorter = {key: timedelta(seconds=value) for key, value in seconds.items() if value is not None}

    def load(path: str) -> object:
        schedule = opening.load_for_work(path)
        return replace(schedule, jobs=tuple(replace(job, **shorter) for job in schedule.jobs))

    if shorter:
        tick.load_for_work = working.load_for_work = load  # type: ignore[assignment]
        if running := sys.modules.get("cronledger.cli.running"):
            running.load_for_work = load  # type: ignore[attr-defined]


def _at_once(batch: list[Tick], second: float | None, late: list[float]) -> Iterator[Ended]:
    ready, go = os.pipe()
    started = [_fork(arguments, ready, go, second, wait) for arguments, wait in zip_longest(batch, late[: len(batch)])]
    os.close(ready)
    os.close(go)
    for pid, out, err in started:
        _, status = os.waitpid(pid, 0)
        yield os.waitstatus_to_exitcode(status), _read(out), _read(err)


def _fork(arguments: Tick, ready: int, go: int, second: float | None, late: float | None) -> tuple[int, int, int]:
    out, err = _temporary(), _temporary()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.dup2(out, 1)
        os.dup2(err, 2)
        select.select([ready], [], [])  # the parent's end closes when all are forked
        os.close(ready)
        time.sleep(late or 0)
        os._exit(_tick(arguments, second))
    return pid, out, err


def _tick(arguments: Tick, second: float | None = None) -> int:
    from cronledger.cli.options import TICK, read_plainly
    from cronledger.cli.tick import tick
    from cronledger.clock import elapsed

    values = read_plainly(arguments, TICK)
    assert values is not None, arguments
    with contextlib.suppress(SystemExit):
        if {"work": True, "mixed": os.getpid() % 2 == 0}.get(os.environ.get(BY, "tick")):
            return worker.one_minute(values)
        return tick(values, _at_second(time.time(), second), elapsed())
    return 99


def _at_second(wall: float, second: float | None) -> float:
    """The time nearest to `wall` with this second of a minute."""
    return wall if second is None else wall + (second - wall + 30) % 60 - 30


def _temporary() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    main()
