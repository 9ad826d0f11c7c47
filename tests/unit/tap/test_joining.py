"""Increments joined with what they go on from: whole, within bounds, each owner's own."""

import json
import random

from context_bench.tap.prefix import Joining


def user(text):
    return {"type": "message", "role": "user", "content": text}


def answer(name, *items, kind="response.completed", output=True):
    for index, item in enumerate(items):
        yield json.dumps({"type": "response.output_text.delta", "delta": "x"}).encode()
        if output != "end":
            yield json.dumps({"type": "response.output_item.done", "output_index": index, "item": item}).encode()
    yield json.dumps({"type": kind, "response": {"id": name, "output": list(items) if output else []}}).encode()


def asked(text, follows=None, **more):
    return {"type": "response.create", "model": "m", "input": [user(text)], "previous_response_id": follows, **more}


def take(joining, name, message, *items, owner="me", **more):
    joined = joining.join(owner, message)
    joining.answered(owner, joined, answer(name, *items, **more))
    return joined


def test_a_chain_is_joined_from_its_beginning():
    joining = Joining()
    first = take(joining, "r1", asked("a", store=False, stream_id="x", event_id="e", generate=False), user("b"))
    assert first.body == {"model": "m", "store": False, "input": [user("a")], "stream": True}
    take(joining, "r2", asked("c", "r1"), user("d"), output="end")
    take(joining, "r3", asked("e", "r2"), user("f"), output=False, kind="response.incomplete")
    assert joining.join("me", {**asked("g", "r3"), "input": "g"}).body["input"] == [user(text) for text in "abcdefg"]
    assert joining.join("me", asked("x", "r1")).body["input"] == [user(text) for text in "abx"]  # a branch


def test_what_is_not_known_is_not_made_up():
    joining = Joining()
    take(joining, "r1", asked("a"), user("b"))
    for owner, name in (("me", "r9"), ("another", "r1")):
        joined = joining.join(owner, asked("c", name))
        assert joined.missing
        assert joined.body["previous_response_id"] == name
        assert joined.body["input"] == [user("c")]
    take(joining, "r2", asked("c", "r9"), user("d"))
    assert joining.join("me", asked("e", "r2")).missing


def test_failed_and_repeated_responses_leave_what_was_there():
    joining = Joining()
    take(joining, "r1", asked("a"), user("b"))
    take(joining, "r2", asked("c", "r1"), user("d"), kind="response.failed")
    take(joining, "r1", asked("evil", "r1"), user("e"))
    assert joining.join("me", asked("z", "r2")).missing
    assert joining.join("me", asked("z", "r1")).body["input"] == [user("a"), user("b"), user("z")]


def test_the_longest_unused_go_first_and_room_is_kept():
    rng = random.Random(3)
    joining = Joining(room=40_000)
    text = "".join(rng.choice("abcdefghij") for _ in range(4_000))
    take(joining, "old", asked(text), user("b"))
    take(joining, "used", asked(text[::-1]), user("b"))
    for number in range(30):
        take(joining, f"r{number}", asked(f"{number}{text[number:]}"), user("x"))
        assert not joining.join("me", asked("z", "used")).missing
        assert joining._responses.currsize <= 40_000
    assert joining.join("me", asked("z", "old")).missing


def test_odd_events_are_passed_over():
    joining = Joining()
    joined = joining.join("me", {"type": "response.create", "input": 7, "previous_response_id": ["r"]})
    assert joined.body == {"input": [], "stream": True}
    events = [
        b'["response.completed"]',
        b'{"type": "response.completed", "response": 3}',
        b'{"type": "x", "y": "response.completed"}',
    ]
    joining.answered("me", joined, iter(events))
    assert joining.join("me", asked("a", "r")).missing


def test_what_is_packed_small_and_large_again_is_not_joined():
    joining = Joining()
    for number in range(5):
        take(joining, f"r{number}", asked("a" * 6_000_000, f"r{number - 1}" if number else None), user("b"))
    assert not joining.join("me", asked("c", "r2")).missing
    assert joining.join("me", asked("c", "r3")).missing
