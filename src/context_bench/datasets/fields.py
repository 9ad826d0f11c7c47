r"""The field language: how a raw row of a dataset becomes a value of an example.

| form | gives |
|---|---|
| `"a.b.0"` | the value at that path; `None` where there is none |
| `"{question}\n\n{choices:letters}"` | a template; `:letters` renders a list as `A) one  B) two` (at most ten) |
| `["a", "b"]` | a list of values |
| `{ const = 3 }` | 3 |
| `{ pick = "options", at = "label", base = 1 }` | that item of a list or text; counted from `base` (0); a letter is a position too |
| `{ column = "text", of = "paragraphs" }` | the `text` of each item of a list |
| `{ all = ["answer", "aliases"] }` | one list of all values, lists run together; nulls, empty texts and repeats left out |
| `{ before = "\nQuery:", of = "input" }` | trimmed text before the last such mark; all of it if there is none |
| `{ after = "####", of = "answer" }` | trimmed text after the last such mark; `None` if there is none |
| `{ before_first = …, of = … }`, `{ after_first = …, of = … }` | the same, cut at the first such mark |
| `{ join = "\n", each = ["titles", "texts"], sep = ": " }` | parallel lists, item beside item |

In a join, `sep` stands inside a pair and `join` between pairs; an inner list is run together first. Wherever a form
needs a value (`pick`, `at`, `of`, `each` …) any form may stand. There are no expressions and no conditions.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Form = Callable[[Row], Any]

_SLOT = re.compile(r"\{([^{}:]+)(?::(\w+))?\}")
_PATH = re.compile(r"[^.{}]+(?:\.[^.{}]+)*")
_LETTERS = "ABCDEFGHIJ"


class FieldFault(ValueError):
    """A field's definition that cannot be understood; the message says where and why."""


def compile_field(definition: Any, where: str) -> Form:
    """A function row → value for one definition. Raises `FieldFault`, naming `where` it stands."""
    if isinstance(definition, str):
        return _template(definition, where) if "{" in definition else _path(definition, where)
    if isinstance(definition, list):
        return _list([compile_field(d, f"{where}[{i}]") for i, d in enumerate(definition)])
    if isinstance(definition, Mapping):
        return _table(definition, where)
    raise FieldFault(
        f"{where}: {definition!r} is neither a path, a template, a list nor a table; a fixed value is {{ const = … }}"
    )


def _table(definition: Mapping[str, Any], where: str) -> Form:
    for keys, make in _FORMS:
        required = {k for k in keys if not k.endswith("?")}
        if required <= set(definition) <= {k.rstrip("?") for k in keys}:
            return make(definition, where)
    known = " | ".join(" ".join(keys) for keys, _ in _FORMS)
    raise FieldFault(f"{where}: keys {sorted(definition)} make no form; expected one of: {known}")


def _path(text: str, where: str) -> Form:
    if not _PATH.fullmatch(text):
        raise FieldFault(f"{where}: {text!r} is not a path such as a.b.0")
    steps = text.split(".")
    return lambda row: _walk(row, steps)


def _walk(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif _is_list(value) and re.fullmatch(r"-?\d+", step):
            value = value[int(step)] if -len(value) <= int(step) < len(value) else None
        else:
            return None
    return value


def _template(text: str, where: str) -> Form:
    slots = [(path, spec, _path(path, where)) for path, spec in _SLOT.findall(text)]
    if not slots or "{" in _SLOT.sub("", text):
        raise FieldFault(f"{where}: {text!r} has a brace that is not part of a {{path}}")
    if wrong := [spec for _, spec, _ in slots if spec not in ("", "letters")]:
        raise FieldFault(f"{where}: {wrong[0]!r} is not a way to render a value; the only one is :letters")
    pieces = _SLOT.split(text)

    def render(row: Row) -> str:
        parts = [pieces[0]]
        for i, (_, spec, get) in enumerate(slots):
            parts += [lettered(get(row)) if spec else _text(get(row)), pieces[3 * i + 3]]
        return "".join(parts)

    return render


def lettered(choices: Any) -> str:
    """`A) one  B) two`: at most ten choices, two spaces between."""
    items = choices if _is_list(choices) else []
    return "  ".join(f"{letter}) {_text(item)}" for letter, item in zip(_LETTERS, items, strict=False))


def _list(forms: list[Form]) -> Form:
    return lambda row: [form(row) for form in forms]


def _const(definition: Mapping[str, Any], _: str) -> Form:
    value = definition["const"]
    return lambda row: value


def _pick(definition: Mapping[str, Any], where: str) -> Form:
    options, at = compile_field(definition["pick"], f"{where}.pick"), compile_field(definition["at"], f"{where}.at")
    base = definition.get("base", 0)
    if not isinstance(base, int):
        raise FieldFault(f"{where}.base: {base!r} is not a whole number")

    def pick(row: Row) -> Any:
        items, position = options(row), _position(at(row), base)
        if position is None or not isinstance(items, Sequence) or not 0 <= position < len(items):
            return None
        return items[position]

    return pick


def _position(value: Any, base: int) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if text.upper() in set(_LETTERS):
            return _LETTERS.index(text.upper())
        return int(text) - base if re.fullmatch(r"-?\d{1,9}", text) else None
    return int(value) - base if isinstance(value, int) else None


def _column(definition: Mapping[str, Any], where: str) -> Form:
    rows, step = compile_field(definition["of"], f"{where}.of"), _path(definition["column"], f"{where}.column")
    return lambda row: [step(item) for item in _items(rows(row))]


def _all(definition: Mapping[str, Any], where: str) -> Form:
    each = definition["all"]
    forms = [compile_field(d, f"{where}.all[{i}]") for i, d in enumerate(each if isinstance(each, list) else [each])]

    def gathered(row: Row) -> list[Any]:
        found: list[Any] = []
        for value in (form(row) for form in forms):
            for item in value if _is_list(value) else [value]:
                if item not in (None, "", *found):
                    found.append(item)
        return found

    return gathered


def _before(definition: Mapping[str, Any], where: str) -> Form:
    return _split(definition, where, "before", lambda text, mark: text.rpartition(mark)[0] if mark in text else text)


def _after(definition: Mapping[str, Any], where: str) -> Form:
    return _split(definition, where, "after", lambda text, mark: text.rpartition(mark)[2] if mark in text else None)


def _before_first(definition: Mapping[str, Any], where: str) -> Form:
    return _split(definition, where, "before_first", lambda text, mark: text.partition(mark)[0])


def _after_first(definition: Mapping[str, Any], where: str) -> Form:
    return _split(
        definition, where, "after_first", lambda text, mark: text.partition(mark)[2] if mark in text else None
    )


def _split(definition: Mapping[str, Any], where: str, key: str, cut: Callable[[str, str], str | None]) -> Form:
    mark, source = definition[key], compile_field(definition["of"], f"{where}.of")
    if not isinstance(mark, str) or not mark:
        raise FieldFault(f"{where}.{key}: {mark!r} is not a piece of text")

    def split(row: Row) -> str | None:
        text = source(row)
        part = cut(text, mark) if isinstance(text, str) else None
        return None if part is None else part.strip()

    return split


def _join(definition: Mapping[str, Any], where: str) -> Form:
    each = definition["each"]
    columns = [compile_field(d, f"{where}.each[{i}]") for i, d in enumerate(each if isinstance(each, list) else [each])]
    join, sep = definition["join"], definition.get("sep", "")
    if not isinstance(join, str) or not isinstance(sep, str):
        raise FieldFault(f"{where}: join and sep are texts")

    def joined(row: Row) -> str:
        return join.join(
            sep.join(_run(cell) for cell in cells) for cells in zip(*(_items(c(row)) for c in columns), strict=False)
        )

    return joined


def _run(value: Any) -> str:
    return "".join(_text(item) for item in value) if _is_list(value) else _text(value)


def _items(value: Any) -> Sequence[Any]:
    return value if _is_list(value) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any], str], Form]], ...] = (
    (("const",), _const),
    (("pick", "at", "base?"), _pick),
    (("column", "of"), _column),
    (("all",), _all),
    (("before", "of"), _before),
    (("after", "of"), _after),
    (("before_first", "of"), _before_first),
    (("after_first", "of"), _after_first),
    (("join", "each", "sep?"), _join),
)
