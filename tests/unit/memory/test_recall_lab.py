"""The recall lab: the same in every process, and every question decided by its evidence, by nothing less and by nothing
else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.records import Example
from context_bench.core.text import contains, normalise
from context_bench.datasets import datasets_known, describe, load
from context_bench.datasets.synthetic.world import Draw
from context_bench.memory.datasets import load_memory
from context_bench.memory.datasets.recall_lab import LANGUAGES, NAME, TYPES, lab, open_lab
from context_bench.memory.datasets.recall_lab.lab_plan import Plan
from context_bench.memory.datasets.recall_lab.language import People, chain, subject_form, unchained, words
from context_bench.memory.protocol import conversation, unpacked

SMALL = Path(__file__).with_name("recall_lab_small.jsonl")
SMALL_SHA256 = "f057bf07dc1eeed9d105c69caed0c6ca85348c895185b8e3d881a0a3e7c22181"
CHOICES = [*LANGUAGES, "en,turns=40", "ru,turns=1000", "zh,turns=1000"]


@lru_cache(maxsize=32)
def haystacks(options: str, n: int, seed: int) -> list[tuple[Example, ...]]:
    """The rows of each haystack."""
    made = lab(f"lang={options}", n=n, seed=seed).examples()
    return [tuple(group) for _, group in groupby(made, key=lambda row: row["group"])]


def rows(options: str, n: int = 3, seed: int = 0) -> tuple[Example, ...]:
    """Those of the first `n`, the same however many there are (`test_more_haystacks_leave_the_first_alone`); each is
    made once.
    """
    most = max(n, 6 if options in LANGUAGES else 3 if options in CHOICES else 0) if seed == 0 else n
    return tuple(row for group in haystacks(options, most, seed)[:n] for row in group)


def test_more_haystacks_leave_the_first_alone() -> None:
    for options in ("ru", "en,turns=40"):
        assert tuple(lab(f"lang={options}", n=2).examples()) == rows(options, 2)


@lru_cache(maxsize=8)
def lines(packed: str) -> list[tuple[str, str, str]]:
    """Id, small letters and normalised words of every turn."""
    return [(item.id, item.line.lower(), f" {normalise(item.line)} ") for item in unpacked(packed)]


def answers(row: Example) -> list[str]:
    return row.get("answers", [row["answer"]]) if row["answerable"] else []


def small() -> str:
    """The fixture: for every language a haystack of 100 turns on one line, then its questions without it."""
    lines: list[dict[str, Any]] = []
    for code in LANGUAGES:
        made = rows(code, 1)
        lines.append({"group": made[0]["group"], "items": [json.loads(line) for line in made[0]["items"].splitlines()]})
        lines += [{key: value for key, value in row.items() if key not in ("items", "context")} for row in made]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


# --- the same everywhere ---


def test_the_fixture_is_what_the_generator_makes() -> None:
    # After a change of the generator: raise its VERSION, run this file as a script, and put the hash it prints above.
    text = SMALL.read_text("utf-8")
    assert len(text.encode()) <= 200_000
    assert hashlib.sha256(text.encode()).hexdigest() == SMALL_SHA256
    assert text == small()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_every_process_makes_the_same(hash_seed: str) -> None:
    program = (
        "from context_bench.memory.datasets.recall_lab import lab; from context_bench.core.keys import "
        "canonical_json, stable_hash; "
        "print(stable_hash([canonical_json(row) for row in lab('lang=ru,turns=300', n=2, seed=5).examples()]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == stable_hash([canonical_json(row) for row in rows("ru,turns=300", 2, 5)])


def test_seed_number_and_language_make_other_haystacks() -> None:
    texts = {row["items"] for options in LANGUAGES for seed in (0, 1) for row in rows(options, 3, seed)}
    assert len(texts) == 3 * 2 * 3


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_first_round_is_asked_at_every_length(code: str) -> None:
    short, long = rows(code, 2), [row for row in rows(f"{code},turns=1000", 2) if row["round"] == 0]
    assert [(row["question"], row.get("answer"), row["qa_type"]) for row in short] == [
        (row["question"], row.get("answer"), row["qa_type"]) for row in long
    ]


# --- shape ---


@pytest.mark.parametrize("options", [*CHOICES, "en,turns=137", "zh,turns=2500"])
def test_haystacks_have_the_wanted_turns_with_dates_in_order(options: str) -> None:
    made = lab(f"lang={options}", n=2)
    for index in range(2):
        group = [row for row in rows(options, 2) if row["group"].endswith(f"-{index}")]
        items = unpacked(group[0]["items"])
        assert len(items) == made.turns == len({item.id for item in items})
        assert tuple(made.haystack(index)) == items
        assert conversation(items) == group[0]["context"]
        times = [item.time for item in items]
        assert None not in times
        assert times == sorted(times, key=str)
        assert len(set(times)) == len(times)
        assert {row["asked"] > str(times[-1]) for row in group} == {True}
        assert all(row["items"] is group[0]["items"] and row["context"] is group[0]["context"] for row in group)
        if made.turns >= 100:
            assert Counter(row["qa_type"] for row in group) == {
                kind: made.rounds * (1 + (kind == "single")) for kind in TYPES
            }
        ids = {item.id for item in items}
        assert all({*row.get("evidence", ()), *row["near_misses"]} <= ids for row in group if "near_misses" in row)


@pytest.mark.parametrize(("turns", "each"), [(40, 5), (99, 12)])
def test_short_ones_ask_what_they_have_room_for_and_all_types_between_them(turns: int, each: int) -> None:
    made = lab(f"turns={turns}", n=8, seed=3)
    asked = list(made.examples())
    assert set(Counter(row["group"] for row in asked).values()) == {each}
    assert {row["qa_type"] for row in asked} == set(TYPES)
    counts = made.facts()["counts"]
    assert (counts["questions"], counts["types"]) == (
        8 * each,
        dict(sorted(Counter(row["qa_type"] for row in asked).items())),
    )


def test_rows_are_grouped_and_named_once() -> None:
    made = [*rows("en"), *rows("ru"), *rows("zh,turns=1000")]
    assert len({row["id"] for row in made}) == len(made)
    assert all(row["group"] == row["cluster"] for row in made)
    groups = [row["group"] for row in made]
    assert [group for i, group in enumerate(groups) if i == 0 or groups[i - 1] != group] == list(dict.fromkeys(groups))
    assert all(row["answerable"] == ("answer" in row) == ("evidence" in row) for row in made)
    assert {row["qa_type"] for row in made if not row["answerable"]} == {
        "absent-subject",
        "absent-relation",
        "absent-before",
    }


def test_a_haystack_is_never_held_as_a_whole() -> None:
    def peak(turns: int) -> int:
        tracemalloc.start()
        characters = sum(len(item.text) for item in lab(f"turns={turns}").haystack(0))
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert characters > turns * 20
        return found

    peak(200)  # tables are read once
    assert peak(4000) - peak(1500) < 700_000  # the items of 2,500 turns take twice that and more


# --- every question is decided by its evidence ---


@pytest.mark.parametrize("options", CHOICES)
def test_answers_stand_in_the_evidence_and_nowhere_else(options: str) -> None:
    for row in rows(options, 2):
        turns = lines(row["items"])
        for answer in answers(row):
            words_of = f" {normalise(answer)} "
            where = {
                id_
                for id_, plain, bare in turns
                if words_of in bare or (not row["computed"] and answer.lower() in plain)
            }
            if row["computed"]:
                assert not where, (row["question"], answer)
            else:
                assert where <= set(row["evidence"]), (row["question"], answer)
                assert where, (row["question"], answer)


@pytest.mark.parametrize("options", CHOICES)
def test_no_question_gives_its_answer_away(options: str) -> None:
    for row in rows(options):
        for answer in answers(row):
            assert not contains(row["question"], answer)


@pytest.mark.parametrize("options", CHOICES)
def test_versions_can_be_told_apart_and_one_is_current(options: str) -> None:
    kinds = Counter[str]()
    for row in rows(options, 6 if options in LANGUAGES else 3):
        assert {"versions", "history"} & row.keys() == (
            {"versions"}
            if row["qa_type"] in ("update-latest", "temporal-as-of") or row["form"] == "put right"
            else {"history"}
            if row["qa_type"] in ("update-previous", "update-count")
            else set()
        )
        told = row.get("versions") or row.get("history") or []
        times = {item.id: str(item.time) for item in unpacked(row["items"])}
        values = [one["value"].lower() for one in told]
        assert not [(a, b) for i, a in enumerate(values) for j, b in enumerate(values) if i != j and a in b]
        assert sum(one["current"] for one in told) == (1 if told else 0)
        assert [times[one["source"]] for one in told] == sorted(times[one["source"]] for one in told)
        if "versions" in row:
            kinds[row["qa_type"]] += 1
            (current,) = [one for one in told if one["current"]]
            assert row["answer"] == current["value"]
            assert row["evidence"] == [current["source"]]
            until = row.get("as_of", "9999")
            assert current == [one for one in told if times[one["source"]][:10] <= until][-1]
            assert row["qa_type"] != "temporal-as-of" or current is not told[-1]
    assert set(kinds) == {"update-latest", "temporal-as-of", "contradiction"} - (
        {"contradiction"} if "turns=40" in options else set()
    )


@pytest.mark.parametrize("options", CHOICES)
def test_look_alikes_share_a_subject_or_a_statement(options: str) -> None:
    for row in rows(options):
        near = row["near_misses"]
        assert near
        assert not set(near) & set(row.get("evidence", ()))


@pytest.mark.parametrize("options", CHOICES)
def test_who_is_asked_for_in_vain_is_never_named(options: str) -> None:
    code = options[:2]
    name = r"^\w{3}" if code == "zh" else r"[A-ZА-ЯЁ]\w+ [A-ZА-ЯЁ]\w+"
    for row in rows(options):
        if row["qa_type"] == "absent-subject":
            (who,) = re.findall(name, row["question"])
            assert subject_form(code, who, True) not in row["context"]
            assert who not in row["context"]


@given(st.sampled_from(LANGUAGES), st.integers(0, 10**6), st.integers(0, 10**4))
@settings(max_examples=10, deadline=None)
def test_words_suffice_for_the_longest_haystack(code: str, seed: int, index: int) -> None:
    plan = Plan(code, seed, index, 8)
    assert len(plan.questions) == 8 * (len(TYPES) + 1)
    texts = Counter(question.text for _, question in plan.questions)
    assert texts.most_common(1)[0][1] == 1
    assert len(Plan(code, seed, index, 1).facts) <= 70  # of a hundred turns


@pytest.mark.parametrize("code", LANGUAGES)
def test_descriptions_of_people_can_be_undone(code: str) -> None:
    people, draw = People(code, Draw("people", code)), Draw("roles", code)
    for _ in range(50):
        person = people.somebody()
        assert person is not None
        roles = draw.shuffled(list(words(code)["roles"]))[: draw.below(5)]
        described = chain(code, roles, person)
        assert unchained(code, described.who, False) == (roles, person.who)
        assert unchained(code, described.gen, True) == (roles, person.who)


# --- names and options ---


def test_options_choose_length_language_and_types() -> None:
    made = lab("turns=10k, lang=zh, types=update+chain-3, single")
    assert (made.turns, made.lang, made.rounds) == (10_000, "zh", 4)
    assert made.types == ("single", "chain-3", "update-latest", "update-previous", "update-count")
    assert made.tag == "bundled:recall-lab:turns=10000,lang=zh"
    assert lab().tag == NAME
    only = list(lab("types=chain-2+absent", n=2).examples())
    assert Counter(row["qa_type"] for row in only) == dict.fromkeys(
        ["absent-relation", "absent-subject", "chain-2", "absent-before"], 2
    )
    full = {row["id"]: row for row in rows("en", 2)}
    assert all(full[row["id"]] == row for row in only)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("turns=39", BadInput, "from 40 to 100,000"),
        ("turns=100001", BadInput, "turns='100001'"),
        ("turns=101k", BadInput, "turns='101k'"),
        ("turns=ten", BadInput, "turns='ten'"),
        ("turns=1000,turns=100", BadInput, "twice"),
        ("size=3", BadInput, "no option 'size'"),
        ("lang=fr", UnknownName, "en"),
        ("types=chains", UnknownName, "chain"),
        ("types=", UnknownName, "single"),
        ("turns=²00", BadInput, "turns="),
    ],
)
def test_odd_options_are_refused_with_the_reason(options: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        open_lab(options)


def test_the_name_opens_it_everywhere() -> None:
    assert NAME in datasets_known()
    assert describe(NAME)["licence"] == "MIT"
    assert [row["id"] for row in load(f"{NAME}:lang=ru", n=3).examples()] == [row["id"] for row in rows("ru")[:3]]
    remembered = load_memory(f"{NAME}:lang=ru", n=2)
    assert list(remembered.examples()) == list(rows("ru", 2))
    assert {row["group"] for row in open_lab(n=4).examples()} == {f"en-100-0-{i}" for i in range(4)}
    assert list(open_lab(n=0).examples()) == []
    declining = load_memory(NAME, n=1, qa_types=["Abstention"])
    assert {row["qa_type"] for row in declining.examples()} == {"absent-subject", "absent-relation", "absent-before"}
    with pytest.raises(BadInput, match="its types are: single"):
        load_memory(NAME, qa_types=["weather"])
    with pytest.raises(BadInput):
        open_lab(n=-1)


def test_the_manifest_tells_what_was_used() -> None:
    manifest = open_lab("lang=zh", n=2, seed=3).manifest()
    assert manifest["used"] == 40
    assert manifest["counts"]["items"] == 200
    assert manifest["counts"]["unanswerable"] == 6
    assert manifest["sha256"] == open_lab("lang=zh", n=2, seed=3).manifest()["sha256"]
    others = [
        open_lab("lang=zh", n=2, seed=4),
        open_lab("lang=zh", n=1, seed=3),
        open_lab("lang=zh,single", n=2, seed=3),
    ]
    assert manifest["sha256"] not in {other.manifest()["sha256"] for other in others}


if __name__ == "__main__":
    SMALL.write_text(small(), "utf-8")
    print(hashlib.sha256(SMALL.read_bytes()).hexdigest())
