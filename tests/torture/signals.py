"""TERM, INT and HUP to a tick in each of its phases: it ends, its runs with it, and says what became of them."""

import os
import random
import signal
import time
from dataclasses import dataclass
from functools import partial
from itertools import cycle, product

from torture.conftest import Tally
from torture.cuts import adopts, points, runs
from torture.forks import Ended
from torture.kills import NEXT
from torture.proxy import Direction, Proxy, Strike
from torture.sessions import blocked, session
from torture.stages import FOR_EVER, GUARDED, SHORT, UNTIL_GO, Stage, Stages, account, at_once

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEAVER = "trap 'echo signalled >>signalled' TERM INT HUP; echo >left; while sleep 0.1; do :; done"

# Each is what a command does beside waiting for its end; the last leaves something that lives on.
MANNERS = {
    "plain": "",
    "ignores it": "trap '' TERM INT HUP; ",
    "forks twice": "(sleep 300 9>&- &) ; ",
    "leaves its group": f'setsid sh -c "{LEAVER}" 9>&- & while [ ! -e left ]; do sleep 0.02 9>&-; done; ',
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal, and what part of a whole tick's time after its start."""

    signum: signal.Signals
    part: float


def signal_at_random(stages: Stages, tally: Tally, times: int, seed: int) -> None:
    """Whole ticks, with all their imports, each signalled at a moment of its own; their commands never end.

    Not INT, to which Python itself answers with a traceback until the program's first line.
    """
    chance, stage = random.Random(seed), stages.stage()
    stage.write(SHORT)
    begun = time.monotonic()
    assert stage.spawn().wait().status == 0, stage.said()
    length = time.monotonic() - begun
    each = [Sent(SIGNALS[number % 2 * 2], chance.uniform(0.2, 1.6)) for number in range(times)]
    at_once(partial(_signal, stages, length), each, tally, width=3)


def _signal(stages: Stages, length: float, sent: Sent) -> Stage:
    stage = stages.stage()
    stage.write(FOR_EVER)
    tick = stage.spawn()
    time.sleep(sent.part * length)
    tick.send(sent.signum)
    _ended_by(stage, tick.wait(), sent.signum)
    return stage


def signal_at_every_chunk(stages: Stages, tally: Tally, *, mute: bool, every: int = 1) -> None:
    """The signal comes with a chunk, or is sent while nothing comes any more: connecting, claiming, settling."""
    ways: list[tuple[Direction, int]] = [(way, number) for way, number in points(stages, runs)]
    each = [
        (Strike(*one, True, "mute" if mute else "go on"), signum)
        for one, signum in zip(ways, cycle(SIGNALS), strict=False)
    ]
    at_once(partial(_signal_at_chunk, stages), each[::every], tally, width=len(each) if mute else 8)
    assert tally.inflicted >= len(each[::every]) // 2, (tally, len(each))


def _signal_at_chunk(stages: Stages, pair: tuple[Strike, signal.Signals]) -> Stage | None:
    strike, signum = pair
    stage = stages.stage()
    stage.write(FOR_EVER)
    with Proxy(stages.database.dsn, strike) as proxy:
        tick = stage.start(dsn=proxy.dsn)
        stage.wait_for(lambda: strike.landed.is_set() or stage.started, "it comes so far")
        tick.send(signum)
        try:
            _ended_by(stage, tick.wait(), signum)
        except AssertionError as error:
            raise AssertionError(f"{signum.name}, {strike}: {error}") from error
    return stage if strike.landed.is_set() else None


def signal_while_adopting(stages: Stages, tally: Tally, *, last: int = 0) -> None:
    """The signal comes with a chunk to a tick that adopts a run which never ends: it ends that, or leaves it alone.

    `last`: only with the last so many answers of the database.
    """
    ways = points(stages, adopts)[-last:]
    each = [*zip([Strike(*one, True, "go on") for one in ways], cycle(SIGNALS), strict=False)]
    at_once(partial(_signal_while_adopting, stages), each, tally)
    assert tally.inflicted >= len(each) // 2, (tally, len(each))


def _signal_while_adopting(stages: Stages, pair: tuple[Strike, signal.Signals]) -> Stage | None:
    strike, signum = pair
    stage = stages.stage()
    stage.orphan(FOR_EVER)
    stage.write(None)
    before = stage.rows("owner")
    with Proxy(stages.database.dsn, strike) as proxy:
        strike.do = partial(_send, stage, signum)
        tick = stage.start(dsn=proxy.dsn)
        stage.wait_for(lambda: strike.landed.is_set() or stage.rows("owner") != before, "it comes so far")
        tick.send(signum)
        ended = tick.wait()
    assert ended.status in (1, -signum), stage.said()
    if stage.rows("state") == [("running",)]:
        assert stage.living(), stage.said()
        os.killpg(stage.pid, signal.SIGKILL)
    stage.wait_for(lambda: not stage.living(), "all have ended")
    assert stage.tick().err == "", stage.said()
    return stage if strike.landed.is_set() else None


def _send(stage: Stage, signum: signal.Signals) -> None:
    stage.wait_for(lambda: len(stage.ticks) == 2, "its pid is known")
    stage.ticks[1].send(signum)


def _ended_by(stage: Stage, ended: Ended, signum: signal.Signals) -> None:
    """Nothing lives, nothing is running or a line of the tick says so and the next one finds it; nothing twice."""
    stage.wait_for(lambda: not stage.living(), "all have ended")
    rows = stage.rows("state, failure_reason")
    assert ended.status in (1, -signum), stage.said()
    if ended.status == -signum:  # before it had anything to end
        assert (rows, ended.out) == ([], ""), stage.said()
    elif not rows:
        assert f"ended by {signum.name}; not claimed here: job" in ended.err or "unreachable" in ended.err, stage.said()
    stage.write(None)
    after = stage.tick()
    assert after.err == "", stage.said()
    told = [event for one in (ended, after) for event in one.events]
    assert [event["event"] for event in told] in ([], ["failed"], ["reaped"]), stage.said()
    assert len(told) == 1 or not stage.started, stage.said()
    assert all(state == "failed" for state, _ in stage.rows("state, failure_reason")), stage.said()


def signal_while_running(stages: Stages, tally: Tally, *, times: int = 1) -> None:
    """Each signal to a tick whose command is plain, ignores it, forks twice or leaves its group."""
    each = [*product(MANNERS, SIGNALS)] * times
    at_once(partial(_signal_while_running, stages), each, tally, width=12)


def _signal_while_running(stages: Stages, pair: tuple[str, signal.Signals]) -> Stage:
    manner, signum = pair
    stage = stages.stage()
    stage.write(GUARDED + MANNERS[manner] + "sleep 300 9>&-; true")
    tick = stage.start()
    stage.wait_for_pid()
    if manner == "leaves its group":
        stage.wait_for((stage.folder / "left").exists, "it has left")
    tick.send(signum)
    ended = tick.wait()
    [event] = ended.events
    assert event["reason"] == f"ended by {signum.name} to the tick", stage.said()
    assert (ended.status, ended.err) == (1, ""), stage.said()
    assert bool(stage.living()) == (manner == "leaves its group"), stage.said()
    assert not (stage.folder / "signalled").exists(), stage.said()
    return stage


def signal_while_claiming(stages: Stages, tally: Tally) -> None:
    """Another session holds the slot, uncommitted: the tick names what it did not claim, and takes nothing later."""
    for signum, commit in zip(SIGNALS, (True, False, True), strict=True):
        stage = stages.stage()
        stage.write(SHORT)
        stage.tick()
        with session(stage) as holder:
            holder.cursor().execute(
                f"UPDATE cronledger_runs SET due_at = {stage.utc(f'{NEXT[:10]} {NEXT[11:]}:00')}"
                f" WHERE namespace = '{stage.namespace}'"
            )
            tick = stage.start(at=NEXT)
            stage.wait_for(partial(blocked, stage), "it waits")
            tick.send(signum)
            ended = tick.wait()
            holder.commit() if commit else holder.rollback()
        assert ended.status == 1, stage.said()
        assert ended.err.endswith("not claimed here: job\n"), stage.said()
        stage.write(None)
        assert stage.tick().err == "", stage.said()
        assert {state for (state,) in stage.rows("state")} <= {"completed", "failed"}, stage.said()
        account(stage, tally)


def signal_while_settling(stages: Stages, tally: Tally) -> None:
    """The database is gone when the command ended: the tick names what it cannot record, and the next one reaps it."""
    for signum in SIGNALS:
        stage = stages.stage()
        stage.write(UNTIL_GO)
        with Proxy(stages.database.dsn) as proxy:
            tick = stage.start(dsn=proxy.dsn)
            stage.wait_for_pid()
            proxy.refuse()
            stage.go()
            stage.wait_for(lambda proxy=proxy: proxy.refused, "it tries")
            tick.send(signum)
            ended = tick.wait()
        assert (ended.status, "not recorded: the end of job" in ended.err) == (1, True), stage.said()
        stage.write(None)
        assert [event["event"] for event in stage.tick().events] == ["reaped"], stage.said()
        account_for_lost_end(stage, tally)


def account_for_lost_end(stage: Stage, tally: Tally) -> None:
    """As `account`, for an end that is told by the tick that could not record it, and by the one that reaped it."""
    stage.ticks[:] = stage.ticks[1:]
    account(stage, tally)
