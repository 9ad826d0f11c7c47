r"""The final answer of a worked solution, and whether two answers are equal as far as plain arithmetic can tell.

Where an answer is looked for, in this order: the last `\boxed{…}`; the last `#### …`; the last "answer is …"; the whole
reply, if it is nothing but an answer; else the last formula or number of the prose, which is told apart (`Found.prose`)
since it is a guess.

Answers are compared as texts, as exact numbers (fractions, percentages, thousands separators, powers of ten; relative
1e-6 where one side is rounded), and as tuples, intervals, sets and lists of such. What needs algebra is handed to
`ask`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

#: Characters of an answer beyond which it is not compared by algebra.
LONGEST = 400

Ask = Callable[[str, str], bool]


class Found(NamedTuple):
    """An answer as written; `prose`: it was not marked as the answer but picked out of a sentence."""

    text: str
    prose: bool


class Number(NamedTuple):
    """`exact`: written without rounding (an integer or a fraction)."""

    value: Fraction
    exact: bool
    percent: bool


# --- finding the answer

_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_HASHES = re.compile(r"####[ \t]*([^\n]*\S)")
_CUE = re.compile(
    r"(?:\banswers?\b[^\n.:=$\\]{0,60}?(?:\bis\b|\bare\b|\bequals\b|\bbe\b|:|=)|"
    r"(?:答案|答え|答|Antwort|Respuesta|Réponse|Ответ|উত্তর|คำตอบ|సమాధానం|Jibu)[^\n.:：=\d$\\]{0,30}?(?:是|为|は|が|\bist\b|\bes\b|\best\b|\bni\b|คือ|:|：|=|—|-))"
    r"[*_\s:：]*",
    re.IGNORECASE,
)
_DELIMITED = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_SENTENCE_END = re.compile(r"[.;!?。](?=\s|$|[*_])|\n")
_NUMBER = re.compile(
    r"(?:(?<![\w.,)}\]])[-+])?(?<![\w^])(?<!\d[.,/])(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:\s?/\s?\d+(?:\.\d+)?)?(?:\s?(?:%|\\%|percent\b))?"
)
_TUPLE = re.compile(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]")
_BETWEEN = re.compile(r"\s*(?:,|;|and|or|,\s*and|,\s*or)\s*")
_MARKS = re.compile(r"\*\*+|__+|`+")


def final_answer(reply: str, wanted: str) -> Found:
    """The answer that a reply gives. `wanted` (the gold answer) only tells what kind of thing to look for: a word, a
    number, a tuple.
    """
    text = _plain(reply)
    if (boxed := last_box(text)) is not None:
        return Found(boxed, False)
    if hashes := _HASHES.findall(text):
        return Found(_read(hashes[-1], wanted) or hashes[-1], False)
    cues = list(_CUE.finditer(text))
    for cue in reversed(cues[-3:]):
        if stated := _read(_statement(text, cue.end()), wanted):
            return Found(stated, False)
    if (
        "\n" not in text
        and len(text) <= LONGEST
        and (_is_formula(tidy(text)) or (_is_words(wanted) and len(text.split()) <= len(wanted.split())))
    ):
        return Found(text, False)
    return Found(_last_of(text, wanted), True)


def gold_answer(text: str) -> str:
    """The answer inside a gold solution: its last box, what follows `####`, or all of it."""
    if (boxed := last_box(text)) is not None:
        return boxed
    hashes = _HASHES.findall(text)
    return str(hashes[-1]) if hashes else text


def last_box(text: str) -> str | None:
    r"""Content of the last closed `\boxed{…}`; `None` without one."""
    for box in reversed(list(_BOX.finditer(text))[-20:]):
        if text[box.end() : box.end() + 1] != "{":
            bare = re.match(r"[^\s{}$\\.,]+", text[box.end() : box.end() + 40])
            if bare:
                return bare[0]
            continue
        depth = 0
        for at in range(box.end(), len(text)):
            if text[at] in "{}" and text[at - 1] != "\\":
                depth += 1 if text[at] == "{" else -1
                if depth == 0:
                    return text[box.end() + 1 : at]
    return None


def _plain(reply: str) -> str:
    text = reply
    if "</think" in text:
        text = _THOUGHT.sub("", text, count=1)
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(mark)) if mark.isdecimal() else mark for mark in text)
    return _MARKS.sub("", text).strip()


def _statement(text: str, start: int) -> str:
    """Statement from `start` on: one formula, or the rest of the sentence."""
    rest = text[start : start + 2 * LONGEST]
    if formula := _DELIMITED.match(rest):
        return _inside(formula)
    end = _SENTENCE_END.search(rest)
    return rest[: end.start()] if end else rest


def _inside(formula: re.Match[str]) -> str:
    return next(part for part in formula.groups() if part is not None)


def _read(said: str, wanted: str) -> str:
    """The answer in a statement: all of it where it is a formula or words are wanted, else its first formula or
    number.
    """
    said = said.strip()
    if not said or _is_formula(tidy(said)):
        return said
    if formulas := list(_DELIMITED.finditer(said)):
        return _with_joined(said, formulas, wanted, last=False)
    if _is_words(wanted):
        return said
    if "," in wanted and (several := _TUPLE.search(said)):
        return several[0]
    after = said.rpartition("=")[2]
    number = _NUMBER.search(after) or _NUMBER.search(said)
    return number[0] if number else ""


def _last_of(text: str, wanted: str) -> str:
    """The last formula or number of a text that marks no answer."""
    tail = text[-20 * LONGEST :]
    formulas = list(_DELIMITED.finditer(tail))
    kinds = [_TUPLE] if "," in wanted and number_of(tidy(wanted)) is None else [_NUMBER]
    plain = [] if _is_words(wanted) else [match for kind in kinds for match in kind.finditer(tail)]
    if formulas and (not plain or formulas[-1].end() >= plain[-1].end()):
        return _with_joined(tail, formulas, wanted, last=True)
    if _is_words(wanted):  # as many words as are wanted
        return " ".join(tail.rstrip(" .!").split()[-len(tidy(wanted).split()) :])
    return plain[-1][0] if plain else ""


def _with_joined(text: str, formulas: list[re.Match[str]], wanted: str, *, last: bool) -> str:
    """The first or last formula; where a list is wanted, with those that only a comma or "and" parts from it."""
    if _parts(tidy(wanted)) is None:
        return _inside(formulas[-1 if last else 0])
    runs = [[formulas[0]]]
    for formula in formulas[1:]:
        if _BETWEEN.fullmatch(text[runs[-1][-1].end() : formula.start()]):
            runs[-1].append(formula)
        else:
            runs.append([formula])
    return ", ".join(map(_inside, runs[-1 if last else 0]))


# --- one way of writing

_VULGAR = {
    mark: (name[0], name[2]) for mark, name in {c: unicodedata.normalize("NFKC", c) for c in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}.items()
}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_TWINS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "÷": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≈": r"\approx ",
    }
)
_GROUP = r"\{([^{}]*)\}"
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|operatorname)\s*" + _GROUP)
_JOINING = re.compile(r"\s*,?\s*(?:\\(?:text|textrm|mbox|mathrm)\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b)\s*")
_UNIT = re.compile(
    r"(?<=[\w)}\]%])(?:\\[,;:! ]|\s|~)*\\(?:text|textrm|mbox|mathrm|textbf)\s*\{[^{}]*\}(?:\^\{?[23]\}?)?\s*\Z"
)
_NOTHING = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|displaystyle|textstyle|limits|quad|qquad|degree)(?![A-Za-z])|(?<!\\)\\[,;:! ]|~|"  # noqa: E501
    r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ|°|\\(?:hspace|phantom|vspace)\s*\{[^{}]*\}"
)
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\w))\s*(?:\{([^{}]*)\}|(\w))")
_ROUGHLY = re.compile(r"\A(?:\\approx|\\sim|\\simeq|approximately|about|roughly)(?![A-Za-z])\s*")
_CURRENCY = re.compile(r"\\\$|(?<![\w$])[$€£¥](?=\s?[\d.-])")


@lru_cache(maxsize=256)
def tidy(text: str) -> str:
    """An answer without what only changes its looks: delimiters, spacing, units, styles, signs of currency."""
    text = text.strip()
    if not text.isascii():
        text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda raised: "^{" + raised[0].translate(_RAISED) + "}", text)
        text = "".join(_fraction(*_VULGAR[mark]) if mark in _VULGAR else mark for mark in text)
        text = unicodedata.normalize("NFKC", text.translate(_TWINS))
        text = re.sub(r"√\s*(\d+|\w|\([^()]*\))", r"\\sqrt{\1}", text)
    text = _MARKS.sub("", text)
    while (formula := _DELIMITED.fullmatch(text)) is not None:
        text = _inside(formula).strip()
    text = _ROUGHLY.sub("", text.strip("$").replace("{,}", ","))
    text = text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac").replace(r"\cfrac", r"\frac")
    text = _JOINING.sub(", ", text)
    text = _UNIT.sub("", text.rstrip(" .,;:"))
    text = _NOTHING.sub("", text)
    text = _TEXT.sub(r"\1", text)
    text = _CURRENCY.sub("", text).replace(r"\%", "%").replace(" percent", "%").replace("\\\\%", "%")
    text = (
        text.replace(r"\cdot", "*")
        .replace(r"\times", "*")
        .replace("**", "^")
        .replace(r"\lbrace", r"\{")
        .replace(r"\rbrace", r"\}")
    )
    text = _SHORT_FRACTION.sub(lambda part: _fraction(part[1] or part[2] or "", part[3] or part[4] or ""), text)
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    return " ".join(text.strip().rstrip(".").lstrip("=").split())


def _fraction(above: str, below: str) -> str:
    return rf"\frac{{{above}}}{{{below}}}"


def _key(text: str) -> str:
    """For comparing as text: no case, no spaces, no brackets around one character."""
    bare = re.sub(r"\s+", "", text).lower()
    bare = re.sub(r"([_^])\{(\w)\}", r"\1\2", bare).replace("\\pi", "pi").replace("\\infty", "inf")
    return re.sub(r"\A\(([a-z])\)\Z", r"\1", bare)


_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}|\b(?:is|no|of|to|an|it|we|so|or|if|by|at|on)\b")
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|exp|max|min|mod|gcd|lcm|det|sqrt|inf|[pb]matrix")


def _is_formula(text: str) -> bool:
    """A text with no words in it but names of functions."""
    return (
        bool(text)
        and not any(not _FUNCTION.fullmatch(word) for word in _WORD.findall(text))
        and text.isascii()
        and _balanced(text)
    )


def _is_words(text: str) -> bool:
    """An answer in words ("Evelyn")."""
    plain = tidy(text)
    return not re.search(r"[\d\\]", plain) and bool(_WORD.search(plain) or re.search(r"[^\x00-\x7f]", plain))


# --- numbers

_PLAIN = re.compile(r"([+-]?)\s*((?:\d{1,3}(?:,\d{3})+|\d+(?:_\d{3})*)?(?:\.\d*)?)((?:[eE][+-]?\d{1,3})?)\s*(%?)")
_RATIO = re.compile(
    r"([+-]?)\s*(?:\(?\s*([^()/{}\\]+?)\s*\)?\s*/\s*\(?\s*([^()/{}\\]+?)\s*\)?|\\frac\{([^{}]+)\}\{([^{}]+)\})\s*(%?)"
)
_MIXED = re.compile(r"([+-]?)\s*(\d+)\s*(\\frac\{\d+\}\{\d+\}|(?<=\s)\d+/\d+)")
_SCIENTIFIC = re.compile(r"([+-]?[\d.,]+)\s*\*\s*10\s*\^\s*\{?\s*([+-]?\d{1,3})\s*\}?")


@lru_cache(maxsize=256)
def number_of(text: str) -> Number | None:
    r"""The number that a tidy text is, or `None`: "1,000", "3/4", `\frac{3}{4}`, "3 1/2", "5%", "1.5*10^{3}", "1e3"."""
    if not text or len(text) > LONGEST or not any(mark.isdigit() for mark in text):
        return None
    if plain := _PLAIN.fullmatch(text):
        return _plain_number(*plain.groups())
    if mixed := _MIXED.fullmatch(text):
        part = number_of(mixed[3])
        if part is None:
            return None
        value = int(mixed[2]) + part.value
        return Number(-value if mixed[1] == "-" else value, True, False)
    if scientific := _SCIENTIFIC.fullmatch(text):
        factor = number_of(scientific[1])
        return factor and Number(factor.value * Fraction(10) ** int(scientific[2]), factor.exact, False)
    ratio = _RATIO.fullmatch(text)
    if ratio is None:
        return None
    above, below = number_of(ratio[2] or ratio[4]), number_of(ratio[3] or ratio[5])
    if above is None or below is None or not below.value:
        return None
    value = above.value / below.value / (100 if ratio[6] else 1)
    return Number(-value if ratio[1] == "-" else value, above.exact and below.exact, bool(ratio[6]))


def _plain_number(sign: str, digits: str, power: str, percent: str) -> Number | None:
    bare = digits.replace(",", "").replace("_", "")
    if bare in ("", "."):
        return None
    value = Fraction(bare + power) / (100 if percent else 1)
    return Number(-value if sign == "-" else value, "." not in bare and not power, bool(percent))


def same_number(wanted: Number, given: Number) -> bool:
    """Equal, or within 1e-6 of the wanted value where one of them is rounded. "50%" is 1/2, and also 50 where the other
    has no sign.
    """
    if _close(wanted, given):
        return True
    if wanted.percent == given.percent:
        return False
    bare = given if wanted.percent else wanted
    other = wanted if wanted.percent else given
    return abs(bare.value) > 1 and _close(bare, other._replace(value=other.value * 100))


def _close(one: Number, other: Number) -> bool:
    if one.value == other.value:
        return True
    whole = one.value.denominator == 1 and other.value.denominator == 1
    if whole or (one.exact and other.exact):
        return False
    if abs(one.value) < Fraction(1, 10**12):
        return abs(other.value) < Fraction(1, 10**12)
    return abs(one.value - other.value) / abs(one.value) < Fraction(1, 10**6)


# --- equality

_ASSIGNED = re.compile(
    r"\s*(?:\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z, ]*\))?)\s*(?:=|:|\\in\b)\s*(?!=)(.+)", re.DOTALL
)
_BRACKETS = re.compile(r"(\(|\[|\\\{)(.*)(\)|\]|\\\})", re.DOTALL)


def equal(wanted: str, given: str, ask: Ask) -> bool:
    """True if two answers are the same. `ask(wanted, given)` decides what needs algebra; both are tidy formulas
    then.
    """
    return _equal(tidy(wanted), tidy(given), ask, depth=0)


def _equal(wanted: str, given: str, ask: Ask, depth: int) -> bool:
    if not wanted or not given or depth > 5:
        return False
    if _key(wanted) == _key(given):
        return True
    wanted, given = _unassigned(wanted, given)
    one, other = number_of(wanted), number_of(given) or number_of(_without_unit(given))
    if one and other:
        return same_number(one, other)
    if _key(wanted) == _key(given):
        return True
    parts = [_parts(side) for side in (wanted, given)]
    if any(parts):
        both = _same_parts(wanted, parts[0], given, parts[1], ask, depth)
        if both is not None:
            return both
    if (
        not _is_formula(wanted)
        or not _is_formula(given)
        or max(len(wanted), len(given)) > LONGEST
        or _hopeless(wanted, given)
    ):
        return False
    return ask(wanted, given)


def _unassigned(wanted: str, given: str) -> tuple[str, str]:
    """Without the left side of "x = 5" where only one of the two has one, and of a chain of equations but its end."""
    if "=" in given and "=" not in wanted and given.count("=") > 1 and "," not in given:
        given = given.rpartition("=")[2].strip()
    sides = []
    for side, other in ((wanted, given), (given, wanted)):
        named = _ASSIGNED.fullmatch(side)
        alone = "=" not in other and r"\in" not in other.replace(r"\infty", "").replace(r"\int", "")
        sides.append(named[1].strip() if named and alone else side)
    if sides[1] == given and "=" in given and "=" not in wanted and "," not in given and number_of(wanted):
        sides[1] = given.rpartition("=")[2].strip()
    return sides[0], sides[1]


def _without_unit(text: str) -> str:
    """Without a word after a number: "42 apples" is "42", "5 cm^2" is "5"."""
    return re.sub(r"(?<=[\d%])\s+(?:[A-Za-z]{2,}|[a-zA-Z]\b)[A-Za-z\s./]*(?:\^\{?[23]\}?)?\Z", "", text)


def _hopeless(wanted: str, given: str) -> bool:
    """A number against a sign of something that is none."""
    return given in {"?", "-", "...", "…"} or not re.search(r"[\w\\]", given)


def _parts(text: str) -> tuple[str, str, list[str]] | None:
    """Opening bracket, closing bracket ("" for a bare list) and elements, or `None` if there are not several."""
    opening = closing = ""
    inner = text
    if (held := _BRACKETS.fullmatch(text)) and _balanced(held[2]):
        opening, inner, closing = held[1], held[2], held[3]
    found = _split(inner)
    if len(found) < 2 and opening != r"\{":
        return None
    return opening, closing, found


def _balanced(text: str) -> bool:
    depth = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _split(text: str) -> list[str]:
    """At its commas outside brackets; commas between thousands are not among them where others have a space after
    them.
    """
    spaced = ", " in text
    found, depth, start = [], 0, 0
    for at, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark in ",;" and depth == 0 and (not spaced or text[at + 1 : at + 2] == " "):
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]


_Parts = tuple[str, str, list[str]]


def _same_parts(wanted: str, one: _Parts | None, given: str, other: _Parts | None, ask: Ask, depth: int) -> bool | None:
    if one is None or other is None:
        single, several = (wanted, other) if one is None else (given, one)
        plain = number_of(single) is not None
        return False if plain and several is not None and len(several[2]) > 1 else None
    if len(one[2]) != len(other[2]):
        return False
    bracketed = [bool(side[0]) and side[0] != r"\{" for side in (one, other)]
    if all(bracketed) and one[:2] != other[:2]:
        return False

    def same(a: str, b: str) -> bool:
        return _equal(a, b, ask, depth + 1)

    if any(bracketed):
        return all(same(a, b) for a, b in zip(one[2], other[2], strict=True))
    left = list(other[2])
    for part in one[2]:
        match = next((place for place, candidate in enumerate(left) if same(part, candidate)), None)
        if match is None:
            return False
        del left[match]
    return True
