"""Ticks go on while a standby takes the place of its primary, or while a node of a cluster dies."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from machine import wait_for

from torture.cluster import Cluster
from torture.scene import Ended, Scene
from torture.standby import Pair

JOBS = 3


def fails_over(scene: Scene, pair: Pair, times: int, nodes: int, minutes: int) -> None:
    """Each time amid the ticks of many nodes and minutes, and while a long run goes on; then all are ticked again."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(JOBS)))
    ended: list[Ended] = []
    for time in range(times):
        scene.write("slow.toml", scene.job("slow", scene.until(f"go{time}")))
        runs = scene.tick("web1", time, "slow.toml")
        scene.wait_for_pids(1)
        backs = range((time + 1) * minutes, time * minutes, -1)
        batches = [[(f"web{node}", back) for node in range(nodes)] for back in backs]
        wrote = len(scene.wrote())
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(scene.batches, *batches)
            wait_for(lambda wrote=wrote: len(scene.wrote()) > wrote + JOBS * minutes // 3, 120, "a third has run")
            pair.fail_over()
            scene.touch(f"go{time}")
            ended += [*going.result(), runs.wait()]
        ended += scene.batches(*batches)
        if time + 1 < times:
            pair.renew()
            scene.database = pair.database
            scene.dsn = scene.database.dsn
    assert not runs.wait().err
    count_forgotten(scene, ended, inflicted=times)


def cut_off(scene: Scene, pair: Pair, minutes: int) -> None:
    """The standby gets nothing any more, claims go on, the primary is killed: what it alone knew is forgotten."""
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(JOBS)))
    scene.write("slow.toml", scene.job("slow", scene.until("go")))
    ended = scene.batches(*([("web1", back)] for back in range(2 * minutes, minutes, -1)))
    followed = pair.primary.sql("SELECT pg_current_wal_lsn()::text")[0][0]
    replayed = f"SELECT pg_last_wal_replay_lsn() >= '{followed}'"
    wait_for(lambda: pair.standby.sql(replayed) == [(True,)], 60, "the standby has all so far")
    pair.standby.cut_off()
    known = len(scene.wrote())
    ended += scene.batches(*([("web1", back)] for back in range(minutes, 0, -1)))
    runs = scene.tick("web1", 1, "slow.toml")
    scene.wait_for_pids(1)
    pair.fail_over()
    scene.touch("go")
    ended.append(runs.wait())
    assert "after its row had gone from the ledger" in ended[-1].out
    ended += scene.batches(*([("web2", back)] for back in range(2 * minutes, 0, -1)))
    assert len(scene.wrote()) == known + 2 * JOBS * minutes + 1
    assert count_forgotten(scene, ended, inflicted=1) == JOBS * minutes + 1


def frozen_standby(scene: Scene, pair: Pair) -> None:
    """A commit waits for a standby that says nothing: the claim is not known, until the next tick finds its row."""
    pair.standby.pause()
    unknown = scene.tick("web1", 2).wait()
    assert (unknown.status, unknown.named, scene.wrote()) == (1, unknown.due, []), unknown
    pair.standby.resume()
    later = scene.tick("web1", 1).wait()
    assert [event["event"] for event in later.events] == ["reaped", "ran"], later
    scene.count(unknown, later, scene.tick("web2", 2).wait())


def count_forgotten(scene: Scene, ended: list[Ended], *, inflicted: int) -> int:
    """Count, where a slot whose acknowledged row is gone may have run again; returns how many rows are gone."""
    wrote = scene.wrote()
    rows = {str(run_id): str(state) for run_id, state in scene.rows("id, state")}
    gone = [(job, due_at) for job, due_at, run_id in wrote if run_id not in rows]
    lines = {event["run_id"] for tick in ended for event in tick.events}
    tally = scene.tally
    tally.inflicted += inflicted
    tally.expected += len({slot for tick in ended for slot in tick.due}) + len(gone)
    tally.seen += len(wrote)
    tally.doubles += sum((Counter((job, due_at) for job, due_at, _ in wrote) - Counter(gone)).values()) - len(
        {(job, due_at) for job, due_at, run_id in wrote if run_id in rows}
    )
    tally.lost += sum(run_id not in lines or rows.get(run_id) == "running" for _, _, run_id in wrote)
    tally.lost += len({slot for tick in ended for slot in tick.due} - {(job, due_at) for job, due_at, _ in wrote})
    tally.running += sum(state == "running" for state in rows.values())
    return len(gone)


def loses_a_node(scene: Scene, cluster: Cluster, nodes: int, minutes: int) -> None:
    """Nodes tick on both at once; midway one of them is killed, and the rest go on at the other one.

    A tick whose only way to the ledger died with a run of its own would go on trying to record it: it is told to end.
    """
    scene.write("schedule.toml", *(scene.job(f"j{number}") for number in range(JOBS)))
    dsns = [cluster.dsn(scene.database.dsn, number) for number in range(2)]
    ended: list[Ended] = []
    for back in range(minutes, minutes // 2, -1):
        both = [scene.arguments(f"web{node}", back, dsn=dsns[node % 2]) for node in range(nodes)]
        ended += scene.forked([both], [back] * nodes)
    wrote = len(scene.wrote())
    ticking = [scene.tick(f"web{node}", minutes // 2, dsn=dsns[node % 2]) for node in range(nodes)]
    wait_for(lambda: len(scene.wrote()) > wrote, 60, "one has claimed")
    cluster.kill()
    unable = scene.tick("web1", minutes // 2 - 1, dsn=dsns[1]).wait()
    assert unable.named == unable.due, unable
    for tick in ticking:
        tick.process.terminate()
    ended += [unable, *(tick.wait() for tick in ticking)]
    ended += scene.batches(*([(f"web{node}", back) for node in range(nodes)] for back in range(minutes, 0, -1)))
    scene.count(*ended)
