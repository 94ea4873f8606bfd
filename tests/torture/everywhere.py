"""A scenario on all servers at once: an outage of a minute takes a minute, and not one for each database."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest
from servers import Server

from torture.conftest import Tally
from torture.scene import Scene, scene_of, tally_of


class Everywhere:
    """Runs each scenario once, on those servers at once that a test of the module asks for; each has its own tally."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        mine = [item for item in request.session.items if item.path == request.path]
        kinds = sorted({item.callspec.params["kind"] for item in mine if "kind" in item.callspec.params})
        self._servers: dict[str, Server] = {kind: request.getfixturevalue(kind) for kind in kinds}
        self._folder = folder
        self._done: dict[tuple[object, ...], dict[str, Future[Tally]]] = {}

    def __call__(self, tally: Tally, kind: str, scenario: Callable[..., None], *arguments: object) -> None:
        """Fill `tally` with what came of `scenario(scene, *arguments)` on this kind of server."""
        key = (scenario, *arguments)
        if key not in self._done:
            with ThreadPoolExecutor(len(self._servers)) as pool:
                self._done[key] = {each: pool.submit(self._run, each, scenario, arguments) for each in self._servers}
        counted = self._done[key][kind].result()
        for field in fields(Tally)[2:]:
            setattr(tally, field.name, getattr(counted, field.name))

    def _run(self, kind: str, scenario: Callable[[Scene], None], arguments: tuple[object, ...]) -> Tally:
        name = "-".join([scenario.__name__, *map(str, arguments), kind])
        with scene_of(self._servers[kind], self._folder / name, tally_of(kind)) as scene:
            scenario(scene, *arguments)
            return scene.tally
