"""No number from outside does harm: whatever stands where a count, a price, a time, a line or an id should, is read,
absent or refused.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator
from dataclasses import astuple, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core import numbers, numbers as usage
from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.numbers import Form, forwarded_of, usage_of
from context_bench.core.records import Forwarded, Usage
from context_bench.llm.prices import GenaiPrices
from context_bench.tap.control_api import as_json
from context_bench.transcripts import harness_results as answers
from context_bench.wire.apis import parse_reply, stream_reader

_FUZZ = Path(__file__).parents[2] / "benchmarks" / "fuzz"
_SPEC = importlib.util.spec_from_file_location("fuzz_targets", _FUZZ / "targets.py")
targets = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(targets)
SEEDS = json.loads((_FUZZ / "seeds.json").read_text())

EXTREMES = [
    *(2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, -1, 0, True, False, None),
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.5, 12.0, 1e16),
    *("12", "-1", "9" * 30, "9" * 5000, "1e999", "NaN", "١٢", "²", "", "\ud800", "\x00", [], [1], {}, {"a": 1}, [[]]),
]
ODD = st.sampled_from(EXTREMES)
FORMS = {name: form for name, form in vars(usage).items() if isinstance(form, Form)}
READERS = [
    numbers.number,
    numbers.real,
    numbers.whole,
    numbers.count,
    numbers.line,
    numbers.amount,
    numbers.money,
    numbers.duration,
]
READERS += [numbers.share, numbers.moment, numbers.port]


def storable(value: Any) -> bool:
    """Whether any of our databases holds a number as it is, and sums of it."""
    return (
        value is None
        or (type(value) is int and abs(value) <= 3 * 2**53)
        or (type(value) is float and math.isfinite(value))
    )


@pytest.mark.parametrize("read", READERS)
@given(ODD | st.integers() | st.floats() | st.text(max_size=20) | st.booleans())
def test_what_a_reader_lets_through_can_be_stored(read, value):
    assert storable(read(value))


def test_what_is_a_number_is_read_as_it_is():
    assert [numbers.count(value) for value in (0, 12, 12.0, 2**53)] == [0, 12, 12, 2**53]
    assert [numbers.count(value) for value in (True, "12", 12.5, -1, 2**53 + 1, math.nan)] == [None] * 6
    assert [numbers.whole(value) for value in ("12", " -7 ", 3.0, "1.0", True)] == [12, -7, 3, None, None]
    assert [numbers.money(value) for value in (0, 0.25, 1e9, 1e10, -1, True)] == [0.0, 0.25, 1e9, None, None, None]
    assert [numbers.port(value) for value in (1, "65535", 0, 65536, "x")] == [1, 65535, None, None, None]
    assert [numbers.moment(value) for value in (1.5, 1_700_000_000_000, "1970-01-01T00:00:01+00:00", -1)] == [
        1.5,
        1.7e9,
        1.0,
        None,
    ]
    assert (numbers.number(7), numbers.number(True), numbers.number(10**400)) == (7, 1, None)
    assert type(numbers.real(7)) is float


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.uint8, np.int32, Fraction])
def test_numbers_of_a_plug_ins_own_types_are_numbers(kind):
    for read in (
        numbers.number,
        numbers.real,
        numbers.whole,
        numbers.count,
        numbers.amount,
        numbers.money,
        numbers.duration,
        numbers.score,
    ):
        assert read(kind(12)) == 12
        assert storable(read(kind(12)))
    assert type(numbers.money(kind(12))) is type(numbers.moment(kind(12))) is float
    assert numbers.line(kind(12)) == numbers.port(kind(12)) == 12


def test_numbers_of_other_types_are_bounded_as_all_are():
    assert [numbers.money(value) for value in (np.float64(0.5), np.float32(0.25), Fraction(1, 4))] == [0.5, 0.25, 0.25]
    odd = [
        np.float64("nan"),
        np.float32("inf"),
        np.float64(1e300),
        np.int64(-1),
        np.bool_(True),
        Fraction(10**400),
        np.array([0.5]),
    ]
    for read in (numbers.money, numbers.duration, numbers.count, numbers.share, numbers.moment):
        assert [read(value) for value in odd] == [None] * len(odd)
    assert [numbers.count(np.float64(1.5)), numbers.share(np.float64(2)), numbers.score(np.float64(1e300))] == [
        None
    ] * 3


def _told(form: Form, draw: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for names in (form.input, form.output, form.cache_read, form.cache_write, form.reasoning, form.cache_write_1h):
        for way in names:
            place = raw
            for name in way[:-1]:
                place = place.setdefault(name, {})
                if not isinstance(place, dict):
                    break
            else:
                place[way[-1]] = draw(ODD)
    return raw


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=30)
@given(st.data())
def test_any_usage_in_any_form_can_be_stored_and_priced(name, data):
    raw = _told(FORMS[name], data.draw)
    for given_ in (raw, data.draw(ODD)):
        found = usage_of(given_, FORMS[name])
        assert found is None or (
            all(value is None or (type(value) is int and 0 <= value <= 2**53) for value in astuple(found))
        )
        if found is not None:
            if found.input_tokens is not None:
                assert (found.cache_read or 0) + (found.cache_write or 0) <= found.input_tokens
            cost = GenaiPrices({"*": {"input": 1e3, "output": 1e3}}).cost(found, "m")
            assert cost is None or math.isfinite(cost)


WIRES = {
    "openai-chat": (
        "OPENAI_CHAT",
        {"model": "m", "choices": [{"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}]},
    ),
    "openai-responses": (
        "OPENAI_RESPONSES",
        {
            "model": "m",
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}],
        },
    ),
    "anthropic": (
        "ANTHROPIC",
        {"model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": "Paris"}]},
    ),
}


def _events(wire: str, raw: Any) -> list[dict[str, Any]]:
    """A stream of that wire whose usage is `raw`."""
    if wire == "openai-chat":
        return [
            {"choices": [{"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": raw},
        ]
    if wire == "openai-responses":
        return [{"type": "response.completed", "response": {**WIRES[wire][1], "usage": raw}}]
    return [
        {"type": "message_start", "message": {"model": "m", "usage": raw}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Paris"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": raw},
        {"type": "message_stop"},
    ]


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=40)
@given(st.data())
def test_any_usage_on_any_wire_leaves_the_answer(wire, data):
    form, body = WIRES[wire]
    raw = _told(FORMS[form], data.draw)
    plain = parse_reply(wire, load_json(json.dumps({**body, "usage": raw})))
    reader = stream_reader(wire)
    reader.feed(
        "".join(
            f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in _events(wire, raw)
        ).encode()
    )
    reader.feed(b"data: [DONE]\n\n")
    reader.close()
    for reply in (plain, reader.reply):
        assert reply.text == "Paris"
        assert reply.usage is None or all(storable(value) for value in astuple(reply.usage))


NUMBERS = [each.name for each in fields(Forwarded) if each.name in usage._NUMBERS]


@given(
    st.dictionaries(st.sampled_from([each.name for each in fields(Forwarded)]), ODD),
    st.dictionaries(st.sampled_from(["input_tokens"]), ODD),
)
def test_any_record_of_a_tap_is_read_or_refused(odd, told):
    plain = {
        "id": "1",
        "mark": None,
        "matched_by": "none",
        "wire": "openai-chat",
        "method": "POST",
        "path": "/",
        "started": 1.0,
        "usage": told,
    }
    try:
        found = forwarded_of({**plain, **odd})
    except BadInput:
        return
    assert all(storable(getattr(found, name)) for name in NUMBERS)
    assert found.usage is None or isinstance(found.usage, Usage)
    assert {name: value for name, value in as_json(found).items() if name in NUMBERS} == {
        name: getattr(found, name) for name in NUMBERS
    }


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield way
    for name, item in inner:
        yield from _leaves(item, (*way, name))


def _replaced(value: Any, way: tuple[Any, ...], odd: Any) -> Any:
    if not way:
        return odd
    if isinstance(value, dict):
        return {name: _replaced(item, way[1:], odd) if name == way[0] else item for name, item in value.items()}
    return [_replaced(item, way[1:], odd) if place == way[0] else item for place, item in enumerate(value)]


def _documents(seeds: list[str]) -> list[list[Any]]:
    """The seeds that are JSON, or lines of it."""
    found = []
    for seed in seeds:
        try:
            found.append([json.loads(line) for line in seed.strip().split("\n")])
        except ValueError:
            continue
    return found


JSON_SEEDS = {name: found for name, seeds in SEEDS.items() if (found := _documents(seeds)) and name in targets.TARGETS}


@pytest.mark.parametrize("name", JSON_SEEDS)
@settings(max_examples=25)
@given(st.data())
def test_any_number_in_any_document_is_read_or_refused(name, data):
    lines = data.draw(st.sampled_from(JSON_SEEDS[name]))
    place = data.draw(st.integers(0, len(lines) - 1))
    odd = data.draw(ODD)
    lines = [
        _replaced(line, data.draw(st.sampled_from(list(_leaves(line)))), odd) if at == place else line
        for at, line in enumerate(lines)
    ]
    targets.tried(targets.TARGETS[name], b"".join(json.dumps(line).encode() + b"\n" for line in lines))


ROW = {
    "id": 1,
    "system": "s",
    "question": "q",
    "answer": "a",
    "response": "a",
    "trial": 0,
    "latency": 1.0,
    "scores": {"f1": 1.0},
}
ROW |= {"usage": {"input_tokens": 3, "cost": 0.1, "reasoning_tokens": 1}, "input_tokens": 4, "finish_reason": "stop"}
SAMPLE = {
    "id": 1,
    "epoch": 1,
    "input": "q",
    "target": "a",
    "scores": {"s": {"value": 1}},
    "started_at": "2026-01-01T00:00:00",
}
SAMPLE |= {
    "model_usage": {"m": {"input_tokens": 3, "total_cost": 0.1}},
    "working_time": 1.0,
    "output": {"completion": "a"},
}
EVAL = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": [SAMPLE]}
HARNESS = {
    "doc_id": 0,
    "doc": {"question": "q"},
    "target": "a",
    "resps": [["-1.5", "False"]],
    "filtered_resps": [["-1.5", "False"]],
    "acc": 1,
}
HARNESS |= {"arguments": [["q", "a"]], "metrics": ["acc"], "doc_hash": "x", "prompt_hash": "y", "target_hash": "z"}


@pytest.mark.parametrize(("file", "document"), [("a.jsonl", ROW), ("a.json", EVAL), ("samples_t_2026.jsonl", HARNESS)])
@settings(max_examples=50)
@given(data=st.data())
def test_any_number_in_recorded_answers_can_be_stored(file, document, data, tmp_path_factory):
    way = data.draw(st.sampled_from([way for way in _leaves(document) if way[0] not in ("version", "status", "eval")]))
    path = tmp_path_factory.getbasetemp() / file
    path.write_text(json.dumps(_replaced(document, way, data.draw(ODD))) + "\n")
    for answer in targets.tried(lambda _: list(answers.read_answers(path).answers), b"") or ():
        told = [
            *(astuple(answer.usage) if answer.usage else ()),
            answer.cost,
            answer.latency,
            answer.started,
            answer.sent_tokens,
        ]
        assert all(storable(value) for value in (*told, answer.trial, *answer.scores.values()))
        assert all(value is None or value >= 0 for value in told)
