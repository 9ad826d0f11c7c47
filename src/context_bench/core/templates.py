"""Descriptions in files: bounded TOML and YAML, templates, and values found in a reply by path.

Programs, HTTP and MCP share them. A path is keys joined by dots, numbers count from 0, "" is the whole document. A
template is text, or JSON with texts in it; `{name}` in it is a placeholder. A text that is one placeholder and nothing
else becomes the value itself (a number stays one); a key without a value is left out. A small file is read in moments
and becomes nothing large, deep or endless.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from context_bench.core.errors import BadInput, MissingExtra
from context_bench.core.machine import file_text

#: Parts of one dotted key. tomllib takes time that grows with their square.
_MOST_PARTS = 100
#: Values that a YAML text may stand for, aliases written out; characters of one.
_MOST_VALUES, _LONGEST_YAML = 100_000, 2**20
_DEEPEST = 100
# A text that is not closed goes on to its end all the same: to try it again from the next quote would take the square
# of the length.
_TEXTS = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'?|#[^\n]*''', re.DOTALL
)
_KEYS = re.compile(r"[^=,{}\[\]\n]+")


def load_toml(text: str) -> dict[str, Any]:
    """A TOML document; `ValueError` for what is none, is nested too deeply or holds a number of thousands of digits."""
    import tomllib  # not paid for by commands that read none

    if any(found[0].count(".") > _MOST_PARTS for found in _KEYS.finditer(_TEXTS.sub("s", text))):
        raise ValueError(f"a key of more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def load_yaml(text: str) -> Any:
    """A YAML document as JSON would have it: dates stay text, a key that comes twice and an alias of itself are faults.

    `ValueError` for what is none, is nested too deeply or stands for too much; `ImportError` without PyYAML.
    """
    yaml: Any = importlib.import_module("yaml")
    if len(text) > _LONGEST_YAML:
        raise ValueError(f"more than {_LONGEST_YAML:,} characters")
    try:
        loader = _loader(yaml)(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _MOST_VALUES:
            raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except TypeError:
        raise ValueError("a key that is no plain value") from None


def _loader(yaml: Any) -> Any:
    """PyYAML's safe loader, which makes nothing but plain values, a little stricter."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {
            first: [(tag, form) for tag, form in found if not tag.endswith(":timestamp")]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > _DEEPEST:
                raise ValueError("nested too deeply")
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [
                (key.tag, key.value)
                for key, _ in node.value
                if isinstance(key.value, str) and not key.tag.endswith(":merge")
            ]
            twice = (
                next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
            )
            if twice is not None:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {twice[1][:40]!r} comes twice", node.start_mark
                )
            return super().construct_mapping(node, deep)

    return Loader


def _size(node: Any, known: dict[int, int]) -> int:
    """Number of values that a node stands for, each alias counted as its target."""
    if id(node) in known:
        if not known[id(node)]:
            raise ValueError("an alias of what it is part of")
        return known[id(node)]
    known[id(node)] = 0
    inner = node.value if isinstance(node.value, list) else ()
    parts = [part for each in inner for part in (each if isinstance(each, tuple) else (each,))]
    known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


_NAME = re.compile(r"\{([a-z_]+)\}")


def read_description(path: str | Path) -> dict[str, Any]:
    """The table in a TOML file, or in a YAML one if PyYAML is installed; `BadInput`, `MissingExtra`."""
    path = Path(path)
    try:
        text = file_text(path)
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
    """The value at a dotted path; `None` without one, and for no path."""
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
    """The template with its placeholders replaced, in one pass; `put` makes text of what stands inside a longer
    text.
    """
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
