"""`bundled:long-context`: a synthetic long-context suite with six kinds of question, of any length, for any tokenizer.

Each text is the made-up papers of a harbour ward: facts, facts that look like them, and prose. One question of each
kind is asked about it: a fact (`span`), a chain of two to four facts (`multi-hop`), something over all facts of a sort
(`aggregate`), the last of several changes (`updates`), a fact told in the form that a rule in the opening demands
(`constraint`), and a fact that is not there (`absent`). Questions use other words than the text. The text is ours from
the first word to the last and depends on nothing but seed, number and length.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from statistics import mean
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.plugins import parse_spec
from context_bench.core.records import Example
from context_bench.core.tokens import DEFAULT_ENCODING, TokenCounter, VocabularyCounter, encoding_of
from context_bench.datasets.pydocs import overlap
from context_bench.datasets.synthetic.world import (
    CONSTRAINT,
    KINDS,
    Draw,
    Piece,
    World,
    WorldQuestion,
    capital,
    lexicon,
)

NAME = "bundled:long-context"
VERSION = 1  # of the generator: another number, other texts
TOKENS = 4000  # a length that the bundled model reads
CONTEXTS = 40  # how many texts there are when nobody says how many examples are wanted
LONGEST = 10_000_000
SHORTEST = 1200  # tokens: what the six questions need, with their near misses
SECTION = 450  # tokens of a section, about
FACTS = 0.4  # share of the text that facts take, asked ones included; the rest is prose

__all__ = ["KINDS", "NAME", "VERSION", "Suite", "about", "suite"]


@dataclass(frozen=True, slots=True)
class Suite:
    """One choice of kinds, length (in tokens of `counter`) and seed; `n` examples, by default all of `CONTEXTS`
    texts.
    """

    kinds: tuple[str, ...] = KINDS
    tokens: int = TOKENS
    counter: TokenCounter = field(default_factory=VocabularyCounter)
    seed: int = 0
    n: int | None = None

    def examples(self) -> Iterator[Example]:
        """Text by text, one example of each kind for each; the same in any process, on any machine."""
        rows = (example for index in count() for example in self._of_text(index))
        return islice(rows, len(self.kinds) * CONTEXTS if self.n is None else self.n)

    def tag(self, kind: str) -> str:
        """The dataset tag of the rows of one kind, by which reports tell them apart; `load` takes it as a name too."""
        options = [kind]
        if self.tokens != TOKENS:
            options.append(f"tokens={self.tokens}")
        if self.counter.name != DEFAULT_ENCODING:
            options.append(f"counter={self.counter.name}")
        return f"{NAME}:{','.join(options)}"

    def facts(self) -> dict[str, Any]:
        """Facts for the manifest: how to get the same examples again, how long they are, how much questions repeat the
        evidence.
        """
        digest, seen, contexts = hashlib.sha256(), dict[str, list[float]](), dict[str, int]()
        for example in self.examples():
            digest.update(canonical_json(example).encode() + b"\n")
            seen.setdefault(example["qa_type"], []).append(example["overlap"])
            contexts[example["cluster"]] = example["tokens"]
        lengths = sorted(contexts.values()) or [0]
        return {
            "source": "made by this project's generator",
            "generator": VERSION,
            "seed": self.seed,
            "kinds": list(self.kinds),
            "tokens": self.tokens,
            "counter": self.counter.name,
            "sha256": digest.hexdigest(),
            "licence": "MIT",
            "used": sum(map(len, seen.values())),
            "contexts": len(contexts),
            "context_tokens": {"least": lengths[0], "most": lengths[-1]},
            "lexical_overlap": {kind: round(mean(values), 3) for kind, values in seen.items()},
            "lexical_overlap_means": "mean share of a question's content words that occur in its evidence (absent: in "
            "its near misses)",
        }

    def _of_text(self, index: int) -> list[Example]:
        world = World(self.seed, index, self.tokens)
        text = compose(world, self.tokens, self.counter)
        return [self._example(index, asked, text) for asked in world.asked if asked.kind in self.kinds]

    def _example(self, index: int, asked: WorldQuestion, text: Text) -> Example:
        ask = lexicon()["ask"]
        evidence, near = (sorted(text.spans[id(piece)] for piece in pieces) for pieces in (asked.needs, asked.near))
        compared = " ".join(piece.text for piece in asked.needs or asked.near)
        return {
            "id": f"{self.seed}-{index:04d}-{asked.kind}",
            "context": text.text,
            "question": asked.question + (ask["form"] if asked.kind == CONSTRAINT else "") + ask["unsaid"],
            "answer": asked.answers[0],
            "answers": asked.answers,
            "qa_type": asked.kind,
            "form": asked.form,
            "evidence": [list(span) for span in evidence],
            "near_misses": [list(span) for span in near],
            **({"depth": round(evidence[0][0] / len(text.text), 3)} if evidence else {}),
            "overlap": overlap(asked.question, compared),
            "tokens": text.tokens,
            "dataset": self.tag(asked.kind),
            "cluster": f"context-{stable_hash(text.text, 16)}",
        }


def suite(options: str = "", *, n: int | None = None, seed: int = 0) -> Suite:
    """The suite that is meant by what follows the name: `KIND,…,tokens=8000,counter=o200k_base`, all of it optional.

    Kinds may be written alone or as `kind=`; `tokens=32k` is 32,000; `counter` is an encoding, or a model whose
    tokenizer is public. Raises `BadInput` or `UnknownName`.
    """
    items = [item.strip() for item in options.split(",") if item.strip()]
    kinds = [item.removeprefix("kind=") for item in items if "=" not in item or item.startswith("kind=")]
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName(f"kind of {NAME}", kind, list(KINDS))
    given = parse_spec(
        f"{NAME.partition(':')[2]}:{','.join(item for item in items if '=' in item and not item.startswith('kind='))}"
    ).options
    if unknown := sorted(set(given) - {"tokens", "counter"}):
        raise BadInput(
            f"{NAME} has no option {unknown[0]!r}; it takes kinds ({', '.join(KINDS)}), tokens= and counter="
        )
    chosen = tuple(kind for kind in KINDS if kind in kinds) or KINDS
    return Suite(
        chosen, _tokens(given.get("tokens", TOKENS)), _counter(str(given.get("counter", DEFAULT_ENCODING))), seed, n
    )


def _tokens(value: Any) -> int:
    if isinstance(value, str) and (short := re.fullmatch(r"(\d{1,5})[kK]", value)):
        value = int(short[1]) * 1000
    if isinstance(value, bool) or not isinstance(value, int) or not SHORTEST <= value <= LONGEST:
        raise BadInput(f"{NAME}: tokens={value!r} is not a length from {SHORTEST:,} to {LONGEST:,} (8000, 32k)")
    return value


def _counter(name: str) -> TokenCounter:
    encoding, exact = encoding_of(name)
    counter = VocabularyCounter(encoding if exact else name)
    try:
        counter.count("a")
    except KeyError as error:
        raise BadInput(
            f"{NAME}: counter={name!r} is no vocabulary and no model with a public one: {error.args[0]}"
        ) from error
    return counter


def about() -> dict[str, Any]:
    """Facts that `describe` gives without making anything."""
    return {
        "name": NAME,
        "about": "Six kinds of question about made-up papers of any length: " + ", ".join(KINDS) + "; reported apart.",
        "source": "made by this project's generator",
        "evaluators": ["answer"],
        "has_context": True,
        "size": len(KINDS) * CONTEXTS,
        "configs": [*KINDS, "tokens=…", "counter=…"],
        "licence": "MIT",
    }


@dataclass(slots=True)
class Text:
    """A finished text, its length in tokens, and where each sentence stands (`spans[id(piece)]`: begin and end in
    characters).
    """

    text: str
    tokens: int
    spans: dict[int, tuple[int, int]]


def compose(world: World, tokens: int, counter: TokenCounter) -> Text:
    """The text of `world` with at most `tokens` tokens, and hardly fewer. Raises `BadInput` if what is asked does not
    fit.
    """
    prose = _Prose(world.draw)
    sections = max(5, tokens // SECTION)
    spent = _cost([*world.opening, *world.pieces], counter) + sections * 9
    for added in world.more():
        if spent >= FACTS * tokens:
            world.pieces = [piece for piece in world.pieces if piece not in added]
            break
        spent += _cost(added, counter)
    filler: list[tuple[Piece, int]] = []
    while spent < tokens:
        piece = prose.sentence()
        filler.append((piece, cost := counter.count(f" {piece.text}")))
        spent += cost
    return _fitted(_Layout(world.draw, sections), world, filler, tokens, counter)


def _cost(pieces: list[Piece], counter: TokenCounter) -> int:
    return sum(counter.count(f" {piece.text}") for piece in pieces)


def _fitted(layout: _Layout, world: World, filler: list[tuple[Piece, int]], tokens: int, counter: TokenCounter) -> Text:
    """Prose is taken out until the text is short enough."""
    while True:
        text, spans = layout.render(world.opening, [*world.pieces, *(piece for piece, _ in filler)])
        over = (length := counter.count(text)) - tokens
        if over <= 0:
            return Text(text, length, spans)
        while over > 0:
            if not filler:
                raise BadInput(
                    f"{tokens} tokens are too few for the six questions and what they need; try {length + 100} or more"
                )
            over -= filler.pop()[1]


class _Prose:
    """Sentences about nothing that is asked, none twice in a row of many."""

    def __init__(self, draw: Draw) -> None:
        self._draw, self._words = draw, lexicon()["filler"]
        self._said: set[str] = set()

    def sentence(self) -> Piece:
        for _ in range(8):  # in a very long text repetition is bearable, an endless search is not
            slots = {name: self._draw.pick(values) for name, values in self._words.items() if name != "forms"}
            text = capital(self._draw.pick(self._words["forms"]).format(**slots)) + "."
            if text not in self._said:
                break
        self._said.add(text)
        return Piece(text, self._draw.below(1 << 30) / (1 << 30))


class _Layout:
    """Title, opening, and sections of equal length in the order of `at`."""

    def __init__(self, draw: Draw, sections: int) -> None:
        frame = lexicon()["frame"]
        self._title = frame["title"].format(town=lexicon()["parts"]["starts"].split()[draw.below(40)] + "mouth")
        self._opening = frame["opening"]
        papers = draw.shuffled(frame["papers"])
        self._headings = [f"{papers[i % len(papers)]}, week {i + 1}" for i in range(sections)]
        self._lengths = [4 + draw.below(4) for _ in range(61)]  # sentences of the paragraphs, over and over

    def render(self, opening: list[Piece], pieces: list[Piece]) -> tuple[str, dict[int, tuple[int, int]]]:
        """The text, and where each piece is in it."""
        ordered = sorted(pieces, key=lambda piece: piece.at)
        blocks: list[str | list[Piece]] = [self._title, self._opening, opening]
        paragraph = 0
        for number, heading in enumerate(self._headings):
            begin, end = (len(ordered) * i // len(self._headings) for i in (number, number + 1))
            blocks.append(heading)
            while begin < end:
                stop = min(end, begin + self._lengths[paragraph % len(self._lengths)])
                blocks.append(ordered[begin:stop])
                begin, paragraph = stop, paragraph + 1
        return _joined(blocks)


def _joined(blocks: list[str | list[Piece]]) -> tuple[str, dict[int, tuple[int, int]]]:
    parts: list[str] = []
    spans: dict[int, tuple[int, int]] = {}
    length = 0
    for block in blocks:
        between = "\n\n"
        for piece in [block] if isinstance(block, str) else block:
            text = piece if isinstance(piece, str) else piece.text
            if parts:
                parts.append(between)
                length += len(between)
            if not isinstance(piece, str):
                spans[id(piece)] = (length, length + len(text))
            parts.append(text)
            length += len(text)
            between = " "
    return "".join(parts), spans
