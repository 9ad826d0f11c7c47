"""JSON in texts, written shorter without loss: without spaces (`minify`), and uniform tables as CSV or in TOON's form.

What a compressor takes out beyond these is what it earned. Numbers keep their spelling, and a text never looks like a
number, `true` or `null`, so that each form can be read back. A value that cannot be, such as an object with one key
twice, stays as it is.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

#: Name → what the rewriting does, for people.
REWRITINGS = {
    "minify": "JSON without spaces",
    "csv": "uniform tables as CSV",
    "toon": "uniform tables in TOON's form",
}

_OPENING = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_LINE_ENDS = re.compile(r"[ \t\r]*(?:\n|\Z)")
_STRING_OR_SPACE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[ \t\r\n]++', re.DOTALL)
_WASTED = 2  # times its length that may be read of a text in vain: lines may open more than they close


def rewritten(text: str, name: str) -> str:
    """`text` with every JSON object and list in it rewritten that stands on lines of its own and becomes shorter.

    `name`: one of `REWRITINGS`.
    """
    form = _FORMS[name]
    pieces: list[str] = []
    at = 0
    for begin, end, value in _values(text):
        made = form(text[begin:end], value)
        if made is not None and len(made) < end - begin:
            pieces += (text[at:begin], made)
            at = end
    return "".join([*pieces, text[at:]]) if pieces else text


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Number, parse_int=_Number, parse_constant=_no_json)


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Begin, end and value of each object and list that begins and ends at the ends of lines."""
    at, wasted = 0, 0
    while wasted <= _WASTED * len(text) and (opening := _OPENING.search(text, at)) is not None:
        begin = opening.end()
        try:
            value, end = _DECODER.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            wasted += max(1, error.pos - begin)
        except (ValueError, RecursionError):  # of a hook, or of nesting; neither says how far was read
            wasted += len(text) - begin
        else:
            if _LINE_ENDS.match(text, end):
                yield begin, end, value
                at = end
                continue
            wasted += end - begin
        at = text.find("\n", begin)
        if at < 0:
            return


def _minified(written: str, _: Any) -> str:
    return _STRING_OR_SPACE.sub(lambda found: found[0] if found[0][0] == '"' else "", written)


_Table = tuple[str, list[str], list[dict[str, Any]]]


def _uniform(value: Any) -> _Table | None:
    """Name, columns and rows of a list of objects with the same plain fields, alone or as an object's only field."""
    name = ""
    if isinstance(value, dict) and len(value) == 1:
        [(name, value)] = value.items()
        if not name:
            return None
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(row, dict) and row for row in value):
        return None
    columns = list(value[0])
    plain = (str, bool, type(None))
    same = all(list(row) == columns and all(isinstance(each, plain) for each in row.values()) for row in value)
    return (name, columns, value) if same else None


def _csv(_: str, value: Any) -> str | None:
    """A uniform list as CSV with a head; one that an object holds alone has its name in a line of its own."""
    found = _uniform(value)
    if found is None:
        return None
    name, columns, rows = found
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return _sendable(f"{_key(name)}:\n{text.getvalue()}".removeprefix(":\n").removesuffix("\n"))


def _toon(_: str, value: Any) -> str | None:
    """The same in TOON's form for tables: `name[rows]{columns}:`, then a line for each row (TOON specification)."""
    found = _uniform(value)
    if found is None:
        return None
    name, columns, rows = found
    texts = [name, *columns, *(each for row in rows for each in row.values() if isinstance(each, str))]
    if any(_UNWRITABLE.search(each) for each in texts):
        return None
    lines = [f"{_key(name)}[{len(rows)}]{{{','.join(map(_key, columns))}}}:"]
    lines += ["  " + ",".join(_toon_cell(row[column]) for column in columns) for row in rows]
    return _sendable("\n".join(lines))


_UNWRITABLE = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")  # TOON has escapes for line ends and tabs alone
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_PLAIN = re.compile(r"[^\s,:\"\\\[\]{}\-][^,:\"\\\[\]{}\n\r\t]*(?<!\s)")
_LIKE_OTHERS = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def _key(name: str) -> str:
    return name if not name or _KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _cell(value: Any) -> str:
    """A cell of CSV: a text that begins with a quotation mark, or could be taken for another value, is JSON."""
    if isinstance(value, _Number) or not isinstance(value, str):
        return _literal(value)
    return json.dumps(value, ensure_ascii=False) if value[:1] == '"' or _LIKE_OTHERS.fullmatch(value) else value


def _toon_cell(value: Any) -> str:
    if isinstance(value, _Number) or not isinstance(value, str):
        return _literal(value)
    plain = _PLAIN.fullmatch(value) and not _LIKE_OTHERS.fullmatch(value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, _Number) else json.dumps(value)


def _sendable(text: str) -> str | None:
    """`None` for half of a character, which JSON can spell and a text cannot be sent with."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


_FORMS: dict[str, Callable[[str, Any], str | None]] = {"minify": _minified, "csv": _csv, "toon": _toon}
