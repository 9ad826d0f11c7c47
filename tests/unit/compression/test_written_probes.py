"""Probes that a model writes: kept where every quote stands in the message it names, thrown away and counted where
not.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from context_bench.compression.datasets import ModelProbes, ProbeSet, compression_points
from context_bench.compression.probes import CompressionPoint
from context_bench.core.errors import BadInput
from context_bench.datasets import sessions
from context_bench.datasets.recorded import RecordedSessions
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.wire.conversation import message_text

MESSAGES = [
    {"role": "system", "content": "You are a coding agent."},
    {"role": "user", "content": "The gauge at pier 4 reads 4.2 m. Never restart it."},
    {"role": "assistant", "content": "We keep the old probe instead of a new one, because it is calibrated."},
    {"role": "user", "content": "Go on."},
]
POINT = CompressionPoint("s", 3, "at:3", MESSAGES[:3], MESSAGES[3:])


def row(question: str, message: Any, quote: Any, kind: str = "recall") -> dict[str, Any]:
    return {"type": kind, "question": question, "answer": "", "evidence": [{"message": message, "quote": quote}]}


async def written(text: str, **options: Any) -> tuple[list[Any], dict[str, int], int]:
    model = Scripted({"default": text})
    async with ModelServer(model) as server:
        writer = ModelProbes(server.url, "scripted", **options)
        return await writer.write(POINT), dict(writer.counts), model._calls


async def test_only_what_stands_there_word_for_word_is_kept() -> None:
    rows = [
        row("What does the gauge read?", 1, "4.2 m"),
        row("What does the gauge show?", 1, "4.3 m"),
        row("Which pier?", 2, "pier 4"),
        row("Which rule is there?", 0, "coding agent"),
        row("Is it 4.2 m at the gauge?", 1, "4.2 m"),
        row("What is to be done?", 3, "Go on."),
        row("What was chosen?", 2, "the old probe", "decision"),
        row("What was chosen?", 2, "calibrated", "decision"),
        row("What?", 1, "4.2 m", "guess"),
        row("What?", True, "4.2 m"),
        {"type": "recall", "question": "What?", "evidence": []},
        "no probe",
    ]
    kept, counts, calls = await written("Here you are:\n```json\n" + json.dumps({"probes": rows}) + "\n```", most=20)
    assert [(probe.id, probe.question, probe.made_by) for probe in kept] == [
        ("s@3#recall-m1", "What does the gauge read?", "scripted"),
        ("s@3#decision-m1", "What was chosen?", "scripted"),
    ]
    for probe in kept:
        for source in probe.provenance:
            assert message_text(MESSAGES[source.message])[source.start : source.end] == probe.atoms[0].text
    assert counts == {
        "kept": 2,
        "span not found": 5,
        "question holds its answer": 1,
        "asked twice": 1,
        "no type or no question": 2,
        "no evidence": 1,
    }
    assert calls == 1


@pytest.mark.parametrize("reply", ["I cannot.", "{", '{"probes": 3}', "[1, 2]", '{"probes": [' * 5000])
async def test_replies_that_are_none_give_no_probe(reply: str) -> None:
    kept, counts, _ = await written(reply)
    assert kept == []
    assert counts == {"reply is no JSON with probes": 1}


async def test_long_prefixes_are_read_in_parts() -> None:
    _, _, calls = await written('{"probes": []}', part_tokens=20)
    assert calls == 2


async def test_a_set_of_probes_counts_what_was_thrown_away_and_asks_once() -> None:
    name = "bundled:sessions/clinic-booking-ar"
    session = sessions.load_session(name)
    (point,) = compression_points(session, "fraction:0.75")
    at = next(number for number, message in enumerate(session.messages) if message["role"] == "tool")
    rows = [
        row("Which text?", at, message_text(session.messages[at])[10:60]),
        row("Which text is it?", at, "not in there at all"),
    ]
    model = Scripted({"default": json.dumps({"probes": rows})})
    async with ModelServer(model) as server:
        writer = ModelProbes(server.url, "scripted", part_tokens=100_000)
        alone = await asyncio.to_thread(ProbeSet, RecordedSessions([name]), structured=False, writer=writer)
        both = await asyncio.to_thread(ProbeSet, RecordedSessions([name]), writer=writer)
    assert model._calls == 1
    assert [example["id"] for example in alone.examples()] == [f"{point.id}#recall-m1"]
    assert len(list(both.examples())) > 1
    assert alone.manifest()["written"] == {"kept": 1, "span not found": 1}


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadInput, match="most"):
        ModelProbes("http://127.0.0.1:1", "m", most=0)
