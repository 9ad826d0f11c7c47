"""Needles go into tool results and come out again byte for byte, whoever wrote the JSON and whatever stands in it."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from context_bench.wire.needles import LARGEST, SHORTEST, Needles, NotPlanted, shown

KEY = b"a key of sixteen"
WIRES = ("openai-chat", "anthropic", "openai-responses")


def go_json(value: object) -> bytes:
    """JSON as Go's encoder writes it."""
    written = orjson.dumps(value)
    return written.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


WRITERS = {
    "compact": orjson.dumps,
    "indented": lambda value: json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    "escaped": lambda value: json.dumps(value).encode(),
    "go": go_json,
}


def result_of(wire: str, call: str, content: object) -> dict:
    if wire == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        return {"role": "user", "content": [block, {"type": "text", "text": "go on"}]}
    if wire == "openai-chat":
        return {"role": "tool", "tool_call_id": call, "content": content}
    return {"type": "function_call_output", "call_id": call, "output": content}


def answer_of(wire: str, call: str) -> dict:
    if wire == "anthropic":
        return {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "read", "input": {}}]}
    if wire == "openai-chat":
        asked = {"id": call, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [asked]}
    return {"type": "function_call", "call_id": call, "name": "read", "arguments": "{}"}


def request_of(wire: str, contents: list) -> dict:
    """A request in which each content is the result of a call of its own."""
    steps: list[dict] = [{"role": "user", "content": "look"}]
    for number, content in enumerate(contents):
        steps += [answer_of(wire, f"call {number}"), result_of(wire, f"call {number}", content)]
    return {"model": "m", "stream": True, "input" if wire == "openai-responses" else "messages": steps}


def listing(about: str, lines: int = 40) -> str:
    return "".join(f"line {number} of {about}: nothing to see\n" for number in range(lines))


TEXTS = st.lists(st.text(max_size=60), min_size=1, max_size=30).map("\n".join)
LONG = st.builds(lambda text, odd: listing(odd)[:SHORTEST] + odd + text, TEXTS, st.text(max_size=20))
PARTS = st.lists(LONG | TEXTS, max_size=3).map(lambda texts: [{"type": "text", "text": text} for text in texts])


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(WIRES),
    st.sampled_from(sorted(WRITERS)),
    st.lists(LONG | TEXTS | PARTS | st.none(), max_size=6),
)
def test_what_was_planted_comes_out_and_the_body_is_byte_for_byte_what_it_was(wire, writer, contents):
    needles, body = Needles(KEY), WRITERS[writer](request_of(wire, contents))
    try:
        planted = needles.plant(wire, body)
    except NotPlanted:
        assert needles.remove(body).body == body
        return
    assert len(planted.body) > len(body)
    removed = Needles(KEY).remove(planted.body)  # whoever has the key can
    assert removed.body == body
    assert removed.needles == {name for name, _ in planted.needles}
    assert removed.damaged == 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("writer", sorted(WRITERS))
def test_every_longer_result_gets_one_whatever_wrote_the_json(wire, writer):
    contents = [listing("<tides> & más"), "short", listing("b"), [{"type": "text", "text": listing("c")}]]
    planted = Needles(KEY).plant(wire, WRITERS[writer](request_of(wire, contents)))
    assert [age for _, age in planted.needles] == [3, 1, 0]
    read = json.loads(planted.body)
    assert json.dumps(read).count("cbn-") == 3


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_result_holds_the_same_bytes_in_every_turn(wire):
    needles, contents = Needles(KEY), [listing(about) for about in "abcde"]
    bodies = [needles.plant(wire, orjson.dumps(request_of(wire, contents[:turn]))).body for turn in range(1, 6)]
    assert all(later.startswith(earlier.removesuffix(earlier[-40:])) for earlier, later in pairwise(bodies))
    assert Needles(KEY).plant(wire, orjson.dumps(request_of(wire, contents))).body == bodies[-1]
    assert Needles(b"another key ....").plant(wire, orjson.dumps(request_of(wire, contents))).body != bodies[-1]


def outcome(needles: Needles, wire: str, body: bytes) -> object:
    try:
        return needles.plant(wire, body)
    except NotPlanted as failure:
        return str(failure)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(WIRES),
    st.sampled_from(sorted(WRITERS)),
    st.lists(LONG | TEXTS | PARTS | st.none(), max_size=6),
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
)
def test_what_earlier_turns_taught_changes_no_byte(wire, writer, contents, turns):
    """Turns grow, come again, and go back to an earlier place of the conversation."""
    taught = Needles(KEY)
    for turn in turns:
        body = WRITERS[writer](request_of(wire, contents[:turn]))
        assert outcome(taught, wire, body) == outcome(Needles(KEY), wire, body)


def test_a_turn_that_takes_back_what_an_earlier_one_said_is_read_anew():
    begun = request_of("openai-chat", [listing("a"), listing("b")])
    first = orjson.dumps(begun)
    at = first.rindex(b'"}]')
    # the same bytes up to the end of the last text; then its object says something else
    for rest in (
        b'","content":"taken back"}]}',
        b'","content":' + orjson.dumps(listing("c")) + b"}]}",
        b'","role":"user"}]}',
        b'"},{"role":"tool","tool_call_id":"call 1","content":' + orjson.dumps(listing("b")) + b"}]}",
        b'"},{"role":"tool","content":"cbn-' + b"0" * 24 + b'-nbc"}]}',
        b'"}',
        b"",
    ):
        body = first[:at] + rest
        needles = Needles(KEY)
        needles.plant("openai-chat", first)
        assert outcome(needles, "openai-chat", body) == outcome(Needles(KEY), "openai-chat", body)
        assert (
            needles.remove(getattr(outcome(needles, "openai-chat", body), "body", body)).body == body or b"cbn-" in body
        )


def test_what_is_kept_of_turns_is_bounded():
    needles = Needles(KEY)
    for number in range(40):
        needles.plant("openai-chat", orjson.dumps(request_of("openai-chat", [listing(f"{number} of many", 20_000)])))
    assert len(needles._turns) <= 16
    assert sum(len(turn.body) for turn in needles._turns) <= 16 * 2**20


def test_a_result_that_came_twice_is_planted_where_it_stands_each_time():
    body = orjson.dumps(request_of("openai-chat", [listing("a"), listing("a")]))
    planted = Needles(KEY).plant("openai-chat", body)
    assert len({name for name, _ in planted.needles}) == 2  # calls differ
    assert Needles(KEY).remove(planted.body).body == body


def test_a_text_that_also_stands_elsewhere_is_not_taken_for_a_tool_result():
    body = request_of("openai-chat", [listing("a")])
    body["messages"][0]["content"] = listing("a")
    with pytest.raises(NotPlanted, match="not told apart"):
        Needles(KEY).plant("openai-chat", orjson.dumps(body))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"messages": [', "not readable"),
        (b"\xff\xfe", "not readable"),
        (b"[1, 2]", "no tool result"),
        (b"x" * (LARGEST + 1), "too large"),
        (orjson.dumps(request_of("openai-chat", ["short"])), "no tool result"),
        (orjson.dumps(request_of("openai-chat", [json.dumps({"rows": list(range(500))})])), "no tool result"),
        (orjson.dumps(request_of("openai-chat", [listing("cbn-")])), "holds such a marker"),
        (b'{"messages": %s}' % (b"[" * 3000 + b"]" * 3000), "not readable|no tool result"),
        (orjson.dumps(request_of("openai-chat", [listing("a")])).replace(b"line 0", b"line\\u00200"), "cannot be foll"),
    ],
)
def test_where_it_cannot_be_exact_nothing_is_planted_and_the_reason_is_given(body, why):
    with pytest.raises(NotPlanted, match=why):
        Needles(KEY).plant("openai-chat", body)


def cut_body() -> tuple[Needles, bytes, bytes, int]:
    """Whoever planted, the body with a needle and the one without, and where it begins."""
    needles, body = Needles(KEY), orjson.dumps(request_of("openai-chat", [listing("a"), listing("b")]))
    planted = needles.plant("openai-chat", body).body
    return needles, planted, body, planted.index(b"cbn-")


@pytest.mark.parametrize("kept", range(4, 32))
def test_the_beginning_of_a_needle_that_a_cut_went_through_is_taken_out_and_counted(kept):
    needles, planted, body, start = cut_body()
    for after in (b"[cut]", b" dead", b""):
        removed = needles.remove(planted[: start + kept] + after)
        assert removed.body == body[:start] + after
        assert (removed.damaged, removed.needles) == (1, frozenset())


@pytest.mark.parametrize("lost", range(1, 29))
def test_so_is_the_end_of_one(lost):
    needles, planted, body, start = cut_body()
    second = planted.index(b"cbn-", start + 1)
    for before in (b"[cut] ", b"beef ", b""):
        removed = needles.remove(before + planted[start + lost : second])
        assert removed.body == before + body[start : second - len(b"cbn--nbc\\n") - 24]
        assert (removed.damaged, removed.needles) == (1, frozenset())


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_nobody_elses_bytes_are_touched(body, more):
    needles = cut_body()[0]
    for text in (body, b"cbn-" + body, body + b"-nbc", body + b"cbn-0123456789abcdef01234567-nbc" + more):
        assert needles.remove(text) == Needles(b"").remove(text)
        assert needles.remove(text).body == text


def test_a_marker_is_known_by_its_shape_wherever_it_is_shown():
    _, planted, body, _ = cut_body()
    assert shown(planted.decode()) == 2
    assert shown(body.decode()) == shown("cbn-") == shown("cbn-0123-nbc") == 0


def test_a_line_of_its_own_in_any_place_of_the_text():
    """The places are drawn over the whole text, so that what keeps beginnings or ends keeps its share of them."""
    places = []
    for number in range(200):
        text = listing(f"result {number}", 100)
        planted = Needles(KEY).plant("openai-chat", orjson.dumps(request_of("openai-chat", [text]))).body
        lines = json.loads(planted)["messages"][2]["content"].split("\n")
        places.append(next(place for place, line in enumerate(lines) if line.startswith("cbn-")) / 100)
        assert len(lines[round(places[-1] * 100)]) == 32
    assert 0.4 < sum(places) / len(places) < 0.6
    assert min(places) < 0.05
    assert max(places) > 0.95


@pytest.mark.parametrize("writer", sorted(WRITERS))
@pytest.mark.parametrize("paths", ["C:\\new\\nodes\\n", "\\", "\\\\n", 'say "\\n"\\'])
def test_what_only_looks_like_the_end_of_a_line_is_none(writer, paths):
    """A backslash before an n is written as two, of which the second and the n are no end of a line."""
    for number in range(40):
        lines = [f"{paths}{place} {number} " + paths * 40 for place in range(12)]
        needles, body = Needles(KEY), WRITERS[writer](request_of("openai-chat", ["\n".join(lines)]))
        planted = needles.plant("openai-chat", body)
        seen = json.loads(planted.body)["messages"][2]["content"].split("\n")
        assert [line for line in seen if not line.startswith("cbn-")] == lines
        assert len(seen) == len(lines) + 1
        assert needles.remove(planted.body).body == body


def test_a_text_without_lines_gets_its_needle_before_it():
    body = orjson.dumps(request_of("openai-chat", ["C:\\new " * 100]))
    planted = Needles(KEY).plant("openai-chat", body)
    assert json.loads(planted.body)["messages"][2]["content"].split("\n")[1] == "C:\\new " * 100
    assert Needles(KEY).remove(planted.body).body == body


def test_a_key_that_stands_twice_in_an_object_is_not_written_to():
    """Readers take the last: a needle in the other one would reach nobody, so there is none."""
    once = orjson.dumps(result_of("openai-chat", "c", listing("a")))
    twice = once[:-1] + b',"content":' + orjson.dumps(listing("a")) + b"}"
    with pytest.raises(NotPlanted, match="not told apart"):
        Needles(KEY).plant("openai-chat", b'{"messages":[' + twice + b"]}")
