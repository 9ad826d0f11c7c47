"""Untidy questions and stores: what is lost is seen, what is not lost is not blamed, and finding nothing at all is no
robustness.
"""

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.text import tokens
from context_bench.memory.ops import run_suites
from context_bench.memory.protocol import Hit
from context_bench.memory.systems.bm25_memory import BM25

WAYS = {
    *("other words", "typing mistakes", "capitals", "in German", "in Chinese", "in the middle of chatter"),
    *("among much more", "inside long texts", "stored in another order"),
}


class Listed:
    """A list, searched by shared words; subclasses differ in one thing."""

    name = "listed"
    capabilities = frozenset({"add", "search"})

    def __init__(self):
        self.items = []

    def store(self, text):
        self.items.append(text)

    def reset(self):
        self.items = []

    def words(self, text):
        return set(tokens(text))

    def recall(self, query, limit):
        asked = self.words(query)
        found = sorted(self.items, key=lambda text: -len(asked & self.words(text)))
        return [text for text in found if asked & self.words(text)][:limit]


class Shouting(Listed):
    """Takes capitals for other letters."""

    def words(self, text):
        return set(text.replace("?", "").replace(".", "").split())


class Short(Listed):
    """Keeps the beginning of a text."""

    def store(self, text):
        super().store(text[:512])


class First(Listed):
    """Looks only at what was stored early."""

    def recall(self, query, limit):
        self.items, all_items = self.items[:20], self.items
        try:
            return super().recall(query, limit)
        finally:
            self.items = all_items


class Nothing(BM25):
    def search(self, query, k, **_):
        return list[Hit]()

    def namespace(self, name):
        return type(self)(self.path, self.synchronous, space=name)


async def robust(make, **options):
    (found,) = await run_suites(make, ["robust"], scale=0.5, **options)
    return found, {probe.name: probe for probe in found.probes}


async def test_every_way_is_measured_beside_the_plain_one():
    found, probes = await robust("bm25")
    assert found.outcome == "pass"
    assert probes.keys() == {"asked plainly", *WAYS}
    assert {probes[way].outcome for way in WAYS} == {"measured"}
    plain = probes["asked plainly"].numbers["found"]
    for way in WAYS:
        numbers = probes[way].numbers
        assert numbers["found"] == plain - numbers["lost"] + numbers["gained"], way
    assert plain == probes["capitals"].numbers["found"] == 8


async def test_what_is_lost_is_seen_and_only_that():
    for make, lost, kept in (
        (Shouting, "capitals", "stored in another order"),
        (Short, "inside long texts", "capitals"),
        (First, "stored in another order", "capitals"),
    ):
        _, probes = await robust(make)
        assert probes["asked plainly"].outcome == "pass", make
        assert probes[lost].numbers["lost"] > 0, (make, lost)
        assert probes[kept].numbers["lost"] == 0, (make, kept)


async def test_to_find_nothing_is_no_robustness(tmp_path):
    found, probes = await robust(lambda: Nothing(tmp_path / "s.db"))
    assert found.outcome == "fail"
    assert probes["asked plainly"].outcome == "fail"


async def test_the_same_seed_gives_the_same_figures():
    (_, one), (_, two), (_, other) = [await robust("bm25", seed=seed) for seed in (3, 3, 4)]
    assert {name: probe.numbers for name, probe in one.items()} == {name: probe.numbers for name, probe in two.items()}
    assert one.keys() == other.keys()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scale": 0}, "scale is 0"),
        ({"deadline": -1}, "deadline is -1"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"suites": []}, "is named"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_its_own_name(options, says):
    with pytest.raises(BadInput, match=says):
        await run_suites("bm25", **options)
