"""Prune of very many rows while ticks go on."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from unittest.mock import patch

import fill
import recorded
from servers import OwnServer

from torture.scene import Ended, Scene, at_once
from torture.stalled import setting

OLD = datetime.now(UTC) - timedelta(days=100)
OVER = {"started_at": OLD, "finished_at": OLD + timedelta(seconds=9), "namespace": "app"}


@contextmanager
def roomy(scene: Scene) -> Iterator[None]:
    """More memory for a MariaDB of our own, without which its indexes make all this several times slower."""
    if scene.database.kind != "mariadb" or not isinstance(scene.database.server, OwnServer):
        yield
        return
    with setting(scene.database.server, "innodb_buffer_pool_size", str(512 << 20)):
        yield


def pruned(scene: Scene, batches: int, batch: int, nodes: int, idle: int) -> None:
    """Of `batches` of `batch` runs go all that are older than a day, but for the newest of a job; and nothing else.

    The nodes tick `idle` times beforehand, so that it can be told how much longer the slowest takes meanwhile.
    """
    digits = fill._DIGITS if batch == fill.BATCH else f"{fill._DIGITS} WHERE d4.n = 0 AND d3.n = 0"
    with patch.multiple(fill, BATCHES=batches, BATCH=batch, _DIGITS=digits):
        fill.fill(scene.database.kind, "app", scene.database.sql)
    recorded.record(scene.database, 1, "old:only", **OVER)
    far = datetime.now(UTC) + timedelta(days=2)
    recorded.running(scene.database, 2, "old:running", started_at=OLD, expires_at=far, namespace="app", owner="")
    scene.write("schedule.toml", scene.job("a"), scene.job("b"))
    minutes = count()
    quiet = [_tick(scene, nodes, next(minutes)) for _ in range(idle)]
    before = {str(run_id): (str(job), finished_at) for run_id, job, finished_at in scene.rows("id, job, finished_at")}
    prune = scene.start("prune", "--older-than", "1d", "--json")
    amid = [_tick(scene, nodes, next(minutes)) for _ in range(5)]
    while prune.poll() is None:
        amid.append(_tick(scene, nodes, next(minutes)))
    scene.tally.slowed = max(seconds for seconds, _ in amid) - max(seconds for seconds, _ in quiet)
    ended = [tick for _, ticks in (*quiet, *amid) for tick in ticks]
    out, err = prune.communicate()
    assert (prune.returncode, err) == (0, "")
    assert {(tick.status, tick.err) for tick in ended} == {(0, "")}, ended
    after = {str(run_id) for (run_id,) in scene.rows("id")}
    finished_before = datetime.fromisoformat(json.loads(out)["finished_before"])
    kept = {run_id for run_id, (job, finished_at) in before.items() if spared(job, finished_at, finished_before)}
    assert before.keys() & after == kept
    assert json.loads(out)["deleted"] == len(before) - len(kept) > 0
    scene.database.sql("DELETE FROM cronledger_runs WHERE job = 'old:running'")
    scene.count(*ended, inflicted=len(before) - len(kept))


def _tick(scene: Scene, nodes: int, back: int) -> tuple[float, list[Ended]]:
    """Ticks of all nodes at once, and how many seconds the slowest of them took."""
    begun = time.monotonic()
    ended = at_once([lambda node=node: scene.tick(f"web{node}", back) for node in range(nodes)])
    return time.monotonic() - begun, ended


def spared(job: str, finished_at: object, finished_before: datetime) -> bool:
    """Whether prune must leave it: it is running, the newest of its job, or young."""
    if job in ("old:only", "old:running"):
        return True
    moment = datetime.fromisoformat(str(finished_at))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) >= finished_before
