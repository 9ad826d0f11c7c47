"""What became of facts, and what a random drop of half the text leaves of them."""

from __future__ import annotations

import random

import pytest

from context_bench.compression.compressors import compressor_of
from context_bench.compression.figures import losses
from context_bench.compression.probes import packed, rendered
from context_bench.core.records import EvalRow


def answer(context, response, *, opaque=False, system="x", session="s", group="s@2"):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The port is 8080."},
        {"role": "assistant", "content": "Wrote app.py."},
        {"role": "user", "content": "Go on."},
    ]
    example = {
        **{"id": f"{group}#1", "probe_type": "recall", "group": group, "points": [3], "session": packed(messages)},
        "atoms": [
            {"text": "8080", "kind": "number", "sources": [[1, 12, 16]]},
            {"text": "app.py", "kind": "path", "sources": [[2, 6, 12]]},
            {"text": "9090", "role": "banned"},
        ],
    }
    output = {"context": context, "response": response, "compressed": {"opaque": opaque}}
    return EvalRow(system, example["id"], {}, cluster=session), example, output


def test_whose_loss_it_is():
    own = losses([answer("user: The port is 8080.", "It is in app.py.")])["x"]
    assert (own.kinds["number"].kept, own.kinds["number"].named, own.kinds["number"].unread) == (1, 0, 1)
    assert (own.kinds["path"].kept, own.kinds["path"].named, own.kinds["path"].unread) == (0, 1, 0)
    assert "statement" not in own.kinds  # a banned fact is none that was asked for
    [lost] = own.shown
    assert (lost.fact, lost.message, lost.role, lost.messages, lost.kept) == ("8080", 1, "user", 3, True)


def test_nothing_can_be_seen_in_an_opaque_text():
    own = losses([answer("[opaque, 8080 tokens]", "8080 in app.py", opaque=True)])["x"]
    assert own.kinds["number"].kept == 0
    assert own.kinds["number"].named == 1
    assert own.prefix_kept is None


def test_the_prefix_is_what_a_cache_could_use():
    whole = "user: The port is 8080.\n\nassistant: Wrote app.py."
    assert losses([answer(whole, "")])["x"].prefix_kept == 1
    assert losses([answer(whole[:24] + "X" * 24, "")])["x"].prefix_kept == pytest.approx(0.5)
    assert losses([answer("Summary.", "")])["x"].prefix_kept == 0


def test_shares_have_intervals_from_six_sessions_on():
    rows = [answer("user: The port is 8080.", "8080", session=f"s{at}", group=f"s{at}@2") for at in range(8)]
    shares = losses(rows)["x"].shares()
    assert shares["kept"].value == 0.5
    assert shares["kept"].low < 0.5 < shares["kept"].high
    assert losses(rows[:5])["x"].shares()["kept"].low is None
    failed = EvalRow("y", "1", {}, errors={"system": "TimedOut: x"})
    assert losses([(failed, rows[0][1], {})])["y"].rows == 0


def test_a_random_drop_of_a_half_keeps_about_half_of_facts_that_lie_evenly():
    """Live check (b) of the specification: 45 to 55 %."""
    draw = random.Random(0)
    kept = []
    for seed in range(6):
        facts = [f"K{draw.randrange(16**8):08x}" for _ in range(200)]
        words = ["the", "worker", "reads", "its", "queue", "and", "writes", "a", "line", "for", "every", "job"]
        sentences = [
            f"{' '.join(draw.choices(words, k=9)).capitalize()} {fact} {draw.choice(words)}." for fact in facts
        ]
        messages = [{"role": "user", "content": " ".join(sentences[at : at + 10])} for at in range(0, 200, 10)]
        drop = compressor_of(f"random_drop:keep=0.5,seed={seed}")
        made, _ = drop.compress([{"role": "user", "content": rendered(messages)}], [], state=None, budget=None)
        text = rendered(made.messages)
        kept.append(sum(fact in text for fact in facts) / len(facts))
        assert 0.45 <= kept[-1] <= 0.55
    assert sum(kept) / len(kept) == pytest.approx(0.5, abs=0.02)
