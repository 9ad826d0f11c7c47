"""How haystacks are put into memories before their questions: one at a time, one for every question, or more and more of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

from context_bench.core.records import Example
from context_bench.datasets.loaded import LoadedDataset
from context_bench.memory.protocol import conversation, packed, unpacked

Mode = Literal["shared", "isolated", "growing"]


def in_mode(dataset: LoadedDataset, mode: Mode) -> LoadedDataset:
    """The same questions with haystacks put in otherwise.

    `shared`: every haystack once, for all of its questions (as loaded). `isolated`: a memory of its own for every question, so that no
    question can change what another one finds. `growing`: the questions of the n-th haystack are asked of a memory that holds the first
    n, in their order; ids of items and sessions then begin with their haystack's. Each n is set up anew, so that a resumed run says the
    same. The haystack stays the unit of statistics (`cluster`).
    """
    if mode == "shared":
        return dataset
    change = _isolated if mode == "isolated" else _growing
    return replace(
        dataset,
        _read=lambda: change(dataset.examples()),
        _facts=lambda: {**{key: value for key, value in dataset.manifest().items() if key not in _OWN}, "mode": mode},
    )


_OWN = ("name", "evaluators", "has_context")


def _isolated(examples: Iterable[Example]) -> Iterator[Example]:
    for example in examples:
        yield {**example, "group": f"{example['group']}#{example['id']}"}


def _growing(examples: Iterable[Example]) -> Iterator[Example]:
    items = context = ""
    for haystack, questions in groupby(examples, key=lambda example: str(example["group"])):
        for number, example in enumerate(questions):
            if number == 0:
                own = [
                    replace(item, id=f"{haystack}/{item.id}", session=None if item.session is None else f"{haystack}/{item.session}")
                    for item in unpacked(example["items"])
                ]
                items = "\n".join(filter(None, (items, packed(own))))
                context = "\n\n".join(filter(None, (context, conversation(own))))
            yield {**example, **_renamed(example, haystack), "group": f"{haystack}+", "items": items, "context": context}


def _renamed(example: Example, haystack: str) -> dict[str, Any]:
    """Everything that names items or sessions, with the haystack before it."""
    named = {name: [f"{haystack}/{one}" for one in example[name]] for name in _IDS if name in example}
    told = {
        name: [{**each, "source": f"{haystack}/{each['source']}"} if "source" in each else each for each in example[name]]
        for name in ("versions", "history")
        if name in example
    }
    return named | told


_IDS = ("evidence", "evidence_sessions", "near_misses")
