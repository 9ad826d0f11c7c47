from __future__ import annotations

import random
import re

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.tokens import count_tokens
from context_bench.datasets import load, pydocs
from context_bench.datasets.pydocs import Renaming, folded, installed_topics, paragraphs, sentences, statement


@pytest.fixture(scope="module")
def built():
    return pydocs.build(0)


def test_enough_questions_survive_on_this_python(built):
    assert pydocs.size() >= 72
    assert len(pydocs.plans()) >= 24
    assert len(built.examples) >= 60
    assert len({e["cluster"] for e in built.examples}) >= 20
    assert len(built.examples) + len(built.dropped) == pydocs.size()


def test_the_first_24_are_two_questions_of_twelve_contexts(built):
    first = [e["cluster"] for e in built.examples[:24]]
    assert len(set(first)) == 12
    assert all(first.count(cluster) == 2 for cluster in first)


def test_contexts_are_about_a_thousand_tokens(built):
    sizes = {e["cluster"]: count_tokens(e["context"]) for e in built.examples}
    assert min(sizes.values()) >= 850
    assert max(sizes.values()) <= 1100


def test_each_answer_stands_verbatim_in_its_evidence_and_not_in_its_question(built):
    for example in built.examples:
        assert example["evidence"] in example["context"]
        assert re.search(rf"(?<!\w){re.escape(example['answer'])}(?!\w)", example["evidence"]), example["id"]
        assert folded(example["answer"]) not in folded(example["question"]), example["id"]
        assert 0 <= example["depth"] <= 1


def test_memory_does_not_help(built):
    """No answer is the one that the real documentation gives, and another seed gives other answers."""
    written = {f"{plan.id}/{i}": q.answer for plan in pydocs.plans() for i, q in enumerate(plan.questions, 1)}
    other = {e["id"]: e for e in pydocs.build(1).examples}
    same = 0
    for example in built.examples:
        assert example["answer"] != written[example["id"]]
        assert (
            not re.search(rf"(?<!\w){re.escape(written[example['id']])}(?!\w)", example["evidence"])
            or example["kind"] == "version"
        )
        same += other[example["id"]]["answer"] == example["answer"]
    assert same <= len(built.examples) * 0.05


def test_the_same_seed_gives_the_same_examples(built):
    assert pydocs.build(0).examples == built.examples


def test_answers_stand_at_all_depths_and_words_are_repeated_to_varying_degree(built):
    depths = [e["depth"] for e in built.examples]
    assert all(sum(low <= d < low + 0.25 for d in depths) >= 8 for low in (0, 0.25, 0.5, 0.75))
    overlaps = pydocs.facts(built, 0)["lexical_overlap"]
    assert overlaps["low"] < 0.35 < overlaps["mean"] < 0.8 < overlaps["high"]


def test_what_this_python_lacks_is_dropped_and_counted():
    topics = dict(installed_topics())
    topics["specialnames"] = topics["specialnames"].replace("resurrection", "revival")
    topics.pop("debugger")
    less = pydocs.build(0, topics)
    assert less.dropped["finalizers/1"] == "evidence not in this Python's text"
    assert "pdb-start/1" in less.dropped
    assert {e["cluster"] for e in less.examples}.isdisjoint({"pdb-start", "pdb-functions", "pdb-commands"})
    assert pydocs.facts(less, 0, topics)["dropped"] == less.dropped


def test_another_layout_and_markup_make_no_difference(built):
    """Later versions wrap lines elsewhere, quote with other marks and say "Added in version"."""

    def relaid(text):
        text = text.replace("New in version", "Added in version").replace("’", "'")
        return re.sub(r'"(\w+)"', r"``\1``", text)

    again = pydocs.build(0, {name: relaid(text) for name, text in installed_topics().items()})
    assert {e["id"] for e in again.examples} == {e["id"] for e in built.examples}


def test_the_loader_and_its_manifest():
    loaded = load("bundled:pydocs-qa", n=24, seed=3)
    found = list(loaded.examples())
    assert len(found) == 24
    assert {e["dataset"] for e in found} == {"bundled:pydocs-qa"}
    manifest = loaded.manifest()
    assert len(manifest["text_sha256"]) == 64
    assert manifest["seed"] == 3
    assert manifest["used"] + len(manifest["dropped"]) == pydocs.size()
    assert (loaded.base, loaded.has_context, loaded.evaluators) == ("bundled:pydocs-qa", True, ["answer"])


def test_paragraphs_keep_prose_and_signatures_only():
    text = (
        "A Heading\n*********\n\nThis is one sentence of plain prose over\ntwo lines, post-\nmortem included.\n\n"
        "   >>> code(here)\n\nobject.__len__(self)\n\n   x = 3\n"
    )
    assert paragraphs(text) == [
        "This is one sentence of plain prose over two lines, post-mortem included.",
        "object.__len__(self)",
    ]


def test_a_version_stays_with_what_changed():
    assert sentences("Changed in version 3.7: This came. Then that.") == [
        "Changed in version 3.7: This came.",
        "Then that.",
    ]
    assert statement("One. Two *is* “here”. Three.", "two is here") == "Two *is* “here”."
    assert statement("One. Two. Three.", "two three") == "Two. Three."


def test_renaming_is_consistent_and_keeps_forms():
    text = (
        "Changed in version 3.9: Guards raise ValueError. A guard, Python 3.10.4 and sys.stdout; see PEP 252 "
        "in 3.9, not 3.91 or 1252."
    )
    renaming = Renaming(["3.9", "guard", "ValueError", "252", "sys.stdout", "__len__"], text, random.Random(1))
    out = renaming.apply(text)
    twins = renaming.made_up
    assert out == (
        f"Changed in version {twins['3.9']}: {twins['guard'].capitalize()}s raise {twins['ValueError']}. A "
        f"{twins['guard']}, "
        f"Python {twins['3.10']}.4 and {twins['sys.stdout']}; see PEP {twins['252']} in {twins['3.9']}, not 3.91 or "
        "1252."
    )
    assert twins["ValueError"].endswith("Error")
    assert twins["sys.stdout"].startswith("sys.")
    assert re.fullmatch(r"__[a-z]+__", twins["__len__"])
    assert len(twins["252"]) == 3
    assert int(twins["3.9"][2:]) < int(twins["3.10"][2:])  # the older version stays the older one
    assert len(set(twins.values())) == len(twins)


def test_a_python_without_its_documentation_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    installed_topics.cache_clear()
    try:
        with pytest.raises(BadInput, match="libpython3-stdlib"):
            load("bundled:pydocs-qa")
    finally:
        installed_topics.cache_clear()
