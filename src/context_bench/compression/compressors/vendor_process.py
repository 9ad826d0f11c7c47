"""Compressors whose packages live in environments of their own, each run once a compression by the Python that has it.

Headroom (package `headroom-ai`) is content-aware and needs no model. LangChain shortens a conversation before a call in
two ways: it clears old tool results, or it summarises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput, BadReply, Refused
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.numbers import OPENAI_CHAT, duration, moment, usage_of
from context_bench.core.protocols import Compressed
from context_bench.core.records import Call
from context_bench.core.tokens import counter_for
from context_bench.llm.redact import bare_url, redact
from context_bench.sandbox.vendors import Vendor, VendorProcess, deadline, versioned

ADAPTED = {
    "headroom": "Headroom",
    "langchain_clear": "ClearToolUses",
    "langchain_summary": "Summarization",
}

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


class Headroom(VendorCompressor):
    """`headroom.compress(messages, …)` as the package does it by default; the options are the package's own.

    A budget becomes its `target_ratio` (share kept), which it takes as a wish. `protect_recent`: messages at the end
    that it leaves alone; `compress_user_messages`: whether what users said is compressed too. `counted_as`: the model
    of its own count of tokens.
    """

    vendor = Vendor("headroom-ai", "headroom", "0.42.0")
    name = "headroom"

    def __init__(
        self,
        target_ratio: float | None = None,
        protect_recent: int | None = None,
        compress_user_messages: bool | None = None,
        *,
        counted_as: str = "gpt-4o",
        python: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        given = {
            "target_ratio": target_ratio,
            "protect_recent": protect_recent,
            "compress_user_messages": compress_user_messages,
        }
        options = {name: value for name, value in given.items() if value is not None}
        super().__init__({"model": counted_as, **options}, python=python, timeout=timeout)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        before = tokens_of(prefix, counter_for())
        share = {} if budget is None or not before else {"target_ratio": max(0.01, min(1.0, budget / before))}
        return {**self._options, **share}


_VENDOR = Vendor("langchain", "langchain", "1.4.7")


class ClearToolUses(VendorCompressor):
    """`ClearToolUsesEdit`: all but the last `keep` results of tools become `[cleared]` once there are more than
    `trigger` tokens.

    Its own default trigger is 100,000 (its own estimate of tokens); here it is 0, since a compression point is where it
    is to happen. A budget becomes the trigger; what is then too long stays too long.
    """

    vendor = _VENDOR
    name = "langchain_clear"
    deterministic = True

    def __init__(
        self,
        keep: int = 3,
        trigger: int = 0,
        clear_at_least: int = 0,
        clear_tool_inputs: bool = False,
        *,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        options = {
            "keep": keep,
            "trigger": trigger,
            "clear_at_least": clear_at_least,
            "clear_tool_inputs": clear_tool_inputs,
        }
        super().__init__(options, python=python, timeout=timeout)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        return self._options if budget is None else {**self._options, "trigger": budget}


class Summarization(VendorCompressor):
    """`SummarizationMiddleware` with its own prompt and model calls: everything but the last `keep` messages becomes
    one summary.

    `keep_tokens`: so many tokens at the end are kept instead (its own estimate); of a budget, half is for them. The
    package itself looks only at the last `trim_tokens_to_summarize` tokens (its default: 4,000) of what it summarises.
    `relay`, `model`, `api_key`: who writes.
    """

    vendor = _VENDOR
    name = "langchain_summary"

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        *,
        keep: int = 20,
        keep_tokens: int | None = None,
        trim_tokens_to_summarize: int | None = 4000,
        python: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        if relay is None:
            raise BadInput(
                "langchain_summary needs a model that writes it: langchain_summary:relay=http://HOST:PORT (or "
                "--reader URL)"
            )
        if keep < 1 or (keep_tokens is not None and keep_tokens < 1):
            raise BadInput(f"langchain_summary: keep and keep_tokens are 1 or more, not {keep} and {keep_tokens}")
        kept = ["messages", keep] if keep_tokens is None else ["tokens", keep_tokens]
        options = {"keep": kept, "trim_tokens_to_summarize": trim_tokens_to_summarize}
        key = api_key or os.environ.get("OPENAI_API_KEY")
        super().__init__(options, python=python, timeout=timeout, relay=relay, model=model, api_key=key)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        return self._options if not budget else {**self._options, "keep": ["tokens", max(1, budget // 2)]}
