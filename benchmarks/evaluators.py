"""Rows a second of each evaluator beside the fastest other implementation of the same measure: same rows, one run,
agreement checked.

    python benchmarks/evaluators.py [NAME …] [--rows 2000] [--repeats 3]

Time is processor time of one thread, best of the repeats; ours and theirs take turns, so that a busy machine is busy
for both. A library that is not installed is named, not left out in silence. `agree` is the share of rows on which both
give the same value to 1e-9; where the two are known to read some replies differently, the entry says so.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from context_bench.evaluators import (
    AnswerQuality,
    IFEvalChecker,
    MathEquivalence,
    MultipleChoiceAccuracy,
    NLILabelMatch,
    SummarizationQuality,
    ToolCallMatch,
)

Row = tuple[dict[str, Any], dict[str, Any]]  # (example, output)
Score = Callable[[Row], Sequence[float]]
WORDS = re.findall(
    r"\S+",
    "harbour crane committee Tuesday report costs year the a of 1,250 found worn needs budget council vote U.S. "
    "state-of-the-art river "
    "engine signal archive letter winter market bridge captain paper answer second question",
)


@dataclass(frozen=True)
class Entry:
    """One measure. `rows(n, draw)` makes the material, `ours()` and each of `theirs` make a function from a row to its
    score(s).

    A maker in `theirs` raises `ImportError` where its library is missing. `note` says where the two are meant to
    differ. `clock`: real time instead of processor time where work is done in another process.
    """

    name: str
    rows: Callable[[int, random.Random], list[Row]]
    ours: Callable[[], Score]
    theirs: dict[str, Callable[[], Score]] = field(default_factory=dict)
    note: str = ""
    clock: Callable[[], float] = time.process_time


def scorer_of(evaluator: Any, *names: str) -> Score:
    """An evaluator's `score` as a function from a row to the named values."""
    score = evaluator.score
    return lambda row: [float(value) for value in map(score(*row).__getitem__, names)]


def text(draw: random.Random, words: int) -> str:
    """Prose of so many words, with punctuation."""
    return " ".join(draw.choice(WORDS) + draw.choice(("", "", "", "", ",", ".")) for _ in range(words))


# --- answer
# ------------------------------------------------------------------------


def answer_rows(n: int, draw: random.Random) -> list[Row]:
    """Replies of 160 characters against answers of 40."""
    rows: list[Row] = []
    for _ in range(n):
        gold = text(draw, 6)
        reply = f"{text(draw, 12)} {gold} {text(draw, 6)}" if draw.random() < 0.5 else text(draw, 24)
        rows.append(({"answer": gold}, {"response": reply}))
    return rows


def plain_squad() -> Score:
    """F1, exact match and recall the usual way: each measure normalises both texts for itself, with a pattern and
    `Counter`.
    """
    articles = re.compile(r"\b(a|an|the)\b")
    marks = set(string.punctuation)

    def normal(words: str) -> list[str]:
        return articles.sub(" ", "".join(mark for mark in words.lower() if mark not in marks)).split()

    def overlap(prediction: str, reference: str) -> tuple[int, int, int]:
        one, other = normal(prediction), normal(reference)
        return sum((Counter(one) & Counter(other)).values()), len(one), len(other)

    def f1(prediction: str, reference: str) -> float:
        same, found, wanted = overlap(prediction, reference)
        return 2 * (same / found) * (same / wanted) / (same / found + same / wanted) if same else 0.0

    def exact(prediction: str, reference: str) -> float:
        return float(normal(prediction) == normal(reference))

    def recall(prediction: str, reference: str) -> float:
        same, _, wanted = overlap(prediction, reference)
        return same / wanted if wanted else 0.0

    def score(row: Row) -> Sequence[float]:
        reply, gold = row[1]["response"], row[0]["answer"]
        bool(gold.lower() in reply.lower())  # `contains`, whose rule is another than ours: paid for, not compared
        return f1(reply, gold), exact(reply, gold), recall(reply, gold)

    return score


# --- multiple_choice
# ------------------------------------------------------------------------

CHOICE_REPLIES = (
    "{x}",
    "{x}.",
    "({x})",
    "**{x}**",
    "The answer is {x}.",
    "The correct answer is ({x}).",
    "Answer: {x}",
    "{x}) {words}",
    "Let us look at the options one by one. {prose} Therefore, the answer is {x}.",
    "{prose}\n\n**Answer: {x}**",
    "{prose} The correct answer is **{x}) {words}**.",
)


def choice_rows(n: int, draw: random.Random) -> list[Row]:
    """Replies from one letter to a paragraph, each with a letter that every reader finds."""
    rows: list[Row] = []
    for _ in range(n):
        choices = [text(draw, 4) for _ in range(4)]
        letter = draw.choice("ABCD")
        reply = draw.choice(CHOICE_REPLIES).format(
            x=letter, words=choices["ABCD".index(letter)], prose=text(draw, 30).lower().replace(" a ", " ")
        )
        rows.append(({"choices": choices, "correct_letter": draw.choice("ABCD")}, {"response": reply}))
    return rows


def documented_letters() -> Score:
    """The first letter that one of four patterns finds, as the harness's documentation has it."""
    said = re.compile(r"\b(?:answer|choice)\b\s*(?:is|:)\s*\(?\**([A-J])", re.IGNORECASE)
    bracketed, alone = re.compile(r"\(([A-J])\)", re.IGNORECASE), re.compile(r"\b([A-J])\b", re.IGNORECASE)

    def score(row: Row) -> Sequence[float]:
        reply = row[1]["response"].strip()
        found = next((match[1] for pattern in (said, bracketed, alone) if (match := pattern.search(reply))), "")
        return (float(found.upper() == row[0]["correct_letter"]),)

    return score


def math_verify_letters() -> Score:
    """math-verify's reader of fixed strings."""
    from math_verify import StringExtractionConfig, parse

    config = [StringExtractionConfig(strings=("A", "B", "C", "D"))]

    def score(row: Row) -> Sequence[float]:
        found = parse(row[1]["response"], extraction_config=config, parsing_timeout=None)
        return (float(bool(found) and found[0] == row[0]["correct_letter"].lower()),)

    return score


# --- math
# ------------------------------------------------------------------------

MATH_REPLIES = (
    "{x}",
    "\\boxed{{{x}}}",
    "The answer is ${x}$.",
    "{prose} So the final answer is $\\boxed{{{x}}}$.",
    "{prose}\nFinal answer: ${x}$",
)


def number_rows(n: int, draw: random.Random) -> list[Row]:
    """Integers, decimals, fractions and pairs, half of them right, some written otherwise than the gold answer."""
    rows: list[Row] = []
    for _ in range(n):
        above, below = draw.randrange(2, 999), draw.randrange(2, 99)
        gold, same = draw.choice(
            [
                (str(above), f"{above}.0"),
                (f"\\frac{{{above}}}{{{below}}}", f"\\frac{{{2 * above}}}{{{2 * below}}}"),
                (f"({above}, {below})", f"({above},{below})"),
            ]
        )
        given = same if draw.random() < 0.5 else gold.replace(str(above), str(above + 1))
        prose = text(draw, 30).lower().replace("1,250", "").replace("answer", "")
        rows.append(({"answer": gold}, {"response": draw.choice(MATH_REPLIES).format(x=given, prose=prose)}))
    return rows


def formula_rows(n: int, draw: random.Random) -> list[Row]:
    """Boxed polynomials, multiplied out or not, half of them equal: algebra is needed for each."""
    rows: list[Row] = []
    for _ in range(n):
        a, b = draw.randrange(2, 99), draw.randrange(2, 99)
        wrong = draw.random() < 0.5
        rows.append(
            ({"answer": f"(x+{a})(x+{b})"}, {"response": f"So it is $\\boxed{{x^2+{a + b + wrong}x+{a * b}}}$."})
        )
    return rows


def math_verify() -> Score:
    """math-verify as its documentation has it, without its timeouts (which cost little)."""
    from math_verify import parse, verify

    def score(row: Row) -> Sequence[float]:
        gold = parse(f"${row[0]['answer']}$", parsing_timeout=None)
        return (float(verify(gold, parse(row[1]["response"], parsing_timeout=None), timeout_seconds=None)),)

    return score


# --- nli
# ------------------------------------------------------------------------

NLI_LABELS = ("Entailment", "Contradiction", "Not mentioned")
NLI_REPLIES = (
    "{x}",
    "**{x}**",
    "The answer is {x}.",
    "Label: {x}",
    "{prose} Therefore, the label is {x}.",
    "{x}. {prose}",
)


def label_rows(n: int, draw: random.Random) -> list[Row]:
    """Replies from one label to a paragraph."""
    rows: list[Row] = []
    for _ in range(n):
        reply = draw.choice(NLI_REPLIES).format(x=draw.choice(NLI_LABELS), prose=text(draw, 30))
        rows.append(({"answer": draw.choice(NLI_LABELS)}, {"response": reply}))
    return rows


def last_name() -> Score:
    """The name of a class that stands last in the reply."""
    names = re.compile(r"\b(entailment|contradiction|not mentioned)\b", re.IGNORECASE)

    def score(row: Row) -> Sequence[float]:
        found = names.findall(row[1]["response"])
        return (float(bool(found) and found[-1].lower() == row[0]["answer"].lower()),)

    return score


# --- tool_call
# ------------------------------------------------------------------------


def call_rows(n: int, draw: random.Random) -> list[Row]:
    """One or two calls of three arguments, as Python or JSON."""
    rows: list[Row] = []
    for _ in range(n):
        calls = [
            {
                "name": draw.choice(("find", "book")),
                "arguments": {"place": text(draw, 2), "days": draw.randrange(9), "fast": True},
            }
            for _ in range(2)
        ]
        expected = [
            {"name": call["name"], "arguments": {key: [value] for key, value in call["arguments"].items()}}
            for call in calls
        ]
        python = ", ".join(
            f"{call['name']}({', '.join(f'{key}={value!r}' for key, value in call['arguments'].items())})"
            for call in calls
        )
        rows.append(
            ({"expected_calls": expected}, {"response": f"[{python}]" if draw.random() < 0.5 else json.dumps(calls)})
        )
    return rows


# --- summarization
# ------------------------------------------------------------------------

ROUGE = ("rouge_l_precision", "rouge_l_recall", "rouge_l_f1")


def summary_rows(n: int, draw: random.Random) -> list[Row]:
    """Summaries of 120 words, the reference made of the same words."""
    return [({"answer": text(draw, 120)}, {"response": text(draw, 120)}) for _ in range(n)]


def table_rouge() -> Score:
    """The longest common subsequence by the usual two-row table in plain Python, on words cut at white space."""

    def score(row: Row) -> Sequence[float]:
        found, wanted = row[1]["response"].lower().split(), row[0]["answer"].lower().split()
        before = [0] * (len(wanted) + 1)
        for one in found:
            now = [0]
            for at, other in enumerate(wanted):
                now.append(before[at] + 1 if one == other else max(now[-1], before[at + 1]))
            before = now
        precision, recall = before[-1] / len(found), before[-1] / len(wanted)
        return precision, recall, 2 * precision * recall / (precision + recall) if before[-1] else 0.0

    return score


def package_rouge(module: str) -> Callable[[], Score]:
    """`rougeL` of a package with the interface of rouge-score."""

    def make() -> Score:
        score = import_module(module).RougeScorer(["rougeL"]).score
        return lambda row: list(score(row[0]["answer"], row[1]["response"])["rougeL"])[:3]

    return make


# --- ifeval
# ------------------------------------------------------------------------

INSTRUCTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("keywords:existence", {"keywords": ["harbour", "budget"]}),
    ("keywords:forbidden_words", {"forbidden_words": ["lighthouse", "snow"]}),
    ("length_constraints:number_words", {"num_words": 150, "relation": "less than"}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}),
    ("detectable_format:title", {}),
    ("punctuation:no_comma", {}),
    ("startend:end_checker", {"end_phrase": "Any other questions?"}),
)


def instruction_rows(n: int, draw: random.Random) -> list[Row]:
    """Replies of about 150 words under three instructions that need neither a sentence model nor a language
    detector.
    """
    rows: list[Row] = []
    for _ in range(n):
        wanted = draw.sample(INSTRUCTIONS, 3)
        reply = (
            f"<<{text(draw, 3)}>>\n{text(draw, draw.randint(100, 180))} "
            f"*{text(draw, 2)}*\n**{text(draw, 2)}**\nAny other questions?"
        )
        rows.append(
            (
                {"instruction_id_list": [name for name, _ in wanted], "kwargs": [kwargs for _, kwargs in wanted]},
                {"response": reply},
            )
        )
    return rows


def benchmark_ifeval() -> Score:
    """The benchmark's own rules as a package carries them, with the eight readings of the loose scores."""
    known = import_module("if_verifiable.ifeval.instructions_registry").INSTRUCTION_DICT

    def followed(check: Callable[[str], bool], reply: str) -> tuple[bool, bool]:
        if reply.strip() and check(reply):
            return True, True
        lines = reply.split("\n")
        readings = [reply, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
        readings += [reading.replace("*", "") for reading in readings]
        return False, any(reading.strip() and check(reading) for reading in readings)

    def score(row: Row) -> Sequence[float]:
        ways = []
        for name, kwargs in zip(row[0]["instruction_id_list"], row[0]["kwargs"], strict=True):
            instruction = known[name](name)
            instruction.build_description(**kwargs)
            ways.append(followed(instruction.check_following, row[1]["response"]))
        strict, loose = (sum(way) / len(ways) for way in zip(*ways, strict=True))
        return float(strict == 1), loose, float(loose == 1), strict

    return score


# --- the list
# ------------------------------------------------------------------------

ENTRIES = [
    Entry(
        "answer",
        answer_rows,
        lambda: scorer_of(AnswerQuality(), "f1", "exact_match", "recall"),
        {"plain SQuAD in Python": plain_squad},
        "both compute `contains` as well, by different rules",
    ),
    Entry(
        "multiple_choice",
        choice_rows,
        lambda: scorer_of(MultipleChoiceAccuracy(), "mc_accuracy"),
        {"four patterns in Python": documented_letters, "math-verify strings": math_verify_letters},
        "the patterns take the first letter, ours the last statement",
    ),
    Entry(
        "math",
        number_rows,
        lambda: scorer_of(MathEquivalence(), "math_equiv"),
        {"math-verify": math_verify},
        "math-verify does not read a pair without dollar signs around it",
    ),
    Entry(
        "math_algebra",
        formula_rows,
        lambda: scorer_of(MathEquivalence(), "math_equiv"),
        {"math-verify": math_verify},
        "real time; ours asks math-verify in a child process that can be stopped",
        time.perf_counter,
    ),
    Entry("nli", label_rows, lambda: scorer_of(NLILabelMatch(), "nli_accuracy"), {"last name in Python": last_name}),
    Entry("tool_call", call_rows, lambda: scorer_of(ToolCallMatch(), "tool_call")),
    Entry(
        "summarization",
        summary_rows,
        lambda: scorer_of(SummarizationQuality(), *ROUGE),
        {
            "table in Python": table_rouge,
            "rouge-score": package_rouge("rouge_score.rouge_scorer"),
            "rapidrouge": package_rouge("rapidrouge"),
            "rouge-score-rs": package_rouge("rouge_score_rs"),
        },
        "120 words; the table leaves punctuation on the words, so it reads texts with punctuation differently",
    ),
    Entry(
        "ifeval",
        instruction_rows,
        lambda: scorer_of(
            IFEvalChecker(), "ifeval_strict", "ifeval_loose", "ifeval_prompt_loose", "ifeval_instruction_strict"
        ),
        {"if-verifiable": benchmark_ifeval},
    ),
]


def measured(score: Score, rows: Sequence[Row], clock: Callable[[], float]) -> tuple[float, list[Sequence[float]]]:
    """Seconds and the scores."""
    begun = clock()
    found = [score(row) for row in rows]
    return clock() - begun, found


def agreeing(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Share of rows on which both say the same."""
    same = sum(
        len(a) == len(b) and all(abs(x - y) <= 1e-9 for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )
    return same / len(one)


def run(entry: Entry, n: int, repeats: int) -> None:
    rows = entry.rows(n, random.Random(1))
    makers = {"ours": entry.ours, **entry.theirs}
    scorers: dict[str, Score] = {}
    for label, make in makers.items():
        try:
            scorers[label] = make()
            measured(scorers[label], rows[:20], entry.clock)  # imports and caches are not what is measured
        except ImportError as missing:
            scorers.pop(label, None)
            print(f"{entry.name:16} {label:34} not installed ({missing.name})")
    seconds = dict.fromkeys(scorers, float("inf"))
    found: dict[str, list[Sequence[float]]] = {}
    for _ in range(repeats):
        for label, score in scorers.items():
            took, found[label] = measured(score, rows, entry.clock)
            seconds[label] = min(seconds[label], took)
    for label in scorers:
        rate = n / max(seconds[label], 1e-9)
        beside = (
            ""
            if label == "ours"
            else f"   ours {seconds[label] / seconds['ours']:.2f} x, agree {agreeing(found['ours'], found[label]):.4f}"
        )
        print(f"{entry.name:16} {label:34} {rate:12,.0f} rows/s{beside}")
    if entry.note:
        print(f"{'':16} {entry.note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.names) - {entry.name for entry in ENTRIES}:
        sys.exit(
            f"no such entry: {', '.join(sorted(unknown))}; there are: {', '.join(entry.name for entry in ENTRIES)}"
        )
    for entry in ENTRIES:
        if not options.names or entry.name in options.names:
            run(entry, options.rows, options.repeats)


if __name__ == "__main__":
    main()
