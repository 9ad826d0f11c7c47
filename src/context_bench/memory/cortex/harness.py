"""Cortex's evaluation harness: questions about things stored, through a client of three calls.

What it does about failures: nothing was measured if `reset` or `store` fails, so the benchmark is aborted; a failed
`recall` is counted, scored as empty, and said aloud; if every recall failed, nothing was measured either. The original
stores a shared conversation once per question when it accumulates (1,194,140 instead of 5,882 calls on LoCoMo); here it
is stored once, unless `repeat_shared` asks for its way.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from math import comb
from typing import Any

from context_bench.core.errors import BadInput, Stop, SystemFailed, UnknownName, describe
from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.llm.background import run_sync
from context_bench.memory.cortex.containment import (
    BENCHMARKS,
    BenchmarkSummary,
    Client,
    recall_at_k,
    score_question,
    simple_lower,
    summarize,
)

SHAPES = {
    "locomo": "{conversation: {session_N: [{human_turn, blenderbot_message}], question_answer_pairs: [{question, "
    "answer, category}]}}",
    "longmemeval": "[{question_id, question, answer, question_type, sessions: [[{role, content}]]}]",
    "dmr": "[{id, conversation or turns: [{speaker or role, content or text}], question or query, answer or "
    "expected_answer, hop_count}]",
}
#: A field that only a published format has → what it is.
_PUBLISHED = {
    "haystack_sessions": "the published LongMemEval",
    "previous_dialogs": "the published MSC-Self-Instruct (DMR)",
    "qa": "the published LoCoMo",
}
_SESSION = re.compile(r"session_(\d+)")
#: Ways to write a type of question, as the original takes them; any other stays as it is, in small letters
#: ("temporal-reasoning" too).
_TYPES = {
    "temporal reasoning": "temporal",
    **dict.fromkeys(("multi_hop", "multihop"), "multi-hop"),
    **dict.fromkeys(("knowledge_update", "knowledge update"), "knowledge-update"),
}
Blank = Callable[[str], None]  # told where a turn says nothing


@dataclass(frozen=True, slots=True)
class Pair:
    """A question, the text that answers it, and what has to be stored before it is asked.

    `conversation`: pairs that share it share their items; empty = the pair has items of its own.
    """

    id: str
    question: str
    answer: str
    items: tuple[str, ...]
    category: str = ""
    conversation: str = ""


def shape_of(document: Any) -> str | None:
    """Recognise one of the three shapes by its fields; `None` for anything else."""
    if isinstance(document, Mapping):
        conversations = [value for value in document.values() if isinstance(value, Mapping)]
        return "locomo" if any("question_answer_pairs" in conversation for conversation in conversations) else None
    entries = [entry for entry in document if isinstance(entry, Mapping)] if isinstance(document, list) else []
    if any("sessions" in entry for entry in entries):
        return "longmemeval"
    chains = (entry.keys() & {"conversation", "turns"} and entry.keys() & {"question", "query"} for entry in entries)
    return "dmr" if any(chains) else None


def read_pairs(document: Any, benchmark: str | None = None, on_blank: Blank | None = None) -> list[Pair]:
    """The pairs in a parsed JSON document, in the file's order, sessions by number. Turns that say nothing are left
    out; `on_blank` is told where each of them stands.

    `benchmark` ("locomo", "longmemeval", "dmr"): the shape that is expected; by default the one found. An empty list or
    object is an empty set of that benchmark. `BadInput` for another shape, for a field of another kind, and for a
    document that has something but no questions, or nothing to remember.
    """
    if benchmark in SHAPES and document == ({} if benchmark == "locomo" else []):
        return []
    shape = shape_of(document)
    if shape is None or (benchmark is not None and shape != benchmark):
        raise BadInput(_wrong(document, shape, benchmark))
    readers: dict[str, Callable[[Any, Blank], Iterable[Pair]]]
    readers = {"locomo": _locomo, "longmemeval": _longmemeval, "dmr": _dmr}
    pairs = list(readers[shape](document, on_blank or (lambda where: None)))
    if not pairs:
        raise BadInput("the file has no questions")
    if not any(pair.items for pair in pairs):
        raise BadInput(f"the file has {len(pairs)} questions and nothing to remember")
    return pairs


def _wrong(document: Any, shape: str | None, benchmark: str | None) -> str:
    first = document[0] if isinstance(document, list) and document else document
    published = next((name for key, name in _PUBLISHED.items() if isinstance(first, Mapping) and key in first), None)
    wanted = [benchmark] if benchmark in SHAPES else list(SHAPES)
    expected = "\n".join(f"  {name}: {SHAPES[name]}" for name in wanted if name)
    if published:
        found = f"this is {published} format, which `context-bench memory --dataset` reads"
    else:
        found = f"this is the shape of {shape!r}" if shape else "the file has none of the shapes known here"
    return f"{found}; expected\n{expected}"


# The three shapes
# ------------------------------------------------------------------------
def _locomo(document: Mapping[str, Any], on_blank: Blank) -> Iterable[Pair]:
    for name, conversation in document.items():
        where = f"conversation {name!r}"
        if not isinstance(conversation, Mapping):
            raise BadInput(f"{where}: expected an object, found {_kind(conversation)}")
        numbered = sorted((int(found[1]), key) for key in conversation if (found := _SESSION.fullmatch(key)))
        if not numbered:
            raise BadInput(f"{where} has no session_1, session_2, …")
        turns = [turn for _, key in numbered for turn in _objects(conversation[key], f"{where}, {key}")]
        sides = [
            (_text(turn, ("human_turn",), where, ""), _text(turn, ("blenderbot_message",), where, "")) for turn in turns
        ]
        said = [(user, other) for user, other in sides if user.strip() or other.strip()]
        for _ in range(len(sides) - len(said)):
            on_blank(where)
        items = tuple(f"User: {user}\nAssistant: {other}" for user, other in said)
        for number, asked in enumerate(
            _objects(conversation.get("question_answer_pairs", []), f"{where}, question_answer_pairs")
        ):
            at = f"{where}, question {number}"
            category = _text(asked, ("category",), at, "").strip().lower()
            yield Pair(
                id=f"{name}-q{number}",
                question=_text(asked, ("question",), at),
                answer=_text(asked, ("answer",), at),
                items=items,
                category="temporal"
                if category == "temporal reasoning"
                else category,  # all that the original knows of this shape
                conversation=name,
            )


def _longmemeval(document: Sequence[Any], on_blank: Blank) -> Iterable[Pair]:
    for number, entry in enumerate(_objects(document, "the file")):
        where = f"entry {number}"
        sessions = _list(entry.get("sessions"), f"{where}, sessions")
        turns = [
            turn for index, session in enumerate(sessions) for turn in _objects(session, f"{where}, session {index}")
        ]
        category = _text(entry, ("question_type",), where, "").strip().lower()
        yield Pair(
            id=_text(entry, ("question_id",), where, "") or f"lme-full-{number}",
            question=_text(entry, ("question",), where),
            answer=_text(entry, ("answer",), where),
            items=tuple(_turns(turns, ("role",), ("content",), where, on_blank)),
            category=_TYPES.get(category, category),
        )


def _dmr(document: Sequence[Any], on_blank: Blank) -> Iterable[Pair]:
    for number, entry in enumerate(_objects(document, "the file")):
        where = f"entry {number}"
        told = [entry[name] for name in ("conversation", "turns") if entry.get(name) is not None]
        turns = next(filter(None, told), told[0] if told else None)
        hops = entry.get("hop_count") or 0
        if isinstance(hops, bool) or not isinstance(hops, int):
            raise BadInput(f"{where}: hop_count is expected to be a whole number, found {_kind(hops)}")
        yield Pair(
            id=_text(entry, ("id",), where, "") or f"dmr-{number}",
            question=_text(entry, ("question", "query"), where),
            answer=_text(entry, ("answer", "expected_answer"), where),
            items=tuple(
                _turns(_objects(turns, f"{where}, turns"), ("speaker", "role"), ("content", "text"), where, on_blank)
            ),
            category=f"{hops}-hop" if hops > 0 else "unknown",
        )


def _turns(
    turns: Iterable[Mapping[str, Any]], who: Sequence[str], what: Sequence[str], where: str, on_blank: Blank
) -> Iterable[str]:
    for turn in turns:
        there = any(name in turn for name in what)  # a turn that has no such field is of another shape
        says = [name for name in what if not isinstance(turn.get(name), str) or turn[name].strip()]
        said = _text(turn, says or what, where, "" if there else None)
        if said.strip():
            yield f"{_text(turn, who, where, 'user')}: {said}"
        else:
            on_blank(where)


# Fields
# ------------------------------------------------------------------------
def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadInput(f"{where}: expected a list, found {_kind(value)}")
    return value


def _objects(value: Any, where: str) -> list[Mapping[str, Any]]:
    listed = _list(value, where)
    for number, one in enumerate(listed):
        if not isinstance(one, Mapping):
            raise BadInput(f"{where}: entry {number} is expected to be an object, found {_kind(one)}")
    return listed


def _text(entry: Mapping[str, Any], names: Sequence[str], where: str, default: str | None = None) -> str:
    """The first of the fields that is there; numbers are read as their digits. Without a default it has to be there."""
    value = next((entry[name] for name in names if entry.get(name) not in (None, "")), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    if value is None and default is not None:
        return default
    raise BadInput(f"{where}: {' or '.join(names)} is expected to be text, found {_kind(value)}")


def _kind(value: Any) -> str:
    kinds = {"NoneType": "nothing", "dict": "an object", "list": "a list", "str": "text"}
    return kinds.get(type(value).__name__, repr(value)[:40])


NAMES = ("locomo", "longmemeval", "chain-hop")


def seed_set(name: str) -> list[Pair]:
    """The pairs of a set: "locomo" (10, four conversations), "longmemeval" (10), "chain-hop" (7, one to five hops; also
    called "dmr").
    """
    if name not in (*NAMES, "dmr"):
        raise UnknownName("set of questions", name, [*NAMES, "dmr"])
    data = tomllib.loads((files(__package__) / "seed_sets.toml").read_text("utf-8"))
    if name == "longmemeval":
        facts = [(row, [fact["text"] for fact in row["facts"]], row["category"]) for row in data[name]]
        return [_seed_pair(f"{name}-{n}", *each) for n, each in enumerate(facts, 1)]
    if name == "locomo":
        return [
            _seed_pair(
                f"locomo-{talk['id']}{number}", asked, _two_sided(talk), asked["category"], f"locomo-{talk['id']}"
            )
            for talk in data[name]
            for number, asked in enumerate(talk["questions"], 1)
        ]
    chains = [
        (row, [f"{who}: {text}" for who, text in row["turns"]], f"{row['hops']}-hop") for row in data["chain_hop"]
    ]
    return [_seed_pair(f"chain-hop-{n}", *each) for n, each in enumerate(chains, 1)]


def _seed_pair(ident: str, row: Mapping[str, str], items: Iterable[str], category: str, conversation: str = "") -> Pair:
    return Pair(ident, row["question"], row["answer"], tuple(items), category, conversation)


def _two_sided(talk: Mapping[str, Any]) -> Iterator[str]:
    return (f"User: {user}\nAssistant: {assistant}" for user, assistant in talk["turns"])


PER_PAIR, ACCUMULATE = "per-pair-reset", "accumulate"


class BenchmarkAborted(SystemFailed):
    """The benchmark has no result: the store could not be emptied or filled, nothing could be recalled, or time was
    up.
    """


def run_harness(
    client: Client,
    pairs: Sequence[Pair],
    *,
    benchmark: str,
    k: int = 5,
    k2: int = 0,
    accumulate: bool = False,
    repeat_shared: bool = False,
    deadline: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> BenchmarkSummary:
    """Store, ask, score.

    By default each pair starts from an empty store. `accumulate`: one reset, everything is stored, then everything is
    asked. `k2` ≥ `k`: as many are asked for, and recall is measured there too; scores at `k` see the first `k` only.
    `deadline`: on `SYSTEM_CLOCK.monotonic()`, for the whole run; it also bounds each call of a `CommandClient`.
    `cancelled` is asked before each step. `on_progress(done, total)` after each question; `on_warning(text)` for failed
    recalls (default: a line on standard error). Raises `BenchmarkAborted`; a `Stop` that the client raises goes
    through. `benchmark` may be any name; "locomo", "longmemeval" and "dmr" are shown as they are written.
    """
    if k <= 0:
        raise BadInput(f"k is expected to be above 0, found {k}")
    _same_items(pairs)
    run = _Run(client, benchmark, deadline, cancelled or (lambda: False), on_warning or _say)
    with _until(deadline):
        ranked = run.accumulated(pairs, max(k, k2), repeat_shared) if accumulate else run.one_by_one(pairs, max(k, k2))
        results, deep = [], 0
        for pair, memories in ranked:
            seen = memories[:k] if k2 > k else memories
            results.append(score_question(pair.id, pair.question, pair.answer, seen, k, pair.category))
            deep += recall_at_k(memories, pair.answer, k2)
            if on_progress is not None:
                on_progress(len(results), len(pairs))
    if pairs and run.failures == len(pairs):
        raise BenchmarkAborted(f"{benchmark}: all {len(pairs)} recall calls failed; the last one: {run.last_failure}")
    summary = summarize(BENCHMARKS.get(benchmark, benchmark), results, k, run.failures, k2)
    if summary.k2:
        summary.recall_at_k2 = deep / len(results)
    summary.mode = ACCUMULATE if accumulate else PER_PAIR
    return summary


@dataclass(slots=True)
class _Run:
    """The calls of one benchmark, and what becomes of those that fail."""

    client: Client
    benchmark: str
    deadline: float | None
    cancelled: Callable[[], bool]
    warn: Callable[[str], None]
    failures: int = 0
    last_failure: str = ""

    def one_by_one(self, pairs: Sequence[Pair], limit: int) -> Iterator[tuple[Pair, list[str]]]:
        for pair in pairs:
            self.check()
            self.reset(f"before {pair.id}")
            self.store(pair)
            yield pair, self.recall(pair, limit)

    def accumulated(self, pairs: Sequence[Pair], limit: int, repeat_shared: bool) -> Iterator[tuple[Pair, list[str]]]:
        self.reset("at the start")
        for pair in pairs if repeat_shared else _stored_once(pairs):
            self.check()
            self.store(pair)
        for pair in pairs:
            self.check()
            yield pair, self.recall(pair, limit)

    def check(self) -> None:
        """Stop here if time is up or nobody wants the result any more."""
        ended = self.why_over()
        if ended:
            raise BenchmarkAborted(f"{self.benchmark}: {ended} before all questions were asked")

    def why_over(self) -> str:
        if self.cancelled():
            return "cancelled"
        late = self.deadline is not None and SYSTEM_CLOCK.monotonic() >= self.deadline
        return "the time allowed for the run was over" if late else ""

    def reset(self, when: str) -> None:
        try:
            _done(self.client.reset())
        except Stop:
            raise
        except Exception as error:
            raise self.abort(f"reset failed {when}, so that what is stored is not known", error) from error

    def store(self, pair: Pair) -> None:
        for number, item in enumerate(pair.items):
            self.check()
            try:
                _done(self.client.store(item))
            except Stop:
                raise
            except Exception as error:
                raise self.abort(f"storing item {number} of {pair.id} failed", error) from error

    def recall(self, pair: Pair, limit: int) -> list[str]:
        try:
            return _texts(_done(self.client.recall(pair.question, limit)))
        except Stop:
            raise
        except Exception as error:
            if self.why_over():
                raise self.abort(f"recall for {pair.id} failed", error) from error
            self.failures += 1
            self.last_failure = describe(error)
            self.warn(f"{self.benchmark}: recall failed for {pair.id}, scored as empty: {self.last_failure}")
            return []

    def abort(self, what: str, error: Exception) -> BenchmarkAborted:
        ended = self.why_over()
        return BenchmarkAborted(f"{self.benchmark}: {what}{f' ({ended})' if ended else ''}: {describe(error)}")


def _done(value: Any) -> Any:
    """The value; one that has to be awaited is awaited."""
    return run_sync(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _texts(memories: Any) -> list[str]:
    found = list(memories or [])
    odd = next((memory for memory in found if not isinstance(memory, str)), None)
    if odd is not None:
        raise TypeError(f"recall is expected to give a list of texts, found a {type(odd).__name__} in it")
    return found


@contextmanager
def _until(deadline: float | None) -> Iterator[None]:
    """Let clients see when the run has to end."""
    opened = current_ledger() or Ledger()
    times = [time for time in (deadline, opened.deadline) if time is not None]
    with open_ledger(replace(opened, deadline=min(times, default=None))):
        yield


def _same_items(pairs: Sequence[Pair]) -> None:
    items: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        if pair.conversation and items.setdefault(pair.conversation, pair.items) != pair.items:
            raise BadInput(f"{pair.id}: its haystack {pair.conversation!r} has other items in another pair")


def _stored_once(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs whose items have to be stored so that those of all are there: the first of each haystack, and those
    that have none.
    """
    seen: set[str] = set()
    for pair in pairs:
        if not pair.conversation or pair.conversation not in seen:
            seen.add(pair.conversation)
            yield pair


def _say(text: str) -> None:
    sys.stderr.write(f"context-bench: {text}\n")


# What chance would reach
# ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Floor:
    """The score that a store reaches without knowing anything.

    `recall`: recall at k when k of the items are given back at random, 0 to 1, exact. `everything`: share of the
    questions for which k is not smaller than the number of items, so that whoever gives everything back is right.
    """

    recall: float
    everything: float


def random_floor(pairs: Sequence[Pair], k: int, accumulate: bool = False) -> Floor:
    """The mean over the questions of 1 − C(n − m, k) / C(n, k), where m of the n items contain the answer."""
    if not pairs:
        return Floor(0.0, 0.0)
    shared = [simple_lower(item) for pair in _stored_once(pairs) for item in pair.items]
    chance, everything = 0.0, 0
    for pair in pairs:
        items = shared if accumulate else [simple_lower(item) for item in pair.items]
        gold = simple_lower(pair.answer)
        wrong = sum(not gold or gold not in item for item in items)
        drawn = min(max(0, k), len(items))
        everything += k >= len(items)
        chance += 1 - comb(wrong, drawn) / comb(len(items), drawn)
    return Floor(chance / len(pairs), everything / len(pairs))
