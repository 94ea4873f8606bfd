"""Where a secret could show unseen: command lines of processes, and errors of a ledger that is not there."""

import json
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from deployed import Deployed
from machine import free_port, wait_for

from torture.conftest import Tally
from torture.proxy import Proxy
from torture.texts import count, shown_nowhere, user_with

Spawn = Callable[..., subprocess.Popen[str]]

COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("tick",), ("tick", "--dry-run"), ("install",), ("list",), ("history",), ("show", "ok"), ("run", "ok")),
    *(("reap", "ok", "--yes"), ("prune", "--older-than", "30d"), ("check",), ("explain", "ok"), ("list", "--json")),
)
GIVEN = {"env_file": '[ledger]\ndsn = "${DATABASE_URL}"', "environment": ""}
"""How a DSN is given, and what the schedule says of it."""


def _secret() -> str:
    """One that no other process on this machine has."""
    return f"hunter2-{secrets.token_hex(8)}/@:%"


class Watch:
    """Reads the command lines of all processes, over and over. Use as a context manager.

    `found`: those that hold the secret, as it is or percent-encoded. `seen`: all of them.
    """

    def __init__(self, secret: str) -> None:
        self._secrets = [secret.encode(), quote(secret, safe="").encode()]
        self.found: set[bytes] = set()
        self.seen: dict[str, bytes] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch")

    def _look(self) -> None:
        while not self._over.wait(0.002):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = path.read_bytes()
                    self.seen[path.parent.name] = line
                    if any(secret in line for secret in self._secrets):
                        self.found.add(line)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()


def on_no_command_line(deployed: Deployed, spawn: Spawn, given: str, tally: Tally) -> None:
    """A tick whose DSN is in its env_file or environment, and its commands: a shell's, an array's, cronledger's own."""
    secret = _secret()
    with user_with(deployed.database, secret) as dsn, Watch(secret) as watch:
        (deployed.folder / ".env").write_text(f"DATABASE_URL='{dsn}'\n")
        waits = f"while [ ! -e {deployed.folder}/go ]; do sleep 0.05; done"
        own = f"{sys.executable} -m cronledger history && {waits}"
        jobs = [json.dumps(waits), json.dumps(["sh", "-c", f"({waits}) | cat"]), json.dumps(own)]
        top = f'env_file = ".env"\n{GIVEN[given]}'
        deployed.write(*(f'name = "j{number}"\ncommand = {job}' for number, job in enumerate(jobs)), top=top)
        env = {"CRONLEDGER_NODE": "web1"} | ({"CRONLEDGER_DSN": dsn} if given == "environment" else {})
        tick = spawn("tick", env=env, cwd=deployed.folder)
        wait_for(lambda: len(deployed.rows("id", "pid IS NOT NULL")) == len(jobs), 60, "all run")
        wait_for(lambda: sum(waits.encode() in line for line in watch.seen.values()) >= len(jobs), 60, "all are seen")
        (deployed.folder / "go").touch()
        out, err = tick.communicate(timeout=60)
        assert (err, out.count(" ran ")) == ("", len(jobs)), (out, err)
        assert str(tick.pid) in watch.seen
    assert watch.found == set()
    shown_nowhere(deployed, secret, out)
    count(deployed, tally, len(jobs), len(out.splitlines()))
    deployed.database.sql("DELETE FROM cronledger_runs")
    (deployed.folder / "go").unlink()


def in_no_error(deployed: Deployed, spawn: Spawn, tally: Tally) -> None:
    """All commands with a wrong password, and with nobody listening; a tick whose database goes away for good."""
    secret = _secret()
    deployed.write('name = "ok"\ncommand = "true"')
    with user_with(deployed.database, secret) as dsn:
        wrong = dsn.replace(quote(secret, safe=""), quote(f"{secret}x", safe=""))
        down = dsn.replace(f":{urlsplit(dsn).port}/", f":{free_port()}/")
        assert len({dsn, wrong, down}) == 3
        for each in (wrong, down):
            _all_commands(deployed, spawn, each, secret, tally)
        _gone_for_good(deployed, spawn, dsn, secret, tally)


def _all_commands(deployed: Deployed, spawn: Spawn, dsn: str, secret: str, tally: Tally) -> None:
    env = deployed.env | {"CRONLEDGER_DSN": dsn}
    started = [spawn(*command, env=env, cwd=deployed.folder) for command in COMMANDS]
    for command, process in zip(COMMANDS, started, strict=True):
        out, err = process.communicate(timeout=120)
        shown_nowhere(deployed, secret, out, err)
        assert "Traceback" not in err, (command, err)
        assert "internal error" not in err, (command, err)
        assert err.count("\n") == (command[0] not in ("check", "explain")), (command, out, err)
        tally.inflicted += 1


def _gone_for_good(deployed: Deployed, spawn: Spawn, dsn: str, secret: str, tally: Tally) -> None:
    deployed.write(f'name = "ok"\ncommand = "while [ ! -e {deployed.folder}/go ]; do sleep 0.05; done"')
    with Proxy(dsn) as proxy:
        tick = spawn("tick", env=deployed.env | {"CRONLEDGER_DSN": proxy.dsn}, cwd=deployed.folder)
        wait_for(lambda: deployed.rows("id", "pid IS NOT NULL"), 60, "it runs")
        proxy.refuse()
        (deployed.folder / "go").touch()
        wait_for(lambda: proxy.refused, 60, "it tries")
        tick.send_signal(signal.SIGTERM)
        out, err = tick.communicate(timeout=60)
    assert "not recorded: the end of ok, run " in err, err
    shown_nowhere(deployed, secret, out, err)
    reaped = deployed.tick("--at", "2026-01-05T10:00")
    assert (reaped.stderr, reaped.stdout.count(" reaped ok: "), reaped.stdout.count(" ran ok ")) == ("", 1, 1), reaped
    count(deployed, tally, 2, 2)
    (deployed.folder / "go").unlink()
