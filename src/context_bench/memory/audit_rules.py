"""Rules and input of the export audit.

Patterns recognise secrets, instructions, greetings, tool output and values of which a person has only one.
`read_export` reads the export of any memory product into records: a text with a date and an owner, whatever the product
calls its fields.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.machine import file_bytes
from context_bench.core.text import normalise, tokens
from context_bench.core.tokens import utf8_safe

LOOKED_AT = 20_000  # characters of one memory that rules are held against
_SHOWN = 160  # characters of an example
SHORT_CHARACTERS, SHORT_WORDS = 12, 3
_MASK = "[masked]"
SECRETS: dict[str, re.Pattern[str]] = {
    "private key": re.compile(
        r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\s\S]{0,8000}?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|$)"
    ),
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
    r"(?i)^\s*(?:you are (?:a|an|the) (?:helpful|intelligent|friendly|ai|large|expert|personal|chat)|<system\b|system "
    r"prompt\b|"
    r"# ?(?:system|instructions)\b|as an ai (?:language )?model)"
)
GREETINGS = re.compile(
    r"(?i)^\W*(?:(?:user|assistant|human|ai)\s*:\s*)?(?:hi+|hello+|hey+|good (?:morning|evening|afternoon|night)|"
    r"thanks?(?: you)?(?: so much| a lot)?|ok(?:ay)?|sure|yes|no|bye|goodbye|you'?re welcome|great|cool|nice|lol|"
    r"how are you(?: today)?|see you|hallo|guten "
    r"(?:morgen|tag|abend)|danke|bonjour|salut|merci|hola|gracias|ciao|grazie|"
    r"你好|谢谢|こんにちは|ありがとう|안녕하세요|привет|спасибо)"
    r"(?:[ ,]+(?:there|everyone|all|again|assistant|how are you(?: today)?))?\W*$"
)
TOOLS = re.compile(
    r"(?i)traceback \(most recent call last\)|^\s*(?:tool|function)[ _]?(?:call|result|output|response)\b"
    r"|\"(?:tool_calls?|function_call|tool_use_id)\"|^\s*at [\w.$<>]+\(.{0,80}:\d+\)|\b(?:exit code|status code) \d+\b"
    r"|<!doctype html|^\s*<html\b|[A-Za-z0-9+/]{200,}={0,2}"
)
QUOTING = re.compile(
    r"(?i)\b(?:according to (?:my|the|your|stored) memor(?:y|ies)|(?:recalled|retrieved|relevant|stored) "
    r"memor(?:y|ies)\s*[:\]]|"
    r"i (?:remember|recall) that you (?:told|said)|from (?:my|your) memor(?:y|ies)\s*:|"
    r"(?:memory|memories) (?:says?|states?) that)|<memor(?:y|ies)>"
)

# What a person has one of at a time; each pattern gives the subject and the value.
_WHO = r"(?i)^(.{1,60}?)\s+(?:now |currently )?"
_SINGLE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (relation, re.compile(f"{_WHO}{shape}"))
    for relation, shape in (
        (
            "lives in",
            r"(?:lives?|is living|resides?|(?:has |have )?(?:just |recently )?moved) (?:in|to|at)\s+(.{2,120})$",
        ),
        ("works at", r"(?:works?|is working|is employed|(?:has )?started working) (?:at|for|with)\s+(.{2,120})$"),
        ("works as", r"(?:works?|is working) as\s+(.{2,120})$"),
        ("is married to", r"is (?:married|engaged) to\s+(.{2,120})$"),
        ("age", r"is\s+(\d{1,3}) years old\b.{0,100}$"),
        ("name", r"is (?:called|named)\s+(.{2,120})$"),
    )
)
_POSSESSED = re.compile(
    r"(?i)^(my|the user's|.{1,40}?['’]s)\s+([\w\- ]{2,50}?)\s+(?:is|are)(?: now| currently)?\s+(.{1,120})$"
)
_OF = re.compile(
    r"(?i)^the\s+([\w\- ]{2,50}?)\s+(?:of|for)\s+(.{1,60}?)\s+(?:is|are)(?: now| currently)?\s+(.{1,120})$"
)
_STATES = re.compile(
    r"(?i)^(?:a|an|not|very|really|so|too|in|on|at|also|being|going)\b"
)  # "X's cat is very happy" is no value of one
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
    """True if what fits the shape is one; numbers are cards only with the right check digit."""
    if name != "card number":
        return True
    digits = [int(digit) for digit in found if digit.isdigit()]
    doubled = [
        digit if place % 2 == 0 else (2 * digit - 9 if digit > 4 else 2 * digit)
        for place, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def tool_output(text: str) -> bool:
    """Recognise the output of a tool: by its words, or as one JSON value."""
    bare = text.strip()
    return TOOLS.search(text) is not None or (
        len(bare) > 20 and bare[0] in "{[" and bare[-1] in "}]" and bare.count('"') >= 4
    )


def too_short(text: str) -> bool:
    """Recognise a text too short to hold a fact."""
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


_TEXT = ("text", "memory", "fact", "content", "data", "page_content", "document", "summary", "value")
_LISTS = (
    "results", "memories", "edges", "facts", "episodes", "items", "data", "documents", "messages", "records", "hits", "relations", "nodes",  # noqa: E501
)  # fmt: skip
_ID = ("id", "uuid", "memory_id", "_id", "key")
_CREATED = ("created_at", "createdAt", "created", "time", "timestamp", "date", "valid_at")
_UPDATED = ("updated_at", "updatedAt", "updated")
_OWNER = ("user_id", "userId", "user", "agent_id", "group_id", "graph_uuid", "namespace")
_ENDED = ("invalid_at", "expired_at", "deleted_at", "superseded_by", "invalidAt", "expiredAt")
_GONE = frozenset({"delete", "deleted", "superseded", "outdated", "invalid", "expired", "archived"})
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Record:
    """One memory of an export. `superseded`: the export itself says that it holds no more."""

    text: str
    id: str | None = None
    created: datetime | None = None
    updated: datetime | None = None
    owner: str = ""
    superseded: bool = False

    @property
    def when(self) -> datetime | None:
        """The latest moment at which it was said."""
        return self.updated or self.created


@dataclass(frozen=True, slots=True)
class MemoryExport:
    """Content of a file: the memories, the product whose shape they have, and how many entries had no text."""

    records: tuple[Record, ...]
    shape: str
    textless: int


def read_export(path: str | Path) -> MemoryExport:
    """Read a JSON or JSONL export; `BadInput` if the file is none, or holds no memory."""
    path = Path(path)
    try:
        text = file_bytes(path).decode("utf-8-sig", "replace")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    entries = list(_entries(_parsed(text, path), 0))
    found = [
        (record, shape) for entry in entries if (record := _record(entry)) is not None for shape in [_shape(entry)]
    ]
    if not found:
        raise BadInput(
            f"{path} holds no memories: expected a list (or lines) of objects with one of {', '.join(_TEXT)}, "
            f"as exports of mem0, Zep and LangGraph have; found {len(entries)} entries without a text"
        )
    ((shape, _),) = Counter(shape for _, shape in found).most_common(1)
    return MemoryExport(tuple(record for record, _ in found), shape, len(entries) - len(found))


def moment(value: Any) -> datetime | None:
    """A date as exports write it (ISO 8601, or seconds or milliseconds since 1970), in UTC; `None` for anything
    else.
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        if isinstance(value, str) and value.strip():
            found = datetime.fromisoformat(value.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        whole = error
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply") from None
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2:
        raise BadInput(f"{path} is neither JSON nor JSONL: {whole}")
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is neither JSON ({whole}) nor JSONL (line {number}: {error})") from None
    return entries


def _entries(value: Any, depth: int) -> Iterator[Any]:
    """The single memories of whatever holds them."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for each in value:
            yield from _entries(each, depth + 1) if isinstance(each, list) or _holder(each) else [each]
    elif _holder(value):
        for name in _LISTS:
            if isinstance(value.get(name), list | dict):
                yield from _entries(value[name], depth + 1)
    elif isinstance(value, Mapping) and _text(value) is None:  # id → memory
        for name, each in value.items():
            if isinstance(each, list) or _holder(each):
                yield from _entries(each, depth + 1)
            else:
                yield {"id": name, **each} if isinstance(each, Mapping) else each
    else:
        yield value


def _holder(value: Any) -> bool:
    """True if this holds lists of memories and is none itself."""
    if not isinstance(value, Mapping) or not any(isinstance(value.get(name), list) for name in _LISTS):
        return False
    return not any(isinstance(value.get(name), str) for name in _TEXT)


def _record(entry: Any) -> Record | None:
    if isinstance(entry, str):
        return Record(utf8_safe(entry)) if entry.strip() else None
    text = _text(entry) if isinstance(entry, Mapping) else None
    if text is None or not text.strip():
        return None
    about = entry.get("metadata") if isinstance(entry.get("metadata"), Mapping) else {}
    created, updated = (moment(_first(entry, names, about)) for names in (_CREATED, _UPDATED))
    owner = _first(entry, _OWNER, about)
    state = str(entry.get("state") or entry.get("status") or entry.get("event") or "").lower()
    superseded = state in _GONE or entry.get("is_latest") is False or any(entry.get(name) for name in _ENDED)
    name = _first(entry, _ID, {})
    owner = "" if owner is None else owner if isinstance(owner, str) else json.dumps(owner)
    return Record(utf8_safe(text), None if name is None else str(name), created, updated, owner, superseded)


def _first(entry: Mapping[str, Any], names: tuple[str, ...], about: Mapping[str, Any]) -> Any:
    return next(
        (each[name] for each in (entry, about) for name in names if each.get(name) not in (None, "", [], {})), None
    )


def _text(value: Any, depth: int = 0) -> str | None:
    """The text of a memory: a field of one of the usual names, or what such a field holds in turn."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):  # parts of a message
        parts = [part for each in value if (part := _text(each, depth + 1)) is not None]
        return "\n".join(parts) if parts else None
    if isinstance(value, Mapping):
        for name in _TEXT:
            if name in value and (depth == 0 or name != "data" or isinstance(value[name], str)):
                found = _text(value[name], depth + 1)
                if found is not None:
                    return found
    return None


def _shape(entry: Any) -> str:
    """Guess the product that wrote this export."""
    if isinstance(entry, str):
        return "plain texts"
    keys = set(entry)
    if {"namespace", "key", "value"} <= keys:
        return "LangGraph store"
    if "fact" in keys or {"valid_at", "invalid_at"} & keys or ({"uuid", "content"} <= keys):
        return "Zep"
    if "memory" in keys:
        return "mem0"
    if {"id", "text"} <= keys and {"role", "session", "speaker"} & keys:
        return "context-bench"
    return "generic"
