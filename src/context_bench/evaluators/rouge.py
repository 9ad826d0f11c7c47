"""ROUGE-L: how much of a reference text a summary keeps, in order.

Tokens are those of the `rouge-score` package, so that figures compare with published ones: the text in lower case,
every run of letters and digits a token, everything else a gap, no stemming. That package knows ASCII letters only and
loses the rest; here letters and digits of any script count ("naïve" is one token), and in scripts written without
spaces (Chinese, Japanese, Thai …) each character is a token. On ASCII text the two agree to the last bit.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from context_bench.core.records import Example
from context_bench.core.text import words
from context_bench.evaluators.answer_quality import golds

EVALUATORS = {"summarization": "SummarizationQuality"}
MEASURES = {"rouge_l_precision rouge_l_recall rouge_l_f1": {"unit": "score", "better": "higher", "place": "quality"}}

FIELDS = ("rouge_l_precision", "rouge_l_recall", "rouge_l_f1")
_ASCII = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))


_FOREIGN = re.compile(r"[^\x00-\x7f]")
_FEW = 32  # different characters that are worth a pass over the text each


class _Letters(dict[int, str]):
    """A translate table that learns: letters, digits and the marks on them stay, everything else is a gap."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = char if unicodedata.category(char)[0] in "LNM" else " "
        return self[code]


_LETTERS = _Letters()


class SummarizationQuality:
    """`rouge_l_precision`, `rouge_l_recall`, `rouge_l_f1` of the response against the reference summary, each in [0,
    1].

    References are `answer` (a text or a list) together with `answers`; of several the one with the best F1 counts.
    Called directly, a missing reference scores 1.0 everywhere and an empty response 0.0, as documented; in a run an
    example without one is not scored at all.
    """

    name = "summarization_quality"
    version = "1"
    needs = ("answer",)
    fields = FIELDS

    def applies(self, example: Example, output: Example) -> bool:
        """There is a reference, and an answer was given (a system may have returned only a context)."""
        return bool(golds(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        references = golds(original)
        if not references:
            return dict.fromkeys(FIELDS, 1.0)
        response = processed.get("response")
        found = tokens("" if response is None else str(response))
        best = max((_rouge(found, tokens(reference)) for reference in references), key=lambda triple: triple[2])
        return dict(zip(FIELDS, best, strict=True))


def rouge_l(prediction: str, reference: str) -> dict[str, float]:
    """`rouge_l_precision`, `rouge_l_recall` and `rouge_l_f1` of one text against another; zeros where either has no
    token.

    With L the length of the longest common subsequence of tokens: precision L / tokens of the prediction, recall L /
    tokens of the reference, F1 their harmonic mean (Lin 2004, with beta = 1).
    """
    return dict(zip(FIELDS, _rouge(tokens(prediction), tokens(reference)), strict=True))


def tokens(text: str) -> list[str]:
    """The tokens that ROUGE-L compares (see the module's docstring)."""
    if not text.isascii():
        text = _quotes_out(unicodedata.normalize("NFKC", text).lower())
    if text.isascii():
        return (
            text.encode("ascii").translate(_ASCII).decode("ascii").split()
        )  # five times as fast as translating the str
    return words(text.translate(_LETTERS))


def _quotes_out(text: str) -> str:
    """Gaps for typographic quotes, dashes and the like, after which most English replies are plain ASCII again."""
    foreign = set(_FOREIGN.findall(text))
    if len(foreign) <= _FEW:
        for char in foreign:
            if _LETTERS[ord(char)] == " ":
                text = text.replace(char, " ")
    return text


def _rouge(found: Sequence[str], wanted: Sequence[str]) -> tuple[float, float, float]:
    from rapidfuzz.distance import LCSseq

    common = LCSseq.similarity(found, wanted) if found and wanted else 0
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / len(found), common / len(wanted)
    return precision, recall, 2 * precision * recall / (precision + recall)
