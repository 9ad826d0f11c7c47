"""JSON as people's files and the wires have it: fast where it is plain, patient where it is odd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson


def load_json(data: str | bytes) -> Any:
    """JSON, lone surrogates included (which the fast reader refuses); `ValueError` if it is not JSON or nested too deeply."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None


#: Fields of a JSON Schema that hold values, and fields that hold schemas by names of somebody's own.
_VALUES = frozenset({"const", "default", "enum", "examples"})
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def without_nulls(value: Any) -> Any:
    """JSON without the fields that are null: to the APIs of models a field left out and a null one are the same.

    Null stays where it is a value of its own: in a list, in a schema's `const`, in what its `enum`, `default` and `examples` hold, and in
    the arguments that a model gave to a tool.
    """
    root = [value]
    left: list[tuple[Any, Any, Any, bool]] = [(root, 0, value, False)]
    while left:
        holder, place, held, names = left.pop()
        if isinstance(held, Mapping):
            made = holder[place] = {key: inner for key, inner in held.items() if inner is not None or (key == "const" and not names)}
            untouched = frozenset() if names else _VALUES | {"input"} if str(held.get("type")).endswith("tool_use") else _VALUES
            left += [(made, key, inner, not names and key in NAMED) for key, inner in made.items() if key not in untouched]
        elif isinstance(held, list):
            made_list = holder[place] = list(held)
            left += [(made_list, i, inner, False) for i, inner in enumerate(held)]
    return root[0]
