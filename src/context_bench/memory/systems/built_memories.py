"""Memories of ours that are more than words: nearest vectors, alone or with BM25, and texts that a model writes.

Vectors are those of the bundled sentence embedder (all-MiniLM-L6-v2), compared by cosine; that is the usual way to
build a memory. `hybrid` joins words and vectors by reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009). A
model writes one summary again and again, or a ledger of facts with their sources; both read the conversation part by
part through a model behind an OpenAI-compatible URL.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, Protocol

from context_bench.core.errors import BadInput, Failed, describe
from context_bench.core.protocols import Prices
from context_bench.core.rows import by_size
from context_bench.core.tokens import counter_for
from context_bench.memory.protocol import Hit, Item, Receipt, date_limit, dated_within
from context_bench.memory.systems.baselines import Entry, Isolated, Listed, sizes
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.systems.openai_proxy import TextModel

MEMORIES = {
    "embedding": "Embedding",
    "hybrid": "Hybrid",
    "summary_regenerative": "RegenerativeSummary",
    "summary_anchored": "AnchoredSummary",
}


class Embeds(Protocol):
    """Texts → vectors of one length, in order."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


@cache
def bundled() -> Embeds:
    """The bundled model, loaded once per process; `MissingExtra` without the extra `local`."""
    from context_bench.llm.embedder import Embedder

    return Embedder()


class Embedding(Listed):
    """The `k` items whose vectors are nearest to the question's, by cosine; held in memory.

    `recency` w mixes in how new an item is: (1 − w) · cosine + w · position / last position. `embedder`: any object
    with `embed(texts)`.
    """

    name = "embedding"
    capabilities = Listed.capabilities | {"scores"}
    batch = 128
    _matrix: Any

    def __init__(self, recency: float = 0.0, *, embedder: Embeds | None = None) -> None:
        if not 0 <= recency <= 1:
            raise BadInput(f"embedding: recency is a weight from 0 to 1, not {recency}")
        self.recency = recency
        self._embedder = embedder or bundled()
        super().__init__()

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "Embedding",
            "embedder": getattr(self._embedder, "name", type(self._embedder).__name__),
            "recency": self.recency,
        }

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Nearest first; ties in the order in which they were added."""
        import numpy as np

        (asked,) = self._vectors([query])
        with self._lock:
            held = list(self._entries.items())
            if not held:
                return []
            scores = self._matrix[: len(held)] @ asked
        until = date_limit(as_of)
        if self.recency and len(held) > 1:
            scores = (1 - self.recency) * scores + self.recency * np.arange(len(held), dtype=np.float32) / (
                len(held) - 1
            )
        order = (at for at in np.argsort(-scores, kind="stable") if dated_within(held[at][1].time, until))
        return [held[at][1].hit(held[at][0], float(scores[at])) for at in islice(order, max(0, k))]

    def delete(self, memory_id: str) -> bool:
        import numpy as np

        with self._lock:
            at = self._position(memory_id)
            if at is None:
                return False
            self._matrix = np.delete(self._matrix, at, axis=0)
            return super().delete(memory_id)

    def update(self, memory_id: str, text: str) -> bool:
        (vector,) = self._vectors([text])
        with self._lock:
            at = self._position(memory_id)
            if at is None:
                return False
            self._matrix[at] = vector
            return super().update(memory_id, text)

    def delete_all(self) -> None:
        with self._lock:
            super().delete_all()
            self._matrix = _rows(0, 0)

    def stats(self) -> dict[str, int]:
        """`items` held, and the `bytes` of their texts and vectors."""
        with self._lock:
            texts = super().stats()
            return {**texts, "bytes": texts["bytes"] + texts["items"] * self._matrix.shape[1] * self._matrix.itemsize}

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._matrix = _rows(0, 0)

    def insert(self, ids: Sequence[str], items: Sequence[Item]) -> None:
        """Keep items under ids that somebody else gave them."""
        entries = [Entry.of(item) for item in items]
        if not entries:
            return
        vectors = self._vectors([entry.text for entry in entries])
        with self._lock:
            held, needed = len(self._entries), len(self._entries) + len(entries)
            if needed > len(self._matrix):
                grown = _rows(max(needed, 2 * len(self._matrix)), vectors.shape[1])
                grown[:held] = self._matrix[:held] if held else 0
                self._matrix = grown
            self._matrix[held:needed] = vectors
            self._entries.update(zip(ids, entries, strict=True))

    def _vectors(self, texts: Sequence[str]) -> Any:
        """Unit vectors, one a row."""
        import numpy as np

        vectors = np.asarray(self._embedder.embed(texts), dtype=np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def _position(self, memory_id: str) -> int | None:
        return next((at for at, held in enumerate(self._entries) if held == memory_id), None)


def _rows(rows: int, columns: int) -> Any:
    import numpy as np

    return np.zeros((rows, columns), dtype=np.float32)


_DEPTH = 50  # hits asked of each for every question, if `k` is not more


class Hybrid(Isolated):
    """Score of an item = Σ 1 / (`c` + rank) over both rankings; what only one of them finds counts once. Held in
    memory.
    """

    name = "hybrid"
    capabilities = BM25._CAPABILITIES
    batch: int | None = 128

    def __init__(self, c: int = 60, *, embedder: Embeds | None = None, space: str = "") -> None:
        self.c = c
        self._embedder = embedder
        self._words, self._vectors = BM25(space=space), Embedding(embedder=embedder)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "Hybrid",
            "c": self.c,
            "depth": _DEPTH,
            "words": self._words.fingerprint(),
            "vectors": self._vectors.fingerprint(),
        }

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Keep the items in both; in neither if one of them fails."""
        receipts = self._words.add(items)
        ids = [receipt.memory_id or "" for receipt in receipts]
        try:
            self._vectors.insert(ids, items)
        except BaseException:
            for memory_id in ids:
                self._words.delete(memory_id)
            raise
        return receipts

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The `k` best of both; ties go to the one that the words found first."""
        depth = max(k, _DEPTH)
        hits: dict[str | None, Hit] = {}
        for ranking in (self._words.search(query, depth, as_of=as_of), self._vectors.search(query, depth, as_of=as_of)):
            for rank, hit in enumerate(ranking, 1):
                fused = hits.setdefault(hit.memory_id, replace(hit, score=0.0))
                hits[hit.memory_id] = replace(fused, score=(fused.score or 0.0) + 1 / (self.c + rank))
        return sorted(hits.values(), key=lambda hit: -(hit.score or 0.0))[: max(0, k)]

    def delete(self, memory_id: str) -> bool:
        self._vectors.delete(memory_id)
        return self._words.delete(memory_id)

    def update(self, memory_id: str, text: str) -> bool:
        self._vectors.update(memory_id, text)
        return self._words.update(memory_id, text)

    def delete_all(self) -> None:
        self._words.delete_all()
        self._vectors.delete_all()

    def namespace(self, name: str) -> Hybrid:
        return Hybrid(self.c, embedder=self._embedder, space=name)

    def flush(self, seconds: float | None = None) -> None:
        self._words.flush(seconds)

    def stats(self) -> dict[str, int]:
        """`items`, and the `bytes` of texts, index and vectors."""
        words, vectors = self._words.stats(), self._vectors.stats()
        return {"items": words["items"], "bytes": words["bytes"] + vectors["bytes"]}

    def close(self) -> None:
        self._words.close()
        self._vectors.close()


class Written(Isolated, TextModel):
    """A memory that a model writes. `relay`: base URL of the model; `api_key` defaults to `OPENAI_API_KEY`.

    New items are put to the model in parts of at most `part_tokens` (o200k_base; a longer item is its own part), at
    temperature 0, with at most `max_tokens` for its reply. A part whose call fails is reported in the receipts of its
    items, and the memory is as before it. `prices` and `limiter` as of `ChatClient`.
    """

    batch: int | None = 20

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-3.5-turbo",
        api_key: str | None = None,
        *,
        part_tokens: int = 1500,
        max_tokens: int = 800,
        timeout: float = 120.0,
        max_retries: int = 3,
        prices: Prices | None = None,
        limiter: Any = None,
    ) -> None:
        settings = {"timeout": timeout, "max_retries": max_retries, "prices": prices, "limiter": limiter}
        super().__init__(relay, model, api_key, "--relay", part_tokens=part_tokens, max_tokens=max_tokens, **settings)
        self._begin("")

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Have the model read the items, part by part, in order."""
        receipts: list[Receipt] = []
        async with self._turn:  # each part is read with what was written of the one before
            for part in self._parts(items):
                try:
                    await self._read(part)
                except Failed as error:
                    receipts += [Receipt(item.id, error=describe(error)) for item in part]
                else:
                    receipts += [Receipt(item.id) for item in part]
        return receipts

    async def aclose(self) -> None:
        """Close the connections; a namespace leaves them to the memory that it came from."""
        if self._owner:
            await super().aclose()

    async def _read(self, part: Sequence[Item]) -> None:
        """Take a part in."""
        raise NotImplementedError

    def _begin(self, name: str) -> None:
        self._turn = asyncio.Lock()

    def _parts(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        counter = counter_for()
        return by_size(items, lambda item: counter.count(dated(item)), self.part_tokens)


def dated(item: Item) -> str:
    """A turn as the model reads it: when, who, what."""
    return f"({item.time}) {item.line}" if item.time else item.line


_RULES = """You keep the memory of a long conversation as one summary.
You get the summary so far and the next part of the conversation. Write the new summary, which takes the place of the old one.
Keep names, dates, numbers, places, preferences and decisions exactly as they were said. Where something changed, say what it is now and
since when. Leave greetings and small talk out. Write plain sentences, one fact to a line, and nothing else."""  # noqa: E501


class RegenerativeSummary(Written):
    """Holds nothing but the latest summary, and gives it as its only hit, whatever is asked. It does not know its
    sources.

    Nor does it know what it was told when: `as_of` leaves nothing out, so in a question about an earlier moment it
    knows too much.
    """

    name = "summary_regenerative"
    capabilities = frozenset({"add", "search", "delete_all", "namespaces", "stats"})
    rules = _RULES

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        return [Hit(self._summary, memory_id="summary")] if self._summary and k > 0 else []

    def delete_all(self) -> None:
        self._summary = ""

    def stats(self) -> dict[str, int]:
        """One item if there is a summary."""
        return sizes([self._summary] if self._summary else ())

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._summary = ""

    async def _read(self, part: Sequence[Item]) -> None:
        new = "\n".join(dated(item) for item in part)
        self._summary = await self._ask(
            f"Summary so far:\n{self._summary or '(nothing yet)'}\n\nNext part:\n{new}\n\nNew summary:"
        )


_LEDGER_RULES = """You keep the memory of a long conversation as a ledger of facts.
You get the last entries of the ledger and the next part of the conversation, whose turns are numbered.
Write what is new, one fact to a line: a dash, the fact as one short sentence with names, dates and numbers exactly as they were said, and
the numbers of the turns it comes from in square brackets. Example: - Mara's flight leaves on 3 May [2,5]
Where an entry of the ledger is no longer true, first write a line with a tilde and the entry's number, then the fact as it is now.
Example: ~ L7
Do not repeat entries. Leave greetings and small talk out. If nothing is new, write: - nothing"""  # noqa: E501
_FACT = re.compile(r"^[ \t]*[-*•][ \t]+(?P<fact>.+?)[ \t]*(?:\[(?P<turns>[\d,; \-–]*)\][ \t.]*)?$")
_STRUCK = re.compile(r"^[ \t]*~[ \t]*L?(\d{1,9})\b")
_LONGEST = 2000  # characters of one entry
_SHOWN = 40  # entries of the ledger that the model sees


class AnchoredSummary(Written):
    """Hits are entries of the ledger: those that share words with the question by BM25, then the newest ones, up to
    `k`.

    `source_ids` are the turns that the model named for an entry; turn numbers that it made up are left out.
    """

    name = "summary_anchored"
    capabilities = frozenset(
        {"add", "search", "delete", "delete_all", "source_ids", "timestamps", "namespaces", "stats"}
    )
    rules = _LEDGER_RULES

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        limit = date_limit(as_of)
        matches = [hit.source_ids[0] for hit in self._index.search(query, k, as_of=as_of)]
        newest = [key for key, (hit, _) in reversed(self._ledger.items()) if dated_within(hit.time, limit)]
        return [self._ledger[key][0] for key in list(dict.fromkeys([*matches, *newest]))[: max(0, k)]]

    def delete(self, memory_id: str) -> bool:
        entry = self._ledger.pop(memory_id, None)
        return entry is not None and self._index.delete(entry[1])

    def delete_all(self) -> None:
        self._ledger.clear()
        self._index.delete_all()

    def stats(self) -> dict[str, int]:
        return sizes(hit.text for hit, _ in self._ledger.values())

    async def aclose(self) -> None:
        self._index.close()
        await super().aclose()

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._ledger: dict[str, tuple[Hit, str]] = {}  # entry → (what it says, its id in the index)
        self._index = BM25(space=name)
        self._next = 1

    async def _read(self, part: Sequence[Item]) -> None:
        shown = list(self._ledger.items())[-_SHOWN:]
        ledger = "\n".join(f"{key}: {hit.text}" for key, (hit, _) in shown) or "(empty)"
        turns = "\n".join(f"[{number}] {dated(item)}" for number, item in enumerate(part, 1))
        reply = await self._ask(f"Ledger:\n{ledger}\n\nNext part:\n{turns}\n\nNew lines of the ledger:")
        for line in (written[:_LONGEST] for written in reply.splitlines()):
            if struck := _STRUCK.match(line):
                self.delete(f"L{int(struck[1])}")
            elif (fact := _FACT.match(line)) and fact["fact"].strip(" .").lower() != "nothing":
                self._write(fact["fact"], [part[at - 1] for at in _numbers(fact["turns"] or "") if 0 < at <= len(part)])

    def _write(self, fact: str, sources: Sequence[Item]) -> None:
        key = f"L{self._next}"
        self._next += 1
        when = next((item.time for item in sources if item.time), None)
        (receipt,) = self._index.add([Item(key, fact, time=when)])
        self._ledger[key] = (
            Hit(fact, None, tuple(dict.fromkeys(item.id for item in sources)), key, when),
            receipt.memory_id or "",
        )


def _numbers(text: str) -> list[int]:
    """`2,5-7` → 2, 5, 6, 7. A range of more than 100 is taken for two numbers."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d{1,6})(?:\s*[-–]\s*(\d{1,6}))?", text):
        low, high = int(first), int(last or first)
        numbers += range(low, high + 1) if 0 <= high - low <= 100 else (low, high)
    return numbers
