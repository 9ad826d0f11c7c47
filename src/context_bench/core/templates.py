"""Things told in a file: reading it, filling templates, finding things in a reply by path. What programs, HTTP and MCP have in common.

A path is keys joined by dots, numbers count from 0, "" is the whole document. A template is text, or JSON with texts in it; `{name}` in it
is a placeholder. A text that is one placeholder and nothing else becomes the value itself (a number stays one); where there is no value the
key is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, MissingExtra
from context_bench.core.tables import load_toml, load_yaml

_NAME = re.compile(r"\{([a-z_]+)\}")


def read_description(path: str | Path) -> dict[str, Any]:
    """The table in a TOML file, or in a YAML one if PyYAML is installed; `BadInput`, `MissingExtra`."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
        given = load_yaml(text) if path.suffix.lower() in (".yaml", ".yml") else load_toml(text)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ImportError:
        raise MissingExtra("a description in YAML (TOML needs nothing)", "memory") from None
    except ValueError as error:  # of TOML, of YAML, of UTF-8
        raise BadInput(f"{path} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise BadInput(f"{path}: expected a table that describes a memory, found {type(given).__name__}")
    return given


def at(document: Any, path: str | None) -> Any:
    """What stands at a dotted path; `None` where there is nothing, and for no path."""
    if path is None:
        return None
    for part in path.split(".") if path else ():
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document


def fill(template: Any, values: Mapping[str, Any], put: Callable[[str], str] = str) -> Any:
    """The template with its placeholders replaced, in one pass; `put` makes text of what stands inside a longer text."""
    if isinstance(template, str):
        whole = _NAME.fullmatch(template)
        if whole and whole[1] in values and put is str:
            return values[whole[1]]
        return _NAME.sub(lambda found: put(_text(values[found[1]])) if found[1] in values else found[0], template)
    if isinstance(template, Mapping):
        filled = {key: (fill(value, values, put), value) for key, value in template.items()}
        return {key: value for key, (value, before) in filled.items() if value is not None or before is None}
    if isinstance(template, list):
        return [value for value in (fill(one, values, put) for one in template) if value is not None]
    return template


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def names_in(template: Any) -> set[str]:
    """The placeholders in a template."""
    if isinstance(template, str):
        return set(_NAME.findall(template))
    inner = template.values() if isinstance(template, Mapping) else template if isinstance(template, list) else ()
    return {name for one in inner for name in names_in(one)}
