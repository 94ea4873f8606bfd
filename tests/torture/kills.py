"""kill -9 at whatever moment: of the tick, of its command, of both. The next ticks of the node find out and say so."""

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from torture.conftest import Tally
from torture.cuts import points, runs
from torture.proxy import Proxy, Strike
from torture.stages import GUARDED, MINUTE, Stage, Stages, at_once

NEXT = "2026-01-05T10:01"
LIVES_ON = GUARDED + "sleep 0.4 9>&-"  # long enough to be found alive by the next ticks


@dataclass(frozen=True, slots=True)
class Moment:
    """Whom to kill, and what part of a whole tick's time after its start."""

    victims: str  # "tick", "command" or "both"
    part: float


def kill_at_random(stages: Stages, tally: Tally, times: int, seed: int) -> None:
    """So many ticks, each with a death at a moment of its own."""
    chance = random.Random(seed)
    lengths = [_length(stages.stage()) for _ in range(3)]
    each = [Moment(chance.choice(["tick", "tick", "command", "both"]), chance.uniform(0, 1.1)) for _ in range(times)]
    at_once(partial(_kill, stages, sorted(lengths)[1]), each, tally, width=8, slots=2)
    assert tally.inflicted == times, tally


def kill_at_every_chunk(stages: Stages, tally: Tally) -> None:
    """The tick killed when one of its chunks passes, which is delivered or not: each of its phases, and each gap."""
    each = [Strike(way, number, told) for way, number in points(stages, runs) for told in (False, True)]
    at_once(partial(_kill_at_chunk, stages), each, tally, slots=2)
    assert tally.inflicted >= len(each) - 8, (tally, len(each))


def _length(stage: Stage) -> float:
    """What a tick takes that nobody kills."""
    stage.write(LIVES_ON)
    begun = time.monotonic()
    assert stage.tick().status == 0, stage.said()
    return time.monotonic() - begun


def _kill(stages: Stages, length: float, moment: Moment) -> Stage:
    stage = stages.stage()
    stage.write(LIVES_ON)
    begun = time.monotonic()
    tick = stage.start()
    if moment.victims == "command":  # which is only there from some moment on
        stage.wait_for(lambda: stage.started, "the command began")
        time.sleep(moment.part * 0.4)
    else:
        time.sleep(max(0.0, begun + moment.part * length - time.monotonic()))
    if moment.victims != "command":
        tick.send(signal.SIGKILL)
    if moment.victims != "tick" and stage.started:
        _kill_command(stage)
    _survive(stage)
    return stage


def _kill_command(stage: Stage) -> None:
    """Unless it is over, and its pid perhaps another's."""
    with suppress(OSError):
        if os.readlink(f"/proc/{stage.pid}/cwd") == str(stage.folder):
            os.kill(stage.pid, signal.SIGKILL)


def _kill_at_chunk(stages: Stages, strike: Strike) -> Stage | None:
    stage = stages.stage()
    stage.write(LIVES_ON)
    with Proxy(stages.database.dsn, strike) as proxy:
        strike.do = partial(_kill_tick, stage)
        stage.start(dsn=proxy.dsn).wait()
    _survive(stage)
    return stage if strike.landed.is_set() else None


def _kill_tick(stage: Stage) -> None:
    stage.wait_for(lambda: stage.ticks, "its pid is known")
    stage.ticks[0].send(signal.SIGKILL)


def _survive(stage: Stage) -> None:
    """What must come of it: two ticks for the same slot, then one for the next, leave nothing in flight."""
    stage.ticks[0].wait()
    for rows, at, nodes in ((1, MINUTE, ("web1", "web2")), (2, NEXT, ("web1",))):
        ticks = [stage.start("--node", node, at=at) for node in nodes]
        assert all(one.wait().err == "" for one in ticks), stage.said()
        states = [state for (state,) in stage.rows("state")]
        assert (len(states), "running" in states) == (rows, False), stage.said()
    stage.wait_for(lambda: not stage.living(), "all have ended")
