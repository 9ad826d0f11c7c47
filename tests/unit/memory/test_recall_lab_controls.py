"""Controls of the recall lab with the real memories: floors are low, the ceiling is reached, plain word search is in
between.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from statistics import mean

import pytest

from context_bench.core.records import Example
from context_bench.evaluators.answer_quality import AnswerQuality
from context_bench.memory.datasets.recall_lab import LANGUAGES, TYPES, lab
from context_bench.memory.evaluators.retrieval import Retrieval
from context_bench.memory.protocol import Item, unpacked
from context_bench.memory.systems.baselines import FullContext, NoMemory, Oracle, RandomPick, Recency
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.memory.systems.bridge import NOT_MENTIONED, Bridge
from context_bench.testing.lab_reader import LabReader

MEMORIES = {
    "none": NoMemory,
    "random": RandomPick,
    "recency": Recency,
    "bm25": BM25,
    "oracle": Oracle,
    "full_context": FullContext,
}


@lru_cache(maxsize=16)
def rows(options: str, n: int) -> tuple[Example, ...]:
    return tuple(lab(f"lang={options}", n=n).examples())


def right(row: Example, response: str) -> bool:
    if not row["answerable"]:
        return response == NOT_MENTIONED
    return response in row.get("answers", [row["answer"]])


def rendered(items: list[Item]) -> str:
    return "\n\n".join(f"[{item.time}] {item.line}" for item in items)


def said(row: Example, context: str) -> str:
    return str(LabReader().process({"context": context, "question": row["question"]})["response"])


async def ran(name: str, made: tuple[Example, ...], *, read: bool = True) -> list[Example]:
    """Every question put to the memory, group by group; answered by the reader that needs no model."""
    bridge, found = Bridge(MEMORIES[name](), reader=LabReader() if read else None, k=10), []
    for row in made:
        found.append(await bridge.aprocess(row))
    await bridge.aclose()
    return found


@pytest.mark.parametrize("options", [*LANGUAGES, "en,turns=1000"])
def test_the_evidence_alone_decides_and_all_of_it_is_needed(options: str) -> None:
    for row in rows(options, 4 if options in LANGUAGES else 1):
        evidence = [item for item in unpacked(row["items"]) if item.id in row.get("evidence", ())]
        assert right(row, said(row, rendered(evidence))), row["question"]
        assert right(row, said(row, row["context"])), row["question"]
        assert not row["answerable"] or said(row, "") == NOT_MENTIONED
        for left_out in evidence:
            rest = [item for item in evidence if item is not left_out]
            assert not right(row, said(row, rendered(rest))), (row["question"], left_out)


@pytest.mark.parametrize("options", LANGUAGES)
def test_without_the_evidence_the_rest_does_not_answer(options: str) -> None:
    for row in rows(options, 4):
        if row["answerable"]:
            rest = [item for item in unpacked(row["items"]) if item.id not in row["evidence"]]
            assert not right(row, said(row, rendered(rest))), row["question"]


@pytest.mark.parametrize("code", LANGUAGES)
async def test_ceilings_are_reached_and_nothing_is_known_without_a_memory(code: str) -> None:
    made = rows(code, 2)
    for name in ("oracle", "full_context"):
        output = await ran(name, made)
        assert all(right(row, found["response"]) for row, found in zip(made, output, strict=True)), name
        scores = [
            AnswerQuality().score(row, found) for row, found in zip(made, output, strict=True) if row["answerable"]
        ]
        assert {score["exact_match"] for score in scores} == {1.0}
    nothing = await ran("none", made)
    assert not [
        row["id"]
        for row, found in zip(made, nothing, strict=True)
        if row["answerable"] and right(row, found["response"])
    ]
    assert all(found["abstained"] for found in nothing)


async def _recall(name: str, made: tuple[Example, ...]) -> dict[str, dict[str, float]]:
    """Type → mean of every retrieval measure; "all" for all types together."""
    measure = Retrieval()
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, found in zip(made, await ran(name, made, read=False), strict=True):
        for score, value in measure.score(row, found).items():
            seen[row["qa_type"]][score].append(value)
            seen["all"][score].append(value)
    return {kind: {score: mean(values) for score, values in scores.items()} for kind, scores in seen.items()}


@pytest.mark.parametrize("code", LANGUAGES)
async def test_word_search_is_between_the_floors_and_the_ceiling(code: str) -> None:
    made = rows(code, 8)
    bm25, lot, last, ceiling = [await _recall(name, made) for name in ("bm25", "random", "recency", "oracle")]
    for floor in (lot, last):  # 10 of 100 turns
        assert floor["all"]["recall_at_10"] < 0.2
        assert floor["all"]["recall_at_1"] < 0.05
    assert ceiling["all"]["recall_at_5"] == 1.0
    assert 0.5 < bm25["all"]["recall_at_5"] < 0.9
    assert 0.2 < bm25["all"]["recall_at_1"] < 0.5
    answerable = {kind for kind in TYPES if not kind.startswith("absent-")}
    assert set(bm25) == answerable | {"all"}
    for kind in answerable:
        assert bm25[kind]["recall_at_1"] < 0.8, kind
        assert bm25[kind]["recall_at_5"] > 0.2, kind
        assert bm25[kind]["recall_at_10"] > lot[kind]["recall_at_10"], kind
    for hops in (2, 3, 4, 5):
        assert bm25[f"chain-{hops}"]["recall_at_5"] < 0.75  # the later links share no word with the question


async def test_longer_haystacks_are_harder() -> None:
    short, long = rows("en", 3), rows("en,turns=1000", 3)
    first = tuple(row for row in long if row["round"] == 0)
    assert [row["question"] for row in first] == [row["question"] for row in short]
    easy, hard = [await _recall("bm25", made) for made in (short, first)]
    assert hard["all"]["recall_at_5"] < easy["all"]["recall_at_5"] - 0.05
    assert (await _recall("random", first))["all"]["recall_at_10"] < 0.05
