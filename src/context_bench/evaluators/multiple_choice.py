r"""Choice of one of the offered options by a reply.

The reply is searched for *statements* ("the answer is C", "I would go with (B)", "D is correct", `\boxed{A}`, a line
that is only a letter or begins with one, the words of an option after "the answer is"). The last statement wins, since
replies think aloud before they decide. Without one, the reply must name exactly one letter that is not denied, or hold
the words of exactly one option. Everything else (two letters at once, letters that no option has, the pronoun "I", the
article "a") is no choice.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_bench.core.records import Example

EVALUATORS = {"multiple_choice": "MultipleChoiceAccuracy"}
MEASURES = {"mc_accuracy": {"unit": "score", "better": "higher", "place": "quality"}}

LETTERS = "ABCDEFGHIJ"
_OPEN, _CLOSE = "\ue000", "\ue001"  # private characters around a letter whose form says that it is a label
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_NEXT_QUESTION = re.compile(r"\n\s*(?:Question|Q)\s*\d*\s*:")
_BRACKETED = re.compile(
    r"(?<!\w)(?:\(\s*([A-Ja-j])\s*\)|\[\s*([A-Ja-j])\s*\]|<\s*([A-J])\s*>|(?:\"|“|‘|'|`)([A-J])[.)]?(?:\"|”|’|'|`))(?!\w)"
)
_BOLD = re.compile(r"(?<![\w*])(\*{1,3}|_{1,2})\s*\(?([A-Ja-j])\)?\s*[.):]?\s*\1(?![\w*])")
_EMPHASIS = re.compile(r"\*+|(?<!\w)_{1,2}|_{1,2}(?!\w)|`+|\$+|~~")
_HALF_BRACKET = re.compile(r"(?<![\w(])([A-Ja-j])\)(?!\w)")

# A letter: one that is marked, or a bare one that stands alone. The bare one must not be part of "C++", "e.g.",
# "B-cell", "A's", "C = 3".
_WORD = r"A-Za-z0-9_\u00c0-\u024f"  # of the Latin script: a label may stand right beside Chinese
_BARE = (
    rf"(?<![{_WORD}°$^\\.+-])(?<!\d )(?<!N/)(?<![A-Za-z]['’])([A-Ja-j])(?![{_WORD}+#°^\\(]|['’][A-Za-z]|-\w|\.\w|\s*=)"
)
_LETTER = rf"(?:{_OPEN}([A-J]){_CLOSE}|{_BARE})"
_TOKEN = re.compile(_LETTER)
_JOINED = re.compile(
    r"\s*(?:,\s*(?:and|or|nor|&)?|/|&|\+|\band\b|\bor\b|\bnor\b)\s*(?:both\s+)?(?:(?:options?|choices?|answers?|letters?)\s+)?\Z",
    re.IGNORECASE,
)
_FILL = (
    r"(?:\s|[\"“‘'»:]|(?:the|definitely|actually|clearly|obviously|certainly|surely|probably|likely|most|very|therefore|thus|hence|simply|indeed|"
    r"just|still|rather|really|instead|either|both|then|hereby|undoubtedly|always|now|in\s+fact|of\s+course|without\s+(?:a\s+)?doubt|"
    r"(?:correct|right|best|final)|(?:one\s+)?labell?ed|option|options|choice|choices|letter|letters|answer|answers|number|that\s+of|I\s+(?:think|believe)|"
    r"it\s+is|it['’]s|would\s+be|must\s+be)\b){0,24}"
)
_NOUN = r"\b(?:answers?|choices?|options?|letters?|solution|response|selection|pick|guess|bet|conclusion)\b"
_COPULA = r"(?:\b(?:is|are|be|was|were|being)\b|\bwould['’]?ve\s+been\b|:|=|->|→|⇒|—|–)"
_CUES = [
    rf"{_NOUN}[^.!?;\n]{{0,80}}?{_COPULA}",
    r"\b(?:choose|chose|choosing|pick|picked|select|selected|selecting|go(?:ing)?\s+(?:for|with)|went\s+with|opt(?:ing)?\s+for|settle\s+on|"
    r"vote\s+for|answer(?:ing)?\s+with|say|guess|think|believe|conclude|take|points?\s+to|leaves(?:\s+us\s+with)?|corresponds\s+to|matches)\b"
    r"(?:\s+(?:that|it\s+is|it['’]s|it\s+(?:must|would|should)\s+be|the\s+answer\s+is))*",
    r"\b(?:it|this|that|which|one)(?:['’]s|\s+is|\s+(?:must|should|would|has\s+to|will)\s+be)\b",
    r"(?:\A|[\s,.;:(])(?:so|therefore|thus|hence|ergo|finally|definitely|certainly|clearly|obviously|probably|but|rather|yes|final|correct|i\.e\.)\b\s*[,:!]?",
    r"\bfinal\s+answer\b\s*:?",
]
_STATED = [re.compile(rf"(?i:{cue}{_FILL})(?={_LETTER})") for cue in _CUES]
_SAID_FIRST = re.compile(
    r"\s*(?:,\s*(?:which\s+)?)?(?:\b(?:is|are|seems|looks|appears|sounds|would\s+be|must\s+be|has\s+to\s+be|should\s+be)\b)(?:\s+(?:to\s+be|"
    r"definitely|clearly|actually|obviously|certainly|probably|indeed|therefore|thus|the|most|my|single|only|one))*\s+"
    r"(?:correct|right|best|better|true|answer|accurate|appropriate|likely|valid|choice|option|one|it)\b",
    re.IGNORECASE,
)
_TEXT_CUE = re.compile(rf"(?i:(?:{'|'.join(_CUES[:3])}){_FILL}(?:(?:a|an)\s+)?)\Z")
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bcannot|\bhardly|\bneither|\bnor|\brather\s+than|\binstead\s+of|\bexcept|\bunlike|\bexclud\w*|\beliminat\w*|"
    r"\brul\w+\s+out|\breject\w*|\bdiscard\w*|\bdismiss\w*)[\s:]*(?:be\s+)?(?:(?:the|both|either|option|options|choice|choices|answer|answers|letter)\s+)*\Z",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"\s*(?:[-–—:,.(]\s*)?(?:this\s+|it\s+|that\s+)?(?:"
    r"(?:(?:is|are|was|were|seems?|looks?|can|could|would|must|does|do|did|has|have|should|be)\b\s*)+(?:n['’]t|not\b|never\b)|cannot\b|"
    r"(?:(?:is|are|was|were|seems?|looks?|must\s+be|would\s+be)\s+)?(?:clearly\s+|definitely\s+|also\s+|obviously\s+)?(?:wrong|incorrect|false|out|"
    r"eliminated|ruled\s+out|excluded|invalid|impossible|unlikely|too|a\s+distractor|irrelevant|inaccurate)\b)",
    re.IGNORECASE,
)
_DENIES_CLAUSE = re.compile(
    r"(?:\bnot|n['’]t|\bnever)\s+(?:\w+\s+){0,2}(?:think|believe|say|choose|pick|select|agree|conclude|go)\b",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:might|may|could|mistake\w*|tempt\w*|wrongly|incorrectly|some|people|students?|one\s+would|at\s+first|initially|if|unless|whether|"
    r"considered|consider|thought)\b",
    re.IGNORECASE,
)
_UNHEDGED = re.compile(
    r"\bif\s+(?:I['’]m|I\s+am)\s+not\s+mistaken\b|\b(?:not|if\s+not)\s+mistaken\b|\bno\s+mistake\b", re.IGNORECASE
)
_CLAUSE = re.compile(r"[.!?;,\n]|\b(?:but|however|so|therefore)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"\b(?:vitamins?|hepatitis|types?|class|grade|plan|section|appendix|figure|exhibit|points?|part|step|group|phase|statements?|premise|graph|"
    r"table|schedule|title|article|column|row|team|person|company|country|model|drug|gene|protein|layer|zone|site|note|key|sample|factor)\s+\Z",
    re.IGNORECASE,
)
_AFTER_ARTICLE = re.compile(
    r"\s+(?:is|was|are|because|since|as|and|or|by|would|must|seems|should|fits|looks|makes|can|does|has|states|says)\b"
)
_AFTER_PRONOUN = re.compile(r"\s+(?:is|because|since)\b")
_LINE = re.compile(
    rf"^[ \t]*(?:[-*•>#]+[ \t]*)?(?:(?:so|then|final|option|choice|letter|answer)[ \t]+)?"
    rf"(?:{_OPEN}([A-J]){_CLOSE}|([A-Ja-j])(?=[ \t]*(?:$|[.:–—-](?:\s|$))))[ \t]*([.:,–—-]*)[ \t]*(.*)$",
    re.MULTILINE | re.IGNORECASE,
)
# The way most replies end, read without the rest: what is said last decides.
_PLAINLY = re.compile(
    r"[\s*_#]*(?:(?:so|thus|therefore|hence|finally)\b,?\s*)?(?:(?:the|my)\s+)?(?:(?:correct|final|best|right)\s+)?(?:answer|choice|option)"
    r"(?:\s+is\b|\s+would\s+be\b|\s*[*_]*:)[*_]*\s*[(\[*_\"]{0,4}([A-J])[)\]*_\".]{0,4}\s*\Z",
    re.IGNORECASE,
)
_RUNS_ON_BEFORE = re.compile(r"[\w.]\Z|\w[-,]\Z")
_RUNS_ON_AFTER = re.compile(r"\w|[.,]\d|-\w")
_ONLY = re.compile(r"[\W_]*([A-Ja-j])[\W_]*\Z")

_Places = dict[str, list[tuple[int, int]]]  # letter → where the words of its option stand


class Statement(NamedTuple):
    """Position at which the reply decides, and the letters it decides for."""

    at: int
    letters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Group:
    """Letters named in one breath ("A and C"), from `start` to `end` of the text."""

    start: int
    end: int
    letters: frozenset[str]
    marked: bool


def chosen_letter(reply: str, options: Mapping[str, str] | None = None) -> str:
    """The letter that `reply` chooses, upper case, or "" if it chooses none or several.

    `options`: letter → the option's words; without them any of A to J may be chosen, and only by letter.
    """
    allowed = frozenset(options) if options else frozenset(LETTERS)
    text = _plain(reply)
    if alone := _ONLY.match(text):
        return _allowed(alone[1], allowed)
    if (
        (plainly := _PLAINLY.match(text, _last_sentence(text)))
        and "uestion" not in text
        and plainly[1].upper() in allowed
    ):
        return plainly[1].upper()
    whole = text.strip().strip(".!\"'").casefold()
    for letter, option in (options or {}).items():
        if option.strip().strip(".!\"'").casefold() == whole:
            return letter
    marked = _marked(text)
    head = _NEXT_QUESTION.split(marked, maxsplit=1)[0]
    for part in (head, marked) if head.strip() and len(head) < len(marked) else (marked,):
        words = _option_words(options or {}, part)
        if statements := _statements(part, allowed, words):
            last = max(statements, key=lambda statement: statement.at)
            return next(iter(last.letters)) if len(last.letters) == 1 else ""
    return _only_one_named(marked, allowed, words)


def _plain(reply: str) -> str:
    """The reply without its thoughts, in plain characters (full-width and circled letters too)."""
    text = reply if reply.isascii() else unicodedata.normalize("NFKC", reply)
    if "</think" in text.lower():
        text = _THOUGHT.sub("", text, count=1)
    if "\\" in text:
        text = _WRAPPED.sub(r"\1", text)
    return text.strip()


def _last_sentence(text: str) -> int:
    """Position at which the last line or sentence begins (one that stands before the closing mark of the reply)."""
    return max(text.rfind("\n") + 1, text.rfind(". ", 0, -1) + 1)


def _marked(text: str) -> str:
    """The text without emphasis, letters that are labels by their form (`(C)`, `**C**`, `"C"`, `C)`, boxed) marked as
    such.
    """
    text = _BOXED.sub(
        lambda box: f"\nthe answer is {box[1].strip().upper() if len(box[1].strip()) == 1 else box[1].strip()}\n", text
    )
    text = _BOLD.sub(lambda bold: _mark(bold[2]), text)
    text = _BRACKETED.sub(lambda found: _mark(next(filter(None, found.groups()))), text)
    text = _EMPHASIS.sub("", text)
    return _HALF_BRACKET.sub(lambda found: _mark(found[1]), text)


def _mark(letter: str) -> str:
    return f"{_OPEN}{letter.upper()}{_CLOSE}"


def _allowed(letter: str, allowed: frozenset[str]) -> str:
    return letter.upper() if letter.upper() in allowed else ""


# --- statements
def _statements(text: str, allowed: frozenset[str], words: _Places) -> list[Statement]:
    named = _groups(text, allowed, words)
    found = [Statement(group.start, group.letters) for group in named if _is_called_right(text, group)]
    spans = [span for places in words.values() for span in places]
    for pattern in _STATED:
        for cue in pattern.finditer(text):
            if _within(cue.end(), spans):
                continue
            group = _group_at(text, cue.end(), allowed, cued=True)
            if group and not _taken_back(text, cue, group):
                found.append(Statement(group.start, group.letters))
    found.extend(_line_labels(text, allowed))
    found.extend(_stated_words(text, words))
    return found


def _groups(text: str, allowed: frozenset[str], words: _Places) -> list[_Group]:
    """Every letter or run of joined letters, but for those inside the words of an option ("Vitamin C")."""
    spans = [span for places in words.values() for span in places]
    found: list[_Group] = []
    end = 0
    for token in _TOKEN.finditer(text):
        if (
            token.start() >= end
            and not _within(token.start(), spans)
            and (group := _group_at(text, token.start(), allowed, cued=False))
        ):
            found.append(group)
            end = group.end
    return found


def _within(at: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _is_called_right(text: str, group: _Group) -> bool:
    before = text[max(0, group.start - 60) : group.start]
    return (
        bool(_SAID_FIRST.match(text, group.end))
        and not _DENIED_BEFORE.search(before)
        and not _DENIES_CLAUSE.search(_CLAUSE.split(before)[-1])
    )


def _taken_back(text: str, cue: re.Match[str], group: _Group) -> bool:
    """The statement is denied ("cannot be A", "I don't think it is A", "A is wrong") or only weighed ("one might choose
    A").
    """
    if _DENIED_BEFORE.search(_before_copula(cue[0])) or _DENIED_AFTER.match(text, group.end):
        return True
    before = text[max(0, cue.start() - 80) : cue.start()]
    clause = _CLAUSE.split(before)[-1] + cue[0]
    return bool(_DENIES_CLAUSE.search(clause) or _HEDGED.search(_UNHEDGED.sub("", clause)))


def _before_copula(cue: str) -> str:
    """Text before the last verb of a cue: "the answer cannot" of "the answer cannot be"."""
    return (
        re.split(r"\b(?:is|are|be|was|were)\b", cue.rstrip(), flags=re.IGNORECASE)[-2]
        if re.search(r"\b(?:is|are|be|was|were)\b", cue)
        else cue
    )


def _group_at(text: str, at: int, allowed: frozenset[str], *, cued: bool) -> _Group | None:
    """The letters named together from `at` on; `None` if there is no letter, or one that is a word, or none that an
    option has.
    """
    token = _TOKEN.match(text, at)
    if token is None or not _is_label(text, token, cued=cued):
        return None
    letters, end, marked = [token[1] or token[2]], token.end(), bool(token[1])
    while following := _TOKEN.search(text, end, min(len(text), end + 30)):
        if not _JOINED.match(text[end : following.start()]) or not _is_label(text, following, cued=False):
            break
        if (following[1] or following[2]) in letters:  # "between C and D, C is better": said anew
            break
        letters.append(following[1] or following[2])
        end = following.end()
    known = frozenset(letter.upper() for letter in letters) & allowed
    return _Group(at, end, known, marked) if known else None


def _is_label(text: str, token: re.Match[str], *, cued: bool) -> bool:
    """True if a letter stands for an option: "I" and "a" are words unless their surroundings say otherwise.

    `cued`: words such as "the answer is" stand before it; then a small letter and an "A" in mid-sentence are labels
    too.
    """
    if token[1]:
        return True
    letter: str = token[2]
    after = text[token.end() : token.end() + 14]
    ends = not re.match(r"\s+[a-z]", after)
    if letter == "I":
        return (ends and not re.match(r"\s", after)) or bool(_AFTER_PRONOUN.match(after))
    if letter == "a":
        return cued and (ends or bool(re.match(r"\s+(?:because|since|as\s+it)\b", after)))
    if letter == "A":
        in_sentence = cued and not text[max(0, token.start() - 20) : token.start()].rstrip().endswith((":", ".", "\n"))
        return ends or in_sentence or bool(_AFTER_ARTICLE.match(after))
    return cued or letter.isupper()


def _line_labels(text: str, allowed: frozenset[str]) -> list[Statement]:
    """Lines that are a letter or begin with one as a label; a list of the options in order, or of the wrong ones, is no
    statement.
    """
    lines = []
    for line in _LINE.finditer(text):
        letter = (line[1] or line[2]).upper()
        separated = bool(line[1] or line[3] or not line[4])
        if (
            letter in allowed
            and separated
            and not (_JOINED.match(line[3] + line[4][:4]) and line[4])
            and not _DENIED_AFTER.match(line[4])
        ):
            lines.append((line.start(), letter, not line[4]))
    if any(alone for _, _, alone in lines):  # then what other lines say of letters is explanation
        lines = [line for line in lines if line[2]]
    stated: list[Statement] = []
    run: list[tuple[int, str]] = []
    for at, letter, _ in [*lines, (len(text), "", True)]:
        if run and letter > run[-1][1]:
            run.append((at, letter))
            continue
        if len(run) == 1:
            stated.append(Statement(run[0][0], frozenset(run[0][1])))
        run = [(at, letter)]
    return stated


# --- the words of an option
def _option_words(options: Mapping[str, str], text: str) -> _Places:
    """Positions of the words of each option in `text`; a place inside a longer option's place does not count."""
    folded = text.lower()
    places = {
        letter: list(_spans(" ".join(option.lower().split()).rstrip("."), folded))
        for letter, option in options.items()
        if (option.strip() and len(option) > 1) or option.strip().isdigit()
    }
    every = [span for spans in places.values() for span in spans]

    def inside(span: tuple[int, int]) -> bool:
        return any(other != span and other[0] <= span[0] and span[1] <= other[1] for other in every)

    return {letter: kept for letter, spans in places.items() if (kept := [span for span in spans if not inside(span)])}


def _spans(words: str, text: str) -> Iterator[tuple[int, int]]:
    """Positions at which `words` stand alone in `text`: not inside a longer word, number or hyphenated word."""
    at = text.find(words) if words else -1
    while at >= 0:
        end = at + len(words)
        if not _RUNS_ON_BEFORE.search(text[max(0, at - 2) : at]) and not _RUNS_ON_AFTER.match(text, end):
            yield at, end
        at = text.find(words, at + 1)


def _stated_words(text: str, words: _Places) -> list[Statement]:
    """Options whose words come right after "the answer is" and the like."""
    return [
        Statement(start, frozenset(letter))
        for letter, spans in words.items()
        for start, end in spans
        if (cue := _TEXT_CUE.search(text, max(0, start - 160), start))
        and not _taken_back(text, cue, _Group(start, end, frozenset(letter), False))
    ]


# --- nothing stated
def _only_one_named(text: str, allowed: frozenset[str], words: _Places) -> str:
    named: set[str] = set()
    for group in _groups(text, allowed, words):
        context = text[max(0, group.start - 60) : group.start]
        if not _denied(text, group.start, group.end) and (group.marked or not _NAMED.search(context)):
            named |= group.letters
    if not named:
        named = {letter for letter, spans in words.items() if not all(_denied(text, *span) for span in spans)}
    return named.pop() if len(named) == 1 else ""


def _denied(text: str, start: int, end: int) -> bool:
    return bool(_DENIED_BEFORE.search(text[max(0, start - 60) : start]) or _DENIED_AFTER.match(text, end))


class MultipleChoiceAccuracy:
    """`mc_accuracy`: 1 if the reply chooses the option `correct_letter`, else 0.

    How a reply is read is told in `_letters`: the last statement wins; a reply that chooses two options, or a letter
    that no option has, is wrong. With `choices` (a list, letter → words, or `{"text": […]}`) the words of an option
    choose it too. Without `correct_letter` a direct call scores 0.0, as documented, and a run nothing.
    """

    name = "multiple_choice"
    version = "1"
    quick = True
    needs = ("correct_letter",)
    fields = ("mc_accuracy",)

    def applies(self, example: Example, output: Example) -> bool:
        """The right letter is known, and an answer was given."""
        return bool(_gold(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        gold, response = _gold(original), processed.get("response")
        if not gold or response is None:
            return {"mc_accuracy": 0.0}
        return {"mc_accuracy": float(chosen_letter(str(response), options(original.get("choices"))) == gold)}


def _gold(example: Example) -> str:
    letter = example.get("correct_letter")
    return "" if letter is None else str(letter).strip().upper()


def options(choices: Any) -> dict[str, str] | None:
    """Letter → words of each option, at most ten; `None` if `choices` is not understood."""
    if isinstance(choices, Mapping):
        if isinstance(choices.get("text"), list | tuple):
            return options(choices["text"])
        lettered = {str(letter).strip().upper(): str(words) for letter, words in choices.items()}
        return lettered if lettered and lettered.keys() <= set(LETTERS) else None
    if isinstance(choices, list | tuple) and choices:
        return {letter: str(words) for letter, words in zip(LETTERS, choices, strict=False)}
    return None
