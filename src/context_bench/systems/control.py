"""Controls: a free compressor in front of the same model, so that a clever method can be compared with a simple one.

Also what makes any plug-in with `compress` or `process` a system that can be asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, NoBudget
from context_bench.core.families import built_in_names, offered
from context_bench.core.lazy import registry
from context_bench.core.ledger import current_ledger
from context_bench.core.plugins import build, parse_spec
from context_bench.core.protocols import Compressor, Prices
from context_bench.core.records import Example
from context_bench.core.roles import CANDIDATE, ArmRole, control_role
from context_bench.core.tokens import counter_for
from context_bench.llm.background import run_sync
from context_bench.systems.context import check_limit, compress_texts, split_question
from context_bench.systems.openai_proxy import OpenAIProxy

__all__ = [
    "SYSTEMS",
    "Control",
    "Read",
    "compressor_of",
    "system_of",
    "system_role",
]

#: What `--system NAME` finds without being registered.
SYSTEMS: dict[str, str] = {
    **built_in_names("system"),
    "openai_proxy": "context_bench.systems.openai_proxy:OpenAIProxy",
    "claude_cli": "context_bench.systems.claude_cli:ClaudeCLI",
}


def compressor_of(spec: str | Compressor, **options: Any) -> Compressor:
    """The compressor that `spec` names, as the family of compressors makes it; `options` are added to its own."""
    compressor: Compressor = offered("compressor_of")(spec, **options)
    return compressor


class Control:
    """Shortens an example's `context` with a compressor and asks `inner` about the rest.

    `partner`: the system whose token budget is matched, example by example; the control is then called
    `head_tail@partner` unless it has a `name`, and fails with `NoBudget` where `example["budget"]` is missing. `budget`
    (tokens) or `keep` (share) fixes it instead; else `example["budget"]` is used if it is there, else the compressor's
    own setting. Where the context holds the question (no `question`, or the same text), its last paragraph is the
    question and stays.
    """

    def __init__(
        self,
        compressor: str | Compressor,
        inner: OpenAIProxy,
        *,
        name: str | None = None,
        partner: str | None = None,
        budget: int | None = None,
        keep: float | None = None,
    ) -> None:
        self.compressor, self.inner, self.partner, self.budget, self.keep = (
            compressor_of(compressor),
            inner,
            partner,
            budget,
            keep,
        )
        self.name = name or (f"{self.compressor.name}@{partner}" if partner else self.compressor.name)
        check_limit(self.name, budget, 0 if keep is None else keep)

    @property
    def shape(self) -> str:
        """The shape of the requests."""
        return self.inner.shape

    @property
    def model(self) -> str:
        """The model asked."""
        return self.inner.model

    @property
    def prices(self) -> Prices | None:
        """The prices of tokens."""
        return self.inner.prices

    def process(self, example: Example) -> Example:
        """The inner system's output, with the shortened `context` and `compressed` (tokens before and after)."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The same, async."""
        shortened = await self.shortened(example)
        _in_full(self.inner, example)
        return await self.inner.aprocess(shortened)

    async def shortened(self, example: Example) -> Example:
        """The example as it is asked: with a shorter context."""
        context, kept = _parts(example)
        count = counter_for(self.inner.model).count
        before = count(context)
        budget = self._budget(example, before)
        question = str(example.get("question") or kept).strip()
        texts, model = [("user", context)], self.inner.model
        (shorter,) = await compress_texts(
            self.compressor, texts, question, model=model, budget=budget, state=example.get("id")
        )
        whole = shorter + kept if shorter.strip() else kept.lstrip()
        changed = {**example, "context": whole, "compressed": {"tokens_before": before, "tokens_after": count(shorter)}}
        if kept and example.get("question") is not None:
            changed["question"] = whole
        return changed

    def fingerprint(self) -> dict[str, Any]:
        """The compressor's settings and the inner system's."""
        return {
            "class": "Control",
            "compressor": calling.fingerprint(self.compressor),
            "partner": self.partner,
            "budget": self.budget,
            "keep": self.keep,
            "inner": self.inner.fingerprint(),
        }

    async def aclose(self) -> None:
        """Close the inner system."""
        await self.inner.aclose()

    def _budget(self, example: Example, before: int) -> int | None:
        if self.budget is not None or self.keep is not None:
            return self.budget if self.keep is None else math.floor(before * self.keep)
        budget = example.get("budget")
        if budget is None:
            if self.partner is not None:
                raise NoBudget(
                    f"{self.name}: {self.partner} has no measured token budget for example {example.get('id')!r} to "
                    "match"
                )
            return None
        check_limit(self.name, budget, 0)
        return int(budget)


def _parts(example: Example) -> tuple[str, str]:
    """The context that may be shortened and what must stay of it: its last paragraph where that is the question."""
    context, question = str(example.get("context") or ""), str(example.get("question") or "").strip()
    if question and question != context.strip():
        return context, ""
    return split_question(context)


def _in_full(inner: OpenAIProxy, example: Example) -> None:
    """Write down what would have been sent of the example as it is."""
    if (ledger := current_ledger()) is not None:
        with suppress(BadInput):  # an example of which only the shortened form can be asked
            ledger.in_full = inner.shaped(example).tokens(counter_for(inner.model))


class Read:
    """A system that may only return a context, with a reader (`inner`) that answers from it."""

    def __init__(self, system: Any, inner: OpenAIProxy | None, name: str) -> None:
        self.system, self.inner, self.name = system, inner, name
        self.stateful = bool(getattr(system, "stateful", False))
        if calling.method(system, "aprocess_conversation", "process_conversation"):
            self.process_conversation = calling.method(system, "aprocess_conversation", "process_conversation")

    def process(self, example: Example) -> Example:
        """The system's output for the example; where that has no `response`, with the reader's."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The same, async."""
        output = await self.made(example)
        if self.inner is None or output.get("response") is not None:
            return dict(output)
        _in_full(self.inner, example)
        return await self.inner.aprocess({**output, "compressed": self._size(example, output)})

    async def made(self, example: Example) -> Mapping[str, Any]:
        """The system's own output for an example, before the reader gets it."""
        process = calling.method(self.system, "aprocess", "process")
        assert process is not None, "checked by system_of"
        made = await calling.call(process, example)
        if not isinstance(made, Mapping):
            raise TypeError(
                f"{self.name}: process() returned a {type(made).__name__}; expected a dict with 'context' or 'response'"
            )
        return made

    def _size(self, example: Example, output: Mapping[str, Any]) -> dict[str, Any]:
        """Tokens of the context as it was and as it is, counted as a control's are, beside what the system itself says
        of it.
        """
        assert self.inner is not None
        own, count = output.get("compressed"), counter_for(self.inner.model).count
        before, after = (count(_parts(dict(state))[0]) for state in (example, output))
        return {**(own if isinstance(own, Mapping) else {}), "tokens_before": before, "tokens_after": after}

    def fingerprint(self) -> dict[str, Any]:
        """The system's and the reader's."""
        return {
            "class": "Read",
            "system": calling.fingerprint(self.system),
            "inner": self.inner.fingerprint() if self.inner else None,
        }

    async def aclose(self) -> None:
        """Close both."""
        for part in (self.system, self.inner):
            close = calling.method(part, "aclose")
            if close is not None:
                await calling.call(close)


def system_of(spec: str, *, inner: OpenAIProxy | None = None, suffix: str = "") -> Any:
    """The system that `spec` names: a compressor becomes a `Control` in front of `inner`, a system that returns
    contexts is `Read` by it.

    A compressor is called by its spec (`head_tail:keep=0.3`), a system by its own name; `suffix` is added.
    Raises `UnknownName`, `BadInput`.
    """
    system = build(
        "system", spec, SYSTEMS, lambda system: bool(calling.method(system, "compress", "process", "aprocess"))
    )
    if calling.method(system, "process", "aprocess"):
        calling.check("system", system)
        reader = None if isinstance(system, OpenAIProxy) else inner
        named = isinstance(getattr(system, "name", None), str)
        return (
            Read(system, reader, calling.name_of(system) + suffix)
            if reader is not None or suffix or not named
            else system
        )
    if inner is None:
        raise BadInput(
            f"{spec!r} only shortens text; add --upstream (or --reader) to have a model answer from what is left"
        )
    compressor = compressor_of(system)
    return Control(compressor, inner, name=(spec if parse_spec(spec).options else compressor.name) + suffix)


def system_role(spec: str) -> ArmRole:
    """The role of a `--system`: it is under test, but for the built-in `full`, `none` and `random_drop`, which are
    controls here too.
    """
    given = parse_spec(spec)
    own = given.scheme == "name" and any(
        registry.find(kind, given.target) is not None for kind in ("system", "compressor")
    )
    if own or given.scheme not in ("name", "builtin") or given.target not in offered("compressors"):
        return CANDIDATE
    ends = given.target in ("full", "none", "random_drop")
    return control_role(given.target) if ends else ArmRole(kind=given.target)
