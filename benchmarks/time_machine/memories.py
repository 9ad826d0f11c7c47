"""Put one installed memory through the suites that its pair names.

Most are told to `context-bench memory ops` as a user would name them. A package whose memory is only a Python object is
kept in a process of its own environment, and `Contexts` is the adapter to it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driving import Flags
from installing import Environment

from context_bench.memory.ops import run_suites
from context_bench.memory.protocol import Hit, Item, Receipt
from context_bench.sandbox.vendors import VendorProcess

_SHIMS = Path(__file__).parent / "shims"
_CALL = 60.0


class Contexts:
    """Contexts of an agent framework, in the process of the shim: each holds what it was told, in order."""

    name = "contexts"
    capabilities = frozenset({"add", "search", "begin"})

    def __init__(self, process: VendorProcess, context: int | None = None) -> None:
        self._process = process
        self._context = self.begin(self.native([]))._context if context is None else context

    def _ask(self, call: str, **args: Any) -> Any:
        return self._process.ask(call, {"call": call, "args": args}, time.monotonic() + _CALL)

    def native(self, items: Sequence[Item]) -> Any:
        """The caller's own list that contexts begin from."""
        return self._ask("native", texts=[item.text for item in items])

    def begin(self, native: Any) -> Contexts:
        """A context that begins with that list."""
        return Contexts(self._process, self._ask("begin", start=native))

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Say the items."""
        self._ask("add", context=self._context, texts=[item.text for item in items])
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """All that would go to a model; those with more of the query's words first."""
        words = set(query.lower().split())
        texts = self._ask("texts", context=self._context)
        texts.sort(key=lambda text: -len(words & set(text.lower().split())))
        return [Hit(text) for text in texts[:k]]


async def through_suites(pair: dict[str, Any], environment: Environment) -> Flags:
    """The tests of the pair's suites that failed, each under `suite: test`."""
    found = Flags()
    with tempfile.TemporaryDirectory(prefix="context-bench-pair-", ignore_cleanup_errors=True) as folder:
        places = {"python": environment.program, "here": str(environment.folder), "shims": str(_SHIMS), "dir": folder}
        os.environ.update({name: text.format(**places) for name, text in pair.get("env", {}).items()})
        process = None
        if "system" in pair:
            make: Any = pair["system"].format(**places)
        else:
            process = VendorProcess(pair["id"], environment.program, _SHIMS / pair["shim"], {})
            make = lambda: Contexts(process)  # noqa: E731
        try:
            results = await run_suites(make, pair["suites"], **pair.get("options", {}))
        finally:
            if process is not None:
                process.close()
    for result in results:
        for probe in result.probes:
            if probe.kind == "test" and probe.outcome in ("fail", "error"):
                found.add(f"{result.suite}: {probe.name}", probe.sentence)
    return found
