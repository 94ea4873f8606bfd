"""The connection cut, gone silent at a chunk of a tick, or slow: each scenario ends as if nothing had happened."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Literal

from torture.conftest import Tally
from torture.forks import Ended
from torture.proxy import Direction, Proxy, Strike, no_strike
from torture.stages import GUARDED, SHORT, UNTIL_GO, Stage, Stages, account, at_once

Scenario = Callable[[Stage, Proxy, Strike], None]


def runs(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A job is due: it runs once, and both line and row say so; another node comes for the slot meanwhile."""
    stage.write(SHORT)
    proxy.arm(strike)
    tick = stage.start(dsn=proxy.dsn)
    rival = stage.start("--node", "web2")
    said = [event["event"] for one in (tick, rival) for event in one.wait().events]
    assert said == ["ran"], stage.said()
    assert [one.wait().err for one in (tick, rival)] == ["", ""], stage.said()
    assert stage.rows("state") == [("completed",)], stage.said()
    assert len(stage.started) == 1, stage.said()


def reaps(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A run is past its window: it is reaped, and exactly one line says so."""
    stage.write(SHORT)
    stage.tick()
    stage.ticks.clear()
    started, over = stage.instant(-7200), stage.instant(-10)
    stage.change(
        f"state = 'running', active_job = 'job', owner = 'elsewhere', started_at = {started}, expires_at = {over}"
    )
    stage.write(None)
    proxy.arm(strike)
    _once(stage, stage.tick(dsn=proxy.dsn), "reaped")
    assert [state for (state,) in stage.rows("state")] == ["failed"], stage.said()


def adopts(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A tick was killed, and its command lives: it is adopted, waited for and settled, and exactly one line says so."""
    stage.orphan(UNTIL_GO)
    before = stage.rows("owner")
    stage.write(None)
    proxy.arm(strike)
    tick = stage.start(dsn=proxy.dsn)
    stage.wait_for(lambda: strike.landed.is_set() or stage.rows("owner") != before, "it is adopted, or the line cut")
    if strike.and_then == "mute":  # and is noticed much later
        stage.wait_for(lambda: stage.rows("owner") != before, "it is adopted")
    stage.go()
    ended = tick.wait()
    [event] = [one["event"] for one in ended.events]
    # If the command ended while the connection was made anew, it is just dead.
    assert (event, ended.err) in (("failed", ""), ("reaped", "")), stage.said()
    assert [state for (state,) in stage.rows("state")] == ["failed"], stage.said()


def stands_down(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A run goes on elsewhere: the job stands down, and exactly one of two ticks says so for each slot."""
    stage.wait_for(lambda: datetime.now(UTC).second < 50, "time enough within this minute")
    stage.write(SHORT)
    stage.tick()
    stage.change(f"state = 'running', active_job = 'job', owner = 'elsewhere', expires_at = {stage.instant(900)}")
    stage.ticks.clear()
    proxy.arm(strike)
    first = stage.tick(dsn=proxy.dsn, at=None)
    second = stage.tick("--node", "web2", at=None)
    slots = [(event["event"], event["due_at"]) for one in (first, second) for event in one.events]
    assert 1 <= len(slots) == len(set(slots)), stage.said()
    assert {event for event, _ in slots} == {"stood_down"}, stage.said()
    assert (first.err, second.err) == ("", ""), stage.said()
    assert len(stage.started) == 1, stage.said()
    stage.change("state = 'completed', active_job = NULL")


def settles(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A long command ended: the tick, which held no connection meanwhile, comes back and records it."""
    stage.write(UNTIL_GO)
    tick = stage.start(dsn=proxy.dsn)
    stage.wait_for(lambda: stage.started and proxy.is_idle, "it rests")
    proxy.arm(strike)
    stage.go()
    _once(stage, tick.wait(), "ran")
    assert stage.rows("state") == [("completed",)], stage.said()


def tells(stage: Stage, proxy: Proxy, strike: Strike) -> None:
    """A run fails, and owes a notice: it is told once, by its own tick or by the next one, and none is left."""
    stage.write(GUARDED + "exit 3", 'on_failure = "echo $CRONLEDGER_RUN_ID >>told"')
    proxy.arm(strike)
    tick = stage.start(dsn=proxy.dsn)
    _once(stage, tick.wait(), "failed")
    assert (stage.tick("--node", "web2").out, stage.tick().out) == ("", ""), stage.said()
    assert (stage.folder / "told").read_text().split() == [run for _, run, _ in stage.started], stage.said()
    assert not stage.rows("id", "(notice IS NULL OR notice = 'owed')"), stage.said()


def settles_unanswered(stages: Stages, tally: Tally) -> None:
    """The settling UPDATE took effect, and nothing more is heard on the line: the run was recorded, and ran well."""
    stage = stages.stage()
    stage.write(UNTIL_GO)
    with Proxy(stages.database.dsn) as proxy:
        tick = stage.start(dsn=proxy.dsn)
        stage.wait_for_pid()
        proxy.arm(Strike("up", 1, True, "mute"))
        stage.go()
        _once(stage, tick.wait(), "ran")
        assert proxy.strike.landed.is_set(), stage.said()
    assert stage.rows("state") == [("completed",)], stage.said()
    account(stage, tally)


def _once(stage: Stage, ended: Ended, event: str) -> None:
    assert ([one["event"] for one in ended.events], ended.err) == ([event], ""), stage.said()


SCENARIOS: dict[str, Scenario] = {each.__name__: each for each in (runs, reaps, adopts, stands_down, settles, tells)}


def points(stages: Stages, scenario: Scenario) -> list[tuple[Direction, int]]:
    """Each chunk of the scenario, learned from one in which nothing happens to it."""
    with Proxy(stages.database.dsn) as proxy:
        scenario(stages.stage(), proxy, no_strike())
        counts = proxy.counts
    assert min(counts.values()) >= 3, counts
    return [(way, number) for way in ("up", "down") for number in range(1, counts[way] + 1)]


def cut_everywhere(stages: Stages, name: str, tally: Tally) -> None:
    """The scenario once for every chunk, delivered or not; then one more tick, on a sound connection."""
    each = _everywhere(stages, SCENARIOS[name], "cut")
    at_once(partial(_cut, stages), each, tally, width=24 if name == "settles" else 8)
    # Several chunks can come as one.
    assert tally.inflicted >= len(each) * 3 // 4, (tally, len(each))


def mute_everywhere(stages: Stages, tally: Tally) -> None:
    """To run, to reap and to adopt, mute from every second chunk on: all at once, for each takes many seconds."""
    each = [pair for scenario in (runs, reaps, adopts) for pair in _everywhere(stages, scenario, "mute")[::2]]
    at_once(partial(_cut, stages), each, tally, width=len(each))
    assert tally.inflicted >= len(each) * 3 // 4, (tally, len(each))


def _everywhere(stages: Stages, scenario: Scenario, and_then: Literal["cut", "mute"]) -> list[tuple[Scenario, Strike]]:
    """At each chunk twice: delivered and not, in an order that has both among every second."""
    chunks = [(way, number, told) for told in (False, True) for way, number in points(stages, scenario)]
    return [(scenario, Strike(*one, and_then)) for one in chunks]


def cut_here_and_there(stages: Stages, tally: Tally) -> None:
    """All scenarios, each at a few chunks: on the way in, and of what it is about."""
    few: list[tuple[Direction, int, bool]] = [("down", 3, True), ("up", 8, True), ("down", 8, False), ("up", 9, True)]
    each = [(scenario, Strike(*one)) for scenario in SCENARIOS.values() for one in few]
    at_once(partial(_cut, stages), each, tally, width=len(each))
    assert tally.inflicted >= len(each) // 2, (tally, len(each))


def _cut(stages: Stages, pair: tuple[Scenario, Strike]) -> Stage | None:
    scenario, strike = pair
    stage = stages.stage()
    with Proxy(stages.database.dsn) as proxy:
        try:
            scenario(stage, proxy, strike)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{scenario.__name__}, {strike}: {error}") from error
    after = stage.tick()
    unexpected = [event for event in after.events if event["event"] != "ran"]
    assert (unexpected, after.err) == ([], ""), f"{strike}: {stage.said()}"
    return stage if strike.landed.is_set() else None


def answers_come_late(stages: Stages, tally: Tally, delays: Sequence[float]) -> None:
    """All scenarios, each answer of the database so many seconds late."""
    at_once(partial(_late, stages), product(SCENARIOS.values(), delays), tally, width=2 * len(SCENARIOS))


def _late(stages: Stages, pair: tuple[Scenario, float]) -> Stage:
    scenario, delay = pair
    stage = stages.stage()
    with Proxy(stages.database.dsn, delay=delay) as proxy:
        scenario(stage, proxy, no_strike())
    return stage


def answers_come_too_late(stages: Stages, tally: Tally) -> None:
    """Each answer later than a tick waits for one: it gives up, names what was due, and nothing runs, then or later."""
    stage = stages.stage()
    stage.write(SHORT)
    with Proxy(stages.database.dsn, delay=6.0) as proxy:
        ended = stage.tick(dsn=proxy.dsn)
    assert (ended.status, ended.out, stage.started, stage.rows("state")) == (1, "", [], []), stage.said()
    assert ended.err.startswith("cronledger: ledger unreachable ("), stage.said()
    assert ended.err.endswith("; not claimed here: job\n"), stage.said()
    account(stage, tally)
