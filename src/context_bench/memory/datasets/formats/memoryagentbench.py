"""MemoryAgentBench: one long text, to be taken in piece by piece, and many questions about it.

The text is cut at the ends of lines, else of sentences, into pieces of at most `PIECE` characters (about 512 tokens,
the finest that the authors use). Where the answer stands is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.datasets.memory_records import (
    Dirt,
    Distinct,
    Document,
    MemoryConversation,
    MemoryFormat,
    MemoryQuestion,
    answers_of,
    iso,
    kind,
    listed,
    paired,
    text_of,
)
from context_bench.memory.protocol import Item

PIECE = 2048


def _sniff(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("context"), str) and all(
        isinstance(document.get(key), list) for key in ("questions", "answers")
    )


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    distinct = Distinct(Dirt(), "")
    for document in documents:
        value, where = document.value, document.where
        meta = value.get("metadata") if isinstance(value.get("metadata"), Mapping) else {}
        assert isinstance(meta, Mapping)
        source = text_of(meta, where, "source") or "text"
        name = distinct(source.rstrip("*"))
        pairs = paired(listed(value, "questions", where), listed(value, "answers", where), where)
        kinds, dates = _by_number(meta, "question_types"), _by_number(meta, "question_dates")
        names = _by_number(meta, "qa_pair_ids") or _by_number(meta, "question_ids")
        asked = []
        for number, (question, answer) in enumerate(pairs):
            if not isinstance(question, str):
                raise BadInput(f"{where}: question {number + 1} is {kind(question)}; expected text")
            date = dates.get(number)
            asked.append(
                MemoryQuestion(
                    id=f"{name}/{names.get(number, number)}",
                    text=question,
                    answers=answers_of(answer, dirt, where),
                    type=kinds.get(number, source.rstrip("*")),
                    asked=(iso(date) or date) if date else None,
                    category=source,
                )
            )
        items = [Item(str(number), piece) for number, piece in enumerate(pieces(value["context"]))]
        yield MemoryConversation(name, items, asked, granularity=f"piece of {PIECE} characters")


def _by_number(meta: Mapping[str, Any], name: str) -> dict[int, str]:
    """The values of a list in the metadata, one for each question; shorter or empty lists say nothing of the rest."""
    value = meta.get(name)
    return (
        {i: str(each) for i, each in enumerate(value) if isinstance(each, str | int) and each != ""}
        if isinstance(value, list)
        else {}
    )


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """`text` in pieces of at most `size` characters, cut where a line ends, else a sentence, else a word; only white
    space is lost.
    """
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            window = text[start:end]
            cuts = (window.rfind("\n"), max(window.rfind(mark) for mark in (". ", "! ", "? ", "。")), window.rfind(" "))
            end = start + next((cut + 1 for cut in cuts if cut >= size // 2), size)
        if piece := text[start:end].strip():
            yield re.sub(r"\n{3,}", "\n\n", piece)
        start = end


FORMATS = (
    MemoryFormat(
        "memoryagentbench",
        "{context: text, questions: [], answers: [[]], metadata: {source, qa_pair_ids, question_types}}",
        _sniff,
        _read,
        rank=80,
    ),
)
