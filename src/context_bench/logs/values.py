"""Values as logs write them: counts, moments, texts, objects; what is none is `None`, or empty."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from context_bench.core.jsontext import load_json


def count(value: Any) -> int | None:
    """A count of tokens, or `None` for what is none."""
    return value if type(value) is int and value >= 0 else None


def seconds(stamp: Any) -> float | None:
    """A moment in seconds since the epoch: ISO 8601 text, seconds or milliseconds."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 < stamp < 1e15:
        return stamp / 1000 if stamp > 1e11 else float(stamp)
    if isinstance(stamp, str):
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return None


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


def whole(value: Any) -> int | None:
    """A whole number, or `None`; a text of digits is one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else None
    if isinstance(value, str):
        return int(value) if value.removeprefix("-").isascii() and value.removeprefix("-").isdigit() and len(value) < 16 else None
    return value if isinstance(value, int) and abs(value) < 2**53 else None


def money(value: Any) -> float | None:
    """US dollars, or `None` for what is no amount."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else None
