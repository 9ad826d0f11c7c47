r"""The small things in a text that a compressor must not lose or invent: numbers, paths, addresses, names, errors,
rules.

`atoms(text)` gives them by kind. Regular expressions only, in time linear in the text: every pattern starts at a place
that few positions can be, and never goes back over what it has read.

| kind | what is taken |
| --- | --- |
| `number` | with its key (`timeout = 30`) or its unit (`30 ms`, `5 %`, `$12`); bare numbers are skipped |
| `path` | `/etc/hosts`, `src/a.py`, `C:\x\y`, `notes.md` |
| `url` | with any scheme |
| `hash_uuid` | hexadecimal of 7 and more with a letter and a digit; UUIDs |
| `version` | `v2.1`, `1.2.3`, `numpy==2.1`, `>=3.11` |
| `identifier` | `snake_case`, `camelCase`, `dotted.name`, `--flag`, `ENV_VAR`, `` `backticked` `` |
| `error` | exception names, heads of messages, `file:line`, exit and HTTP status |
| `date_time` | dates and times of day |
| `quote` | quoted phrases |
| `email_host_port` | mail addresses, IP addresses, `host:port` |
| `constraint` | sentences with must, never, only, do not (also German, Chinese, Arabic, Russian, French, Spanish) |
| `command` | shell commands |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

KINDS: tuple[str, ...] = (
    "number",
    "path",
    "url",
    "hash_uuid",
    "version",
    "identifier",
    "error",
    "date_time",
    "quote",
    "email_host_port",
    "constraint",
    "command",
)

# Words: what stands between spaces, without the scripts that write none
# ------------------------------------------------------------------

_WORD = re.compile(r"[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\u3000-\u303f「」『』“”„«»…]{3,300}+")
_CODE = "c|cc|cfg|cpp|cs|css|csv|env|go|h|hpp|html|ini|ipynb|java|jpg|js|json|jsonl|jsx|kt|lock|log|lua|md|mjs|pdf|php|pl|png|proto|py|r|rb"  # noqa: E501
_ENDINGS = rf"(?:{_CODE}|rs|rst|scala|sh|sql|svg|swift|tf|toml|ts|tsx|txt|vue|xml|ya?ml|zip|gz|tar|db|parquet|gguf|bin|whl|exe|so|dll)"  # noqa: E501
_FILE = rf"[\w@+-][\w.@+-]{{0,99}}?\.{_ENDINGS}"
#: One alternative per kind, the particular before the general; each begins where no name goes on.
_IN_WORD = re.compile(
    r"(?P<url>\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\"'`<>()\[\]{}|\\,;]{1,280}+)"
    r"|(?P<email>(?<![\w.+@-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}+)"
    r"|(?P<uuid>(?<![\w-])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![\w-]))"
    rf"|(?P<line>(?<![\w./\\-])(?:[\w.@+~-]{{0,99}}/){{0,20}}{_FILE}(?::\d{{1,7}}){{1,2}}+)"
    r"|(?P<path>(?<![\w./\\-])(?:(?:~|\.{1,2})?/[\w.@+-][\w.@+~-]{0,99}(?:/[\w.@+~-]{1,99}){0,30}+/?|[A-Za-z]:(?:\\[\w.@+~ -]{1,99}){1,30}+"  # noqa: E501
    rf"|[\w.@+~-]{{1,99}}(?:/[\w.@+~-]{{1,99}}){{0,30}}/{_FILE}(?![\w/])|[\w.@+~-]{{1,99}}(?:/[\w.@+~-]{{1,99}}){{2,30}}+/?|{_FILE}(?![\w/.-]*[\w/])))"
    r"|(?P<date>(?<![\w.-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![\w-])|(?<![\w./])\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})(?![\w./]*\d))"
    r"|(?P<host>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{2,5})?(?![\w.]*\d)|(?<![\w.:-])(?:localhost|[a-zA-Z][\w-]{0,62}(?:\.[\w-]{1,63}){1,8}):\d{2,5}(?![\w.:]*\d))"
    r"|(?P<time>(?<![\w:.])\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?![\w:]))"
    r"|(?P<version>(?<![\w.-])[vV]\d{1,6}(?:\.\d{1,9}){0,4}(?:[-+.]?[a-z]{1,10}[.-]?\d{0,6})?(?!\w)|(?<![\w.])\d{1,6}(?:\.\d{1,9}){2,4}(?:[-+.]?[a-z]{1,10}[.-]?\d{0,6})?(?![\w.]*\w)"
    r"|(?<![\w.-])[A-Za-z][\w.-]{0,63}(?:[=~><!]=|@|\^)\d{1,6}(?:\.\d{1,9}){0,4}+|(?<!\w)(?:[=~><!]=|\^)\d{1,6}(?:\.\d{1,9}){1,4}+)"
    r"|(?P<hash>(?<![\w-])(?=[0-9a-fA-F]{0,63}[a-fA-F])(?=[a-fA-F]{0,63}[0-9])[0-9a-fA-F]{7,64}(?![\w-]))"
    r"|(?P<error>(?<![\w.])[A-Z]\w{0,60}(?:Error|Exception|Warning|Failure|Fault)(?!\w)|(?<![\w])(?:E[A-Z]{4,15}|SIG[A-Z]{2,8})(?!\w))"
    r"|(?P<flag>(?<![\w-])--[a-zA-Z][\w-]{1,60}+)"
    r"|(?P<name>(?<![\w.$-])\$?[^\W\d]\w{0,80}+(?:\.[^\W\d]\w{1,80}+){0,10}+)"
)
_KIND = {
    "uuid": "hash_uuid",
    "hash": "hash_uuid",
    "email": "email_host_port",
    "host": "email_host_port",
    "line": "error",
    "date": "date_time",
    "time": "date_time",
    "flag": "identifier",
    "name": "identifier",
}
_COINED = re.compile(r"(?:[^\W\d]|\d)_\w|[a-z\d][A-Z]|[A-Z]{2,}[a-z]{2,}[A-Z]|\.")
_ABBREVIATED = re.compile(r"(?:[A-Za-z]\.){1,5}[A-Za-z]?")


@lru_cache(maxsize=65_536)
def _in_word(word: str) -> tuple[tuple[str, str, int], ...]:
    """(kind, atom, where in the word) of everything in one word."""
    found = []
    for match in _IN_WORD.finditer(word):
        group = str(match.lastgroup)
        text = match[0]
        if group in ("url", "path", "email"):
            text = text.rstrip(".:!?*_-") if group != "path" else text.rstrip(".:!?")
        elif group == "name" and not _is_coined(text):
            continue
        found.append((_KIND.get(group, group), text, match.start()))
    return tuple(found)


def _is_coined(name: str) -> bool:
    """True if a name is more than a plain word: it has a hump, an underscore, or a dot between longer parts."""
    if name.startswith("$"):
        return len(name) > 2
    if not _COINED.search(name) or _ABBREVIATED.fullmatch(name):
        return False
    first, dot, rest = name.partition(".")
    return not dot or (len(first) > 1 and not rest[0].isupper()) or "_" in name


# Lines: what only its surroundings make an atom
# ------------------------------------------------------------------------------------------- Each pattern begins with
# the characters it can begin with, so that the search runs past everything else at the speed of C.

_UNIT = (
    r"%|‰|°[CF]?"
    r"|(?:ms|µs|us|ns|secs?|seconds?|mins?|minutes?|hours?|hrs?|days?|weeks?|months?|years?|[kKMGTP]i?[bB]|bytes?|bits?|[kKMG]?Hz|[kKMG]?W"
    r"|[kKmM]?V|[km]?A|mm|cm|km|kg|mg|rpm|px|fps|tokens?|rows?|lines?|files?|tests?|requests?|retries|turns?|users?|items?|times|degrees?|bar"
    r"|kPa|USD|EUR|GBP|dollars?|euros?|percent|points?|pages?|steps?|epochs?|cores?|threads?|workers?|errors?|failures?|passed|failed"
    r"|Sekunden|Minuten|Stunden|Tage|Grad|Zeilen|Prozent|Euro|секунд\w{0,3}|минут\w{0,3}|час\w{0,3}|дн\w{0,3}|руб\w{0,4}|строк\w{0,2})(?!\w)"
    r"|[smhdxXkKMGBT](?!\w)|[元度秒天年月日个個条條行次倍人件页頁]|分钟|小时|毫秒|ثانية|دقيقة|ساعة|يوم"
)
_DIGITS = re.compile(r"\d(?<![\w.,]\d)(?:[\d,']{0,20}\d)?(?:\.\d{1,12})?")
_AFTER = re.compile(rf"[ \u00a0]?({_UNIT})")
_NO_VALUE = re.compile(r"[.:/-]{0,2}\w|\.\d")  # behind the digits: they are a part of something else
_BEFORE = re.compile(
    r"(?<![\w?&./-])([^\W\d][\w-]{0,40})(?:[\"'`] ?[:=] ?| ?(?:[=<>≤≥≈]|[:<>]=) ?|: |：| (?:is|was|of|to|ist|auf) "
    r"|是|为)[\"'$€£]?[-+]?$"
)
_LEADS = re.compile(
    r"(?:[=<>≤≥≈:：是为]|\s(?:is|was|of|to|ist|von|auf)(?= )) ?[\"'$€£]?[-+]?$"
)  # a quick look whether a key can stand there
_SIGN_AFTER = ("", " ", "=", "(", ":", "\n", "\t")  # a hyphen behind one of these is a minus
_STATUS = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return code|errno|http(?:/\d(?:\.\d)?)?(?: status)?(?: "
    r"code)?|status(?: code)?)"
    r"[ \"']?[=:]? ?-?\d{1,3}(?!\w)"
)
_REFUSED = re.compile(r"[45]\d\d [A-Z][a-z]{2,20}(?: [A-Z][a-z]{2,20}){0,2}")
_STATUS_WORDS = ("exit", "return code", "errno", "http", "status")
_MESSAGE = re.compile(r"\]?[:：] ?([^\n]{4,60})")
_MESSAGE_WORDS = ("error", "exception", "fatal", "panic", "failed", "fehler", "错误", "ошибка", "خطأ")
_DATE = re.compile(r"\d{4}(?:-\d{2}-\d{2} \d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?|年\d{1,2}月(?:\d{1,2}日)?)")
_MONTH = r"(?:Jan|Feb|Mar|Mär|Apr|Ma[iy]|Jun|Jul|Aug|Sep|Okt|Oct|Nov|Dez|Dec|янв|фев|мар|апр|мая|июн|июл|авг|сен|окт|ноя|дек)"  # noqa: E501
_MONTH_DAY = re.compile(
    r"[JFMASOND](?<!\w.)(?:an|eb|ar|pr|ay|un|ul|ug|ep|ct|ov|ec)[a-z]{0,6}\.? \d{1,2}(?:st|nd|rd|th)?(?:, ?\d{4})?(?!\w)"
)
_DAY_MONTH = re.compile(rf"\d{{1,2}}\.? {_MONTH}\w{{0,7}}(?: \d{{4}})?(?!\w)")
_QUOTE = re.compile(
    r"\"([^\"\n]{3,200})\"|“([^”\n]{2,200})”|„([^“”\n]{2,200})[“”]|«([^»\n]{2,200})»|「([^」\n]{2,200})」"
)
_TICKED = re.compile(r"`([^`\n]{2,120})`")
_BOUND = ("must", "never", "only", "do not", "don't", "shall not", "cannot")
_BOUND_ELSEWHERE = (
    *("muss", "müssen", "niemals", "darf nicht", "dürfen nicht", "nur", "jamais", "doit", "nunca", "debe"),
    *(
        "必须",
        "必須",
        "不得",
        "禁止",
        "只能",
        "不要",
        "绝不",
        "يجب",
        "ممنوع",
        "أبدا",
        "فقط",
        "должн",
        "нельзя",
        "никогда",
        "только",
        "запрещ",
    ),
)
_PROGRAMS = (
    r"(?:git|npm|npx|yarn|pnpm|pip3?|uv|python3?|pytest|docker|kubectl|helm|terraform|make|cmake|cargo|rustc|go|node|java|mvn|gradle|curl|wget"
    r"|ssh|scp|ls|cat|cd|rm|mv|cp|mkdir|chmod|chown|sed|grep|rg|awk|find|tar|sudo|apt|apt-get|brew|systemctl|journalctl|psql|sqlite3"
    r"|redis-cli|ruff|mypy|tox|bash|sh)"
)
_PROGRAM = re.compile(rf"{_PROGRAMS} \S")
_SHOWN = re.compile(r"[$%>#] ?")
_CALLED = re.compile(r"\"(?:command|cmd)\": ?\"((?:[^\"\\\n]|\\.){3,200}+)\"")
_END = re.compile(r"[.!?](?=\s|$)|[\n。！？]")
_STARTS = (". ", "! ", "? ", "\n", "。", "！", "？")
_REACH = 300  # characters to each side in which a sentence is looked for


def atoms(text: str) -> dict[str, dict[str, int]]:
    """Kind → atom → where it first stands in `text`. Kinds of which there is none are left out."""
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for kind, atom, place in _all(text):
        held = found[kind]
        if atom not in held:
            held[atom] = place
    return {kind: held for kind, held in found.items() if held}


def _all(text: str) -> Iterator[tuple[str, str, int]]:
    lower = text.lower()
    if len(lower) != len(text):  # a few letters grow when they become small; places must stay
        lower = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
    yield from _words(text)
    yield from _numbers(text)
    yield from _errors(text, lower)
    yield from _dates(text)
    yield from _quotes(text)
    yield from _commands(text)
    yield from _constraints(text, lower)


def _words(text: str) -> Iterator[tuple[str, str, int]]:
    for word, place in _ascii_words(text) if text.isascii() else ((m[0], m.start()) for m in _WORD.finditer(text)):
        bare = word.rstrip(".,;:!?)\"'").lstrip("(\"'")
        if bare.isalpha() and (bare.islower() or bare[1:].islower()):
            continue
        for kind, atom, offset in _in_word(word):
            yield kind, atom, place + offset


def _ascii_words(text: str) -> Iterator[tuple[str, int]]:
    """Each different word once, with its first place."""
    at = 0
    for word in dict.fromkeys(text.split()):
        if len(word) >= 3:
            at = text.index(word, at)  # the words come in the order of their first places
            yield from [(word, at)] if len(word) <= 300 else ((m[0], at + m.start()) for m in _WORD.finditer(word))


def _numbers(text: str) -> Iterator[tuple[str, str, int]]:
    """`key=value`, `value unit` or `$value`, the value without thousands separators."""
    for match in _DIGITS.finditer(text):
        start, end = match.span()
        unit = _AFTER.match(text, end)
        before = text[start - 1 : start] if start else ""
        if before and before in "$€£¥":
            yield "number", before + plain_number(match[0]), start - 1
        elif unit is None and _NO_VALUE.match(text, end):
            continue
        else:
            value = (
                "-" if before == "-" and text[max(0, start - 2) : start - 1] in _SIGN_AFTER else ""
            ) + plain_number(match[0])
            if _LEADS.search(text, max(0, start - 7), start) and (
                key := _BEFORE.search(text, max(0, start - 56), start)
            ):
                yield "number", f"{key[1]}={value}{unit[1] if unit else ''}", key.start()
            elif unit is not None:
                yield "number", f"{value} {unit[1]}", start


def _errors(text: str, lower: str) -> Iterator[tuple[str, str, int]]:
    for place in _places(lower, _STATUS_WORDS):
        if (match := _STATUS.match(lower, place)) and not lower[place - 1 : place].isalnum():
            yield "error", text[place : match.end()], place
    for match in _REFUSED.finditer(text):
        if not text[match.start() - 1 : match.start()].isalnum():
            yield "error", match[0], match.start()
    for word in _MESSAGE_WORDS:
        at = 0
        while (at := lower.find(word, at)) >= 0:
            at += len(word)
            if match := _MESSAGE.match(text, at):
                yield "error", match[1].strip(), match.start(1)
                at = match.end()


def _places(text: str, words: tuple[str, ...]) -> Iterator[int]:
    for word in words:
        at = text.find(word)
        while at >= 0:
            yield at
            at = text.find(word, at + len(word))


def _is_word(character: str) -> bool:
    """True if a Latin letter or a digit stands there; Chinese writes numbers right behind its characters."""
    return character.isalnum() and character < "\u0250"


def _dates(text: str) -> Iterator[tuple[str, str, int]]:
    for pattern in (_DATE, _MONTH_DAY, _DAY_MONTH):
        for match in pattern.finditer(text):
            if not _is_word(text[match.start() - 1 : match.start()]):
                yield "date_time", match[0], match.start()


def _quotes(text: str) -> Iterator[tuple[str, str, int]]:
    for match in _QUOTE.finditer(text):
        said = next(group for group in match.groups() if group is not None)
        if " " in said.strip() or not said.isascii():
            yield "quote", said, match.start()
    if "`" in text:
        for match in _TICKED.finditer(text):
            yield ("command" if _PROGRAM.match(match[1]) else "identifier"), match[1], match.start()


def _commands(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    for line in text.splitlines(keepends=True):
        shown = line[:240].strip()
        if (prompt := _SHOWN.match(shown)) is not None:
            shown = shown[prompt.end() :]
        if _PROGRAM.match(shown):
            yield "command", shown[:200], at
        at += len(line)
    if '"c' in text:
        yield from (("command", match[1], match.start()) for match in _CALLED.finditer(text))


def _constraints(text: str, lower: str) -> Iterator[tuple[str, str, int]]:
    """Sentences that bind, each once however many of the words it has."""
    words = _BOUND if text.isascii() else (*_BOUND, *_BOUND_ELSEWHERE)
    if text.isascii():
        words = (*words, "muss", "niemals", "darf nicht")
    done = 0
    for place, word in sorted((place, one) for one in words for place in _places(lower, (one,))):
        end = place + len(word)
        if place < done or (word.isascii() and (lower[place - 1 : place].isalnum() or lower[end : end + 1].isalnum())):
            continue
        low = max(0, place - _REACH)
        start = max(
            low,
            *(text.rfind(mark, low, place) + len(mark) for mark in _STARTS if text.rfind(mark, low, place) >= 0),
            low,
        )
        stop = found.start() if (found := _END.search(text, end, end + _REACH)) else min(len(text), end + _REACH)
        sentence = text[start:stop].strip(" \t-*•#>")
        done = max(stop, end)
        if len(sentence) >= 8:
            yield "constraint", " ".join(sentence.split()), start


def plain_number(text: str) -> str:
    """A number without separators, plus sign and idle zeros: 1,024.50 → 1024.5."""
    bare = text.replace(",", "").replace("'", "").lstrip("+")
    return bare.rstrip("0").rstrip(".") if "." in bare else bare
