"""The board of a watch: 80 columns whatever comes, no escape sequence of anybody else's, figures that add up."""

import io
import json

from rich.cells import cell_len
from rich.console import Console

from context_bench.core.records import Forwarded, Usage
from context_bench.traffic.sections.watch_board import Board, as_json, line, short, summary
from context_bench.wire.turns import Turn, by_session, total

HOSTILE = "\x1b[2J\u202e[red]name[/red]\n" * 3


def call(number: int) -> Forwarded:
    return Forwarded(str(number), None, "none", "openai-chat", "POST", "/v1/chat/completions", 0.0)


def turn(number: int, session: str = "s1-abcdef", **more) -> Turn:
    given = {
        "turn": number,
        "status": 200,
        "sent": 1000 * number,
        "forwarded": 600 * number,
        "exact": True,
        "model": "gpt-4o",
    }
    given |= {"usage": Usage(600 * number, 10, 100, 50), "cost": 0.5, "added": 0.01 * number, "calls": [call(number)]}
    return Turn(number, more.pop("kind", "turn"), 0.0, session, **{**given, **more})


def drawn(board: Board) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system="standard", emoji=False).print(board)
    return stream.getvalue()


def plain(text: str) -> list[str]:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_the_price_of_prompts_compares_only_turns_that_are_known_on_both_sides():
    answered = call(1)
    answered.status = 200
    turns = [
        turn(1, predicted_cost=2.0, alone_cost=4.0),
        turn(2, predicted_cost=7.0),  # the client's body was too large to be read
        turn(3, alone_cost=7.0, calls=[answered]),  # the one that arrived was
        turn(4, predicted_cost=0.5, kind="late"),
        turn(5, alone_cost=1.0, calls=[]),  # answered on the way
    ]
    assert total(turns).prompt_cost_ratio == 2.5 / 5.0
    assert total(turns[1:2]).prompt_cost_ratio is None


def test_the_summary_has_no_negative_nothing_no_raw_object_and_plurals_that_agree():
    answered = [call(number) for number in range(3)]
    for each in answered:
        each.status = 200
    turns = [turn(1, usage=None, cost=None, calls=answered, added=-0.0001, added_pause=-0.0004, unpriced=2)]
    text = " ".join(summary(turns, {"watch": "w", "spend": {"told": 0.5, "by_usage": 0.1}}).split())
    assert "watch w session" in text
    assert "added 0 ms · longest pause 0 ms" in text
    assert "3 of 3 calls told no usage and are not in the money" in text


def test_figures_are_sums_and_what_nobody_told_is_absent():
    turns = [
        turn(1),
        turn(2, repeat=True, status=500),
        turn(3, kind="late"),
        turn(4, kind="stray", session=""),
        turn(5, kind="other"),
    ]
    figures = total(turns)
    assert (figures.turns, figures.repeats, figures.failed, figures.late, figures.stray, figures.other) == (
        1,
        1,
        1,
        1,
        1,
        1,
    )
    assert (figures.calls, figures.forwarded, figures.new_tokens, figures.cost) == (5, 6000, 6000 - 400 - 200, 2.0)
    assert figures.added == 0.015
    assert list(by_session(turns)) == [("main", "s1-abcdef"), ("main", "")]
    empty = total([]).as_dict()
    assert "cost" not in empty
    assert empty["billed"] == {}


def test_everything_fits_eighty_columns_and_nothing_acts():
    big = {"sent": 10**12, "forwarded": 999_999_999, "cost": 12345.6789, "usage": Usage(10**11, 10**9, 10**10, 10**8)}
    board = Board(head=[HOSTILE])
    for number in range(30):
        hostile = {
            HOSTILE: 3,
            "assistant_role_changed": 10**6,
            "cache_control_ttl_changed": 7,
            "tool_arguments_changed": 1,
        }
        board.add(
            turn(number + 1, f"{HOSTILE}{number}", arm="shadow" if number % 2 else "main", violations=hostile, **big)
        )
    for text in (drawn(board), summary([turn(1, HOSTILE, violations=hostile, **big)], {"watch": HOSTILE}, [HOSTILE])):
        shown = plain(text)
        assert max(cell_len(each) for each in shown) <= 80
        assert "\x1b[2J" not in text
        assert "\u202e" not in text
    assert "and 22 earlier sessions" in drawn(board)
    assert "\x1b" not in line(turn(1, HOSTILE, model=HOSTILE, violations={HOSTILE: 1}))


def test_a_line_says_what_happened():
    told = line(turn(2, repeat=True, extra=1, violations={"role_changed": 2}, exact=False))
    assert (
        told
        == "s1-abcdef turn 2 again · 200 · 2,000 → 1,200 tokens (est.) · $0.5000 · +20 ms · 1 extra · role_changed ×2"
    )
    assert line(Turn(1, "other", 0.0, wire="models", status=None)).startswith("- models · --- · – → – tokens")


def test_the_report_sets_what_was_predicted_beside_what_was_told():
    turns = [
        turn(1, predicted_read=128, predicted_write=0, predicted_cost=2.0, alone_cost=1.0, unchanged=False),
        turn(2, "s2-abcdef", predicted_read=256, predicted_write=0, predicted_cost=2.0, alone_cost=1.0, unchanged=True),
    ]
    text = " ".join(summary(turns, {"watch": "w", "via": None}).split())
    assert "cache by the rules: read 384, write 0 · told: read 200, write 100 · prompts ×2.00 of as sent" in text
    assert "1 of 2 byte for byte" in text
    assert "via" not in text
    read = json.loads(as_json(turns, {"watch": "w", "via": None}, ["a note"]))
    assert read["watch"] == {"watch": "w"}
    assert read["notes"] == ["a note"]
    assert read["arms"]["main"]["total"]["predicted"]["prompt_cost_ratio"] == 2.0
    assert list(read["arms"]["main"]["sessions"]) == ["s1-abcdef", "s2-abcdef"]


def test_nothing_is_said_when_nothing_came():
    assert "Nothing came through." in summary([], {"watch": "w"})
    assert "waiting for the first request" in drawn(Board())


def test_numbers_of_tokens_stay_short():
    told = [short(n) for n in (None, 0, 9_999, 10_000, 999_949, 999_950, 1_500_000, 12 * 10**9)]
    assert told == ["–", "0", "9,999", "10.0k", "999.9k", "1000k", "1.5M", "12.0G"]
    assert all(len(short(10**n)) <= 6 for n in range(13))
