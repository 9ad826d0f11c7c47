"""Values as logs write them: texts, objects, lists; what is none is `None`, or empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.jsontext import load_json


def text(value: Any) -> str | None:
    """`value` if it is text with anything in it."""
    return value if isinstance(value, str) and value else None


def parsed(value: Any) -> Any:
    """Arguments as the model wrote them: JSON text becomes what it says, other text stays."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return load_json(value)
        except ValueError:
            return value
    return value


def texts(content: Any, depth: int = 0) -> str | None:
    """The text of a result: a text, or the text parts of a list of parts; `None` where there is none."""
    if isinstance(content, str):
        return content
    if depth > 4:
        return None
    if isinstance(content, Mapping):
        return texts(content.get("text", content.get("content")), depth + 1)
    if isinstance(content, list):
        found = [text for part in content if (text := texts(part, depth + 1)) is not None]
        return "\n".join(found) if found else None
    return None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
