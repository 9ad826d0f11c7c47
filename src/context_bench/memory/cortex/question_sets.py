"""Questions about stored things, in the three file shapes of cortex's evaluation harness, and three small bundled sets.

None of the three shapes is the published format of the benchmark whose name it bears. A published file is recognised
and refused, because it would give questions with nothing to remember.

The bundled sets (`seed_set`) try a client; they do not tell stores apart. Most questions have no more items than are
usually asked for, so a store that returns everything is right (`random_floor` reports this for a run). Unlike the sets
they stand in for, all can be decided when everything is stored together, and questions about updates ask for the new
value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from context_bench.core.errors import BadInput, UnknownName

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

    `haystack`: pairs that share it share their items; empty = the pair has items of its own.
    """

    id: str
    question: str
    answer: str
    items: tuple[str, ...]
    category: str = ""
    haystack: str = ""


def shape_of(document: Any) -> str | None:
    """Recognise one of the three shapes by its fields; `None` for anything else."""
    if isinstance(document, Mapping):
        conversations = [value for value in document.values() if isinstance(value, Mapping)]
        return "locomo" if any("question_answer_pairs" in conversation for conversation in conversations) else None
    first = document[0] if isinstance(document, list) and document and isinstance(document[0], Mapping) else {}
    if "sessions" in first:
        return "longmemeval"
    return "dmr" if first.keys() & {"conversation", "turns"} and first.keys() & {"question", "query"} else None


def read_pairs(document: Any, benchmark: str | None = None, on_blank: Blank | None = None) -> list[Pair]:
    """The pairs in a parsed JSON document, in the file's order, sessions by number. Turns that say nothing are left
    out; `on_blank` is told where each of them stands.

    `benchmark` ("locomo", "longmemeval", "dmr"): the shape that is expected; by default the one found. `BadInput` for
    another shape, for a field of another kind, and for a file with no questions or with nothing to remember.
    """
    shape = shape_of(document)
    if shape is None or (benchmark is not None and shape != benchmark):
        raise BadInput(_wrong(document, shape, benchmark))
    tell = on_blank or (lambda where: None)
    found = (
        _locomo(document, tell)
        if shape == "locomo"
        else _longmemeval(document, tell)
        if shape == "longmemeval"
        else _dmr(document, tell)
    )
    pairs = list(found)
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
                haystack=name,
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
            items=tuple(_said(turns, ("role",), ("content",), where, on_blank)),
            category=_TYPES.get(category, category),
        )


def _dmr(document: Sequence[Any], on_blank: Blank) -> Iterable[Pair]:
    for number, entry in enumerate(_objects(document, "the file")):
        where = f"entry {number}"
        turns = entry["conversation"] if entry.get("conversation") is not None else entry.get("turns")
        hops = entry.get("hop_count") or 0
        if isinstance(hops, bool) or not isinstance(hops, int):
            raise BadInput(f"{where}: hop_count is expected to be a whole number, found {_kind(hops)}")
        yield Pair(
            id=_text(entry, ("id",), where, "") or f"dmr-{number}",
            question=_text(entry, ("question", "query"), where),
            answer=_text(entry, ("answer", "expected_answer"), where),
            items=tuple(
                _said(_objects(turns, f"{where}, turns"), ("speaker", "role"), ("content", "text"), where, on_blank)
            ),
            category=f"{hops}-hop" if hops > 0 else "unknown",
        )


def _said(
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
    return (
        "nothing"
        if value is None
        else {"dict": "an object", "list": "a list", "str": "text"}.get(type(value).__name__, repr(value)[:40])
    )


NAMES = ("locomo", "longmemeval", "chain-hop")


def seed_set(name: str) -> list[Pair]:
    """The pairs of a set: "locomo" (10, four conversations), "longmemeval" (10), "chain-hop" (7, one to five hops; also
    called "dmr").
    """
    known = {"locomo": _conversations, "longmemeval": _facts, "chain-hop": _chains, "dmr": _chains}
    if name not in known:
        raise UnknownName("set of questions", name, known)
    return known[name](tomllib.loads((files(__package__) / "seed_sets.toml").read_text("utf-8")))


def _conversations(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(
            id=f"locomo-{talk['id']}{number}",
            question=asked["question"],
            answer=asked["answer"],
            items=tuple(f"User: {user}\nAssistant: {assistant}" for user, assistant in talk["turns"]),
            category=asked["category"],
            haystack=f"locomo-{talk['id']}",
        )
        for talk in data["locomo"]
        for number, asked in enumerate(talk["questions"], 1)
    ]


def _facts(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(
            f"longmemeval-{n}",
            one["question"],
            one["answer"],
            tuple(fact["text"] for fact in one["facts"]),
            one["category"],
        )
        for n, one in enumerate(data["longmemeval"], 1)
    ]


def _chains(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(
            id=f"chain-hop-{n}",
            question=one["question"],
            answer=one["answer"],
            items=tuple(f"{speaker}: {text}" for speaker, text in one["turns"]),
            category=f"{one['hops']}-hop",
        )
        for n, one in enumerate(data["chain_hop"], 1)
    ]
