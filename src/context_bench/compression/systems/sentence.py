"""A reader without a model: it answers with the sentences of the conversation that share the question's words.

It is deterministic and blind to meaning. It shows the difference between compressors and nothing more. Actions of calls
are put into words first, in the question's language: files created, changed, deleted and read, failed commands and
their errors, the end of the last test run, open items of the last todo list, the last request of the user. The reader
sees only the messages that it is given. It uses the rules of `session_rules` for calls; probes are made with the same
rules, so it does well on them.

`SentenceModel` is the same reader behind a proxy or a tap, where no money may be spent and each answer must be
repeatable.
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from context_bench.compression.compressors.ranked_sentences import bm25_scores
from context_bench.compression.compressors.texts import sentences
from context_bench.compression.probes import unrendered
from context_bench.compression.session_rules.artifacts import artifact_ledger, changes
from context_bench.compression.session_rules.facts import facts, runs
from context_bench.compression.session_rules.open_tasks import open_work
from context_bench.compression.session_rules.utterances import language_of
from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.llm.responders import counted
from context_bench.wire.apis.shared import Reply
from context_bench.wire.conversation import ChatMessage, call_of, message_text
from context_bench.wire.request import WireMessage, WireRequest

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
    """Answers with the sentences that score best for the question by BM25: at most `most`, none below `share` of the
    best score.

    It reads `turns` (the last one is the question) or `context`. Small words of the question count nothing. Where it
    quotes something, sentences that hold the quote come first. A sentence that was said brings the one after it along,
    which often says why.
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
        chosen |= (
            {at + 1 for at in chosen if len(told) <= at < len(found) - 1} if len(chosen) <= self.most // 2 else set()
        )
        return {**example, "response": "\n".join(found[at][:_LONGEST] for at in sorted(chosen)) or NOTHING}

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which answers depend."""
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
    return tuple(dict.fromkeys(_call_sentences(messages, language))), tuple(said)


def _as_messages(message: ChatMessage) -> list[ChatMessage]:
    """A message; or those of a conversation that a compressor of texts was given as one text, so that its form alone
    costs nothing.
    """
    return (unrendered(message_text(message)) if message.get("role") == "user" else None) or [message]


def _pieces(text: str) -> Iterator[str]:
    yield from (piece.strip() for piece in sentences(text) if piece.strip())


@lru_cache(maxsize=1)
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("context_bench.compression.systems").joinpath("told.toml").read_text("utf-8"))


def _call_sentences(messages: Sequence[ChatMessage], language: str) -> Iterator[str]:
    """The effects of calls, in words: one sentence for each file, command and item."""
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
                words[heading].format(text)
                for text in ([one.truth] if one.key in ("tests", "error") else [a.text for a in one.atoms])
            )
        elif one.key == "rules":
            yield from (words["rule"].format(atom.text) for atom in one.atoms)
        elif one.key == "failed":
            yield words["failed"].format(one.fill[0], one.truth)
        elif one.key == "command":
            yield words["failed"].format(one.truth, one.fill[0].strip("`"))
        elif one.key in ("value", "current"):
            yield words["value"].format(one.fill[0], one.truth.rsplit("= ", 1)[-1])


class SentenceModel:
    """A responder for `llm.servers.ModelServer`: the last text of the request is the question, everything before it is
    read.
    """

    name = "sentence"

    def __init__(self) -> None:
        self._reader = SentenceReader()

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """The sentences that fit the question best; `usage` is our own exact count."""
        return await asyncio.to_thread(self._answer, request)

    async def models(self) -> list[str]:
        """One model."""
        return [self.name]

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which answers depend."""
        return {"responder": "sentence", **self._reader.fingerprint()}

    def _answer(self, request: WireRequest) -> Reply:
        *read, question = [*_turns(request)] or [{"role": "user", "content": ""}]
        found = self._reader.process({"question": question["content"], "turns": [*read, question]})
        reply = Reply(text=found["response"], finish_reason="stop", model=request.model)
        reply.usage = counted(reply, request)
        return reply


def _turns(request: WireRequest) -> list[ChatMessage]:
    """The request as chat messages. What ends in several texts (tail and question in one message of the user) ends in
    the last one.
    """
    turns = [_turn(message, _texts(message)) for message in request.messages]
    while turns and not turns[-1]["content"] and not turns[-1].get("tool_calls"):
        turns.pop()
    if turns and len(texts := _texts(request.messages[len(turns) - 1])) > 1:
        last = request.messages[len(turns) - 1]
        turns[-1:] = [_turn(last, texts[:-1]), {"role": last.role, "content": texts[-1]}]
    return turns


def _texts(message: WireMessage) -> list[str]:
    return [part.text for part in message.parts if part.text and part.kind != "reasoning"]


def _turn(message: WireMessage, texts: list[str]) -> ChatMessage:
    turn: ChatMessage = {"role": message.role, "content": "\n".join(texts)}
    if message.tool_calls:
        turn["tool_calls"] = [
            call_of(call.get("id"), call.get("name"), call.get("arguments")) for call in message.tool_calls
        ]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    return turn
