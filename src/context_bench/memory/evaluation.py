"""Run memories over conversations given as plain dicts: one row for each question.

Each conversation becomes a group of the engine's examples. `Bridge` makes a system of each memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.records import EvalRow, Example
from context_bench.core.tokens import count_tokens
from context_bench.memory.protocol import Item, conversation, packed

if TYPE_CHECKING:
    from context_bench.results import EvalResult


def evaluate_memory(
    systems: Sequence[Any] | Any,
    dataset: Iterable[Mapping[str, Any]],
    evaluators: Sequence[Any] | Any,
    metrics: Sequence[Any] | None = None,
    max_examples: int | None = None,
    progress: bool = True,
    **more: Any,
) -> EvalResult:
    """Put each conversation into each memory, ask its questions, judge the answers: one row per (system, conversation,
    question).

    `systems`: anything that `as_memory` understands (`reset`/`ingest`/`query`, `reset`/`store`/`recall`, a `Memory`),
    or a `Bridge`. `dataset`: conversations
    `{"id", "turns": [{"role", "content", …}], "qa_pairs": [{"question", "answer", "type"}], "dataset"}`; `max_examples`
    counts conversations. `more` goes to `evaluate` (`store=`, `run=`, `trials=`, `seed=`, `max_workers=`, `baseline=`,
    …).

    Evaluators get the whole conversation as `context`, in lines such as `USER: …`. Rows are named
    `<conversation>_<number of the question>`. `input_tokens`: what the system says went into its answer
    (`last_context_tokens`, an answer's `context_tokens`, the hits), else the tokens of the whole conversation;
    `output_tokens`: those of the answer; `latency`: seconds of the question alone. `metadata`: `qa_type`,
    `ingest_latency`, `query_latency`, `conversation_id`, `turn_count`. A failed ingest or query is an error on the row,
    never an empty answer.
    """
    from context_bench.datasets.examples import first_of
    from context_bench.memory.systems.adapting import check_separable
    from context_bench.runner import evaluate

    conversations = first_of(dataset, max_examples)
    bridges = [_bridged(system) for system in (systems if isinstance(systems, Sequence) else [systems])]
    if isinstance(dataset, Sequence) and len(dataset[:max_examples]) * more.get("trials", 1) > 1:
        for bridge in bridges:
            check_separable(bridge.memory, bridge.name)
    sizes: dict[str, tuple[int, int]] = {}
    counted = 0

    def examples() -> Iterator[Example]:
        nonlocal counted
        for raw in conversations:
            counted += 1
            for example in examples_of(raw, counted - 1):
                if example["group"] not in sizes:
                    sizes[example["group"]] = (
                        example["items"].count("\n") + bool(example["items"]),
                        count_tokens(example["context"]),
                    )
                yield example

    judged = evaluators if isinstance(evaluators, Sequence) else [evaluators]
    result = evaluate(bridges, examples(), judged, metrics, progress=progress, **more)
    result.rows = [_documented(row, *sizes.get(row.group or "", (0, 0))) for row in result.rows]
    result.config = {
        "systems": [bridge.name for bridge in bridges],
        "evaluators": [evaluator.name for evaluator in judged],
        "metrics": [metric.name for metric in metrics or []],
        "num_examples": counted,
    }
    for name, values in _again(result.rows, metrics or [], [bridge.name for bridge in bridges]).items():
        result.summary.setdefault(name, {}).update(values)
    return result


def examples_of(raw: Mapping[str, Any], index: int = 0) -> Iterator[Example]:
    """The questions of one conversation as examples of the engine, all of one group; `BadInput` for what has no turns
    or questions.
    """
    if not isinstance(raw, Mapping):
        raise BadInput(f"conversation {index} is no object with turns and qa_pairs: {raw!r:.80}")
    name = raw.get("id", index)
    turns, pairs = raw.get("turns"), raw.get("qa_pairs")
    if not isinstance(turns, list) or not isinstance(pairs, list):
        raise BadInput(
            f"conversation {name!r} needs turns (a list of messages) and qa_pairs (a list of questions); its keys: "
            f"{sorted(raw)}"
        )
    items = [_item(turn, number, name) for number, turn in enumerate(turns)]
    told = conversation(items, capitals=True)
    shared = {"items": packed(items), "context": told, "group": str(name), "cluster": str(name)}
    for number, pair in enumerate(pairs):
        if not isinstance(pair, Mapping) or not pair.get("question"):
            raise BadInput(f"question {number} of conversation {name!r} is no object with a question: {pair!r:.80}")
        more = {
            key: value
            for key, value in pair.items()
            if key not in ("id", "type", "question", "answer") and value is not None
        }
        answer = pair.get("answer")
        gold = {} if answer is None else {"answer": answer if isinstance(answer, str) else str(answer)}
        kind = {"qa_type": str(pair.get("type") or "unknown")}
        dataset = str(raw.get("dataset") or "")
        yield {
            **more,
            "id": f"{name}_{number}",
            "dataset": dataset,
            "question": str(pair["question"]),
            **gold,
            **kind,
            **shared,
        }


def _item(turn: Any, number: int, name: Any) -> Item:
    if not isinstance(turn, Mapping) or not isinstance(turn.get("content"), str):
        raise BadInput(f"turn {number} of conversation {name!r} is no message with a text as content: {turn!r:.80}")
    time, session = turn.get("timestamp") or turn.get("time"), turn.get("session_id") or turn.get("session")
    return Item(
        id=str(turn.get("id", number)),
        text=turn["content"],
        role=str(turn.get("role") or "user"),
        speaker=turn.get("speaker"),
        time=None if time is None else str(time),
        session=None if session is None else str(session),
    )


def _bridged(system: Any) -> Any:
    from context_bench.memory.systems.adapting import as_memory
    from context_bench.memory.systems.bridge import Bridge

    return system if isinstance(system, Bridge) else Bridge(as_memory(system))


def _documented(row: EvalRow, turns: int, tokens: int) -> EvalRow:
    """The row with the documented fields of a memory run."""
    facts = row.metadata
    used = facts.get("retrieved_tokens")
    parts = [facts[name] for name in ("search_seconds", "answer_seconds") if name in facts]
    seconds = float(sum(parts)) if parts else row.latency
    told = {"conversation_id": row.group, "turn_count": turns, "query_latency": seconds}
    metadata = {**facts, **told, "ingest_latency": facts.get("ingest_seconds")}
    return replace(
        row,
        input_tokens=None if row.failed else used if used is not None else tokens,
        output_tokens=facts.get("answer_tokens"),
        latency=seconds,
        metadata={name: value for name, value in metadata.items() if value is not None},
    )


def _again(rows: Sequence[EvalRow], metrics: Sequence[Any], systems: Sequence[str]) -> dict[str, dict[str, float]]:
    """The metrics over the documented rows."""
    of = {name: [row for row in rows if row.system == name] for name in systems}
    return {
        name: {key: value for metric in metrics for key, value in metric.compute(of[name]).items()} for name in systems
    }
