"""The rules by which an export is looked through: what is a secret, an order, a greeting, a value of something one has one of."""

from __future__ import annotations

import re

from context_bench.core.text import normalise, tokens

LOOKED_AT = 20_000  # characters of one memory that rules are held against
_SHOWN = 160  # characters of an example
SHORT_CHARACTERS, SHORT_WORDS = 12, 3
_MASK = "[masked]"

SECRETS: dict[str, re.Pattern[str]] = {
    "private key": re.compile(r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\s\S]{0,8000}?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|$)"),
    "API key": re.compile(
        r"\b(?:sk|pk|rk|xai|gsk|hf|pplx|nvapi|glpat|npm|pypi|xox[abeprs])[-_][A-Za-z0-9_\-]{12,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
        r"|\bgithub_pat_\w{20,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w\-]{30,}|\bcb-[0-9a-f]{40}\b"
    ),
    "token": re.compile(r"\beyJ[\w\-]{10,2000}\.[\w\-]{10,4000}(?:\.[\w\-]*)?|(?i:\bbearer\s+)[\w.~+/\-]{16,}=*"),
    "password": re.compile(
        r"(?i)\b(?:password|passwd|passphrase|pwd|secret|api[ _\-]?key|access[ _\-]?key|auth[ _\-]?token)\b[\"']?"
        r"(?:\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;]{4,200}|\s+is\s+[\"']?(?=[^\s\"',;]{0,200}[\d!@#$%^&*])[^\s\"',;]{4,200})"
        r"|\bpin\b(?:\s+(?:code|number))?(?:\s{0,3}[:=]\s{0,3}|\s+is\s+)\d{4,8}\b"
    ),
    "password in a URL": re.compile(r"\b[a-z][a-z0-9+.\-]{0,30}://[^\s/@:]{0,100}:[^\s/@]{1,200}@"),
    "card number": re.compile(r"(?<![\d.\-])\d(?:[ \-]?\d){12,18}(?![\d\-])"),
}
_ADDRESS = re.compile(r"[\w.%+\-]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")

ORDERS = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|every\s+){0,3}"
    r"(?:previous|prior|earlier|above|preceding|system)\b"
    r"|\b(?:from now on|whatever you are asked|no matter what)\b.{0,60}\b(?:you|always|respond|reply|answer|say)\b"
    r"|\byou (?:must|should|will|are to) (?:now |always |never |only ){0,3}"
    r"(?:respond|reply|answer|say|output|obey|comply|act as|pretend|send|include)\b"
    r"|\b(?:system|developer)\s{0,3}(?:prompt|message|override)?\s{0,3}:\s{0,3}(?:you|from now|ignore|always|never)\b"
    r"|\b(?:do not|don't|never) (?:tell|inform|mention|reveal)\b.{0,40}\b(?:user|anyone|anybody|this)\b"
    r"|\bexfiltrate\b|\bsend (?:all|every|the|their|this)\b.{0,40}\bto\b.{0,20}https?://"
    r"|\bjailbreak\b|\bdo anything now\b|<\|(?:im_start|system)\|?>|\[/?INST\]"
)
PROMPTS = re.compile(
    r"(?i)^\s*(?:you are (?:a|an|the) (?:helpful|intelligent|friendly|ai|large|expert|personal|chat)|<system\b|system prompt\b|"
    r"# ?(?:system|instructions)\b|as an ai (?:language )?model)"
)
GREETINGS = re.compile(
    r"(?i)^\W*(?:(?:user|assistant|human|ai)\s*:\s*)?(?:hi+|hello+|hey+|good (?:morning|evening|afternoon|night)|"
    r"thanks?(?: you)?(?: so much| a lot)?|ok(?:ay)?|sure|yes|no|bye|goodbye|you'?re welcome|great|cool|nice|lol|"
    r"how are you(?: today)?|see you|hallo|guten (?:morgen|tag|abend)|danke|bonjour|salut|merci|hola|gracias|ciao|grazie|"
    r"你好|谢谢|こんにちは|ありがとう|안녕하세요|привет|спасибо)"
    r"(?:[ ,]+(?:there|everyone|all|again|assistant|how are you(?: today)?))?\W*$"
)
TOOLS = re.compile(
    r"(?i)traceback \(most recent call last\)|^\s*(?:tool|function)[ _]?(?:call|result|output|response)\b"
    r"|\"(?:tool_calls?|function_call|tool_use_id)\"|^\s*at [\w.$<>]+\(.{0,80}:\d+\)|\b(?:exit code|status code) \d+\b"
    r"|<!doctype html|^\s*<html\b|[A-Za-z0-9+/]{200,}={0,2}"
)
QUOTING = re.compile(
    r"(?i)\b(?:according to (?:my|the|your|stored) memor(?:y|ies)|(?:recalled|retrieved|relevant|stored) memor(?:y|ies)\s*[:\]]|"
    r"i (?:remember|recall) that you (?:told|said)|from (?:my|your) memor(?:y|ies)\s*:|"
    r"(?:memory|memories) (?:says?|states?) that)|<memor(?:y|ies)>"
)

# What a person has one of at a time; each pattern gives the subject and the value.
_WHO = r"(?i)^(.{1,60}?)\s+(?:now |currently )?"
_SINGLE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (relation, re.compile(f"{_WHO}{shape}"))
    for relation, shape in (
        ("lives in", r"(?:lives?|is living|resides?|(?:has |have )?(?:just |recently )?moved) (?:in|to|at)\s+(.{2,120})$"),
        ("works at", r"(?:works?|is working|is employed|(?:has )?started working) (?:at|for|with)\s+(.{2,120})$"),
        ("works as", r"(?:works?|is working) as\s+(.{2,120})$"),
        ("is married to", r"is (?:married|engaged) to\s+(.{2,120})$"),
        ("age", r"is\s+(\d{1,3}) years old\b.{0,100}$"),
        ("name", r"is (?:called|named)\s+(.{2,120})$"),
    )
)
_POSSESSED = re.compile(r"(?i)^(my|the user's|.{1,40}?['’]s)\s+([\w\- ]{2,50}?)\s+(?:is|are)(?: now| currently)?\s+(.{1,120})$")
_OF = re.compile(r"(?i)^the\s+([\w\- ]{2,50}?)\s+(?:of|for)\s+(.{1,60}?)\s+(?:is|are)(?: now| currently)?\s+(.{1,120})$")
_STATES = re.compile(r"(?i)^(?:a|an|not|very|really|so|too|in|on|at|also|being|going)\b")  # "X's cat is very happy" is no value of one
_CLAUSE = re.compile(r"[.;,(!?]|\s(?:since|because|and|but|until|while|where|when|which|as of)\s")
_LABEL = re.compile(r"^\s*(?:\[[^\]]{1,40}\]\s*)?(?:(?:[Uu]ser|[Aa]ssistant|[Hh]uman)\s*:\s*)?")


def masked(text: str) -> str:
    """The beginning of a text as one line without secrets and e-mail addresses."""
    shown = text[:LOOKED_AT]
    for name, shape in SECRETS.items():
        shown = shape.sub(lambda found, name=name: _MASK if is_secret(name, found[0]) else found[0], shown)  # type: ignore[misc]
    line = " ".join(_ADDRESS.sub(_MASK, shown).split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def is_secret(name: str, found: str) -> bool:
    """Whether what fits the shape is one; numbers are cards only with the right check digit."""
    if name != "card number":
        return True
    digits = [int(digit) for digit in found if digit.isdigit()]
    doubled = [digit if place % 2 == 0 else (2 * digit - 9 if digit > 4 else 2 * digit) for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def tool_output(text: str) -> bool:
    bare = text.strip()
    return TOOLS.search(text) is not None or (len(bare) > 20 and bare[0] in "{[" and bare[-1] in "}]" and bare.count('"') >= 4)


def too_short(text: str) -> bool:
    bare = text.strip()
    letters = sum(character > "\u2e7f" for character in bare)  # a word of Chinese has one or two
    return len(bare) + 3 * letters < SHORT_CHARACTERS or len(tokens(bare)) < SHORT_WORDS


def value_of(text: str) -> tuple[str, str, str] | None:
    """(subject, relation, value) of a sentence that says one of the things that one has one of, all normalised."""
    if len(text) > 400:
        return None
    text = text[_LABEL.match(text).end() :] if _LABEL.match(text) else text  # type: ignore[union-attr]
    line = " ".join(text.split()).rstrip(".! ")
    for relation, shape in _SINGLE:
        if found := shape.match(line):
            return _triple(found[1], relation, found[2])
    if found := _POSSESSED.match(line):
        subject = "user" if found[1].lower() in ("my", "the user's") else found[1].removesuffix("'s").removesuffix("’s")
        return None if _STATES.match(found[3]) else _triple(subject, found[2], found[3])
    if found := _OF.match(line):
        return None if _STATES.match(found[3]) else _triple(found[2], found[1], found[3])
    return None


def _triple(subject: str, relation: str, value: str) -> tuple[str, str, str] | None:
    who = normalise(subject)
    said = normalise(_CLAUSE.split(value, maxsplit=1)[0])
    who = "user" if who in ("i", "user", "they", "he", "she") else who
    return (who, normalise(relation), said) if who and said else None
