"""The reader without a model: what it understands, what it refuses, and odd contexts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.testing.lab_reader import LabReader, read

MOVED = [
    "[2023-03-01T08:00:00] Ann: Rufus Beck has moved house, the new address is Amber Lane. That is all for the moment.",
    "[2022-03-01T08:00:00] Ann: For your notes: as of today Rufus Beck lives at Walnut Row.",
    "[2024-03-01T08:00:00] Ann: Rufus Bell has moved house, the new address is Olive Hill.",
]
WHERE = "Where does Rufus Beck live now?"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (WHERE, "Amber Lane"),
        ("Where did Rufus Beck live just before the present address?", "Walnut Row"),
        ("How many times has Rufus Beck moved house?", "2"),
        ("Where did Rufus Beck live on 2022-12-31?", "Walnut Row"),
        ("Where did Rufus Beck live on 2023-03-01?", "Amber Lane"),
        ("Where did Rufus Beck live on 2021-12-31?", "Not mentioned"),
        ("Where does Rufus Stone live now?", "Not mentioned"),
        ("Who employs Rufus Beck now?", "Not mentioned"),
        ("Who is the king of Spain?", "Not mentioned"),
        ("", "Not mentioned"),
    ],
)
def test_dates_decide_not_the_order_of_hits(question: str, answer: str) -> None:
    assert read("\n\n".join(MOVED), question) == answer
    assert read("\n\n".join(MOVED[::-1]), question) == answer


def test_what_is_told_twice_counts_once() -> None:
    assert read("\n\n".join([*MOVED, *MOVED]), "How many times has Rufus Beck moved house?") == "2"


def test_without_dates_the_order_of_the_context_holds_and_no_day_is_known() -> None:
    bare = [line.partition("] ")[2] for line in MOVED[:2]]
    assert read("\n\n".join(bare), WHERE) == "Walnut Row"
    assert read("\n\n".join(bare), "Where did Rufus Beck live on 2023-12-31?") == "Not mentioned"


def test_a_date_holds_for_its_paragraph_only() -> None:
    context = (
        f"{MOVED[0]}\nAnn: {MOVED[1].partition('Ann: ')[2]}\n\nAnn: Rufus Beck has moved house, the new "
        "address is Olive Hill."
    )
    assert read(context, "How many times has Rufus Beck moved house?") == "3"
    assert read(context, "Where did Rufus Beck live on 2023-12-31?") == "Walnut Row"


def test_only_what_the_assistant_said_is_the_assistants() -> None:
    context = (
        "Ann: I recommend the book Amber Voyage to Rufus Beck.\n\nAssistant: I recommend the book Olive "
        "Winter to Rufus Beck."
    )
    assert read(context, "Which book did the assistant recommend to Rufus Beck?") == "Olive Winter"
    assert (
        read(context.replace("Assistant: ", ""), "Which book did the assistant recommend to Rufus Beck?")
        == "Not mentioned"
    )


def test_cases_of_names_are_understood() -> None:
    context = "Стоматолог Веры Луговой — это Иван Лесин.\nИван Лесин выгуливает щенка по кличке Граф Орешек."
    assert read(context, "Как зовут собаку стоматолога Веры Луговой?") == "Граф Орешек"
    assert read(context, "Как зовут собаку Ивана Лесина?") == "Граф Орешек"
    assert read(context, "Как зовут собаку стоматолога Ивана Лесина?") == "Not mentioned"


def test_the_rest_of_the_example_stays() -> None:
    example = {"id": "x", "context": MOVED[0], "question": WHERE}
    assert LabReader().process(example) == {**example, "response": "Amber Lane"}
    assert LabReader().process({"question": None})["response"] == "Not mentioned"


@given(st.text(max_size=400), st.sampled_from([WHERE, "王小明现在住在哪里？", "Где сейчас живёт Вера Лугова?"]))
@settings(max_examples=60, deadline=None)
def test_any_text_can_be_read(context: str, question: str) -> None:
    assert read(context, question) == "Not mentioned"
