"""What is told of runs that are over: `on_failure` and `on_recovery`, once each, by whichever node takes the notice."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from cronledger.clock import elapsed
from cronledger.events import Trouble, utc
from cronledger.ledger import Ledger, Run
from cronledger.ledger.run import new_token
from cronledger.schedule import Job, Schedule

if TYPE_CHECKING:
    from cronledger.command import Commands, Outcome

WITHIN = 60.0
"""Seconds that a notice's command may take."""
AT_ONCE = 8
"""Notices that one process tells at the same time; the others are left to whoever has a hand free."""
PLACE_WITHIN = 30.0
"""Seconds for which a notice waits for a place on this node."""
FOREIGN_FOR = timedelta(hours=1)
"""How long what this node's schedule does not know, or this node cannot tell, is left to the others."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One that is owed for `run`. `job` says how to tell it; None where there is nothing to tell: it is only taken."""

    run: Run
    job: Job | None
    token: str
    since: float


def owes(schedule: Schedule, run: Run, state: str) -> bool:
    """Whether a run that ends in `state` owes a notice. One by hand does not: who started it sees how it ends."""
    job = _job(schedule, run)
    return run.cause != "manual" and job is not None and job.notice(state) is not None


def owed(schedule: Schedule, ledger: Ledger) -> list[Notice]:
    """The notices that nobody took yet and that are for this node to take. Raises LedgerError."""
    if not any(job.on_failure or job.on_recovery for job in schedule.jobs):
        return []
    from cronledger.ledger.notices import owing

    now, found = ledger.clock.now(), []
    for run in owing(ledger):
        job = _job(schedule, run)
        tells = job is not None and job.notice(run.state) is not None
        if tells or now - (run.finished_at or now) > FOREIGN_FOR:
            found.append(Notice(run, job if tells else None, new_token(), elapsed()))
    return found


def is_news(state: str, before: str | None, report: str) -> bool:
    """Whether this end of a run is worth a notice after one that ended as `before`: a change; by "all" each failure."""
    if state == "completed":
        return before == "failed"
    return report == "all" or before != "failed"


def _job(schedule: Schedule, run: Run) -> Job | None:
    return next((job for job in schedule.jobs if job.name == run.job), None)


class Notices:
    """The notices that this process takes and tells, through the `commands` of its runs."""

    def __init__(self, ledger: Ledger, commands: "Commands") -> None:
        self._ledger = ledger
        self._commands = commands
        self._waiting: dict[str, tuple[Notice, Mapping[str, str]]] = {}
        self._telling: dict[str, Notice] = {}
        self._stopping = False

    @property
    def is_busy(self) -> bool:
        """Whether one is being told, or still to be taken."""
        return bool(self._telling or (self._waiting and not self._stopping))

    def add(self, notice: Notice, environment: Mapping[str, str]) -> None:
        """One to take; `environment` is that of the run, for its job."""
        if not self._is_for_others(notice, environment):
            self._waiting.setdefault(notice.run.id, (notice, environment))

    def _is_for_others(self, notice: Notice, environment: Mapping[str, str]) -> bool:
        """Whether this node cannot tell how a run of another one ended; nobody waits for the others for ever."""
        run, job = notice.run, notice.job
        argv = job.notice(run.state) if job else None
        if job is None or argv is None or run.node == self._ledger.node:
            return False
        from cronledger.command import missing

        age = self._ledger.clock.now() - (run.finished_at or run.started_at)
        return age < FOREIGN_FOR and missing(argv, job.cwd, environment) is not None

    def stop(self) -> None:
        """Take no more: they stay owed, and the next tick finds them. May be called by a signal handler."""
        self._stopping = True

    def steps(self) -> list[Callable[[], None]]:
        """What can be done now, each with a few statements, and to be done again if it raises LedgerError."""
        if not self._waiting or self._stopping:
            return []
        if not self._commands.has_place():
            # They stay owed: for them a tick does not outlive its runs, and the next one looks again.
            self._waiting = {key: one for key, one in self._waiting.items() if elapsed() - one[0].since < PLACE_WITHIN}
            return []
        free = max(0, AT_ONCE - len(self._telling))
        return [partial(self._take, *waiting) for waiting in list(self._waiting.values())[:free]]

    def _take(self, notice: Notice, environment: Mapping[str, str]) -> None:
        from cronledger.ledger.notices import state_before, take

        if self._stopping:
            return
        run, job = notice.run, notice.job
        # Before it is taken: as long as it is owed, the run before it is kept.
        news = job is not None and is_news(run.state, state_before(self._ledger, run), job.report)
        output = take(self._ledger, run, notice.token)
        del self._waiting[run.id]
        if job is not None and news and output is not None:
            self._tell(notice, job, environment, output)

    def _tell(self, notice: Notice, job: Job, environment: Mapping[str, str], output: str) -> None:
        argv = job.notice(notice.run.state)
        assert argv is not None
        key = f"notice of {notice.run.id}"
        self._telling[key] = notice
        self._commands.start(
            key,
            argv,
            job.cwd,
            {**environment, **_described(notice.run)},
            deadline=elapsed() + WITHIN,
            window=timedelta(seconds=WITHIN),
            limit="the longest that a notice may take",
            stdin=output,
        )

    def ended(self, key: str, outcome: "Outcome") -> Trouble | None:
        """A command ended that was started here: nothing to say, unless it failed."""
        notice = self._telling.pop(key)
        if outcome.reason is None:
            return None
        key = "on_failure" if notice.run.state == "failed" else "on_recovery"
        return Trouble(f"{key} of {notice.run.job} failed: {outcome.reason}", is_failure=False)

    def give_up(self, why: object, before: float) -> list[Trouble]:
        """Let go of those that were found before this moment of `elapsed()` and could not be taken."""
        given_up = [one for one, _ in self._waiting.values() if one.since <= before]
        for notice in given_up:
            del self._waiting[notice.run.id]
        return [Trouble(f"{why}; not told here: how {one.run.job} ended, run {one.run.id}") for one in given_up]


def _described(run: Run) -> dict[str, str]:
    """How a run ended, as variables; "" for what it does not have."""
    described: dict[str, object] = {
        "STATE": run.state,
        "ATTEMPT": run.attempts,
        "REASON": run.failure_reason,
        "DURATION_MS": run.duration_ms,
        "EXIT_CODE": run.exit_code,
        "STARTED_AT": utc(run.started_at),
        "FINISHED_AT": run.finished_at and utc(run.finished_at),
    }
    return {f"CRONLEDGER_{name}": "" if value is None else str(value) for name, value in described.items()}
