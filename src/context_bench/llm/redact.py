"""Keys masked in texts that others wrote: error bodies quote the key they refuse, URLs carry credentials.

Secrets are variables of the environment whose name says so, those named as one that holds a key (`--api-key-env WORK`),
and keys typed as an option. Everything kept of a run is searched for these values (`core/secrets`), whoever quotes
them: a provider that repeats the request, a program that prints its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json, load_body
from context_bench.core.secrets import (
    Masker,
    field_names_a_secret,
    is_ordinary,
    is_searchable,
    names_a_secret,
    secrets_in_url,
    secrets_in_value,
    secrets_in_variable,
    surely_names_a_secret,
    urls_in,
)

if TYPE_CHECKING:
    from context_bench.wire.apis.shared import Reply

_NAMED: set[str] = set()
_GIVEN: dict[str, set[str]] = {}  # by option: keys that were typed, and need be in no variable
_FILE = re.compile(
    r"(?:~|\.{1,2})?/(?:[\w.+@ -]+/)*[\w.+@ -]*\.(?:json|pem|key|pub|p12|pfx|crt|cer|txt|ya?ml|toml|ini|conf|cfg|env)"
)


def key_in(variable: str | None) -> str | None:
    """The key in the environment's `variable`, `None` if there is none."""
    if not variable:
        return None
    _NAMED.add(variable)
    return os.environ.get(variable)


def checked_key(key: str | None) -> str | None:
    """The key without the line end that files and shells leave on it; one that cannot be a header's value is told now,
    unseen.
    """
    key = (key or "").strip()
    if not key.isprintable() or not key.isascii():
        raise BadInput(
            "the API key holds characters that no HTTP header can carry (line breaks or non-ASCII): copy it again"
        )
    return key or None


def given(option: str, key: str) -> None:
    """Take note of a key that an option of the command line gave."""
    if key.strip():
        _GIVEN.setdefault(option, set()).add(key)


def environment_secrets(environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """The secrets of each variable that has any, and of each option that gave a key.

    Where a variable says where a file is, that is no secret.
    """
    chosen = os.environ if environment is None else environment
    found = {name: list(secrets_in_variable(name, value)) for name, value in chosen.items() if not _says_where(value)}
    for name in sorted(_NAMED):
        if value := os.environ.get(name):
            found[name] = [*found.get(name, []), *secrets_in_value(value)]
    for option, keys in sorted(_GIVEN.items()):
        found[option] = [secret for key in sorted(keys) for secret in secrets_in_value(key)]
    return {name: list(dict.fromkeys(values)) for name, values in found.items() if values}


def environment_values() -> list[str]:
    """All of them."""
    return [each for values in environment_secrets().values() for each in values]


def environment_notes(environment: Mapping[str, str] | None = None) -> list[str]:
    """Notes on limits of the search for the environment's secrets: sentences that name variables, never values."""
    found = {
        name: values[0]
        for name, values in environment_secrets(environment).items()
        if names_a_secret(name) or name in _NAMED or name in _GIVEN
    }
    short = sorted(name for name, value in found.items() if not is_searchable(value))
    words = sorted(name for name, value in found.items() if is_searchable(value) and is_ordinary(value))
    notes = []
    if short:
        notes.append(
            f"Secrets too short to search for: {', '.join(short)}. Such values, and placeholders, are masked only "
            "where they are a "
            "whole value of a header or of a query."
        )
    if words:
        notes.append(
            f"Secrets that could be ordinary words or figures: {', '.join(words)}. They are masked wherever these "
            "occur, in answers "
            "before they are scored as well."
        )
    return notes


def _says_where(value: str) -> bool:
    if not value.startswith(("/", "./", "../", "~/")) or len(value) > 4096 or "\n" in value:
        return False
    if _FILE.fullmatch(value):
        return True
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


MASK = "[key]"
_WINDOW = 8  # so many characters of a key in a row are taken for the key
# Error bodies are anybody's and may be large: every repeat that could be tried from each place of a text has a bound.
# Compiled when first used: most runs see no error, and these take longer to compile than all others together.
_LOOKS_LIKE_A_KEY = (
    r"(?i)\b(?:bearer|basic)\s+[a-z0-9+/=._~-]{16,}"
    r"|\b(?:sk|pk|rk|xai|gsk|hf|ghp|pplx|nvapi)[-_][a-z0-9_-]{8,}"
    r"|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{10,400}\.[\w-]{5,}(?:\.[\w-]*)?"
)
_WORD = r"[^\s\"'`<>,;:]+"
_CREDENTIALS = r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s\"'<>]{0,1024}@"  # to the last @, as whoever calls it reads it
_PARAMETER = r"(?i)([?&;](?:[\w-]{0,60}(?:key|token|secret|sig|signature|password|auth)[\w-]{0,60})=)[^&;\s\"'<>)]+"
#: Names one conversation to the tap, in the place of a key; alone or after the scheme of a header.
TAP_MARK = re.compile(r"(?:Bearer )?cb-[0-9a-f]{40}")
_SECRET_HEADER = re.compile(r"(?i)auth|cookie|(?:^|-)key(?:-|$)|apikey")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets` (nor eight characters in a row of one), those of the environment, and what else looks
    like a key.
    """
    known = [secret for secret in secrets if secret]
    text = Masker([*lasting(known), *environment_values()], MASK).cut(text)
    for secret in known:
        if is_searchable(secret):
            text = _mask(text, secret)
    text = _compiled(_CREDENTIALS).sub(rf"\1{MASK}@", text)
    text = _compiled(_PARAMETER).sub(rf"\1{MASK}", text)
    text = _compiled(_LOOKS_LIKE_A_KEY).sub(MASK, text)
    return _compiled(_WORD).sub(lambda word: MASK if "***" in word[0] else word[0], text) if "***" in text else text


def without_parameters(text: str) -> str:
    """`text` without the values of parameters of URLs that are named like a secret (`?api_key=…`)."""
    return _compiled(_PARAMETER).sub(rf"\1{MASK}", text)


def lasting(secrets: Iterable[str]) -> tuple[str, ...]:
    """Those that are not a mark of the tap, of which each conversation has its own: all that is kept of one to look for
    it in every form would be 6 kB and 0.2 ms a request. A mark goes by its shape.
    """
    return tuple(secret for secret in secrets if TAP_MARK.fullmatch(secret) is None)


def secrets_in(headers: Mapping[str, str], url: str = "") -> list[str]:
    """Secrets of a request that must not be quoted: the values of those headers that carry credentials, with and
    without their scheme (`Bearer …`), and all that stands in the login and query of `url`.
    """
    values = [value for name, value in headers.items() if names_a_secret(name) or _SECRET_HEADER.search(name)]
    parts = [part for value in values for part in secrets_in_value(value) if len(part) >= 4]
    return list(dict.fromkeys([*parts, *secrets_in_url(url)]))


def plugin_secrets(plugins: Iterable[Any], urls: list[str]) -> Iterator[str]:
    """Secrets in attributes of plug-ins, and in the login and query of the URLs there, which `urls` gets as well."""
    seen: set[int] = set()
    for plugin in plugins:
        yield from _inside(plugin, seen, urls, 0)


def _inside(value: Any, seen: set[int], urls: list[str], depth: int) -> Iterator[str]:
    if depth > 4 or id(value) in seen or len(seen) > 2_000:
        return
    if isinstance(value, str):
        for url in urls_in(value) if "://" in value else ():
            urls.append(url)
            yield from secrets_in_url(url)
        return
    if isinstance(value, int | float | bytes | None):
        return
    seen.add(id(value))
    for name, item in _members(value):
        if isinstance(item, str) and name is not None and field_names_a_secret(name):
            yield from _of_attribute(name, item)
        yield from _inside(item, seen, urls, depth + 1)


def _of_attribute(name: str, value: str) -> Iterator[str]:
    """The secrets in an attribute. Many are called `sort_key` and the like and hold a word that says nothing of a
    secret.
    """
    if surely_names_a_secret(name) or len(value) >= 16 or not value.isalpha():
        yield from (each for each in secrets_in_value(value) if is_searchable(each))


def _members(value: Any) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        for name, item in list(value.items())[:500]:
            yield str(name), item
    elif isinstance(value, list | tuple | set | frozenset):
        for item in list(value)[:100]:
            yield None, item
    elif not isinstance(value, type | ModuleType):
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
        for slot in (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())):
            if isinstance(slot, str) and not slot.startswith("__"):
                with suppress(Exception):  # what makes its attributes when they are asked for may fail in any way
                    yield slot, getattr(value, slot)


def bare_url(url: str) -> str:
    """Origin and path of `url`: no credentials, no query, no fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _mask(text: str, secret: str) -> str:
    if len(secret) < _WINDOW:
        return text.replace(secret, MASK)
    windows = {secret[i : i + _WINDOW] for i in range(len(secret) - _WINDOW + 1)}
    kept: list[str] = []
    at = 0
    while at < len(text):
        if text[at : at + _WINDOW] not in windows:
            kept.append(text[at])
            at += 1
            continue
        end = at + _WINDOW
        while end < len(text) and text[end - _WINDOW + 1 : end + 1] in windows:
            end += 1
        kept.append(MASK)
        at = end
    return "".join(kept)


#: Texts of one reply that are put together, and the fields that tell texts of the same name apart.
_MOST_PIECES, _LONGEST_PIECE = 200_000, 2_048
_OF_WHICH = ("index", "output_index", "content_index", "summary_index", "item_id")
#: The field of a call whose text is JSON, and the place of what stands in that.
_WRITTEN, _INSIDE = "arguments", object()
_EVENT = re.compile(r"(?m)^(?:data:|[{\[])")
_NOT_KEPT = f"(not kept: nested too deeply, or more than {_MOST_PIECES:,} texts, to be searched for keys)"


def without_pieces(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value, or a text of events, without what `clean` takes out of texts of the same field put together, since
    a stream, or a list of tokens, spells a key in pieces.

    The first of such texts then holds all that is left of them, and of log probabilities nothing is kept. `clean` has
    been applied to each text of a JSON value.
    """
    try:
        if isinstance(value, str):
            return _without_pieces_of_events(value, clean)
        spelled = _Spelled(value, clean, at_least=2)
        return spelled.without(value) if spelled.left else value if spelled.room else _NOT_KEPT
    except RecursionError:
        return _NOT_KEPT


def _without_pieces_of_events(text: str, clean: Callable[[str], str]) -> str:
    if len(list(islice(_EVENT.finditer(text), 2))) < 2:
        return text
    if text.count("\n") > _MOST_PIECES:  # before anything is built of so many
        return _NOT_KEPT
    lines = [(line, len(line) - len(_after_name(line))) for line in text.split("\n")]
    spelled = _Spelled((_payload(line[begin:]) for line, begin in lines), clean, at_least=1)
    if not spelled.room:
        return _NOT_KEPT
    return "\n".join(line[:begin] + spelled.rewritten(line[begin:]) for line, begin in lines) if spelled.left else text


def _after_name(line: str) -> str:
    """The part of a stream's line after its name."""
    return line.removeprefix("data:").lstrip()


def _payload(data: Any) -> Any:
    try:
        return load_body(data) if isinstance(data, str) and data[:1] in ("{", "[") else data
    except ValueError:
        return data


def _altered(clean: Callable[[str], str], text: str) -> bool:
    return clean(text) != text


def _ends(text: str) -> str:
    """A text, or the two ends of a long one, where a key may go on that others begin or end."""
    return text if len(text) <= 2 * _LONGEST_PIECE else f"{text[:_LONGEST_PIECE]}\0{text[-_LONGEST_PIECE:]}"


class _Spelled:
    """The texts of a value by the field that they stand in. `left`: of those that together hold what `clean` takes out,
    what it leaves, until it is put in the place of the first; `room`: for so many more texts, lists and objects.
    """

    def __init__(self, value: Any, clean: Callable[[str], str], *, at_least: int) -> None:
        self.room, self._texts = _MOST_PIECES, dict[tuple[object, ...], list[str]]()
        self._read(value, ())
        several = {place: texts for place, texts in self._texts.items() if self.room and len(texts) >= at_least}
        if at_least > 1:  # each is clean: a key can only stand where two meet
            several = {place: texts for place, texts in several.items() if _altered(clean, "".join(map(_ends, texts)))}
        joined = {place: "".join(texts) for place, texts in several.items()}
        self.left = {place: left for place, text in joined.items() if (left := clean(text)) != text}

    def _read(self, value: Any, place: tuple[object, ...]) -> None:
        if not self.room or not isinstance(value, Iterable):
            return
        self.room -= 1
        if isinstance(value, str):
            self._texts.setdefault(place, []).append(value)
        elif isinstance(value, Mapping):
            place = _within(value, place)
            for name, item in value.items():
                self._read(item, (*place, name))
                if name == _WRITTEN and isinstance(inner := _payload(item), Mapping | list):
                    self._read(inner, (*place, name, _INSIDE))
        else:
            for item in value:
                self._read(item, place)

    def without(self, value: Any, place: tuple[object, ...] = ()) -> Any:
        """The value, or one within it at `place`, without what was found; asked for in the order of reading."""
        if isinstance(value, str) and place in self.left:
            left, self.left[place] = self.left[place], ""
            return left
        if isinstance(value, Mapping):
            place = _within(value, place)
            found = {name: self._field(name, item, (*place, name)) for name, item in value.items()}
            return {
                name: None if str(name).startswith("logprobs") and item != value[name] else item
                for name, item in found.items()
            }
        return [self.without(item, place) for item in value] if isinstance(value, list | tuple) else value

    def _field(self, name: object, item: Any, place: tuple[object, ...]) -> Any:
        if name == _WRITTEN and isinstance(item, str) and isinstance(_payload(item), Mapping | list):
            item = self.rewritten(item, (*place, _INSIDE))
        return self.without(item, place)

    def rewritten(self, data: str, place: tuple[object, ...] = ()) -> str:
        """`data` of a stream's line, or JSON in a text, without what was found."""
        payload = _payload(data)
        left = self.without(payload, place)
        if left == payload:
            return data
        return left if isinstance(left, str) else canonical_json(left)


def _within(value: Mapping[str, Any], place: tuple[object, ...]) -> tuple[object, ...]:
    """The place of what a mapping holds, which may say that it is one of several."""
    return (*place, *((name, value[name]) for name in _OF_WHICH if isinstance(value.get(name), str | int)))


@lru_cache(maxsize=64)
def _hiding(secrets: tuple[str, ...]) -> Masker:
    return Masker(secrets, MASK)


def without_secrets(reply: Reply, secrets: Sequence[str]) -> Reply:
    """`reply` as it is but for the keys of its own request, which a provider or a proxy may quote in what it says. A
    mark of the tap, one for each conversation, goes by its form.
    """
    hide = _hiding(lasting(secrets))

    def hidden(text: str) -> str:
        text = hide.cut(text)  # a reply may end within a key
        return TAP_MARK.sub(MASK, text) if "cb-" in text else text

    for name in ("text", "reasoning", "refusal", "model", "finish_reason"):
        if isinstance(text := getattr(reply, name), str):
            setattr(reply, name, hidden(text))
    for call in reply.tool_calls:
        call |= {name: hidden(value) for name, value in call.items() if isinstance(value, str)}
    if reply.after_done is not None:
        reply.after_done["text"] = without_pieces(hidden(reply.after_done["text"]), hidden)
    return reply
