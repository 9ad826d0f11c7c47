"""A compressor and a reader as an arm of a run: one compression a group, equal sizes for controls, each probe in a fork
of its own.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from context_bench import evaluate
from context_bench.compression.datasets import compression_points, generate_probes, visible_share
from context_bench.compression.evaluators.probe_atoms import ProbeAtoms
from context_bench.compression.probes import Probe, ProbeAtom, example_of, packed, rendered, unrendered
from context_bench.compression.systems.compressing import Compressing
from context_bench.compression.systems.sentence import NOTHING, SentenceReader
from context_bench.core.errors import NoBudget, SetupFailed
from context_bench.core.protocols import Compressed
from context_bench.datasets import sessions
from context_bench.metrics import MeanScore

READER = SentenceReader()


def probes(name: str = "lagerverwaltung-de", points: str = "fraction:0.9") -> list[dict[str, Any]]:
    session = sessions.load_session(name)
    text = packed(session.messages)
    return [
        example_of(probe, session=text, group=point.id, cluster=session.id, points=[point.index])
        for point in compression_points(session, points)
        for made in [generate_probes(point, cwd=session.meta["cwd"])]
        for probe, share in zip(made, visible_share(made, point), strict=True)
        if share <= 0.4
    ]


class Counting:
    """Keeps the last message and counts how often it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, Any]] = []

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        self.asked.append((len(prefix), len(tail), state))
        return Compressed(prefix[-1:]), (state or 0) + 1


class Telling:
    """Answers with what it was shown."""

    name = "telling"

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {"response": json.dumps(example["turns"])}


def test_full_keeps_what_none_loses(tmp_path: Path) -> None:
    full, none = Compressing("full", READER), Compressing("none", READER)
    head = Compressing("head_tail:keep=0.2", READER, name="cut")
    result = evaluate(
        systems=[full, none, head, Compressing("random_drop", READER, partner=head)],
        dataset=probes(),
        evaluators=[ProbeAtoms()],
        cache_dir=tmp_path,
    )
    means = {
        name: MeanScore("probe_score").compute([row for row in result.rows if row.system == name])["mean_score"]
        for name in result.summary
    }
    assert means["full"] > means["cut"] > means["none"]
    assert means["none"] < 0.1
    assert not any(row.errors for row in result.rows)


def test_a_group_is_compressed_once_and_its_size_matched() -> None:
    counting = Counting()
    arm = Compressing(counting, READER)
    control = Compressing("head_tail", READER, partner=arm)
    examples = probes()

    async def ask() -> list[dict[str, Any]]:
        await asyncio.gather(control.asetup(examples[0]), arm.asetup(examples[0]))
        return [await control.aprocess(example) for example in examples]

    answers = asyncio.run(ask())
    assert len(counting.asked) == 1
    assert control.name == "head_tail@counting"
    ours = asyncio.run(Compressing(Counting(), READER).aprocess(examples[0]))["compressed"]["tokens_after"]
    assert all(0 < answer["compressed"]["tokens_after"] <= ours for answer in answers)


def test_the_reader_sees_the_rest_and_the_question_and_no_gold() -> None:
    example = probes()[0]
    shown = json.loads(asyncio.run(Compressing("none", Telling()).aprocess(example))["response"])
    session = [json.loads(line) for line in example["session"].split("\n")]
    assert shown == [session[0], *session[example["points"][0] :], {"role": "user", "content": example["question"]}]
    assert example["answer"] not in json.dumps(shown[-1])


class Growing:
    """Says everything twice."""

    name = "growing"

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        return Compressed([*prefix, *prefix]), state


def test_a_control_with_room_for_everything_changes_nothing() -> None:
    """Else truncation would be held against what only another form of the same text costs."""
    [example, *_] = probes()
    for name in ("head_tail", "random_drop", "bm25"):
        control, full = Compressing(name, READER, partner=Compressing(Growing(), READER)), Compressing("full", READER)
        assert asyncio.run(control.made(example)).messages == asyncio.run(full.made(example)).messages, name


def test_several_points_compress_what_was_compressed_before() -> None:
    counting = Counting()
    example = probes()[0] | {"points": [6, 12, 20], "group": "drift"}
    made = asyncio.run(Compressing(counting, READER).made(example))
    assert [state for _, _, state in counting.asked] == [None, 1, 2]
    assert [size for size, _, _ in counting.asked] == [
        5,
        7,
        9,
    ]  # without the system prompt; then one message and what came since
    assert len(made.messages) == 2


def test_a_failing_compressor_fails_its_rows_and_its_control(tmp_path: Path) -> None:
    class Broken(Counting):
        name = "broken"

        def compress(self, *args: Any, **more: Any) -> Any:
            raise RuntimeError("no weights")

    arm = Compressing(Broken(), READER)
    result = evaluate(
        systems=[arm, Compressing("head_tail", READER, partner=arm)],
        dataset=probes(),
        evaluators=[ProbeAtoms()],
        cache_dir=tmp_path,
    )
    errors = {row.system: row.errors["system"] for row in result.rows}
    assert "no weights" in errors["broken"]
    assert errors["broken"].startswith(SetupFailed.__name__)
    assert errors["head_tail@broken"].startswith(NoBudget.__name__)
    assert all("probe_score" not in row.scores for row in result.rows)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ([], None),
        Compressed([]),
        (Compressed(["x"]), None),
        (Compressed([{"role": "user", "content": b"x"}]), None),
    ],  # type: ignore[list-item]
)
def test_what_is_no_compression_is_a_failure(answer: Any) -> None:
    class Odd(Counting):
        def compress(self, *args: Any, **more: Any) -> Any:
            return answer

    with pytest.raises(SetupFailed, match="compress"):
        asyncio.run(Compressing(Odd(), READER).aprocess(probes()[0]))


def test_a_broken_conversation_is_said() -> None:
    class Orphans(Counting):
        """Leaves results of tools without the calls."""

        def compress(
            self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
        ) -> tuple[Compressed, Any]:
            return Compressed([message for message in prefix if message["role"] == "tool"]), state

    facts = asyncio.run(Compressing(Orphans(), READER).asetup(probes()[0]))
    assert facts["violations"] == ["orphan_tool_result"]
    assert "violations" not in asyncio.run(Compressing("full", READER).asetup(probes()[0]))


def test_sentences_answer_and_nothing_is_said_so() -> None:
    probe = Probe("p", "recall", "Which port does the database use?", "5433", (ProbeAtom("5433"),))
    assert (
        "5433"
        in READER.process({"context": "The sky is blue. The database uses port 5433.", "question": probe.question})[
            "response"
        ]
    )
    assert READER.process({"context": "", "question": "?"})["response"] == NOTHING


class _Claims:
    """Says that it is deterministic; `drift` makes it wrong, and it always halves."""

    name = "claims"
    deterministic = True

    def __init__(self, drift: bool) -> None:
        self.drift, self.calls = drift, 0

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        self.calls += 1
        kept = prefix[len(prefix) // 2 :] or prefix
        return Compressed([*kept, {"role": "user", "content": str(self.calls)}] if self.drift else kept), state


async def test_what_says_it_is_deterministic_is_looked_at() -> None:
    example = probes()[0]
    steady = Compressing("window:n=4", READER)
    facts = await steady.asetup(example)
    assert (facts["determinism"], facts["idempotence"]) == (1.0, 1.0)
    facts = await Compressing(_Claims(drift=False), READER).asetup(example)
    assert (facts["determinism"], facts["idempotence"]) == (1.0, 0.0)
    facts = await Compressing(_Claims(drift=True), READER).asetup(example)
    assert facts["determinism"] == 0.0
    assert "determinism" not in await Compressing("head_tail", READER, partner=steady).asetup(example)
    assert "determinism" not in await Compressing(Counting(), READER).asetup(example)


@pytest.mark.parametrize("name", ["lagerverwaltung-de", "order-sync-zh"])
def test_a_session_given_as_one_text_is_read_as_well_as_its_messages(name: str) -> None:
    session = sessions.load_session(name)
    flat = [{"role": "user", "content": rendered(session.messages[1:])}]
    for example in probes(name):
        question = {"role": "user", "content": example["question"]}
        asked = [
            {"question": example["question"], "turns": [*shown, question]}
            for shown in (session.messages, [session.messages[0], *flat])
        ]
        answers = [READER.process(each)["response"] for each in asked]
        assert set(answers[0].split("\n")) == set(answers[1].split("\n"))


def test_what_is_left_of_a_rendering_is_read() -> None:
    whole = rendered(sessions.load_session("lagerverwaltung-de").messages[1:])
    for start in range(0, len(whole), 997):
        found = unrendered(whole[start:])
        calls = {call["id"] for message in found or [] for call in message.get("tool_calls") or []}
        assert all(message["tool_call_id"] in {*calls, None} for message in found or [] if message["role"] == "tool")
    assert unrendered("user: no rendering, only a colon") is None
    assert unrendered("") is None
