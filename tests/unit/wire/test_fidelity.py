"""What was kept, lost and made up: on small texts whose answer is plain, and against slow definitions by property."""

import json
import random
from pathlib import Path

import pytest
import scipy  # its parts are loaded where they are used
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.wire.fidelity import (
    Original,
    fidelity,
    findings as module,
    fragments,
    line_order,
    script_of,
    summarise,
    word_damage,
    words,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text())
ORIGINAL = """The service reads /etc/app.conf and connects to localhost:5432.
The timeout is 30 s and max_retries=5.
You must never restart it at night.
Version v2.1.0 failed with ValueError: bad port.
"""
TEXTS = {
    "latin": "The valve opens at seventy degrees and closes again when the pressure falls below the mark. " * 4,
    "cjk": "阀门在七十度时打开，当压力低于标记时再次关闭。操作员必须每天检查两次仪表。" * 4,
    "cyrillic": "Клапан открывается при семидесяти градусах и закрывается снова при падении давления. " * 4,
    "arabic": "يفتح الصمام عند سبعين درجة ويغلق مرة أخرى عندما ينخفض الضغط عن العلامة. " * 4,
}


def metrics(original, compressed, **more):
    return summarise([fidelity(original, compressed, **more)]).metrics


def test_nothing_changed():
    found = metrics(ORIGINAL, ORIGINAL)
    for name in (
        "retained",
        "macro",
        "coverage",
        "verbatim_lines",
        "order",
        "utf8_ok",
        "keep",
        "fold",
        "unchanged_share",
    ):
        if name in found:
            assert found[name] == 1, name
    for name in (
        "lost",
        "recoverable",
        "fabricated",
        "word_damage",
        "near_misses",
        "expansion_share",
        "replacement_chars",
        "removal",
    ):
        assert found[name] == 0, name


def test_what_is_lost_and_where():
    found = fidelity(ORIGINAL, "\n".join(ORIGINAL.splitlines()[1:3]))
    lost = {(one.kind, one.atom) for one in found.lost}
    assert {
        ("path", "/etc/app.conf"),
        ("version", "v2.1.0"),
        ("error", "ValueError"),
        ("email_host_port", "localhost:5432"),
    } <= lost
    assert not {kind for kind, _ in lost} & {"number", "constraint"}
    assert {one.decile for one in found.lost if one.kind == "path"} == {0}
    assert {one.decile for one in found.lost if one.kind == "version"} == {7}
    assert sum(tally.total for tally in found.deciles.values()) == sum(tally.total for tally in found.kinds.values())


def test_other_spelling_is_not_a_loss_but_another_value_is():
    found = fidelity("set max_retries to it; max_size=1,024; at 30 s", "MAX-RETRIES is set; max_size = 1024 and 30s")
    assert found.lost == []
    found = fidelity("max_size=1024 and path a/b/c.py", "max_size=2048 and path a/b/d.py")
    assert [(one.kind, one.atom) for one in found.lost] == [("number", "max_size=1024"), ("path", "a/b/c.py")]
    assert [(miss.key, miss.before, miss.after) for miss in found.near_misses] == [("max_size", "1024", "2048")]
    assert found.fabricated["number"] == (1, 1)
    assert ("path", "a/b/d.py") in found.invented


def test_a_part_of_a_longer_word_is_not_the_atom():
    found = fidelity("see first_name and port=80 and a.py", "see first_name_of and port=8080 and data.pyc")
    assert {one.atom for one in found.lost} == {"first_name", "port=80", "a.py"}


def test_recoverable_only_behind_its_own_marker():
    original = "key a_first, 1 ms; key b_second, 2 ms"
    shelf = {"[see #1]": "key a_first, 1 ms", "[see #2]": "key b_second, 2 ms"}
    found = fidelity(original, "the rest: [see #1]", retrievable=shelf)
    assert {one.atom for one in found.lost} == {"b_second", "2 ms"}
    pooled = summarise([found]).metrics
    assert (pooled["recoverable"], pooled["lost"], pooled["retained"]) == (0.5, 0.5, 0.0)


def test_roles_and_a_kept_tail():
    before = [
        {"role": "user", "content": "Read src/a.py."},
        {"role": "tool", "tool_call_id": "c", "content": "MAX_SIZE = 10 and MIN_SIZE = 2"},
        {"role": "user", "content": "Now what is other_thing?"},
    ]
    after = [before[0], {**before[1], "content": "MAX_SIZE = 10"}, before[2]]
    found = fidelity(before, after)
    assert "other_thing" not in str(found.lost)
    assert found.roles["user"].total == 1  # src/a.py: the tail is not counted
    assert (found.roles["tool"].retained, found.roles["tool"].lost) == (2, 2)
    assert fidelity(before, before).roles["tool"].total == 4


def test_not_a_text():
    with pytest.raises(BadInput, match="list of chat messages"):
        fidelity([1], "x")


# Scripts
# ------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "text"), TEXTS.items())
def test_scripts_are_told_apart(script, text):
    assert script_of(text) == script
    assert {found for found, _ in words(text)} == {script}


def break_cjk(text):
    """A compressor with a bug: it cuts UTF-8 by bytes, which only hurts where characters have three of them."""
    return text.encode()[: len(text.encode()) * 2 // 3 - 1].decode("utf-8", "replace")


def drop_characters(text):
    """A token dropper that does not know where Chinese words end."""
    return "".join(letter for i, letter in enumerate(text) if not ("\u4e00" <= letter <= "\u9fff" and i % 3 == 0))


@pytest.mark.parametrize("breaks", [break_cjk, drop_characters])
def test_a_compressor_that_breaks_only_cjk_is_caught(breaks):
    pairs = [(text, breaks(text)) for text in TEXTS.values()]
    found = summarise(fidelity(*pair) for pair in pairs).metrics
    assert found["word_damage.cjk"] > (0.3 if breaks is drop_characters else 0)
    assert found["word_damage.latin"] <= 0.02  # one word cut at the end
    if breaks is drop_characters:
        assert [name for name, value in found.items() if name.startswith("word_damage.") and value > 0] == [
            "word_damage.cjk"
        ]
    else:
        assert found["replacement_chars"] >= 1
    whole_sentences = summarise(fidelity(text, text[: len(text) // 2]) for text in TEXTS.values()).metrics
    assert found["word_damage.cjk"] > whole_sentences["word_damage.cjk"] == 0


def test_word_damage_by_hand():
    assert word_damage("one two 1,000", "one tw 1000") == {"latin": (1, 3)}
    assert word_damage("阀门打开", "阀门开") == {"cjk": (1, 2)}
    assert word_damage("阀门", "阀\ufffd") == {"cjk": (1, 1)}


def test_broken_text():
    found = fidelity("fine", "f\ud800ne")
    assert not found.utf8_ok
    assert fidelity("fine", "f\ufffdn\ufffd").replacement_chars == 2
    assert fidelity('{"a": [1, 2]}', '{"a": [1').json_ok is False
    assert fidelity('{"a": [1, 2]}', '{"a": [1]}').json_ok is True
    assert fidelity("plain", "{").json_ok is None


# Size, answers
# ------------------------------------------------------------------------


def test_sizes():
    found = summarise(
        [
            fidelity("one two three four", "one two", requested_keep=0.25),
            fidelity("one", "one and more"),
            fidelity("", ""),
        ]
    )
    assert found.metrics["expansion_share"] == 0.5
    assert found.metrics["keep_error"] == 0.25
    assert found.metrics["keep"] == 1.0  # 5 of 5 tokens
    assert found.metrics["mean_keep"] == (0.5 + 3.0) / 2
    assert found.pairs == 3


def test_answers_and_evidence():
    text = "The pump runs at 40 bar. It was built in Kiel."
    found = fidelity(
        text, "It was built in Kiel.", answers=["Kiel"], evidence=["The pump runs at 40 bar.", "It was built in Kiel."]
    )
    assert (found.answer_in_context, found.answer_introduced, found.evidence_recall) == (True, False, 0.5)
    found = fidelity(text, "The pump. It is blue.", answers=["blue"])
    assert (found.answer_in_context, found.answer_introduced) == (None, True)


# Fragments and lines
# ------------------------------------------------------------------------


def test_fragments_by_hand():
    found = fragments(["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "on", "the", "mat", "sat"])
    assert found.lengths == (2, 3, 1)
    assert (found.coverage, found.density, found.fold) == (1.0, 14 / 6, 1.0)
    assert fragments("a b c d", "x y").coverage == 0
    assert fragments("a", "").coverage is None
    assert fragments("", "a b").density == 0
    assert fragments("One, two.", "ONE, TWO.").density == 4
    for case in VECTORS["extractive_fragments"]:  # the list may be empty
        found = fragments(case["original"], case["compressed"])
        assert (found.coverage, found.density, found.fold) == pytest.approx(tuple(case["expected"].values()))


def greedy(source, made):
    """The definition, slowly."""
    lengths, i = [], 0
    while i < len(made):
        best = max(
            (
                next(
                    (k for k in range(len(made) - i) if j + k >= len(source) or source[j + k] != made[i + k]),
                    len(made) - i,
                )
                for j in range(len(source))
            ),
            default=0,
        )
        if best:
            lengths.append(best)
        i += max(best, 1)
    return tuple(lengths)


tokens = st.lists(st.integers(0, 3), max_size=25)


@given(tokens, tokens)
def test_both_ways_to_find_fragments_are_the_definition(source, made):
    expected = greedy(source, made)
    assert tuple(module._runs(module._automaton(source), made)) == expected
    assert fragments(source, made).lengths == expected
    assert tuple(module._runs_in_text(source, made)) == expected


def test_fragments_of_a_long_text():
    draw = random.Random(1)
    source = [draw.randrange(50) for _ in range(60_000)]
    found = fragments(source, [*source[1000:31_000], 99, *source[:10]])
    assert found.lengths == (30_000, 10)


@given(st.lists(st.integers(0, 6), max_size=15))
def test_order_is_tau_b(places):
    found = module._kendall(places)
    expected = scipy.stats.kendalltau(range(len(places)), places).statistic if len(set(places)) > 1 else None
    assert found == (None if expected is None else pytest.approx(expected))


def test_lines():
    assert line_order("a\nb\n\nc\nd\n", "  d\nc\nx\n\n") == (2 / 3, -1.0)
    assert line_order("a\nb", "a") == (1.0, None)
    assert line_order("a", "\n") == (None, None)


@given(st.text(), st.text())
def test_any_pair_of_texts(original, compressed):
    found = summarise([fidelity(original, compressed)]).metrics
    shares = ("retained", "recoverable", "lost", "fabricated", "word_damage", "coverage", "verbatim_lines", "utf8_ok")
    assert all(0 <= found[name] <= 1 for name in shares if name in found)


def test_random_loss_is_measured_as_such():
    """Half of uniformly placed atoms dropped: about half retained."""
    draw = random.Random(5)
    lines = [f"value_{i} = {draw.randrange(10**6)} ms" for i in range(2000)]
    found = metrics("\n".join(lines), "\n".join(line for line in lines if draw.random() < 0.5))
    assert found["retained"] == pytest.approx(0.5, abs=0.05)
    assert found["verbatim_lines"] == found["order"] == found["coverage"] == 1


@given(
    st.lists(st.sampled_from(["timeout = 30 ms", "see /etc/hosts", "never do it", "src/a.py:12", "plain"]), max_size=6)
)
def test_atoms_kept_are_those_of_the_whole_findings(lines):
    messages = [{"role": "user", "content": line} for line in ["exit code 3 in v2.1", "timeout = 30 ms", *lines]]
    for shorter in (messages[1:], messages[:1], messages, [{"role": "tool", "content": "30 ms, never"}]):
        original = Original(messages)
        assert original.atoms_kept(shorter) == original.against(shorter).kinds
