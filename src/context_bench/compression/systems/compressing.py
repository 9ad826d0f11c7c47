"""A compressor and a reader as a system: a session is compressed once per group, then each probe is asked in a fork of
its own.

```python
Compressing(compressor_of("anchored"), reader)                   # an arm of an ordinary run over probes
Compressing(compressor_of("head_tail"), reader, partner=anchored)  # the same number of tokens as `anchored` left, group by group
```
"""  # noqa: E501

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.compression.compressors import compressor_of
from context_bench.compression.probes import messages_of, rendered, session_tools, tokens_of
from context_bench.core import protocols as calling
from context_bench.core.errors import BadReply, NoBudget, SetupFailed, Stop, describe
from context_bench.core.keys import canonical_json
from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.protocols import Compressed, Compressor
from context_bench.core.records import Call, Example
from context_bench.core.tokens import counter_for
from context_bench.llm.background import run_sync
from context_bench.systems.context import check_limit, leaves
from context_bench.wire.apis import parse_request
from context_bench.wire.conversation import ChatMessage, message_text
from context_bench.wire.request import SYSTEM_ROLES, WireRequest
from context_bench.wire.violations import compare_requests


@dataclass(slots=True)
class Made:
    """A compressed prefix: the messages in its place, their size, and the calls that it took. `error`: the reason if
    there is none.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0
    seconds: float = 0.0
    opaque: Any = None
    calls: list[Call] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    no_budget: bool = False
    steady: dict[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For the record of the set-up, as JSON."""
        told = {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "keep": self.tokens_after / self.tokens_before if self.tokens_before else None,
            "seconds_compress": self.seconds,
            "opaque": self.opaque is not None,
            "violations": self.violations,
            "warnings": self.warnings,
        }
        return {name: value for name, value in told.items() if value not in (None, [], False)} | self.steady


class Compressing:
    """Shortens what a session was up to each of the example's points, keeps the rest, and has `reader` answer the
    question about it.

    `compressor`: see `core.protocols.Compressor`, or a spec. System messages stay in front and are not compressed. With
    several points the first result is compressed again together with what came since, and so on; `state` is handed from
    one to the next. `partner`: the arm whose size is matched group by group (named `head_tail@partner`); else `budget`
    (tokens) or `keep` (share) fixes it. The reader is a system that takes `turns` (and may use `tools`); it is asked
    one question at a time and never sees another probe or the gold. `tapped`: it asks through the run's tap, so its
    calls are marked and count as what this arm sent and forwarded.
    """

    stateful = True

    def __init__(
        self,
        compressor: str | Compressor,
        reader: Any,
        *,
        name: str | None = None,
        partner: Compressing | None = None,
        budget: int | None = None,
        keep: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tapped: bool = False,
    ) -> None:
        self.compressor = compressor_of(compressor)
        check_limit(self.compressor.name, budget, 0 if keep is None else keep)
        self.reader, self.partner, self.budget, self.keep = reader, partner, budget, keep
        self.name: str = name or (f"{self.compressor.name}@{partner.name}" if partner else self.compressor.name)
        self.model = getattr(reader, "model", None)
        self._clock, self._tapped = clock, tapped
        self._made: dict[str, asyncio.Task[Made]] = {}  # by group, shared by all twins
        self._twin = False

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which compressions and answers depend."""
        return {
            "class": "Compressing",
            "compressor": calling.fingerprint(self.compressor),
            "reader": calling.fingerprint(self.reader),
            "partner": self.partner.fingerprint() if self.partner else None,
            "budget": self.budget,
            "keep": self.keep,
        }

    def namespace(self, name: str) -> Compressing:
        """A twin for one group; compressions are shared, so that trials of a group ask about the same text."""
        twin = copy.copy(self)
        twin._twin = True
        return twin

    async def asetup(self, example: Example) -> dict[str, Any]:
        """Compress the group's prefix, unless a control that needs its size had it done before; its calls are booked
        here.

        A compressor that looks at the question compresses for each probe instead.
        """
        return {} if self._asks else (await self._booked(example)).facts()

    def process(self, example: Example) -> Example:
        """`aprocess`, for scripts."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The example with the reader's `response`, `context` (what stands in the prefix's place) and `compressed` (its
        size).
        """
        made = await self._booked(example)
        messages = messages_of(example)
        last = example["points"][-1]
        shown = [*made.messages, *messages[last:]]
        question = str(example.get("question") or "")
        text = f"[opaque, {made.tokens_after} tokens]" if made.opaque is not None else self._text(made)
        output: dict[str, Any] = {
            "context": text,
            "compressed": {
                "tokens_before": made.tokens_before,
                "tokens_after": made.tokens_after,
                "opaque": made.opaque is not None,
            },
            **await (
                self._read(example, shown, question)
                if made.opaque is None
                else self._continued(made.opaque, shown, question)
            ),
        }
        answer = counter_for(self.model).count(output["response"])
        cycle = len(example["points"])
        facts = {
            "tokens_before": made.tokens_before,
            "tokens_after": made.tokens_after,
            "answer_tokens": answer,
            "cycle": cycle,
        }
        return {**example, **output, "facts": {**facts, "compress_seconds": made.seconds}}

    def _text(self, made: Made) -> str:
        """The replacement of the prefix, as text; of a compressor of texts, the text that it made."""
        spoken = _spoken(made.messages)
        flat = getattr(self.compressor, "of_text", False) and len(spoken) == 1
        return message_text(spoken[0]) if flat else rendered(spoken)

    async def made(self, example: Example) -> Made:
        """The compression of the example's group (of the example, if the question matters), made by whoever needs it
        first.
        """
        key = str(example.get("id") if self._asks else example.get("group") or example.get("id"))
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(self._compress(example))
        return await asyncio.shield(self._made[key])

    @property
    def _asks(self) -> bool:
        return bool(getattr(self.compressor, "needs_query", False)) or (self.partner is not None and self.partner._asks)

    async def _booked(self, example: Example) -> Made:
        """The same, with the calls it took booked on the open ledger, once; raises if there is nothing."""
        made = await self.made(example)
        ledger = current_ledger()
        if ledger is not None:
            calls, made.calls = made.calls, []
            for call in calls:
                ledger.record(call)
        if made.error is not None:
            raise (
                NoBudget(made.error.removeprefix("NoBudget: "))
                if made.no_budget
                else SetupFailed(f"{self.name}: {made.error}")
            )
        return made

    async def aclose(self) -> None:
        """Close the compressor and the reader; twins leave them open."""
        if self._twin:
            return
        for part in (self.compressor, self.reader):
            close = calling.method(part, "aclose", "close")
            if close is not None:
                await calling.call(close)

    # --- compressing ---

    async def _compress(self, example: Example) -> Made:
        """Never raises but to stop the run: a failure belongs to whoever uses the result."""
        ledger = Ledger(account="compressor", spend=getattr(current_ledger(), "spend", None))
        made = Made(calls=ledger.calls)
        try:
            budget = await self._budget(example)
            with open_ledger(ledger):
                await self._through_points(example, made, budget)
        except Stop:
            raise
        except Exception as error:
            made.error, made.no_budget = describe(error), isinstance(error, NoBudget)
        return made

    async def _budget(self, example: Example) -> int | None:
        if self.partner is None:
            return self.budget
        theirs = await self.partner.made(example)
        if theirs.error is not None:
            raise NoBudget(
                f"{self.partner.name} has no compression of {example.get('group')!r} whose size could be matched"
            )
        return theirs.tokens_after

    async def _through_points(self, example: Example, made: Made, budget: int | None) -> None:
        messages, counter = messages_of(example), counter_for(self.model)
        state: Any = None
        held: list[ChatMessage] = []
        before = 0
        for point in example["points"]:
            whole = [*held, *messages[before:point]]
            head, prefix = parted(whole)
            limit = int(tokens_of(prefix, counter) * self.keep) if self.keep is not None else budget
            fits = (
                limit is not None and tokens_of(prefix, counter) <= limit
            )  # then it stays as it is: nothing is to be cut
            flat = getattr(self.compressor, "of_text", False) and prefix and not fits
            given = [{"role": "user", "content": rendered(prefix)}] if flat else prefix
            if not before and self._claims:
                made.steady = await self._steady(given, messages[point:], limit, example)
            found, state, seconds = await self._one(given, messages[point:], state, limit, example)
            held = [*head, *found.messages]
            made.tokens_before, made.seconds = tokens_of(parted(messages[:point])[1], counter), made.seconds + seconds
            if found.opaque is not None and found.tokens_after is None:
                raise BadReply(
                    f"{self.compressor.name}: the size of an opaque result is only known to its provider, which did "
                    "not tell it"
                )
            made.tokens_after = (
                (found.tokens_after or 0) if found.opaque is not None else tokens_of(found.messages, counter)
            )
            made.opaque, before = found.opaque, point
            made.warnings += [warning for warning in found.warnings if warning not in made.warnings]
            if limit is not None and made.tokens_after > limit and not self.ignores_budget:
                made.warnings.append(f"{made.tokens_after} tokens are left where {limit} were allowed")
        made.messages = held
        made.violations = _violations(messages[:before], messages[before:], held)

    @property
    def _claims(self) -> bool:
        """An arm of its own whose compressor declares that the same messages give the same result."""
        claims = bool(getattr(self.compressor, "deterministic", False))
        return claims and self.partner is None and leaves(self.compressor) is None

    async def _steady(
        self, prefix: list[ChatMessage], tail: list[ChatMessage], budget: int | None, example: Example
    ) -> dict[str, float]:
        """`determinism`: 1 if two cold compressions are equal to the byte; `idempotence`: 1 if compressing the result
        changes nothing.
        """
        first, again = [(await self._one(prefix, tail, None, budget, example))[0].messages for _ in range(2)]
        twice = (await self._one(list(first), tail, None, budget, example))[0].messages
        return {
            "determinism": float(canonical_json(first) == canonical_json(again)),
            "idempotence": float(first == twice),
        }

    @property
    def ignores_budget(self) -> bool:
        """The compressor has a size of its own (passthrough, nothing)."""
        return bool(getattr(self.compressor, "ignores_budget", False)) or leaves(self.compressor) is not None

    async def _one(
        self, prefix: list[ChatMessage], tail: list[ChatMessage], state: Any, budget: int | None, example: Example
    ) -> tuple[Compressed, Any, float]:
        query = str(example.get("question") or "") if getattr(self.compressor, "needs_query", False) else None
        started = self._clock.monotonic()
        made = await calling.call(self.compressor.compress, prefix, tail, state=state, budget=budget, query=query)
        seconds = self._clock.monotonic() - started
        if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], Compressed):
            raise BadReply(f"compress() gave {type(made).__name__}; expected (Compressed, state)")
        if not all(isinstance(message, Mapping) for message in made[0].messages):
            raise BadReply("compress() gave messages that are no objects with role and content")
        if wrong := [
            type(m["content"]).__name__ for m in made[0].messages if not isinstance(m.get("content"), str | list | None)
        ]:
            raise BadReply(
                f"compress() gave a message whose content is {wrong[0]}; expected a text, a list of parts or nothing"
            )
        return made[0], made[1], seconds

    # --- asking ---

    async def _continued(self, opaque: Any, shown: Sequence[ChatMessage], question: str) -> dict[str, Any]:
        """The answer from what only the provider can read: the compressor itself asks there, with its own model."""
        answer = calling.method(self.compressor, "answer")
        if answer is None:
            raise SetupFailed(
                f"{self.name}: the result is opaque and {self.compressor.name} has no answer(); only its provider can "
                "read it"
            )
        started = self._clock.monotonic()
        ledger = current_ledger()
        with nullcontext() if ledger is None else open_ledger(replace(ledger, account="reader", mark=None)):
            found = await calling.call(answer, opaque, list(shown), question)
        if not isinstance(found, Mapping) or not isinstance(found.get("response"), str):
            raise BadReply(f"{self.compressor.name}: answer() gave {type(found).__name__} without a response")
        return {"response": found["response"], "answer_seconds": self._clock.monotonic() - started}

    async def _read(self, example: Example, shown: Sequence[ChatMessage], question: str) -> dict[str, Any]:
        turns = [*shown, {"role": "user", "content": question}]
        asked = {
            "id": example.get("id"),
            "dataset": example.get("dataset"),
            "context": "",
            "question": question,
            "turns": turns,
        }
        if self._tapped:
            asked["tools"] = session_tools(example)
        process = calling.method(self.reader, "aprocess", "process")
        if process is None:
            raise BadReply(
                f"the reader {getattr(self.reader, 'name', self.reader)!r} has neither process() nor aprocess()"
            )
        started = self._clock.monotonic()
        ledger = current_ledger()
        if ledger is None:
            found = await calling.call(process, asked)
        else:
            with open_ledger(ledger if self._tapped else replace(ledger, account="reader", mark=None)):
                found = await calling.call(process, asked)
        if not isinstance(found, Mapping) or not isinstance(found.get("response"), str):
            raise BadReply(f"the reader gave {type(found).__name__} without a response")
        said = {name: found[name] for name in ("response", "api_usage", "finish_reason") if name in found}
        return {**said, "answer_seconds": self._clock.monotonic() - started}


def parted(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The system messages at the head, and the rest."""
    head = next((at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))
    return list(messages[:head]), list(messages[head:])


def _spoken(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return parted(messages)[1]


def _violations(prefix: Sequence[ChatMessage], tail: Sequence[ChatMessage], held: Sequence[ChatMessage]) -> list[str]:
    """Faults of the conversation that a provider would get now, and that it did not have before."""
    sent, received = _request([*prefix, *tail]), _request([*held, *tail])
    broken = {"orphan_tool_result", "unanswered_tool_call", "system_role_lost", "tool_arguments_changed"}
    return sorted({str(one.kind) for one in compare_requests(sent, received)} & broken)


def _request(messages: Sequence[ChatMessage]) -> WireRequest:
    return parse_request("openai-chat", {"messages": list(messages)})
