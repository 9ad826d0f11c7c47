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
from context_bench.datasets.synthetic.text import SHORTEST, Text, compose
from context_bench.datasets.synthetic.world import CONSTRAINT, KINDS, Asked, World, lexicon

NAME = "bundled:long-context"
VERSION = 1  # of the generator: another number, other texts
TOKENS = 4000  # a length that the bundled model reads
CONTEXTS = 40  # how many texts there are when nobody says how many examples are wanted
LONGEST = 10_000_000

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

    def _example(self, index: int, asked: Asked, text: Text) -> Example:
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
