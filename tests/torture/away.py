"""The database goes away, and comes back."""

import time

from torture.scene import Scene


def goes_away(scene: Scene, seconds: float, jobs: int) -> None:
    """For so long, while that many jobs run: half of them end meanwhile, half afterwards, and another tick starts."""
    ends = ("early", "late")
    scene.write("schedule.toml", *(scene.job(f"j{n}", scene.until(ends[n % 2])) for n in range(jobs)))
    scene.write("other.toml", *(scene.job(f"other{n}") for n in range(5)))
    runs = scene.tick("web1", 5)
    scene.wait_for_pids(jobs)
    scene.gate.shut()
    gone = time.monotonic()
    scene.touch("early")
    other = scene.tick("web2", 4, "other.toml")
    if seconds > 60:
        ended = other.wait()
        assert ended.named == ended.due, ended
    time.sleep(gone + seconds - time.monotonic())
    scene.gate.open()
    scene.touch("late")
    ended, settled = other.wait(), runs.wait()
    assert (settled.status, settled.err) == (0, ""), settled
    assert len(settled.events) == jobs
    again = scene.tick("web3", 4, "other.toml").wait()
    assert (again.status, again.err) == (0, ""), again
    scene.count(ended, settled, again)
