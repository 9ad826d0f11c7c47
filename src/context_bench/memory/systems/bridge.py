"""A memory, with a reader or without, as a system that the engine runs, resumes, judges and reports.

A memory sees items and questions, nothing else of an example. Only one with `wants_evidence` (the oracle) sees the
evidence. The reader's prompt and the recognition of its "not mentioned" reply are here too.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, BadReply, Failed, SetupFailed, Stop, SystemFailed, describe
from context_bench.core.keys import hash_text
from context_bench.core.ledger import current_ledger, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.records import Example
from context_bench.core.text import normalise
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.llm.background import run_sync
from context_bench.memory.protocol import Hit, Item, Memory, count_packed, dated, iter_packed
from context_bench.memory.ranking import within
from context_bench.memory.systems.adapting import Answer, as_answer, check_separable, is_separable
from context_bench.memory.systems.ingest import Ingest, Provenance, Shown, joined, rendered, timed

NOT_MENTIONED = "Not mentioned"
#: The prompt of a reader, unless it has a system prompt of its own.
READER_PROMPT = f"""You answer a question from memories of past conversations. Each memory is one paragraph; a date in square brackets
says when it was said. Use only what the memories say. If they contradict each other, the later one holds. Work out times that are told
relative to a date.
Answer as briefly as possible: a name, a date, a number or one short phrase, no explanation.
If the memories do not hold the answer, say: {NOT_MENTIONED}."""  # noqa: E501


def prompted(reader: Any, prompt: str) -> Any:
    """The reader with our prompt, if it takes a system prompt and has none."""
    if not prompt or getattr(reader, "system_prompt", "") is not None:
        return reader
    prompted_reader = copy.copy(reader)
    prompted_reader.system_prompt = prompt
    return prompted_reader


def abstained(response: str) -> bool:
    """True if the reader said that the memories do not hold the answer."""
    return normalise(response).startswith(normalise(NOT_MENTIONED))


@dataclass(slots=True)
class _Ready:
    """The group that the memory holds now."""

    packed: str
    sources: dict[str, tuple[str, ...]]  # id of what was handed over → ids of its turns, where it is not a turn itself
    provenance: Provenance
    failure: SetupFailed | None = None


class Bridge:
    """`memory` as a system. `reader`: any system; it gets the rendered hits as `context`, and the question.

    `k`: hits asked for; what a memory gives beyond is cut off and counted, unless it says `ignores_k`. `budget_tokens`:
    only the longest run of first hits with at most so many tokens (o200k_base) goes on. `prompt`: what a reader without
    a system prompt is told (`READER_PROMPT`); "" leaves it as it is. `flush_seconds`: how long what was added may take
    until it can be found. `probes`: so many items are then looked for by their own words, and how many are found is
    told (`probed`, `probe_found`: the rest was lost in writing).

    `namespace(name)` is there only if the memory has `namespaces`: an isolated instance, emptied again and closed by
    `aclose()`. Without it the engine calls `reset()` between groups. Output: `hits` [{text, score, source_ids,
    memory_id, time, tokens}], `provenance` ("ids", "text match", "none"), `retrieved_tokens`, `search_seconds`,
    `context`; with an answer `response`, `answer_seconds`, `abstained`. `overhead_seconds`: what the bridge itself took
    for the question. `hits_key`, `answer_key`: equal where the reader was shown, or said, the same.
    """

    stateful = True
    namespace: Callable[[str], Bridge]

    def __init__(
        self,
        memory: Memory,
        *,
        reader: Any = None,
        k: int = 10,
        budget_tokens: int | None = None,
        name: str | None = None,
        prompt: str = READER_PROMPT,
        flush_seconds: float = 60.0,
        probes: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if k < 1 or (budget_tokens is not None and budget_tokens < 1):
            raise BadInput(
                f"a memory is asked for k ≥ 1 hits and a budget of ≥ 1 tokens, not k={k}, budget_tokens={budget_tokens}"
            )
        if not memory.capabilities & {"search", "answer"}:
            raise BadInput(
                f"memory {memory.name!r} can neither search nor answer: its capabilities are "
                f"{sorted(memory.capabilities)}"
            )
        self.memory, self.k, self.budget_tokens = memory, k, budget_tokens
        self.reader = prompted(reader, prompt)
        self.name = name or memory.name
        self.model = getattr(reader, "model", None)
        self.flush_seconds, self.probes = flush_seconds, probes
        self._prompt, self._clock = prompt, clock
        self._counter: VocabularyCounter = counter_for()
        self._ready: _Ready | None = None
        self._took: float | None = None  # seconds of the last set-up
        self._turn = asyncio.Lock()
        self._owner = True  # of the reader
        if "namespaces" in memory.capabilities:
            self.namespace = self._namespace

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "Bridge",
            "version": 2,  # from 2 on memories are told when a question is asked, and leave out what is dated later
            "memory": calling.fingerprint(self.memory),
            "reader": None if self.reader is None else calling.fingerprint(self.reader),
            "prompt": hash_text(self._prompt, 12) if self.reader is not None else None,
            "k": self.k,
            "budget_tokens": self.budget_tokens,
            "counter": self._counter.name,
            "probes": self.probes,
        }

    # --- a group's set-up ---

    async def asetup(self, example: Example) -> dict[str, Any]:
        """Put the example's items into the memory and wait until they can be found; what came of it, as JSON.

        `items` of the group, `parts` handed over, `acknowledged`, `failed`, `errors` (the first few), `call_count`
        calls of `batch` parts (`None` = all at once), `seconds_add`, `seconds_flush`, `seconds_first` (the first call)
        and `seconds_each` (the others: n, p50, p95, p99), `granularity`, `bytes` and `stored` as the
        memory tells. `SetupFailed` if more than 5 % of the parts were not stored or the flush did not end.
        """
        text = example.get("items")
        if not isinstance(text, str):
            raise BadInput(f"example {example.get('id')!r} has no items to remember: it is not of a memory dataset")
        granularity = self._granularity
        items = count_packed(text)
        number = items if granularity == "turn" else await calling.call(lambda: sum(1 for _ in self._parts(text)))
        self._ready = _Ready(text, {}, Provenance(text))
        ingest = Ingest(self.memory, self.name, self.flush_seconds, self._clock)
        started = self._clock.monotonic()
        try:
            facts = await ingest.store(self._parts(text, self._ready.sources), number)
            self._took = self._clock.monotonic() - started
            found = await self._probed(text, number)
            facts = {"items": items, "granularity": granularity, **facts, **found, **await ingest.size()}
        except SetupFailed as failure:
            self._ready.failure = failure
            raise
        return facts

    def _parts(self, text: str, sources: dict[str, tuple[str, ...]] | None = None) -> Iterator[Item]:
        """The parts handed over, one by one, so that a long history is never held twice; what a part stands for goes
        into `sources`.
        """
        for part, ids in joined(iter_packed(text), self._granularity):
            if sources is not None and ids != (part.id,):
                sources[part.id] = ids
            yield part

    async def _probed(self, text: str, number: int) -> dict[str, int]:
        """Count the items of an even sample that come back when asked for by their own words."""
        if (
            not self.probes
            or not number
            or "search" not in self.memory.capabilities
            or getattr(self.memory, "wants_evidence", False)
        ):
            return {}
        assert self._ready is not None
        step = max(1, number // self.probes)
        chosen = [part for part in islice(self._parts(text), 0, None, step) if normalise(part.text)][: self.probes]
        found = 0
        for part in chosen:
            hits, _ = await self._asked("search", self.memory.search, part.text, max(self.k, 10))
            wanted = set(self._ready.sources.get(part.id, (part.id,)))
            found += any(
                wanted & {*hit.source_ids, *self._ready.provenance.of(hit)} or part.id in hit.source_ids for hit in hits
            )
        return {"probed": len(chosen), "probe_found": found}

    @property
    def _granularity(self) -> str:
        return str(getattr(self.memory, "granularity", None) or "turn")

    # --- a question ---

    def process(self, example: Example) -> Example:
        """`aprocess`, for scripts."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The example with what was found and, with a reader or an answering memory, the answer.

        Sets the example's group up if nobody did. A search that fails is `SystemFailed`, never an empty list.
        """
        ready = await self._prepared(example)
        question = str(example.get("question") or "")
        started = self._clock.monotonic()
        if "search" not in self.memory.capabilities:
            return self._finished(example, {"context": "", **await self._answered(question)}, None, started)
        found, seconds = await self._searched(example, question)
        hits, over = self._within_k(found)
        shown = self._within_budget([self._shown(hit, ready) for hit in hits])
        output: dict[str, Any] = {
            "hits": [each.as_dict() for each in shown],
            "provenance": self._provenance(shown),
            "granularity": self._granularity,
            "retrieved_tokens": sum(each.tokens for each in shown),
            "search_seconds": seconds,
            "context": "\n\n".join(each.text for each in shown),
        }
        if over:
            output["hits_beyond_k"] = over
        if self.reader is not None:
            output |= await self._read(example, question, output["context"])
        elif "answer" in self.memory.capabilities:
            output |= {**await self._answered(question), "retrieved_tokens": output["retrieved_tokens"]}
        return self._finished(example, output, len(found), started)

    def _finished(self, example: Example, output: dict[str, Any], found: int | None, started: float) -> Example:
        """The output, with what reports need of it as `facts` of the row."""
        spent = output.get("search_seconds", 0.0) + output.get("answer_seconds", 0.0)
        output["overhead_seconds"] = max(0.0, self._clock.monotonic() - started - spent)
        output["hits_key"] = hash_text(output["context"], 12)
        if "response" in output:
            output["answer_key"] = hash_text(output["response"], 12)
        named = (
            *("retrieved_tokens", "search_seconds", "answer_seconds", "overhead_seconds"),
            *("provenance", "abstained", "hits_key", "answer_key"),
        )
        facts = {name: output[name] for name in named if name in output} | {"hits": found, "ingest_seconds": self._took}
        if "response" in output:
            facts["answer_tokens"] = self._counter.count(output["response"])
        return {**example, **output, "facts": {name: fact for name, fact in facts.items() if fact is not None}}

    async def _prepared(self, example: Example) -> _Ready:
        async with self._turn:
            ready = self._ready
            if ready is None or ready.packed != example.get("items"):
                if ready is not None:
                    await self.reset()
                await self.asetup(example)
                ready = self._ready
            assert ready is not None
            if ready.failure is not None:
                raise SetupFailed(str(ready.failure))
            return ready

    async def _searched(self, example: Example, question: str) -> tuple[list[Hit], float]:
        options: dict[str, Any] = {"as_of": example.get("asked")}
        if getattr(self.memory, "wants_evidence", False):
            options["evidence"] = list(example.get("evidence") or example.get("evidence_sessions") or [])
        found, seconds = await self._asked("search", self.memory.search, question, self.k, **options)
        if not isinstance(found, list | tuple) or not all(isinstance(hit, Hit) for hit in found):
            raise BadReply(f"{self.name}: search() gave {type(found).__name__}, expected a list of hits")
        return list(found), seconds

    async def _answered(self, question: str) -> dict[str, Any]:
        found, seconds = await self._asked("answer", getattr(self.memory, "answer"), question)  # noqa: B009 - optional in the protocol
        answer: Answer = as_answer(found, self.memory)
        output: dict[str, Any] = {
            "response": answer.text,
            "answer_seconds": seconds,
            "abstained": abstained(answer.text),
        }
        if answer.context_tokens is not None:
            output["retrieved_tokens"] = output["context_tokens"] = answer.context_tokens
        return output

    async def _asked(self, what: str, function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
        try:
            return await timed(self._clock, function, *args, **options)
        except (Stop, Failed):
            raise
        except Exception as error:
            raise SystemFailed(f"{self.name}: {what} failed: {describe(error)}") from error

    async def _read(self, example: Example, question: str, context: str) -> dict[str, Any]:
        """The reader's answer. It sees what was found and the question, never the gold."""
        asked = f"{context}\n\nThe question is asked on {example['asked']}." if example.get("asked") else context
        kept = {name: example[name] for name in ("id", "dataset", "choices") if name in example}
        process = calling.method(self.reader, "aprocess", "process")
        if process is None:
            raise BadReply(
                f"the reader {getattr(self.reader, 'name', self.reader)!r} has neither process() nor aprocess()"
            )
        ledger = current_ledger()
        # The same list of calls; its own key, not the memory's mark.
        own = nullcontext() if ledger is None else open_ledger(replace(ledger, account="reader", mark=None))
        with own:
            reply, seconds = await timed(self._clock, process, {**kept, "context": asked, "question": question})
        if not isinstance(reply, dict) or not isinstance(reply.get("response"), str):
            raise BadReply(f"the reader gave {type(reply).__name__} without a response")
        fields = {name: reply[name] for name in ("response", "api_usage", "finish_reason") if name in reply}
        return {**fields, "answer_seconds": seconds, "abstained": abstained(reply["response"])}

    def largest_request(self, example: Example) -> tuple[Any, Example]:
        """The reader, and the example with the longest context that this memory can hand over; for a forecast of tokens
        and money.
        """
        if not isinstance(example.get("items"), str):
            return self, example
        if getattr(self.memory, "ignores_k", False):
            return self.reader, example
        return self.reader, {**example, "context": _longest_turns(example["items"], self.k)}

    # --- hits ---

    def _within_k(self, hits: list[Hit]) -> tuple[list[Hit], int]:
        if getattr(self.memory, "ignores_k", False):
            return hits, 0
        return hits[: self.k], max(0, len(hits) - self.k)

    def _shown(self, hit: Hit, ready: _Ready) -> Shown:
        own = tuple(dict.fromkeys(turn for source in hit.source_ids for turn in ready.sources.get(source, (source,))))
        return Shown(hit, own or ready.provenance.of(hit), bool(own), rendered(hit), self._counter)

    def _within_budget(self, hits: list[Shown]) -> list[Shown]:
        if self.budget_tokens is None:
            return hits
        return hits[: within((hit.tokens for hit in hits), self.budget_tokens)]

    def _provenance(self, hits: Sequence[Shown]) -> str:
        if not hits:
            return "ids" if "source_ids" in self.memory.capabilities else "text match"
        if all(each.own for each in hits):
            return "ids"
        return "text match" if any(each.sources for each in hits) else "none"

    # --- life ---

    async def reset(self) -> None:
        """Empty the memory before another group; `BadInput` if it cannot be emptied and holds one."""
        self._ready, held = None, self._ready
        forget = calling.method(self.memory, "reset", "delete_all") if is_separable(self.memory) else None
        if forget is not None:
            await calling.call(forget)
        elif held is not None:
            check_separable(self.memory, self.name)

    async def aclose(self) -> None:
        """Close the memory, and the reader unless this is a namespace of another bridge. A namespace is emptied first;
        nothing uses it afterwards.
        """
        if not self._owner:
            with suppress(Exception):  # what it leaves behind changes no result
                await self.reset()
        for thing in (self.memory, self.reader if self._owner else None):
            close = calling.method(thing, "aclose", "close")
            if close is not None:
                await calling.call(close)

    def _namespace(self, name: str) -> Bridge:
        """An isolated instance with the same reader."""
        isolated = copy.copy(self)
        isolated.memory = getattr(self.memory, "namespace")(name)  # noqa: B009 - optional in the protocol
        isolated._ready, isolated._turn, isolated._owner = None, asyncio.Lock(), False
        isolated.namespace = isolated._namespace
        return isolated


@lru_cache(maxsize=4)
def _longest_turns(items: str, k: int) -> str:
    """The longest `k` turns, as a reader would see them: more than any `k` hits that are turns."""
    return "\n\n".join(nlargest(k, (dated(item.line, item.time) for item in iter_packed(items)), key=len))
