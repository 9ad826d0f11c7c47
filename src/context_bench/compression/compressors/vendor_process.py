"""Compressors whose packages live in environments of their own: one process for one compression, with none of our code
in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import tokens_of
from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadReply, Refused
from context_bench.core.ledger import current_ledger
from context_bench.core.numbers import duration, moment
from context_bench.core.protocols import Compressed
from context_bench.core.records import Call
from context_bench.core.tokens import counter_for
from context_bench.core.usage import OPENAI_CHAT, usage_of
from context_bench.llm.redact import bare_url, redact
from context_bench.sandbox.vendors import Vendor, VendorProcess, deadline, versioned

_PROGRAM = Path(__file__).parent / "worker" / "compress_once.py"


class VendorCompressor:
    """`options` go to the package as they are. `python`: a Python that has the package. `timeout`: seconds, the start
    included.
    """

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
        """The settings on which its results depend: the package's version, the options, the model, no key."""
        told = {
            "package": self.vendor.package,
            "version": self.version,
            "options": self._options,
            "model": self._asked_model,
        }
        return {"class": type(self).__name__, **told}

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The package's result for the messages."""
        counter = counter_for()
        before = tokens_of(prefix, counter)
        if not prefix:
            return Compressed([], 0, 0), state
        made = result_of(self._run(prefix, budget), self.name)
        return Compressed(
            made, before, tokens_of(made, counter), warnings=self._over(tokens_of(made, counter), budget)
        ), state

    def _over(self, left: int, budget: int | None) -> list[str]:
        return [f"{left} tokens are left where {budget} were allowed"] if budget is not None and left > budget else []

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        """The options, with the budget where the package has a place for it."""
        return self._options

    def _run(self, prefix: Messages, budget: int | None) -> Any:
        relay = None if self._relay is None else versioned(self._relay)
        asked = {
            "messages": prefix,
            "options": self._for_budget(prefix, budget),
            "relay": relay,
            "model": self._asked_model,
        }
        process = VendorProcess(self.name, self._python, _PROGRAM, {"RELAY": self._key})
        try:
            answer = process.ask("compress", asked, deadline(self._timeout))
        finally:
            process.close()
        if not isinstance(answer, dict):
            raise BadReply(f"{self.name}: its process answered with a {type(answer).__name__}; expected an object")
        self._book(answer.get("calls") or [])
        if failure := answer.get("failure"):
            raise Refused(f"{self.name}: {redact(str(failure), [self._key] if self._key else [])}")
        return answer.get("messages")

    def _book(self, calls: Any) -> None:
        """Write into the ledger what the package asked a model. One whose times make no sense was paid all the same: it
        ended just now.
        """
        if not isinstance(calls, list) or not all(isinstance(each, Mapping) for each in calls):
            raise BadReply(f"{self.name}: its process did not tell of its calls as a list of objects")
        ledger = current_ledger()
        for each in calls if ledger is not None else ():
            assert ledger is not None
            started, seconds = moment(each.get("started")), duration(each.get("seconds"))
            times = (SYSTEM_CLOCK.now() if started is None else started, seconds or 0.0)
            call = Call(ledger.account, self._asked_model or "", bare_url(self._relay or ""), *times)
            call.request, call.usage = each.get("request"), usage_of(each.get("usage"), OPENAI_CHAT)
            ledger.record(call)
