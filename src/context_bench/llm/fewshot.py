"""How a chat request is put to a small model that answers best when it completes a pattern: pure functions.

The rule for any request, whatever wire or shape:

* **question** = the last paragraph that begins with `Question:` in any user message; else the last paragraph of the last user message (if
  that is longer than 120 words: its last sentence or line). Paragraphs are separated by blank lines.
* **context** = all other text of all messages, in order: system, user, assistant, tool results. Nothing that was forwarded is left out.
* Tool definitions, tool calls and parts that are not text are not put to the model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from context_bench.wire.request import SYSTEM_ROLES, WireRequest

#: Two worked examples of our own, invented, one in prose and one in the style of release notes.
HEAD = (
    "Text: The museum opened in 1936 in a former mill. Its first director, Anna Berg, collected clocks; the house has 412 of them today. "
    "Entry is free on Mondays.\n\nQuestion: Who was the first director?\nAnswer: Anna Berg\n\n"
    "Text: Changed in version 2.4: The timeout argument was added to the open() method. The default port is 8021. Requests longer than 64 "
    'bytes are refused with the error "TooLong".\n\nQuestion: In which version was the timeout argument added?\nAnswer: 2.4\n\n'
)

_LABEL = re.compile(r"question\s*:\s*", re.IGNORECASE)
_BLANK = re.compile(r"\n[ \t\r]*\n\s*")
_LONG = 120  # words; a paragraph beyond this is not a question alone
_LAST_SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n\s*)(?=\S[^\n]*\Z)")


class Asked(NamedTuple):
    """What a request asks, and of what text."""

    context: str
    question: str


def asked(request: WireRequest) -> Asked:
    """Context and question of a request, by the rule above; both may be empty."""
    texts = [(message.role, message.text.strip()) for message in request.messages]
    users = [i for i, (role, text) in enumerate(texts) if role == "user" and text]
    for i in reversed(users):
        paragraphs = _BLANK.split(texts[i][1])
        labelled = [j for j, paragraph in enumerate(paragraphs) if _LABEL.match(paragraph)]
        if labelled:
            return _taken(texts, i, paragraphs, labelled[-1])
    if users:
        paragraphs = _BLANK.split(texts[users[-1]][1])
        return _taken(texts, users[-1], paragraphs, len(paragraphs) - 1)
    return Asked("\n\n".join(text for _, text in texts if text), "")


def _taken(texts: list[tuple[str, str]], message: int, paragraphs: list[str], at: int) -> Asked:
    """The question out of its paragraph, and what is left."""
    question, rest = paragraphs[at].strip(), ""
    if len(question.split()) > _LONG:
        rest, question = _last_sentence(question)
    others = [*paragraphs[:at], rest, *paragraphs[at + 1 :]]
    left = "\n\n".join(paragraph for paragraph in others if paragraph.strip())
    context = [left if i == message else text for i, (_, text) in enumerate(texts)]
    return Asked("\n\n".join(text for text in context if text), _LABEL.sub("", question, count=1) if _LABEL.match(question) else question)


def _last_sentence(paragraph: str) -> tuple[str, str]:
    cuts = list(_LAST_SENTENCE.finditer(paragraph))
    if not cuts or len(paragraph) - cuts[-1].end() < 3:
        return paragraph, ""
    return paragraph[: cuts[-1].start()].rstrip(), paragraph[cuts[-1].end() :]


def tail(asked: Asked) -> str:
    """What follows the worked examples: the text (if there is any), the question, and the place for the answer."""
    text = f"Text: {asked.context}\n\n" if asked.context else ""
    return f"{text}Question: {' '.join(asked.question.split())}\nAnswer:"


def parts(request: WireRequest, asked: Asked) -> list[str]:
    """How `tail(asked)` begins, cut where requests part: after the system prompt, and after the text."""
    if not asked.context:
        return []
    first = request.messages[0]
    begun = "Text: " + (first.text.strip() if first.role in SYSTEM_ROLES else "")
    text = f"Text: {asked.context}\n\n"
    return [begun, text[len(begun) :]] if len(begun) > len("Text: ") and text.startswith(begun) else [text]


def answer(completion: str) -> str:
    """The first line that says something."""
    return completion.strip().partition("\n")[0].strip()
