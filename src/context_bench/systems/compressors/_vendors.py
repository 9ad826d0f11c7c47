"""Compressors whose packages live in environments of their own: one process for one compression, with nothing of ours in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadReply, Refused
from context_bench.core.ledger import current_ledger
from context_bench.core.probing import tokens_of
from context_bench.core.protocols import Compressed
from context_bench.core.records import Call
from context_bench.core.tokens import counter_for
from context_bench.core.usage import OPENAI_CHAT, usage_of
from context_bench.llm.redact import bare_url, redact
from context_bench.systems.compressors._messages import Messages
from context_bench.systems.compressors._results import result_of
from context_bench.systems.memories._program import run_program
from context_bench.systems.memories._vendors import Vendor

_PROGRAM = Path(__file__).parent / "worker" / "program.py"


class VendorCompressor:
    """`options` go to the package as they are. `python`: a Python that has the package. `timeout`: seconds, the start included."""

    vendor: Vendor
    name: str

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        python: str | None,
        timeout: float,
        relay: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self._options, self._timeout = dict(options), timeout
        self._python = self.vendor.python(python)
        self.version = self.vendor.version_in(self._python)
        self._relay, self._asked_model, self._key = relay, model, api_key

    def fingerprint(self) -> dict[str, Any]:
        """What comes of it depends on this: the package's version, the options, the model, no key."""
        told = {"package": self.vendor.package, "version": self.version, "options": self._options, "model": self._asked_model}
        return {"class": type(self).__name__, **told}

    def compress(
        self, prefix: Messages, tail: Messages, *, state: Any = None, budget: int | None = None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        """What the package makes of the messages."""
        counter = counter_for()
        before = tokens_of(prefix, counter)
        if not prefix:
            return Compressed([], 0, 0), state
        made = result_of(self._run(prefix, budget), self.name)
        return Compressed(made, before, tokens_of(made, counter), warnings=self._over(tokens_of(made, counter), budget)), state

    def _over(self, left: int, budget: int | None) -> list[str]:
        return [f"{left} tokens are left where {budget} were allowed"] if budget is not None and left > budget else []

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        """The options, with the budget where the package has a place for it."""
        return self._options

    def _run(self, prefix: Messages, budget: int | None) -> Any:
        options, relay = self._for_budget(prefix, budget), _versioned(self._relay)
        asked = {"messages": prefix, "options": options, "relay": relay, "model": self._asked_model}
        keys = {"CONTEXT_BENCH_WORKER_RELAY_KEY": self._key} if self._key else {}
        done = run_program([self._python, str(_PROGRAM), self.name], self._time_left(), json.dumps(asked), env={**_environment(), **keys})
        lines = done.out.splitlines()
        if done.status != 0 or not lines:
            said = redact(done.err[-4000:].decode("utf-8", "replace"), keys.values()).strip()[-500:] or "it said nothing"
            raise Refused(f"{self.name}: its process ended with status {done.status}: {said}")
        try:
            told = json.loads(lines[-1])
        except (ValueError, RecursionError):
            raise BadReply(f"{self.name}: what its process wrote cannot be read") from None
        self._book(told.get("calls") or [])
        if "error" in told:
            raise Refused(f"{self.name}: {told['error']['kind']}: {redact(told['error']['message'], keys.values())}")
        return told["messages"]

    def _book(self, calls: list[dict[str, Any]]) -> None:
        """What the package asked a model, into the ledger."""
        ledger = current_ledger()
        for each in calls if ledger is not None else ():
            assert ledger is not None
            call = Call(ledger.account, self._asked_model or "", bare_url(self._relay or ""), each["started"], each["seconds"])
            call.request, call.usage = each["request"], usage_of(each.get("usage"), OPENAI_CHAT)
            ledger.record(call)

    def _time_left(self) -> float:
        ledger = current_ledger()
        if ledger is None or ledger.deadline is None:
            return self._timeout
        return max(0.0, min(self._timeout, ledger.deadline - SYSTEM_CLOCK.monotonic()))


def _versioned(relay: str | None) -> str | None:
    if relay is None:
        return None
    base = relay.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def _environment() -> dict[str, str]:
    """Ours without what would lead a package elsewhere, or give it keys that are not for it."""
    left_out = ("PYTHONPATH", "PYTHONHOME")
    kept = {name: value for name, value in os.environ.items() if name not in left_out and not name.upper().endswith(("_KEY", "_TOKEN"))}
    for name in ("NO_PROXY", "no_proxy"):
        kept[name] = ",".join(filter(None, (kept.get(name), "127.0.0.1,localhost")))
    return kept
