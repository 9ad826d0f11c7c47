"""Memory datasets as conversations with their questions: the form that `evaluate_memory` takes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.memory.datasets.loading import load_memory
from context_bench.memory.protocol import Item, unpacked

T = TypeVar("T")

#: What a question of a conversation keeps of an example.
_KEPT = ("answers", "evidence", "evidence_sessions", "answerable", "asked", "category", "choices", "correct_letter", "versions")


def locomo(n: int | None = None, qa_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The first `n` conversations of LoCoMo with their questions, of the given types only."""
    return conversations("locomo", n, qa_types)


def longmemeval(n: int | None = None, variant: str = "s", qa_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The first `n` histories of LongMemEval, one question each; `variant`: `s`, `m` or `oracle`."""
    return conversations(f"longmemeval:{variant}", n, qa_types)


def conversations(spec: str, n: int | None = None, qa_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Any memory dataset as `{"id", "turns", "qa_pairs", "dataset"}`; `n` counts conversations. See `load_memory` for names and errors."""
    loaded = load_memory(spec, n=n, qa_types=list(qa_types) if qa_types else None)
    return [_conversation(name, list(examples)) for name, examples in groupby(loaded.examples(), key=lambda one: one["group"])]


def split_conversations(examples: Iterable[T], train_frac: float = 0.8, seed: int = 42) -> tuple[list[T], list[T]]:
    """Whole conversations in two parts, drawn by `seed`: the first with `train_frac` of them, rounded to the nearest."""
    if not 0 <= train_frac <= 1:
        raise BadInput(f"train_frac is {train_frac}; expected a share from 0 to 1")
    drawn = list(examples)
    random.Random(seed).shuffle(drawn)
    first = round(len(drawn) * train_frac)
    return drawn[:first], drawn[first:]


def sample_search_pool(examples: Iterable[T], n: int = 100, seed: int | None = None) -> list[T]:
    """At most `n` of the conversations, drawn without replacement; another draw each time unless there is a `seed`."""
    known = list(examples)
    return random.Random(seed).sample(known, min(n, len(known)))


def _conversation(name: str, examples: Sequence[Example]) -> dict[str, Any]:
    first = examples[0]
    turns = [_turn(item) for item in unpacked(first["items"])]
    return {"id": name, "turns": turns, "qa_pairs": [_pair(example) for example in examples], "dataset": first["dataset"]}


def _turn(item: Item) -> dict[str, Any]:
    named = {"id": item.id, "timestamp": item.time, "speaker": item.speaker, "session_id": item.session}
    return {"role": item.role, "content": item.text, **{key: value for key, value in named.items() if value is not None}}


def _pair(example: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: example[name] for name in _KEPT if name in example}
    return {"question": example["question"], "answer": example.get("answer"), "type": example["qa_type"], **kept}
