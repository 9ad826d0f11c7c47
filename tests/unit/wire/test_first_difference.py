"""The same request twice: the first byte at which two bodies part, and why."""

import copy

import pytest
from hypothesis import given, strategies as st

from context_bench.core.tokens import counter_for
from context_bench.wire.apis.shared import dump
from context_bench.wire.diff import RepeatedRuns, first_difference

RESULTS = [{"role": "tool", "tool_call_id": ident, "content": f"result {ident}"} for ident in "ab"]
BODY = {
    "model": "gpt-4.1",
    "messages": [
        {"role": "system", "content": "It is 2026-11-24T10:11:12Z."},
        {"role": "user", "content": "run 0a1b2c3d4e5f of the harbour", "timestamp": 1763978400.5},
        *RESULTS,
    ],
    "tools": [{"type": "function", "function": {"name": name}} for name in ("read", "write")],
}


def changed(edit):
    body = copy.deepcopy(BODY)
    edit(body)
    return body


@pytest.mark.parametrize(
    ("edit", "path", "cause"),
    [
        (lambda body: body.update(model=body.pop("model")), "", "key order"),
        (
            lambda body: body["messages"].__setitem__(slice(2, 4), RESULTS[::-1]),
            "messages",
            "completion order of tools",
        ),
        (lambda body: body["messages"].reverse(), "messages", "order of messages"),
        (lambda body: body["tools"].reverse(), "tools", "order of tools"),
        (
            lambda body: body["messages"][0].update(content="It is 2026-11-24T10:11:59Z."),
            "messages[0].content",
            "timestamps",
        ),
        (lambda body: body["messages"][1].update(timestamp=1763978401.5), "messages[1].timestamp", "timestamps"),
        (lambda body: body["messages"][1].update(timestamp=2.5), "messages[1].timestamp", "timestamps"),
        (
            lambda body: body["messages"][1].update(content="run 99aa88bb77cc of the harbour"),
            "messages[1].content",
            "hashes or ids",
        ),
        (lambda body: body["messages"][1].update(content="walk"), "messages[1].content", "other text"),
        (lambda body: body["messages"].pop(), "messages[3]", "other text"),
        (lambda body: body.update(seed=4), "seed", "other text"),
    ],
)
def test_the_cause(edit, path, cause):
    other = changed(edit)
    found = first_difference(BODY, other)
    assert (found.path, found.cause) == (path, cause)
    a, b = dump(BODY), dump(other)
    assert a[: found.byte] == b[: found.byte]
    assert a[found.byte : found.byte + 1] != b[found.byte : found.byte + 1]
    assert "harbour" not in found.sentence()


def test_the_same():
    assert first_difference(BODY, copy.deepcopy(BODY)) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, _JSON)
def test_any_two_values(a, b):
    found = first_difference(a, b)
    assert (found is None) == (dump(a) == dump(b))


def test_what_it_costs_is_what_stands_behind_the_first_difference():
    early = changed(lambda body: body["messages"][0].update(content="It is 2026-11-24T10:11:59Z."))
    late = changed(lambda body: body["messages"][3].update(content="result c"))
    repeats = RepeatedRuns()
    for ident, body in (("one", early), ("two", late), ("three", BODY)):
        assert repeats.add(ident, 0, "openai-chat", BODY, price=2e-6) is None
        repeats.add(ident, 1, "openai-chat", body, price=2e-6)
    told = repeats.as_dict(True)
    count = counter_for("gpt-4.1").count
    behind = [*(message["content"] for message in BODY["messages"][1:]), "59Z.", "c"]
    assert told["lost_tokens"] == sum(map(count, behind))
    assert told["lost_usd"] == pytest.approx(told["lost_tokens"] * 2e-6)
    assert (told["requests"], told["differing"], told["causes"]) == (3, 2, {"other text": 1, "timestamps": 1})
    assert told["first"]["request"] == "one"


def test_what_was_not_kept_is_counted():
    repeats = RepeatedRuns(space=10)
    repeats.add("one", 0, "openai-chat", BODY, price=0.0)
    repeats.add("one", 1, "openai-chat", BODY, price=0.0)
    assert repeats.as_dict(False) == {
        "requests": 0, "differing": 0, "causes": {}, "lost_tokens": 0, "not_compared": 1
    }  # fmt: skip
