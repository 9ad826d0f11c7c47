"""Questions as data: what is asked, by its key, in the language that the session is in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from context_bench.wire.conversation import ChatMessage, message_text

_GERMAN = re.compile(r"\b(?:und|nicht|der|die|das|ist|eine?n?|bitte|wir|auf|mit|für|noch|dann|aber|auch|wird|von)\b", re.IGNORECASE)
_ENGLISH = re.compile(r"\b(?:and|not|the|is|an?|please|we|on|with|for|then|but|also|will|of|to|it|that)\b", re.IGNORECASE)
_LOOKED_AT = 20_000


@lru_cache(maxsize=1)
def _questions() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("context_bench.compression.session_rules").joinpath("questions.toml").read_text("utf-8"))


def question_of(key: str, *fill: str, language: str = "en") -> str:
    """The question `key` in `language` (English where there is none of it), with its gaps filled."""
    known = _questions()
    return known.get(language, known["en"])[key].format(*fill)


def language_of(messages: Sequence[ChatMessage]) -> str:
    """`en`, `de`, `zh` or `ar`: what the user (else anybody) writes in, by script and small words; English where it is none of them."""
    spoken = [m for m in messages if m.get("role") == "user"] or list(messages)
    text = "\n".join(message_text(m)[:4000] for m in spoken[:40])[:_LOOKED_AT]
    letters = sum(char.isalpha() for char in text) or 1
    if sum("\u4e00" <= char <= "\u9fff" for char in text) > 0.2 * letters:
        return "zh"
    if sum("\u0600" <= char <= "\u06ff" for char in text) > 0.3 * letters:
        return "ar"
    return "de" if len(_GERMAN.findall(text)) > len(_ENGLISH.findall(text)) else "en"
