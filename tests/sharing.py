"""Nodes that tick at the same second, and how what was due divided among them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ticks import run_batches

NODES = ("web1", "web2", "web3")
HEAD = 'timezone = "UTC"\nnamespace = "share"\n'
JOB = '[[job]]\nname = "{}"\ncron = "* * * * *"\ncommand = ["true"]\n'


def shared(
    folder: Path,
    dsn: str,
    sql: Callable[[str], list[tuple[object, ...]]],
    env: dict[str, str],
    *,
    rounds: int,
    jobs: int,
    nodes: Sequence[str] = NODES,
    late: Sequence[float] = (),
) -> dict[str, int]:
    """How many of `rounds` times `jobs` runs each node had, whose ticks of a round begin `late` by so many seconds.

    In a first round, which does not count, the nodes get to know each other. Fails when a slot has no run, or two.
    """
    batches = []
    for number in range(rounds + 1):
        path = folder / f"round{number}.toml"
        names = [f"job:{number}:{job}" for job in range(jobs)] if number else ["first"]
        path.write_text(HEAD + "".join(JOB.format(name) for name in names))
        batches.append([["--schedule", str(path), "--dsn", dsn, "--node", node] for node in nodes])
    ended = [tick for batch in run_batches(batches, env, late=late) for tick in batch]
    assert {(status, err) for status, _, err in ended} == {(0, "")}, ended
    rows = sql("SELECT job, due_at, node FROM cronledger_runs WHERE job LIKE 'job:%'")
    assert len({job for job, _, _ in rows}) == rounds * jobs
    assert len({(job, due_at) for job, due_at, _ in rows}) == len(rows)
    return {node: sum(row[2] == node for row in rows) for node in nodes}
