"""More ticks at once than the ledger likes."""

import sqlite3
import time
from contextlib import ExitStack, closing

from torture.scene import Scene, at_once
from torture.stalled import own, setting, tried


def few_connections(scene: Scene, left: int, ticks: int, times: int) -> None:
    """So many ticks at once, and the server has only `left` connections to give."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(4)))
    with ExitStack() as taken:
        if scene.database.kind != "postgres":
            taken.enter_context(setting(own(scene), "max_connections", "10"))
        others = []
        while (another := tried(scene)) is not None:
            others.append(another)
        for other in others[left:]:
            taken.callback(other.close)
        for other in others[:left]:
            other.close()
        ended = []
        for back in range(times, 0, -1):
            ended += at_once([lambda node=node, back=back: scene.tick(f"web{node}", back) for node in range(ticks)])
    scene.count(*ended, inflicted=len(ended))


def many_ticks_and_jobs(scene: Scene, ticks: int, jobs: int) -> None:
    """So many ticks at once, with that many jobs due: each runs once."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(jobs)))
    ended = scene.batches([(f"web{node}", 1) for node in range(ticks)])
    assert {(tick.status, tick.err) for tick in ended} == {(0, "")}, ended
    assert len(scene.wrote()) == jobs
    scene.count(*ended, inflicted=ticks)


def busy_file(scene: Scene, ticks: int, times: int, locked: float) -> None:
    """So many ticks of an SQLite ledger at once, while another process has it locked for `locked` seconds."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(4)))
    ended = []
    for back in range(times, 0, -1):
        with closing(sqlite3.connect(scene.dsn.removeprefix("sqlite:///"), isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            ticking = [scene.tick(f"web{node}", back) for node in range(ticks)]
            time.sleep(locked)
        ended += [tick.wait() for tick in ticking]
    assert {(tick.status, tick.err) for tick in ended} == {(0, "")}, ended
    assert len(scene.wrote()) == 4 * times
    scene.count(*ended, inflicted=len(ended))
