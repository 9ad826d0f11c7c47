"""Changes to what messages say, beyond shortening: texts added, damaged or gone, the order of parts and calls, fields
beside a text, results that changed places.

A text that became shorter is compression. One that arrives in other characters with nothing left out is not, nor is a
short part of a message that is gone as a whole where nothing else was shortened, nor a part of the instructions.
"""

from __future__ import annotations

import ast
import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.keys import canonical_json, load_json, without_nulls
from context_bench.wire.apis.shared import as_str
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES, Pairs, Part, WireMessage, WireRequest, altered
from context_bench.wire.violations.parts import MEDIA, Violation, last_user, media_identity, raw_of


def additions(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Additions to what was sent: messages, and words beside a text that is still there whole.

    A new message is no addition where messages are gone: it stands for them (a summary). One that repeats what was sent
    once is.
    """
    taken = set(pairs.values())
    texts = [message.text for message in sent.messages]
    often, gone = Counter(texts), len(pairs) < len(sent.messages)
    given: Counter[str] = Counter(received.messages[j].text for j in taken)
    for j, message in enumerate(received.messages):
        text = message.text
        if j in taken or not text.strip() or message.role in RESULT_ROLES:
            continue
        given[text] += 1
        again = often[text] > 0 and given[text] > often[text]
        if again or (text not in often and not gone and not _made_of(text, texts)):
            yield Violation("message_added", f"message {j + 1} {'repeats another' if again else 'was not sent'}", j)
    if sent.wire != received.wire:
        yield from _twice_across(sent, received)
    for i, j in altered(sent, received, pairs).items():
        before, after = texts[i].strip(), received.messages[j].text.strip()
        if sent.messages[i].failed and not received.messages[j].failed:
            continue  # a word for the flag
        if sent.wire == received.wire and (twice := _twice(sent.messages[i], received.messages[j])) is not None:
            yield Violation("message_added", f"message {i + 1} holds {twice} twice", i)
            continue
        longer = len(after) > len(before) > 0 and before in after and damage(before, after) is None
        if longer and not _made_of(after.replace(before, "", 1), texts):
            yield Violation("text_added", f"message {i + 1} holds more than was sent", i)


def _made_of(text: str, texts: Sequence[str]) -> bool:
    """True if a text is nothing but pieces of others, such as messages that were joined, and tags around them."""
    left = [line for line in text.splitlines() if line.strip() and not any(line.strip() in one for one in texts)]
    rest = "\n".join(left)
    for one in sorted((one for one in texts if one.strip()), key=len, reverse=True):
        rest = rest.replace(one, "")
    return re.search(r"\w", _TAG.sub("", rest)) is None


_TAG = re.compile(r"</?[\w-]{1,40}>")


def losses(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that are gone as a whole where that is no compression: what the turn in progress is made of, and, across
    wires, any (who only translates leaves nothing out).
    """
    last = last_user(sent)
    there = "\n".join(message.text for message in received.messages)
    kept = {str(one.tool_call_id) for one in received.messages if one.tool_call_id}
    kept |= {str(call.get("id")) for one in received.messages for call in one.tool_calls}
    for i, message in enumerate(sent.messages):
        if i in pairs or message.role in SYSTEM_ROLES or (message.text in there and message.text.strip()):
            continue
        idents = {str(call.get("id")) for call in message.tool_calls} | {str(message.tool_call_id)}
        said = bool(message.tool_calls or message.tool_call_id or message.text.strip())
        if not said or idents & kept:
            continue
        if last is not None and i > last:
            yield Violation("turn_lost", f"message {i + 1}, of the turn in progress, is gone", i)
        elif sent.wire != received.wire and not _summed_up(sent, received):
            yield Violation("turn_lost", f"message {i + 1} is gone, and nothing stands for it", i)


def _summed_up(sent: WireRequest, received: WireRequest) -> bool:
    """True if the words of somebody arrived that were not sent and may stand for what is gone."""
    texts = {message.text.strip() for message in sent.messages}
    spoken = (message.text.strip() for message in received.messages if message.role not in SYSTEM_ROLES)
    return any(text and text not in texts for text in spoken)


def _twice(sent: WireMessage, received: WireMessage) -> str | None:
    """The thing that a message holds twice and was sent in it once, a text of its own or a medium; `None`: nothing."""
    before, after = (Counter(map(_identity, one.parts)) for one in (sent, received))
    again = [key for key in after - before if key in before]
    if any(kind == "media" for kind, _ in again):
        return "an image, file or recording"
    text = sent.text.strip()
    doubled = text and received.text.strip() in (text + text, f"{text}\n{text}", f"{text} {text}", f"{text}\n\n{text}")
    return "its text" if doubled or any(kind == "text" for kind, _ in again) else None


def _twice_across(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """The same across APIs, where parts of one message may stand in several."""
    before, after = (
        Counter(_identity(part) for message in each.messages for part in message.parts) for each in (sent, received)
    )
    for key, times in (after - before).items():
        if before[key] and key[0] in ("text", "media"):
            what = "a text" if key[0] == "text" else "an image, file or recording"
            yield from [Violation("message_added", f"{what} arrives once more than it was sent")] * times


#: Kind and content of a part.
_Identity = tuple[str, Hashable]


def _identity(part: Part) -> _Identity:
    """Kind and content of a part, by which it is known again: a text by itself, a medium by its bytes, a call by its
    id.
    """
    if part.kind == "reasoning":
        return "other", None
    if part.text:
        return "text", part.text
    raw = raw_of(part)
    if part.text is None and part.kind in MEDIA:
        return "media", media_identity(raw)
    return ("call", str(raw.get("id"))) if raw.get("type") == "tool_use" else ("other", None)


# Order
# ------------------------------------------------------------------------


def order_within(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Parts of a message, or parallel calls, that arrive in another order."""
    for i, j in pairs.items():
        before, after = (list(map(_identity, one.parts)) for one in (sent.messages[i], received.messages[j]))
        if _reordered(before, after):
            yield Violation("order_changed", f"message {i + 1}: its parts arrive in another order", i)
    if sent.wire != received.wire:
        if _reordered(_calls(sent), _calls(received)):
            yield Violation("order_changed", "the calls arrive in another order")
        return
    arrived = _calls(received)
    for i, message in enumerate(sent.messages):
        calls: list[_Identity] = [("call", str(call.get("id"))) for call in message.tool_calls]
        apart = len(calls) > 1 and not any(part.kind == "tool_use" for part in message.parts)
        if apart and _reordered(calls, arrived):
            yield Violation("order_changed", f"message {i + 1}: its calls arrive in another order", i)


def _calls(request: WireRequest) -> list[_Identity]:
    return [("call", str(call.get("id"))) for one in request.messages for call in one.tool_calls]


def _reordered(before: Sequence[_Identity], after: Sequence[_Identity]) -> bool:
    """True if what stands in both once stands there in two orders."""
    ours, theirs = Counter(before), Counter(after)
    common = {key for key, times in ours.items() if times == theirs[key] == 1 and key[0] != "other"}
    return [key for key in before if key in common] != [key for key in after if key in common]


# Fields beside a text
# ------------------------------------------------------------------------

_NAMED_TYPES = frozenset({"text", "input_text", "output_text", "search_result", *MEDIA})
#: What is compared elsewhere, or says where a thing lies and not what it is.
_ELSEWHERE = frozenset({"cache_control", "prompt_cache_breakpoint", "text", "data", "url", "file_id", "logprobs", "id"})
#: What is as good as not said.
_DEFAULTS: tuple[Any, ...] = ("auto", {"enabled": False}, "", [], {}, None)


def field_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Fields of messages and blocks that a model gets beside the text (a name, detail, title, citations, the type of a
    file), on one wire.
    """
    if sent.wire != received.wire:
        return
    for i, j in pairs.items():
        before, after = sent.messages[i], received.messages[j]
        names = [name for name, value in before.fields.items() if after.fields.get(name) != value]
        theirs = [(_identity(part), _fields(part)) for part in after.parts]
        for part in before.parts:
            key, ours = _identity(part), _fields(part)
            place = next((k for k, (other, _) in enumerate(theirs) if other == key), None)
            if place is not None and key[0] in ("text", "media"):
                _, arrived = theirs.pop(place)
                names += [name for name in (*ours, *(arrived.keys() - ours)) if ours.get(name) != arrived.get(name)]
        if names:
            told = ", ".join(sorted({str(name).partition(" ")[0] for name in names}))
            yield Violation("field_changed", f"message {i + 1}: {told[:80]}", i)


def _fields(part: Part) -> dict[str, str]:
    raw = raw_of(part)
    return (
        _stated_fields(raw)
        if as_str(raw.get("type")) in _NAMED_TYPES and part.kind not in ("reasoning", "tool_use")
        else {}
    )


def _stated_fields(raw: Mapping[str, Any]) -> dict[str, str]:
    """Fields by name that say something, those of inner objects among them; of a data URL only its media type."""
    found: dict[str, str] = {}
    for name, value in without_nulls(raw).items():
        if name in ("cache_control", "prompt_cache_breakpoint"):
            continue
        if isinstance(value, Mapping) and name not in ("citations", "extra_content"):
            found |= {f"{name}.{inner}": told for inner, told in _stated_fields(value).items() if inner != "type"}
        elif isinstance(value, str) and value.startswith("data:"):
            found[f"{name}.media_type"] = value[5:].partition(";")[0]
        elif name not in _ELSEWHERE and name != "type" and value not in _DEFAULTS:
            if name in ("content", "image_url", "file_data"):
                continue
            found[name] = canonical_json(value)
    return found


# Texts
# ------------------------------------------------------------------------

_WORD = 8  # characters of a text that may stand in another by chance
_SHORT = 300  # characters: to leave such a text out saves nothing
_LONGEST_COMPARED = 200_000  # characters of a text that is looked at for damage
_KEPT = 0.9  # share of the characters below which a text was shortened
_TRIED = 20  # lines of a text that are looked for within others
_LONGEST_CODE = 20_000  # characters of a text that is read as code


def text_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Texts that arrive in other characters, or are gone as a whole while the message is there; results that arrive as
    those of another call.
    """
    there: _Arrived | None = None
    results = {one.text: one.tool_call_id for one in sent.messages if one.role in RESULT_ROLES and one.text.strip()}
    for i, j in pairs.items():
        before, after = sent.messages[i], received.messages[j]
        if before.text == after.text:
            continue
        owner = results.get(after.text) if before.role in RESULT_ROLES else None
        if owner is not None and owner != before.tool_call_id and owner != after.tool_call_id:
            yield Violation("tool_result_swapped", f"message {i + 1}: the result of another call", i)
        elif (how := _damage_of(before, after)) is not None:
            yield Violation("text_damaged", f"message {i + 1}: {how}", i)
        else:
            there = there or _Arrived(sent, received, pairs)
            yield from _parts_lost(sent, received, i, j, there)


def _damage_of(before: WireMessage, after: WireMessage) -> str | None:
    ours, theirs = (
        [part.text for part in one.parts if part.text and part.kind != "reasoning"] for one in (before, after)
    )
    pairs = list(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else [("\n".join(ours), "\n".join(theirs))]
    return next((how for a, b in pairs if a != b and (how := damage(a, b)) is not None), None)


def damage(before: str, after: str) -> str | None:
    """The way in which a text was damaged; `None` if it is the same, shortened, extended or another one."""
    if before == after or max(len(before), len(after)) > _LONGEST_COMPARED:
        return None
    if len(after) < _KEPT * len(before):  # shorter: of the rest only what came in the place of something shows
        return "its characters are damaged" if after.count("\ufffd") > before.count("\ufffd") else None
    if not before.strip():
        return "an empty text has become a word" if after.strip() in _NOTHINGS else None
    if after.count("\ufffd") > before.count("\ufffd") or _mojibake(before, after) or _marked(before, after):
        return "its characters are damaged"
    if "[object Object]" in after and "[object Object]" not in before:
        return "an object stands there by its name"
    if html.unescape(after) == before or _escaped(before, after):
        return "it is escaped"
    if _written_out(before, after):
        return "it is written out as JSON or as code"
    if unicodedata.normalize("NFKC", before) == unicodedata.normalize("NFKC", after):
        return "its characters are normalised"
    if len(after) >= len(before) and "".join(before.split()).casefold() == "".join(after.split()).casefold():
        return "its white space or its capitals are others"
    return None


_NOTHINGS = frozenset({"None", "null", "undefined", "NaN", "[]", "{}"})


def _mojibake(before: str, after: str) -> bool:
    """Text that was read in another encoding than it was written in."""
    if before.isascii():
        return False
    for name in ("latin-1", "cp1252"):
        try:
            wrong = next(run for run in re.findall(r"[^\x00-\x7f]+", before)).encode().decode(name, "ignore")
        except (StopIteration, UnicodeEncodeError):
            return False
        if wrong and wrong in after and wrong not in before:
            return True
    return False


def _marked(before: str, after: str) -> bool:
    """`?` in the place of characters that are not ASCII."""
    if before.isascii() or "?" not in after:
        return False
    return re.sub(r"[^\x00-\x7f]+", "", before) == after.replace("?", "") and after.count("?") > before.count("?")


def _escaped(before: str, after: str) -> bool:
    forms = {json.dumps(before)[1:-1], json.dumps(before, ensure_ascii=False)[1:-1]}
    return bool(forms & {after, after.strip('"')}) or after == json.dumps(before)


def _written_out(before: str, after: str) -> bool:
    """The text as a value of a list or an object, as JSON or as Python writes one, in which it was not sent."""
    inside, first = after.strip(), after.strip()[:1]
    if first not in ("[", "{") or before.lstrip()[:1] == first or not len(before) < len(inside) <= _LONGEST_CODE:
        return False
    for read in (load_json, ast.literal_eval):
        try:
            value = read(inside)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return before in _strings_in(value)
    return False


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _strings_in(inner)


def _parts_lost(sent: WireRequest, received: WireRequest, i: int, j: int, there: _Arrived) -> Iterator[Violation]:
    """A message that is there without any of its text, or without one of its texts."""
    before, after = sent.messages[i], received.messages[j]
    if before.role in SYSTEM_ROLES and after.role not in SYSTEM_ROLES:
        return
    if before.role in SYSTEM_ROLES and after.text.strip() and not _words(before.text) & _words(after.text):
        yield Violation("system_role_lost", f"message {i + 1}: the instructions are others", i)
        return
    texts = [part.text for part in before.parts if part.text and part.text.strip() and part.kind != "reasoning"]
    left = [part.text for part in after.parts if part.text and part.kind != "reasoning"]
    across, system = sent.wire != received.wire, before.role in SYSTEM_ROLES
    if left and not all(text in texts or _whole_in(text, texts) for text in left):
        return
    if not system and there.compressed(before, across=across):
        return
    asked = [text for text in texts if (across or system or len(text) <= _SHORT) and text.strip() not in after.text]
    lost = [text for text in asked if not there.holds_some(text)]
    if not lost:
        return
    if left and len(lost) < len(texts):
        yield Violation("part_lost", f"message {i + 1}: {len(lost)} of its {len(texts)} texts are gone", i)
    elif not left and system:
        yield Violation("system_role_lost", f"message {i + 1}: the instructions are gone", i)
    elif not left and before.role in RESULT_ROLES and (across or any(map(raw_of, before.parts))):
        yield Violation("result_emptied", f"message {i + 1}: the result had a text", i)
    elif not left and before.role not in RESULT_ROLES and i != last_user(sent):
        yield Violation("part_lost", f"message {i + 1}: its text is gone", i)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _sort(message: WireMessage) -> tuple[str, bool]:
    """Messages that one fault would meet alike: of a role, with calls or without."""
    return message.role, bool(message.tool_calls)


class _Arrived:
    """Every line that arrived, to be asked whether anything of a text is among them; and what was shortened besides."""

    def __init__(self, sent: WireRequest, received: WireRequest, pairs: Pairs) -> None:
        self._text = "\n".join(message.text for message in received.messages)
        self._lines = {line.strip() for line in self._text.splitlines()}
        self._shorter: set[tuple[str, bool]] = set()
        self._cut: set[tuple[str, bool]] = set()
        for i, j in pairs.items():
            before, text = sent.messages[i], received.messages[j].text
            if before.role in SYSTEM_ROLES or len(text) >= len(before.text):
                continue
            self._shorter.add(_sort(before))
            if text.strip() and not _whole_in(text, [part.text for part in before.parts if part.text]):
                self._cut.add(_sort(before))

    def compressed(self, message: WireMessage, *, across: bool) -> bool:
        """True if texts of other messages were shortened, too, so that it may be compression that one is gone; of the
        same sort only those count of which something is left.
        """
        return bool(self._cut) or (not across and bool(self._shorter - {_sort(message)}))

    def holds_some(self, text: str) -> bool:
        """True if a line of the text is there, a longer one also within another; of a long text the first are tried."""
        lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
        longer = (line for line in lines[:_TRIED] if len(line) > _WORD)
        return not self._lines.isdisjoint(lines) or any(line in self._text for line in longer)


def _whole_in(text: str, texts: Sequence[str]) -> bool:
    """True if a text is nothing but whole texts of others."""
    rest = text
    for one in sorted(texts, key=len, reverse=True):
        rest = rest.replace(one.strip(), "")
    return re.search(r"\w", _TAG.sub("", rest)) is None
