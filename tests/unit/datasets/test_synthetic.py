"""The synthetic suite: a reader that knows the words, but nothing the generator noted, answers every question from the
text.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.compression.compressors.ranked_sentences import BM25
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import stable_hash
from context_bench.core.text import best_match
from context_bench.core.tokens import VocabularyCounter
from context_bench.datasets import datasets_known, describe, load
from context_bench.datasets.synthetic import KINDS, NAME, SHORTEST, Suite, suite
from context_bench.datasets.synthetic.world import Draw, number_word, roman
from context_bench.evaluators import AnswerQuality

SAME = {
    name: {asked: said for said, asked in pairs.items()}
    for name, pairs in tomllib.loads(
        (files("context_bench.datasets.synthetic") / "lexicon.toml").read_text("utf-8")
    ).items()
    if name in ("trades", "landmarks", "goods", "objects")
}
LEAD = re.compile(r"(?:As the clerk has it, |For the record, |By all accounts, |It should be said that )")
SHOP = r"(?P<trade>[a-z ]+?) (?:hard by|next to|by) the (?P<spot>[a-z ]+?)"
PERSON, NAMED, NUMBER = r"(?P<who>[A-Z]\w+ [A-Z]\w+)", r"(?:[A-Z&]\w*|the)(?: (?:[A-Z]\w+|&))*", r"(?P<n>\d+)"
TOWN, HOUSE, FIRM = (rf"(?P<{name}>{NAMED})" for name in ("town", "house", "firm"))
SHIP, ROOM, GOOD, THING = (
    r"(?P<ship>[A-Z]\w+ [A-Z]\w+)",
    r"the (?P<room>[A-Z]\w+ \w+)",
    r"(?P<good>[a-z ]+)",
    r"the (?P<thing>[a-z' ]+)",
)
DAY = r"(?P<day>\w+day)"
STATEMENTS = {
    "keeper": (
        f"{PERSON} keeps the {SHOP}",
        f"the {SHOP} is in the hands of {PERSON}",
        f"{PERSON} stands behind the counter of the {SHOP}",
    ),
    "opened": (
        f"the {SHOP} first opened its doors in {NUMBER}",
        f"it was {NUMBER} when trading began at the {SHOP}",
        f"the signboard of the {SHOP} went up in {NUMBER}",
    ),
    "rent": (
        f"the {SHOP} pays its landlord {NUMBER} florins a quarter",
        f"{NUMBER} florins a quarter go to the landlord of the {SHOP}",
        f"for its rooms the {SHOP} hands over {NUMBER} florins a quarter",
    ),
    "hands": (
        f"the {SHOP} employs {NUMBER} hands",
        f"{NUMBER} hands draw wages at the {SHOP}",
        f"on the payroll of the {SHOP} stand {NUMBER} hands",
    ),
    "shut": (
        f"the {SHOP} keeps its shutters down on {DAY}s",
        f"on {DAY}s nobody is served at the {SHOP}",
        f"every {DAY} the {SHOP} stays shut",
    ),
    "licence": (
        f"{PERSON} signed the licence of the {SHOP}",
        f"the licence of the {SHOP} bears the signature of {PERSON}",
        f"the signature on the licence of the {SHOP} is that of {PERSON}",
    ),
    "policy": (
        f"{FIRM} wrote the fire policy of the {SHOP}",
        f"the fire policy of the {SHOP} was issued by {FIRM}",
        f"against fire the {SHOP} is insured with {FIRM}",
    ),
    "mark": (
        f"{FIRM} stands in the roll under the mark (?P<mark>[A-Z]-\\d+)",
        f"the roll gives {FIRM} the mark (?P<mark>[A-Z]-\\d+)",
        f"(?P<mark>[A-Z]-\\d+) is the mark of {FIRM} in the roll",
    ),
    "launched": (
        f"the {SHIP} was launched at {TOWN}",
        f"the {SHIP} slid down the slip at {TOWN}",
        f"{TOWN} is where the {SHIP} first floated",
    ),
    "crew": (
        f"the {SHIP} sails with a crew of {NUMBER}",
        f"{NUMBER} sailors man the {SHIP}",
        f"the muster roll of the {SHIP} has {NUMBER} names",
    ),
    "command": (
        f"{PERSON} commands the {SHIP}",
        f"the {SHIP} is under the command of {PERSON}",
        f"the wheel of the {SHIP} has been given to {PERSON}",
    ),
    "lodging": (
        f"{PERSON} lodges at {HOUSE}",
        f"{PERSON} has taken rooms at {HOUSE}",
        f"{HOUSE} has {PERSON} for a lodger",
    ),
    "deed": (
        f"{FIRM} bought {HOUSE} at auction",
        f"the deeds of {HOUSE} lie with {FIRM}",
        f"{HOUSE} has passed to {FIRM}",
    ),
    "bank": (
        f"{FIRM} banks at {TOWN}",
        f"{FIRM} keeps its reserves at {TOWN}",
        f"the cash of {FIRM} sits in a strongroom at {TOWN}",
    ),
    "arrival": (
        f"{NUMBER} barrels of {GOOD} came ashore at {TOWN}",
        f"{TOWN} took in {NUMBER} barrels of {GOOD}",
        f"porters at {TOWN} rolled {NUMBER} barrels of {GOOD} up the ramp",
        f"{NUMBER} barrels of {GOOD} were passed by the gauger at {TOWN}",
    ),
    "moved": (
        f"{THING} has been moved to {ROOM}",
        f"from this week {THING} is in {ROOM}",
        f"two porters have carried {THING} over to {ROOM}",
    ),
}
PATTERNS = [(name, re.compile(form)) for name, forms in STATEMENTS.items() for form in forms]
ASKED_SHOP = r"(?P<trade>[a-z' -]+?) (?:near|close to) the (?P<spot>[a-z' -]+?)"
START = (
    r"(?:the (?:skipper|captain) of the (?P<ship>[A-Z]\w+ [A-Z]\w+)|(?:the person who runs|whoever is in "
    rf"charge of) the {ASKED_SHOP})"
)
QUESTIONS = {
    "keeper": (f"Who runs the {ASKED_SHOP}?", f"What is the name of the person in charge of the {ASKED_SHOP}?"),
    "opened": (f"In what year did the {ASKED_SHOP} start business?", f"What is the founding year of the {ASKED_SHOP}?"),
    "rent": (
        f"What does the occupier of the {ASKED_SHOP} owe the owner .*",
        f"How much does the use of the premises cost the {ASKED_SHOP} each .*",
    ),
    "hands": (f"How many people work for the {ASKED_SHOP}?", f"What is the size of the staff at the {ASKED_SHOP}?"),
    "shut": (
        f"On which day .* are customers turned away from the {ASKED_SHOP}?",
        f"Which day .* is a day of rest at the {ASKED_SHOP}?",
    ),
    "licence": (
        f"Who put a name to the permit held by the {ASKED_SHOP}?",
        f"Whose autograph is on the permit of the {ASKED_SHOP}?",
    ),
    "policy": (
        f"Which company would have to pay if the {ASKED_SHOP} burned down?",
        f"Which company .* if flames destroy the {ASKED_SHOP}?",
    ),
    "launched": (
        r"Where was the (?P<ship>[A-Z]\w+ [A-Z]\w+) built?",
        r"From which place's shipyard did the (?P<ship>[A-Z]\w+ [A-Z]\w+) come?",
    ),
    "crew": (
        r"How many seamen work aboard the (?P<ship>[A-Z]\w+ [A-Z]\w+)?",
        r"How many people .* to handle the (?P<ship>[A-Z]\w+ [A-Z]\w+) at sea?",
    ),
    "house": (f"At which address does {START} live?", f"Which building is the home of {START}?"),
    "owner": (
        f"Which company owns the building where {START} lives?",
        f"To which company does the home of {START} belong?",
    ),
    "money": (
        f"In which place does the company that owns the home of {START} have its money?",
        f"Where are the savings of the company to which the home of {START} belongs?",
    ),
    "sum": (
        f"Over the whole file, how many casks of {GOOD} were delivered?",
        f"How many casks of {GOOD} were delivered if all deliveries in the file are added up?",
    ),
    "count": (
        f"On how many separate occasions in the file were casks of {GOOD} delivered?",
        f"How many separate deliveries of {GOOD} does the file report?",
    ),
    "most": (
        f"Which place received {GOOD} most often, over the whole file?",
        f"To which place did most of the separate deliveries of {GOOD} go?",
    ),
    "where": (
        r"Where does one find the (?P<thing>[a-z -]+) at the close of the file?",
        r"Going by the latest information, where does one look for the (?P<thing>[a-z -]+)?",
    ),
}
ASKED = [(name, re.compile(re.sub(r"\?$", r"\\?", form))) for name, forms in QUESTIONS.items() for form in forms]
WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


@cache  # the same text is read again for each of its questions, and without each of its sentences
def fact(sentence: str) -> tuple[str, dict[str, str]] | None:
    """What a sentence states, if it is one of the statements."""
    bare = LEAD.sub("", sentence, count=1).removesuffix(".")
    for known in (bare, bare[:1].lower() + bare[1:]):
        for name, pattern in PATTERNS:
            if found := pattern.fullmatch(known):
                return name, {
                    key: value.removeprefix("The ").removeprefix("the ") for key, value in found.groupdict().items()
                }
    return None


class Reader:
    """Reads a text into facts and answers a question from them; `None` where something is missing or not clear."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.facts = defaultdict(list)
        for paragraph in text.split("\n\n"):
            for sentence in re.split(r"(?<=\.) (?=[A-Z\d])", paragraph):
                if (stated := fact(sentence)) is not None:
                    self.facts[stated[0]].append(stated[1])

    def _value(self, name: str, wanted: str, **known: str) -> str | None:
        found = {fact[wanted] for fact in self.facts[name] if all(fact[key] == value for key, value in known.items())}
        assert len(found) < 2, f"{name} {known}: {found}"
        return found.pop() if found else None

    def _shop(self, asked: re.Match[str]) -> dict[str, str]:
        return {"trade": SAME["trades"][asked["trade"]], "spot": SAME["landmarks"][asked["spot"]]}

    def answer(self, question: str) -> str | None:
        head = re.match(r"(.*?\?)(.*)", question)
        assert head is not None
        matches = [(name, found) for name, pattern in ASKED if (found := pattern.fullmatch(head[1]))]
        assert len(matches) == 1, question
        name, asked = matches[0]
        assert ("in the form that the opening" in head[2]) == (name in ("hands", "shut", "licence", "policy"))
        return getattr(self, f"_{name}", lambda asked: self._plain(name, asked))(asked) or (
            "not stated" if name in self._lookups else None
        )

    _lookups = ("keeper", "opened", "rent")

    def _plain(self, name: str, asked: re.Match[str]) -> str | None:
        wanted = {"keeper": "who", "launched": "town"}.get(name, "n")
        return self._value(
            name, wanted, **({"ship": asked["ship"]} if "ship" in asked.groupdict() else self._shop(asked))
        )

    def _start(self, asked: re.Match[str]) -> str | None:
        return (
            self._value("command", "who", ship=asked["ship"])
            if asked["ship"]
            else self._value("keeper", "who", **self._shop(asked))
        )

    def _house(self, asked: re.Match[str]) -> str | None:
        return self._value("lodging", "house", who=who) if (who := self._start(asked)) else None

    def _owner(self, asked: re.Match[str]) -> str | None:
        return self._value("deed", "firm", house=house) if (house := self._house(asked)) else None

    def _money(self, asked: re.Match[str]) -> str | None:
        return self._value("bank", "town", firm=firm) if (firm := self._owner(asked)) else None

    def _arrivals(self, asked: re.Match[str]) -> list[dict[str, str]]:
        return [fact for fact in self.facts["arrival"] if fact["good"] == SAME["goods"][asked["good"]]]

    def _sum(self, asked: re.Match[str]) -> str:
        return str(sum(int(fact["n"]) for fact in self._arrivals(asked)))

    def _count(self, asked: re.Match[str]) -> str:
        return str(len(self._arrivals(asked)))

    def _most(self, asked: re.Match[str]) -> str | None:
        ranked = Counter(fact["town"] for fact in self._arrivals(asked)).most_common(2)
        return ranked[0][0] if ranked and (len(ranked) < 2 or ranked[0][1] > ranked[1][1]) else None

    def _where(self, asked: re.Match[str]) -> str | None:
        rooms = [fact["room"] for fact in self.facts["moved"] if fact["thing"] == SAME["objects"][asked["thing"]]]
        return rooms[-1] if rooms else None

    def _hands(self, asked: re.Match[str]) -> str | None:
        number = self._value("hands", "n", **self._shop(asked))
        if number and "spelled out in letters" in self.text:
            return SPELLED[int(number)]
        return ROMAN[int(number)] if number and "in Roman numerals" in self.text else number

    def _shut(self, asked: re.Match[str]) -> str | None:
        day = self._value("shut", "day", **self._shop(asked))
        first = re.search(r"with (\w+day) counted as 1", self.text)
        return str((WEEK.index(day) - WEEK.index(first[1])) % 7 + 1) if day and first else day

    def _licence(self, asked: re.Match[str]) -> str | None:
        who = self._value("licence", "who", **self._shop(asked))
        return (
            "".join(f"{part[0]}." for part in who.split())
            if who and "the two initials and nothing more" in self.text
            else who
        )

    def _policy(self, asked: re.Match[str]) -> str | None:
        firm = self._value("policy", "firm", **self._shop(asked))
        return self._value("mark", "mark", firm=firm) if firm and "An insurer goes by its mark" in self.text else firm


TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ONES = [
    "",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
]
ONES += ["fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
SPELLED = {n: ONES[n] if n < 20 else "-".join(filter(None, (TENS[n // 10], ONES[n % 10]))) for n in range(1, 100)}
ROMAN_TENS = ["", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC"]
ROMAN_ONES = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
ROMAN = {n: ROMAN_TENS[n // 10] + ROMAN_ONES[n % 10] for n in range(1, 100)}


def right(answer: str | None, example) -> bool:
    return best_match(answer or "", [example["answer"], *example["answers"]]).exact_match == 1.0


def texts_of(example, key: str) -> list[str]:
    return [example["context"][begin:end] for begin, end in example[key]]


@pytest.fixture(scope="module")
def examples():
    return list(suite(n=180).examples())


# What is asked has one right answer, and it is the gold one.


@pytest.mark.parametrize(
    ("options", "n", "seed"),
    [("tokens=2000", 360, 0), ("", 240, 1), ("tokens=32k", 24, 2), ("tokens=1200,counter=cl100k_base", 90, 3)],
)
def test_a_reader_that_parses_the_text_answers_every_question(options, n, seed):
    readers = {}
    for example in suite(options, n=n, seed=seed).examples():
        reader = readers.setdefault(example["cluster"], None) or Reader(example["context"])
        readers = {example["cluster"]: reader}
        assert right(reader.answer(example["question"]), example), (
            example["id"],
            example["question"],
            example["answer"],
        )


def test_the_evidence_is_enough(examples):
    for example in examples:
        if example["qa_type"] != "absent":
            assert right(Reader(" ".join(texts_of(example, "evidence"))).answer(example["question"]), example), example[
                "id"
            ]


def test_every_sentence_of_the_evidence_is_needed(examples):
    for example in examples:
        for sentence in texts_of(example, "evidence"):
            if example["form"] != "most":  # there only the leader's margin is
                assert not right(
                    Reader(example["context"].replace(sentence, "")).answer(example["question"]), example
                ), sentence


def test_without_its_rule_a_constraint_question_has_no_score_at_all(examples):
    for example in (e for e in examples if e["qa_type"] == "constraint"):
        rule = next(
            sentence for sentence in texts_of(example, "evidence") if sentence in example["context"].split("\n\n")[2]
        )
        disobedient = Reader(example["context"].replace(rule, "")).answer(example["question"])
        assert disobedient
        assert AnswerQuality().score(example, {"response": disobedient}) == {
            "f1": 0,
            "exact_match": 0,
            "recall": 0,
            "contains": 0,
        }


def test_evidence_and_near_misses_are_whole_sentences(examples):
    for example in examples:
        for sentence in texts_of(example, "evidence") + texts_of(example, "near_misses"):
            assert re.fullmatch(r"[A-Z\d][^.]*\.", sentence), sentence
        assert bool(example["evidence"]) == ("depth" in example) == (example["qa_type"] != "absent")
        assert example["near_misses"], example["id"]


def test_what_is_absent_has_near_misses_at_the_same_spot_and_of_the_same_trade(examples):
    for example in (e for e in examples if e["qa_type"] == "absent"):
        asked = re.search(ASKED_SHOP + r"(?=\?| start| owe| each)", example["question"])
        near = " ".join(texts_of(example, "near_misses"))
        assert SAME["trades"][asked["trade"].split(" of the ")[-1].split(" the ")[-1]] in near
        assert SAME["landmarks"][asked["spot"]] in near


@pytest.mark.parametrize("reply", ["Not stated.", "not stated", "The text does not say.", "I don't know", "Unknown"])
def test_ways_of_saying_that_the_text_does_not_say(examples, reply):
    absent = next(e for e in examples if e["qa_type"] == "absent")
    assert AnswerQuality().score(absent, {"response": reply})["f1"] == 1.0
    assert AnswerQuality().score(absent, {"response": "Hedwig Harngate"})["f1"] == 0.0


def test_every_form_of_every_kind_comes_up(examples):
    forms = defaultdict(set)
    for example in examples:
        forms[example["qa_type"]].add(example["form"])
    assert forms == {
        "span": {"keeper", "launched", "opened", "crew", "rent"},
        "multi-hop": {"2 hops", "3 hops", "4 hops"},
        "aggregate": {"sum", "count", "most"},
        "updates": {"3 changes", "4 changes", "5 changes"},
        "constraint": {"words", "roman", "monday", "sunday", "initials", "mark"},
        "absent": {"no such place", "no such fact"},
    }


# Words in common, and what a lexical compressor makes of it.


def test_overlap_is_stated_and_low(examples):
    by_kind = defaultdict(list)
    for example in examples:
        by_kind[example["qa_type"]].append(example["overlap"])
    assert suite(n=180).facts()["lexical_overlap"] == {kind: round(mean(values), 3) for kind, values in by_kind.items()}
    assert all(mean(values) <= 0.25 for values in by_kind.values())
    assert max(by_kind["multi-hop"]) > 0.3  # a ship keeps its name, so there is something for a lexical method to find


def test_bm25_at_a_fifth_of_the_tokens_loses_what_the_answers_follow_from(examples):
    followed = defaultdict(list)
    for example in examples:
        made, _ = BM25(keep=0.2).compress(
            [{"role": "user", "content": example["context"]}], [], query=example["question"]
        )
        assert made.tokens_after <= 0.2 * made.tokens_before
        left = made.messages[0]["content"]
        kept = all(sentence in left for sentence in texts_of(example, "evidence"))
        derived = right(Reader(left).answer(example["question"]), example)
        assert derived >= kept or example["form"] in ("sum", "count", "most")
        followed[example["qa_type"]].append(kept and derived)
    shares = {kind: mean(values) for kind, values in followed.items()}
    assert {"multi-hop", "aggregate", "updates"} <= {kind for kind, share in shares.items() if share <= 0.1}, shares
    assert shares["absent"] == 1.0  # nothing can be lost there, which is why kinds are reported apart


# Length, seeds, names.


@pytest.mark.parametrize(
    ("tokens", "counter"), [(1200, "o200k_base"), (3000, "cl100k_base"), (8000, "qwen3"), (50_000, "gpt-4")]
)
def test_never_longer_than_wanted_and_hardly_shorter(tokens, counter):
    for example in suite(f"span,tokens={tokens},counter={counter}", n=3).examples():
        name = "cl100k_base" if counter == "gpt-4" else counter
        counted = VocabularyCounter(name).count(example["context"])
        assert example["tokens"] == counted
        assert 0.96 * tokens <= counted <= tokens


class Words:
    """A tokenizer of one's own: any object with `name`, `exact` and `count` will do."""

    name, exact = "words", True

    def count(self, text: str) -> int:
        return len(text.split())


def test_any_counter_of_ones_own():
    example = next(Suite(tokens=3000, counter=Words()).examples())
    assert 0.97 * 3000 <= len(example["context"].split()) <= 3000
    assert example["dataset"] == f"{NAME}:span,tokens=3000,counter=words"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(-(2**70), 2**70), tokens=st.integers(SHORTEST, 2500), first=st.integers(0, 3))
def test_any_seed_and_length_gives_a_text_that_holds(seed, tokens, first):
    for example in list(suite(f"tokens={tokens}", n=6 * first + 6, seed=seed).examples())[-6:]:
        assert example["tokens"] <= tokens
        assert right(Reader(example["context"]).answer(example["question"]), example)


def test_byte_for_byte_the_same_everywhere():
    """Changes with the generator only: then `VERSION` must change too."""
    assert stable_hash(list(suite("tokens=2000", n=12).examples())) == "7f66d8e62003da8e21dfdf2370d49104"
    code = (
        "from context_bench.datasets.synthetic import suite; print(suite('tokens=2000', n=12, "
        "seed=5).facts()['sha256'])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, text=True, check=True
        )
        for s in "12"
    ]
    assert runs[0].stdout == runs[1].stdout == suite("tokens=2000", n=12, seed=5).facts()["sha256"] + "\n"


def test_another_seed_is_another_text_and_more_examples_leave_the_first_alone():
    first, other = (list(suite("tokens=1200", n=6, seed=seed).examples()) for seed in (0, 1))
    assert {e["id"] for e in first}.isdisjoint(e["id"] for e in other)
    assert first[0]["context"] != other[0]["context"]
    assert list(suite("tokens=1200", n=9).examples())[:6] == first


def test_five_of_six_questions_are_the_same_at_any_length():
    short, long = (list(suite(f"tokens={size}", n=6).examples()) for size in ("2k", "20k"))
    same = [
        (one["question"], one["answers"], texts_of(one, "evidence"))
        == (other["question"], other["answers"], texts_of(other, "evidence"))
        for one, other in zip(short, long, strict=True)
    ]
    assert [row["qa_type"] for row, equal in zip(short, same, strict=True) if not equal] == ["aggregate"]
    assert len(short[2]["evidence"]) < len(long[2]["evidence"])
    assert [row["dataset"] for row in short] != [row["dataset"] for row in long]


def test_as_a_dataset():
    data = load(f"{NAME}:tokens=1500", n=120)
    rows = list(data.examples())
    assert (data.evaluators, data.has_context, data.base, len(rows)) == (["answer"], True, NAME, 120)
    assert len({row["cluster"] for row in rows}) == len({row["context"] for row in rows}) == 20
    assert Counter(row["dataset"] for row in rows) == {f"{NAME}:{kind},tokens=1500": 20 for kind in KINDS}
    assert len({row["id"] for row in rows}) == 120
    manifest = data.manifest()
    assert (manifest["seed"], manifest["tokens"], manifest["counter"], manifest["used"], manifest["contexts"]) == (
        0,
        1500,
        "o200k_base",
        120,
        20,
    )
    assert 1440 <= manifest["context_tokens"]["least"] <= manifest["context_tokens"]["most"] <= 1500
    assert set(manifest["lexical_overlap"]) == set(KINDS)


def test_a_row_s_tag_is_a_name_that_gives_this_row_again():
    row = next(load(f"{NAME}:updates,tokens=2k", n=1).examples())
    assert row == next(load(row["dataset"], n=1).examples())
    assert next(load(f"{NAME}:updates").examples())["dataset"] == f"{NAME}:updates"


def test_kinds_and_sizes_by_default():
    assert sum(1 for _ in load(f"{NAME}:kind=span,tokens=1200").examples()) == 40
    chosen = list(load(f"{NAME}:absent,span,tokens=1200", n=3).examples())
    assert [row["qa_type"] for row in chosen] == ["span", "absent", "span"]
    assert list(load(f"{NAME}:tokens=1200", n=0).examples()) == []
    assert load(f"{NAME}:tokens=1200", n=0).manifest()["used"] == 0


def test_it_is_listed_and_described():
    assert NAME in datasets_known()
    assert describe(NAME) == describe(f"{NAME}:span")
    assert "reported apart" in describe(NAME)["about"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tokens=500", "1,200"),
        ("tokens=1e9", "length"),
        ("tokens=many", "length"),
        ("tokens=-4", "length"),
        ("tokens=true", "length"),
        ("counter=nonsense", "o200k_base"),
        ("counter=3", "vocabulary"),
        ("seed=3", "no option"),
        ("tokens", "did you mean|kind"),
        ("spam", "absent"),
        ("tokens=99999k", "length"),
        ("tokens=2000,=3", "key=value"),
    ],
)
def test_what_it_does_not_take(name, why):
    with pytest.raises((BadInput, UnknownName), match=why):
        load(f"{NAME}:{name}")


def test_pydocs_takes_no_options():
    with pytest.raises(BadInput, match="does not accept"):
        load("bundled:pydocs-qa:span")


# Our own randomness and number forms.


def test_draws_are_fair_and_stable():
    draw = Draw("a", 1)
    assert [Draw("a", 1).below(1000) for _ in range(2)] == [draw.below(1000)] * 2
    counts = Counter(draw.below(7) for _ in range(7000))
    assert set(counts) == set(range(7))
    assert max(counts.values()) < 1200
    assert sorted(draw.shuffled(range(50))) == list(range(50))
    assert Draw("a", 1).shuffled(range(50)) != Draw("a", 2).shuffled(range(50))


def test_numbers_in_letters_and_in_roman():
    assert {n: number_word(n) for n in range(1, 100)} == SPELLED
    assert {n: roman(n) for n in range(1, 100)} == ROMAN


def test_the_guide_s_example_runs(capsys):
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "synthetic.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    exec(compile(block, "synthetic.md", "exec"), {"__name__": "guide"})
    *rows, score = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in rows] == list(KINDS)
    assert score == "1.0"
