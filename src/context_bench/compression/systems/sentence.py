"""A reader that asks no model: the sentences of the conversation that share the question's words are its answer.

It is deterministic and blind to meaning. That is enough to tell what a compressor left and what it did not, and nothing more. What calls
did is told in words first, in the question's language: which files they created, changed, deleted and read, which commands failed and with
what, how the tests last ended, what the last todo list leaves open, what the user asked for last. It sees only the messages that it is
shown; for what a call does it uses the rules of `logs.sessions`, which probes are made with too, so that it is at home with them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from context_bench.compression.compressors._pieces import sentences
from context_bench.compression.compressors.bm25 import bm25_scores
from context_bench.compression.probes.example import unrendered
from context_bench.compression.session_rules.asking import language_of
from context_bench.compression.session_rules.changes import changes
from context_bench.compression.session_rules.facts import facts, runs
from context_bench.compression.session_rules.ledger import artifact_ledger
from context_bench.compression.session_rules.openwork import open_work
from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.wire.conversation import ChatMessage, message_text

NOTHING = "Not mentioned."
_LONGEST = 400  # characters of one sentence of the answer
_STATES = ("created", "modified", "deleted", "read_only")
#: What is told of a session under a heading of its own; everything that was said stands for itself besides.
_HEADED = {key: key for key in ("failing", "fixed", "done", "task", "tests", "error")}
_HEADED |= {"todo": "open", "listed": "open", "next": "open", "request": "asked"}
_QUOTED = re.compile(r"`([^`]{2,200})`|\"([^\"]{2,200})\"|„([^“]{2,200})“|“([^”]{2,200})”|«([^»]{2,200})»")
_SMALL = re.compile(
    r"\b(?:the|a|an|is|are|was|were|what|which|who|how|many|did|do|does|we|you|it|in|on|of|to|for|and|or|but|be|this|that|with|here|when|they|why|been"
    r"|der|die|das|ist|sind|wurde|wurden|welche[rsnm]?|was|wie|viele|in|auf|und|oder|von|für|diese[rsnm]?|hier|ein|eine|zu)\b",
    re.IGNORECASE,
)


class SentenceReader:
    """Answers with the sentences that score best for the question by BM25: at most `most`, none below `share` of the best score.

    It reads `turns` (the last one is the question) or `context`. Small words of the question count nothing. Where it quotes something,
    sentences that hold the quote come first. A sentence that was said brings the one after it along, which often says why.
    """

    name = "sentence"

    def __init__(self, most: int = 16, share: float = 0.6) -> None:
        if most < 1 or not 0 <= share <= 1:
            raise BadInput(f"sentence: most is 1 or more and share from 0 to 1, not {most} and {share}")
        self.most, self.share = most, share

    def process(self, example: Example) -> Example:
        """The example with its `response`."""
        question = str(example.get("question") or "")
        told, said = self._read(example, question)
        found = list(dict.fromkeys([*told, *said]))
        scores = bm25_scores(found, _SMALL.sub(" ", question) if _SMALL.sub("", question).strip(" ?") else question)
        quotes = [next(part for part in hit.groups() if part).casefold() for hit in _QUOTED.finditer(question)]
        if quotes and any(holds := [all(quote in text.casefold() for quote in quotes) for text in found]):
            scores = [score if held else 0.0 for score, held in zip(scores, holds, strict=True)]
        order = sorted(range(len(found)), key=lambda at: (-scores[at], at))[: self.most]
        least = self.share * max(scores, default=0.0)
        chosen = {at for at in order if scores[at] > 0 and scores[at] >= least}
        chosen |= {at + 1 for at in chosen if len(told) <= at < len(found) - 1} if len(chosen) <= self.most // 2 else set()
        return {**example, "response": "\n".join(found[at][:_LONGEST] for at in sorted(chosen)) or NOTHING}

    def fingerprint(self) -> dict[str, Any]:
        """What answers depend on."""
        return {"class": "SentenceReader", "version": 3, "most": self.most, "share": self.share}

    def _read(self, example: Example, question: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        turns = example.get("turns")
        if not isinstance(turns, Sequence) or isinstance(turns, str):
            return (), tuple(_pieces(str(example.get("context") or "")))
        text = json.dumps(list(turns[:-1]), ensure_ascii=False, default=repr)
        return _of_messages(text, language_of([{"role": "user", "content": question}]))


@lru_cache(maxsize=8)
def _of_messages(text: str, language: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    messages = [each for message in json.loads(text) for each in _as_messages(message)]
    said = dict.fromkeys(piece for message in messages for piece in _pieces(message_text(message)))
    return tuple(dict.fromkeys(_told(messages, language))), tuple(said)


def _as_messages(message: ChatMessage) -> list[ChatMessage]:
    """A message; or those of a conversation that a compressor of texts was given as one text, so that its form alone costs nothing."""
    return (unrendered(message_text(message)) if message.get("role") == "user" else None) or [message]


def _pieces(text: str) -> Iterator[str]:
    yield from (piece.strip() for piece in sentences(text) if piece.strip())


@lru_cache(maxsize=1)
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("context_bench.compression.systems").joinpath("told.toml").read_text("utf-8"))


def _told(messages: Sequence[ChatMessage], language: str) -> Iterator[str]:
    """What calls and their results did, in words: one sentence for each file, command and item."""
    words = _words().get(language, _words()["en"])
    ledger = artifact_ledger(messages)
    for state in _STATES:
        yield from (words[state].format(path) for path in getattr(ledger, state))
    for one in changes(messages, ledger):
        yield words["changed"].format(one.fill[0], one.truth)
    for run in runs(messages):
        yield words["ran"].format(run.command[:_LONGEST])
    for one in [*facts(messages), *open_work(messages)]:
        if heading := _HEADED.get(one.key):
            yield from (
                words[heading].format(text) for text in ([one.truth] if one.key in ("tests", "error") else [a.text for a in one.atoms])
            )
        elif one.key == "rules":
            yield from (words["rule"].format(atom.text) for atom in one.atoms)
        elif one.key == "failed":
            yield words["failed"].format(one.fill[0], one.truth)
        elif one.key == "command":
            yield words["failed"].format(one.truth, one.fill[0].strip("`"))
        elif one.key in ("value", "current"):
            yield words["value"].format(one.fill[0], one.truth.rsplit("= ", 1)[-1])
