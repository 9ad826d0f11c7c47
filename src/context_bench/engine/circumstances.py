"""Under what load the rows of a run were made: kept with the run while they are made, so that nothing that ends it can lose it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from context_bench.core import calling

#: What changed about each endpoint's limit so far: endpoint → `[at, limit, reason]`.
Limits = Callable[[], Mapping[str, Sequence[Sequence[Any]]]]

#: Seconds between two looks at what changed; what a `kill -9` can lose.
EVERY = 2.0


def walls_of(manifest: Mapping[str, Any], evaluators: Sequence[Any]) -> list[str]:
    """The sentences in a manifest on what stood around code that evaluators ran, and what these say of themselves by now."""
    said = [calling.method(evaluator, "walls") for evaluator in evaluators]
    now = [str(walls()) for walls in said if walls is not None and walls()]
    return list(dict.fromkeys([*(manifest.get("walls") or []), *now]))


class Circumstances:
    """The part of a run's manifest that is only known while it goes on, see `core.load`.

    `manifest`: as it was when this execution began, that of earlier ones in it. `limits`: what changed in this one. `write` puts a manifest
    into the store. `evaluators`: those of the run, which may say what stands around the code they run.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        limits: Limits | None,
        write: Callable[[dict[str, Any]], Awaitable[object]],
        evaluators: Sequence[Any] = (),
    ) -> None:
        self._manifest, self._limits, self._write, self._evaluators = manifest, limits, write, evaluators
        self._before = list(manifest.get("limits") or [])
        self._written: Mapping[str, Sequence[Sequence[Any]]] = {}
        self._loaded = "load" not in manifest or manifest["load"] in (manifest.get("loads") or [])

    async def rows_are_made(self) -> None:
        """Before the first row of this execution counts: its load is one of those that the run's rows were made under."""
        if not self._loaded:
            self._loaded = True  # at once: other workers' rows are written after this
            self._manifest = {**self._manifest, "loads": [*(self._manifest.get("loads") or []), self._manifest["load"]]}
            await self._write(self._manifest)

    async def keep(self) -> None:
        """Write down what changed since it was last written."""
        if (walls := walls_of(self._manifest, self._evaluators)) != (self._manifest.get("walls") or []):
            self._manifest = {**self._manifest, "walls": walls}
            await self._write(self._manifest)
        now = self._limits() if self._limits is not None else {}
        if now and now != self._written:
            self._manifest = {**self._manifest, "limits": [*self._before, now]}
            await self._write(self._manifest)
            self._written = now
