"""What a holdout states: by conversation, from enough of them, and never mixed into the figures of the proxy."""

import json
import random

import pytest

from context_bench.core.records import Usage
from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.traffic.sections.watch_board import HoldoutBills, as_json, summary
from context_bench.traffic.watch.session_context import Conversations
from context_bench.wire.turns import Turn, total

KEY = b"a key of sixteen"


def turn(unit: str, cost: float | None, **more) -> Turn:
    """A request of the conversation `unit`, which went past the proxy if its name begins with p."""
    arm = more.pop("arm", "holdout" if unit.startswith("p") else "main")
    more = {"turn": 1, "status": 200, "usage": Usage(100, 10), "cost": cost, **more}
    return Turn(more.pop("number", 1), more.pop("kind", "turn"), 0.0, unit, arm=arm, unit=unit, **more)


def stated(turns: list[Turn], share: float = 0.1) -> dict:
    bills = HoldoutBills()
    for one in turns:
        bills.add(one)
    return bills.as_dict(share)


def saving_by_request(turns: list[Turn]) -> float:
    """The published mistake: each request a unit."""
    costs = {arm: [one.cost for one in turns if one.arm == arm] for arm in ("main", "holdout")}
    means = {arm: sum(values) / len(values) for arm, values in costs.items()}
    return 1 - means["main"] / means["holdout"]


def long_and_short(held_out: int) -> list[Turn]:
    """200 conversations of one dear request through the proxy; past it some of 60 cheap ones, and dearer in all."""
    through = [turn(f"t{number}", 0.015399) for number in range(200)]
    return through + [turn(f"p{number}", 0.001) for number in range(held_out) for _ in range(60)]


def test_three_controls_of_many_requests_state_no_saving_of_minus_1439_percent():
    turns = long_and_short(3)
    assert saving_by_request(turns) == pytest.approx(-14.399)
    result = stated(turns)
    assert (result["through"], result["held_out"]) == (200, 3)
    assert "cost_ratio" not in result
    assert "no saving is stated: 3 conversations held out with a bill, and 30 are the fewest" in result["sentence"]


def test_conversations_are_the_units_however_many_requests_they_have():
    result = stated(long_and_short(40))
    assert (result["through"], result["held_out"]) == (200, 40)
    assert result["cost_ratio"] == pytest.approx(0.015399 / 0.06)
    assert saving_by_request(long_and_short(40)) == pytest.approx(-14.399)
    assert "costs ×0.26 of one past it" in result["sentence"]


def test_four_controls_state_no_interval_however_alike_they_are():
    rng = random.Random(1)
    turns = [turn(f"t{number}", rng.lognormvariate(0, 1)) for number in range(500)]
    turns += [turn(f"p{number}", cost) for number, cost in enumerate((1.0, 1.01, 0.99, 1.0))]
    result = stated(turns)
    assert not {"cost_ratio", "low", "high"} & set(result)
    assert "4 conversations held out" in result["sentence"]
    assert "one dear conversation decides the figure" in result["sentence"]


def test_late_calls_side_calls_and_guesses_are_part_of_their_conversation():
    turns = [turn(f"t{number}", 0.5) for number in range(40)] + [turn(f"p{number}", 1.0) for number in range(40)]
    turns += [turn(f"t{number}", None, guessed=0.25, kind="late") for number in range(40)]
    turns += [turn(f"t{number}", 0.25, context="title") for number in range(40)]
    assert stated(turns)["cost_ratio"] == pytest.approx(1.0)


def test_what_belongs_to_no_conversation_or_has_no_bill_is_in_neither_group_and_counted():
    turns = [turn(f"t{number}", 1.0) for number in range(30)] + [turn(f"p{number}", 1.0) for number in range(30)]
    turns += [turn("t0", None, unpriced=1), turn("p1", 0.0, unpriced=1), turn("p99", None), turn("", 9.0, arm="main")]
    turns += [
        turn("", 9.0, arm="main", kind="stray"),
        turn("", 0.0, arm="main", kind="other"),
        turn("s", 5, arm="shadow"),
    ]
    result = stated(turns)
    assert (result["through"], result["held_out"]) == (29, 29)
    assert result["left_out"] == {"main": 1, "holdout": 2}
    assert (
        "In neither group: 3 conversations without a known bill, 1 request of no known conversation, "
        "1 call that came while no client waited." in result["sentence"]
    )


def test_held_out_conversations_are_no_part_of_the_proxys_figures():
    turns = [turn("t1", 1.0, sent=100, forwarded=50), turn("p1", 3.0, sent=100, forwarded=100)]
    assert (total(turns).cost, total(turns).sent, total(turns).forwarded) == (1.0, 100, 50)
    assert total(turns, "holdout").cost == 3.0
    report = json.loads(as_json(turns, {"watch": "w", "holdout": 0.1}))
    assert {arm: figures["total"]["cost"] for arm, figures in report["arms"].items()} == {"main": 1.0, "holdout": 3.0}
    assert report["holdout"]["held_out"] == 1
    assert report["notes"] == [report["holdout"]["sentence"]]
    text = summary(turns, {"watch": "w", "holdout": 0.1})
    assert "p1 holdout" in text
    assert "Holdout: no saving is stated: 1 conversation " in " ".join(text.split())
    assert "Holdout" not in summary(turns, {"watch": "w", "holdout": None})


# The draw


def exchange(headers: dict[str, str], target: str = "/v1/messages") -> Exchange:
    return Exchange(1, "1", "POST", target, list(headers.items()), UNMATCHED, 0.0, 0.0)


def test_the_same_conversation_always_falls_the_same_way_and_so_do_its_side_calls():
    drawn, again = Conversations(KEY, 0.3), Conversations(KEY, 0.3)
    for number in range(100):
        headers = {"x-claude-code-session-id": f"session {number}"}
        main = {"messages": [{"role": "user", "content": "hello"}], "tools": [{}]}
        unit = drawn.by_body(exchange(headers), main)
        assert unit == again.by_head(exchange({**headers, "x-claude-code-agent-id": "agent-7"}))
        assert unit == drawn.by_body(exchange(headers), {"messages": [{"role": "user", "content": "a title"}]})
        assert drawn.held_out(unit) == again.held_out(unit)
        child = {"x-session-id": f"child {number}", "x-parent-session-id": f"parent {number}"}
        assert drawn.by_head(exchange(child)) == drawn.by_head(exchange({"x-session-id": f"parent {number}"}))


def test_a_share_of_conversations_is_drawn_and_a_larger_one_holds_a_smaller_one():
    few, more, other = (Conversations(key, share) for key, share in ((KEY, 0.1), (KEY, 0.5), (b"another", 0.1)))
    units = [few.by_head(exchange({"session-id": str(number)})) for number in range(4000)]
    held = {unit for unit in units if few.held_out(unit)}
    assert 0.085 < len(held) / 4000 < 0.115
    assert held < {unit for unit in units if more.held_out(unit)}
    others = {number for number in range(4000) if other.held_out(other.by_head(exchange({"session-id": str(number)})))}
    assert others != {number for number, unit in enumerate(units) if unit in held}


@pytest.mark.parametrize("field", ["messages", "input"])
def test_a_conversation_that_nothing_names_is_known_by_its_first_words(field):
    drawn, start = Conversations(KEY, 0.1), [{"role": "system", "content": "today is Monday"}]
    first = [*start, {"role": "user", "content": [{"type": "text", "text": "find the bug"}]}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "find the bug", "cache_control": {"type": "x"}}]}]
    later = [{"role": "system", "content": "today is Tuesday"}, *marked, {"role": "assistant", "content": "found"}]
    other = [*start, {"role": "user", "content": "write a test"}]
    units = [drawn.by_body(exchange({}), {field: messages}) for messages in (first, later, marked, other)]
    assert units[0] == units[1] == units[2] != units[3]
    assert drawn.by_body(exchange({}), {}) == drawn.by_body(exchange({}), {field: start}) == ""
    assert not drawn.held_out("")


def test_what_goes_on_from_a_stored_reply_goes_its_way():
    drawn = Conversations(KEY, 0.5)
    asked = exchange({}, "/v1/responses")
    asked.steered.unit = drawn.by_body(asked, {"input": "find the bug"})
    asked.reply.add(0.0, b'{"id": "resp_abc", "output": []}')
    drawn.answered(asked)
    assert drawn.by_body(exchange({}), {"previous_response_id": "resp_abc", "input": "go on"}) == asked.steered.unit
    assert drawn.by_body(exchange({}), {"previous_response_id": "resp_unknown", "input": "go on"}) == ""
