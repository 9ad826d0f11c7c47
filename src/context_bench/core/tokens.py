"""Token counts of texts, and their exactness.

Vocabularies come with the `splintr-rs` wheel, so nothing is fetched. A text that looks like a special token
(`<|endoftext|>`) is counted as ordinary text. Models whose tokenizer is not public are counted with
`o200k_base` and marked `exact=False`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from context_bench.core import machine
from context_bench.core.keys import forget_oldest

DEFAULT_ENCODING = "o200k_base"

#: First match wins. Encodings of public OpenAI models; everything else is an estimate.
_EXACT_PREFIXES: tuple[tuple[str, str], ...] = (
    ("gpt-3.5", "cl100k_base"),
    ("gpt-4-", "cl100k_base"),
    ("gpt-4o", "o200k_base"),
    ("gpt-4.1", "o200k_base"),
    ("gpt-4.5", "o200k_base"),
    ("gpt-5", "o200k_base"),
    ("chatgpt-4o", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
    ("text-embedding-3", "cl100k_base"),
    ("gpt-oss", "o200k_harmony"),
)

#: Encoding → the vocabulary to read, and how each of its special tokens begins. Encodings that differ in these alone
#: count texts alike.
_VOCABULARIES = {
    "cl100k_base": ("cl100k_base", "<|"),
    "o200k_base": ("o200k_base", "<|"),
    "o200k_harmony": ("o200k_base", "<|"),
    "qwen3": ("qwen3", "<"),
}

#: Characters from which on a count is remembered.
_LONG = 256
#: Characters of one text that are counted one by one; the tokens of a longer one are estimated from samples.
MOST_COUNTED = 2**20
#: A text in which letters, spaces or signs follow one another for so long is no word of any language: a tokenizer needs
#: long for each.
_ENDLESS = 2**15
_WORD_OR_SPACE = re.compile(r"[\w\s]")
#: So many samples of so many characters, spread evenly.
_SAMPLES, _SAMPLE = 32, 2**13


class TokenCounter(Protocol):
    """Counts tokens of a text; `exact` says whether the model counts the same way."""

    name: str
    exact: bool

    def count(self, text: str) -> int:
        """Tokens of `text`."""


def utf8_safe(text: str) -> str:
    """`text` with lone surrogates replaced, since no tokenizer and no wire takes them."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


@dataclass(slots=True)
class VocabularyCounter:
    """Counts with a bundled BPE vocabulary; each distinct text is counted once.

    The tokens of a text of more than `MOST_COUNTED` characters, or with a word of tens of thousands, are an estimate
    (see `estimates`). The memory is bounded: at most `remembered` counts of texts of 256 characters or more, by length
    and Python's own hash of the text (64 bits with a secret of the process: two texts of one length share one once in
    10¹¹ full memories), and as many of shorter ones.
    """

    name: str = DEFAULT_ENCODING
    exact: bool = True
    remembered: int = 4_096
    _seen: dict[Any, int] = field(default_factory=dict, repr=False)
    _short: dict[str, int] = field(default_factory=dict, repr=False)

    def count(self, text: str) -> int:
        """Tokens of `text`; 0 for the empty text."""
        return self.totals(((text,),))[0]

    def total(self, texts: Iterable[str]) -> int:
        """Tokens of all `texts` together."""
        return self.totals((texts,))[0]

    def totals(self, groups: Iterable[Iterable[str]]) -> list[int]:
        """Tokens of each group of texts, in one call of the tokenizer: most of what a text of a few kilobytes costs is
        the call.
        """
        sums: list[int] = []
        texts: list[str] = []
        places: dict[Any, list[int]] = {}  # key of a text to be counted → the groups that it is in
        for number, group in enumerate(groups):
            known = 0
            for text in group:
                short = len(text) < _LONG
                key = text if short else (len(text), hash(text))
                if (count := self._short.get(text) if short else self._seen.get(key)) is not None:
                    known += count
                elif key in places:
                    places[key].append(number)
                elif text:
                    places[key] = [number]
                    texts.append(utf8_safe(text))
            sums.append(known)
        if texts:
            for (key, numbers), count in zip(places.items(), self._counted(texts), strict=True):
                for number in numbers:
                    sums[number] += count
                if isinstance(key, str):
                    self._short[key] = count
                else:
                    self._seen[key] = count
        return sums

    def _counted(self, texts: list[str]) -> list[int]:
        for seen in (self._seen, self._short):
            forget_oldest(seen, self.remembered - len(texts))
        vocabulary, special = _vocabulary(self.name)
        return [self._one(vocabulary, special, text) for text in texts]

    def _one(self, vocabulary: Any, special: str, text: str) -> int:
        if _uncountable(text):
            return round(sum(self._sampled(vocabulary, special, text)) * len(text) / (_SAMPLES * _SAMPLE))
        # Four bytes a token are made sooner than a list of them, but special tokens are taken for what they look like.
        # One character is found at once, two take a sixth of the time that counting takes.
        if special[0] in text and special in text:
            return len(vocabulary.encode_ordinary(text))
        return len(vocabulary.encode_flat(text)) // 4

    def _sampled(self, vocabulary: Any, special: str, text: str) -> list[int]:
        """Tokens of each sample of a text that is too long to be counted."""
        step = (len(text) - _SAMPLE) / (_SAMPLES - 1)
        starts = [round(number * step) for number in range(_SAMPLES)]
        return [self._one(vocabulary, special, text[start : start + _SAMPLE]) for start in starts]

    @staticmethod
    def estimates(texts: Iterable[str]) -> bool:
        """True if one of the texts, or a word in it, is too long to be counted, so that its tokens are an estimate."""
        return any(map(_uncountable, texts))

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of whole characters in the first `tokens` tokens of `text`; an estimate where neither the
        text nor a beginning of it twice as long can be counted.
        """
        if tokens <= 0:
            return ""
        if _uncountable(text):
            reach = self.reach(text, tokens)
            beginning = text[: 2 * reach + _ENDLESS]
            if _uncountable(beginning):
                return text[:reach]
            text = beginning
        vocabulary, _ = _vocabulary(self.name)
        kept = vocabulary.encode_ordinary(utf8_safe(text))[:tokens]
        return str(vocabulary.decode_bytes(kept), "utf-8", "ignore")  # a character can end in the next token

    def reach(self, text: str, tokens: int, *, from_end: bool = False) -> int:
        """Characters from the beginning (or end) of a text that is too long to be counted that hold about `tokens`
        tokens, by the samples from which its tokens are estimated.
        """
        sampled = self._sampled(*_vocabulary(self.name), text)
        stretch, left, reached = len(text) / _SAMPLES, float(tokens), 0.0
        for count in reversed(sampled) if from_end else sampled:
            held = count * stretch / _SAMPLE
            if held >= left:
                return int(reached + stretch * left / held)
            reached, left = reached + stretch, left - held
        return len(text)


def _uncountable(text: str) -> bool:
    """A text that is too long to be counted, or has a word that is."""
    if len(text) < 2 * _ENDLESS:
        return False
    return len(text) > MOST_COUNTED or any(
        _endless(text[start : start + _ENDLESS]) for start in range(0, len(text), _ENDLESS)
    )


def _endless(window: str) -> bool:
    return len(window) == _ENDLESS and (window.isalpha() or window.isspace() or _WORD_OR_SPACE.search(window) is None)


def _vocabulary(encoding: str) -> tuple[Any, str]:
    """The loaded vocabulary of `encoding` and how its special tokens begin. Errors: KeyError for one that we do not
    count with.
    """
    if encoding not in _VOCABULARIES:
        raise KeyError(f"vocabularies are {', '.join(_VOCABULARIES)}")
    name, special = _VOCABULARIES[encoding]
    return _loaded(name), special


@lru_cache(maxsize=4)
def _loaded(name: str) -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained(name)


def unload_vocabularies() -> None:
    """Give back the vocabularies (20 MB each); the next count loads its own again."""
    _loaded.cache_clear()
    machine.give_back()


@lru_cache(maxsize=256)
def encoding_of(model: str) -> tuple[str, bool]:
    """The encoding to count a model's text with, and whether it is that model's own."""
    name = model.rsplit("/", 1)[-1].lower()
    if name == "gpt-4":
        return "cl100k_base", True
    for prefix, encoding in _EXACT_PREFIXES:
        if name.startswith(prefix):
            return encoding, True
    return DEFAULT_ENCODING, False


@lru_cache(maxsize=64)
def _counter(encoding: str, exact: bool) -> VocabularyCounter:
    return VocabularyCounter(encoding, exact)


def counter_for(model: str | None = None) -> VocabularyCounter:
    """The counter to use for `model` (default: `o200k_base`, marked as an estimate when a model is named that is not
    public).
    """
    if model is None:
        return _counter(DEFAULT_ENCODING, True)
    return _counter(*encoding_of(model))


def count_tokens(text: str, tokenizer: Callable[[str], int] | None = None) -> int:
    """Tokens of `text` by `tokenizer` (a callable text → int), or by `o200k_base`."""
    return tokenizer(text) if tokenizer else counter_for().count(text)


def count_tokens_dict(
    values: Mapping[str, Any], text_fields: Iterable[str] | None = None, tokenizer: Callable[[str], int] | None = None
) -> int:
    """Tokens of all strings in `values` (nested lists and dicts included), or only of `text_fields`."""
    chosen = values.values() if text_fields is None else [values[name] for name in text_fields if name in values]
    return sum(count_tokens(text, tokenizer) for value in chosen for text in _strings(value))


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
