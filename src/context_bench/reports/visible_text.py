r"""Hostile text made harmless, in one place; every renderer shows text only through these functions.

Names, ids, answers and error messages come from datasets, models and logs. What a reader could not see, or what would
steer a terminal, a browser or a spreadsheet, is written out as a visible escape (`\x1b`, `\u202e`): nothing is hidden,
nothing acts.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from context_bench.core.machine import BLANK, MARKS, MOST_MARKS, quoted
from context_bench.core.secrets import surely_names_a_secret

NAME_LIMIT = 120  # characters of a name, id or label
_LONGEST_NAME = 300
TEXT_LIMIT = 4000  # characters of a question, an answer, an error

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: object, limit: int = NAME_LIMIT, *, lines: bool = False) -> str:
    r"""`text` on one line, with every invisible or steering character escaped, at most about `limit` characters.

    With `lines`, line ends and tabs are kept (line ends as `\n`). A name that is cut ends in `…` and six hex digits of
    its hash, so that two long names never look the same; a text that is cut (with `lines`, or of more than 300
    characters) ends in `…` alone.
    """
    shown = str(text)
    digest = ""
    if len(shown) > limit:
        digest, shown = _digest(shown), shown[:limit]
    if lines:
        shown = "\n".join(_line(line) for line in re.split("\r\n|\r|\n", shown))
    else:
        shown = _line(" ".join(re.split("[ \t\r\n\f\v\u2028\u2029]+", shown)))
    if len(shown) > 2 * limit:  # escapes are longer than what they stand for
        digest, shown = digest or _digest(str(text)), shown[: 2 * limit]
    if lines or limit > _LONGEST_NAME:
        return f"{shown}…" if digest else shown
    return f"{shown}…{digest}" if digest else shown


def excerpt(text: object, limit: int) -> str:
    """The beginning of a question, an answer or an error on one line, as harmless as `visible` makes it; `…` says that
    it was cut.
    """
    cut = str(text)
    shown = visible(cut[:limit], max(limit, _LONGEST_NAME + 1))
    if len(cut) <= limit:
        return shown
    at = shown.rfind(" ", 3 * len(shown) // 4)
    return f"{shown[:at]}\u00a0…" if at > 0 else f"{shown.rstrip('…')}…"


def error_text(errors: Mapping[str, str]) -> str:
    """Errors of a row in one text, as pages show it: those of an evaluator with its name, the system's own without."""
    return "; ".join(error if source == "system" else f"{source}: {error}" for source, error in errors.items())


def fold_at(text: str, most: int) -> int:
    """Characters of a text that are seen before it is opened: all of it where little more than `most` are there, else
    up to the last line end before `most`, or the last blank where no line ends near it.
    """
    if len(text) <= 1.25 * most:
        return len(text)
    near = most - most // 4
    at = text.rfind("\n", near, most)
    at = at if at >= 0 else text.rfind(" ", near, most)
    return at + 1 if at >= 0 else most


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def _line(text: str) -> str:
    if text.isprintable() and (text.isascii() or not (BLANK.search(text) or _has_marks(text))):
        return text
    shown, marks = [], 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in MARKS else 0
        if character == "\t":
            shown.append("    ")
        elif category in _HIDDEN_CATEGORIES or marks > MOST_MARKS or BLANK.match(character):
            shown.append(_escape(character))
        else:
            shown.append(" " if category == "Zs" else character)
    return "".join(shown)


def _has_marks(text: str) -> bool:
    return any(unicodedata.combining(character) for character in text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_MARKDOWN = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_BLOCK_START = re.compile(r"^(?=(?:#{1,6}|[+-]|[-=]{2,})(?:\s|$))|^(\d+)(?=[.)](?:\s|$))")


def markdown(text: object, limit: int = NAME_LIMIT) -> str:
    """`text` for one line of Markdown: no markup, HTML, table cell or list can come out of it."""
    escaped = _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), visible(text, limit).strip())
    return _BLOCK_START.sub(lambda found: f"{found[1] or ''}\\", escaped)


_FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")


def csv_cell(text: object) -> str:
    """`text` for a CSV cell: what a spreadsheet would run as a formula gets a leading apostrophe.

    Reversible: take one apostrophe away from every cell that matches `'+` followed by one of `= + - @`, tab or CR
    (their full-width forms included). NUL and lone surrogates, which no reader takes, become U+FFFD.
    """
    shown = str(text)
    if shown.isascii() and shown[:1].isalnum() and "\0" not in shown:  # nearly all cells, told in a tenth of the time
        return shown
    shown = unicode_safe(shown).replace("\0", "\ufffd")
    return f"'{shown}" if _FORMULA.match(shown) else shown


def unicode_safe(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


HIDDEN = "(hidden)"


def json_ready(value: Any) -> Any:
    """`value` as something strict JSON can hold: what was not measured is left out of mappings (and is null in lists).

    A second fence behind whoever wrote the manifest: values under names such as `api_key` are replaced by "(hidden)",
    passwords in URLs are cut out.
    """
    kind = type(value)
    if kind is str:
        return _without_password(unicode_safe(value))
    if kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is list or kind is tuple:
        return [json_ready(item) for item in value]
    return _mapping_ready(value) if isinstance(value, Mapping) else _other(value)


def json_line(value: Any) -> str:
    """`json_ready` of it as JSON on one line, as `json.dumps` writes it."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is list:
        return f"[{', '.join([json_line(item) for item in value])}]"
    names = _names(*value) if kind is dict and _are_short(value) else None
    if names is None:
        return _encode(json_ready(value))
    told = []
    for name, item in zip(names, value.values(), strict=True):
        kind = type(item)
        if kind is int or (kind is float and math.isfinite(item)):  # most of what a row holds
            told.append(f"{name}{item!r}")
        elif kind is str:
            told.append(name + _quoted(item))
        elif item is not None and (text := json_line(item)) != "null":
            told.append(name + text)
    return f"{{{', '.join(told)}}}"


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
#: Names of a mapping, and characters of each, that are remembered: those of others can be of any length.
_REMEMBERED = 100


def _are_short(names: Mapping[Any, Any]) -> bool:
    return len(names) <= _REMEMBERED and all(type(name) is str and len(name) <= _REMEMBERED for name in names)


@lru_cache(maxsize=256)
def _names(*names: str) -> list[str] | None:
    """The beginnings of the entries of a mapping with these keys; `None` if one is no ASCII or names a secret."""
    if not all(name.isascii() and not surely_names_a_secret(name) for name in names):
        return None
    return [f"{_encode(name)}: " for name in names]


def _quoted(text: str) -> str:
    """A text as JSON; `orjson` knows halves of characters."""
    try:
        return orjson.dumps(_without_password(text) if "://" in text else text).decode()
    except TypeError:
        return _quoted(unicode_safe(text))


def _mapping_ready(values: Mapping[Any, Any]) -> dict[str, Any]:
    ready: dict[str, Any] = {}
    for key, item in values.items():
        name = key if type(key) is str and key.isascii() else unicode_safe(str(key))
        kind = type(item)
        if kind is int or (kind is float and math.isfinite(item)):  # most of what a row holds
            ready[name] = item
            continue
        if kind is str and item.isascii() and "://" not in item and not surely_names_a_secret(name):  # and the rest
            ready[name] = item
            continue
        value = HIDDEN if kind is str and item and surely_names_a_secret(name) else json_ready(item)
        if value is not None:
            ready[name] = value
    return ready


def _other(value: Any) -> Any:
    """Everything that is no plain JSON type: records, sets, numbers of NumPy, subclasses; the rest as its text."""
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return json_ready({name: getattr(value, name) for name in value.__dataclass_fields__})
    if isinstance(value, set | frozenset):
        return sorted((json_ready(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return json_ready(float(value))
    return json_ready(str(value))


def _without_password(text: str) -> str:
    if "://" not in text or "@" not in text or any(space in text for space in " \n\t"):
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else text


def script_json(text: str) -> str:
    """JSON text for a `<script type="application/json">` block: nothing in it can end the block or start markup."""
    for character, escape in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(character, escape)
    return text


def command_on(command: str, names: Sequence[str], options: str = "") -> str:
    """A command, as it can be copied, on what others have named: before a name with a leading dash stands `--`, behind
    the options.
    """
    words = " ".join(map(quoted, names))
    dashed = any(name.startswith("-") for name in names)
    return f"{command}{options} -- {words}" if dashed else f"{command} {words}{options}"


def option(name: str, value: str) -> str:
    """An option of such a command with the value that others have given, behind a space."""
    return f" {name}{'=' if value.startswith('-') else ' '}{quoted(value)}"


def command_text(command: str) -> str:
    """A command as it stands on a page or a terminal: harmless, and never cut, since it is there to be copied."""
    return visible(command, len(command))


def plural(number: int, what: str) -> str:
    """The word for so many of `what`."""
    return what if number == 1 else f"{what}s"
