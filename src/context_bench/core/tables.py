"""TOML and YAML from outside, within bounds: a small file is read in moments and becomes nothing large, deep or endless."""

from __future__ import annotations

import importlib
import re
from typing import Any, ClassVar

#: Parts of one dotted key. tomllib takes time that grows with their square.
_MOST_PARTS = 100
#: Values that a YAML text may stand for, aliases written out; characters of one.
_MOST_VALUES, _LONGEST_YAML = 100_000, 2**20
_DEEPEST = 100
# A text that is not closed goes on to its end all the same: to try it again from the next quote would take the square of the length.
_TEXTS = re.compile(r'''"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'?|#[^\n]*''', re.DOTALL)
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
            names = [(key.tag, key.value) for key, _ in node.value if isinstance(key.value, str) and not key.tag.endswith(":merge")]
            twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
            if twice is not None:
                raise yaml.constructor.ConstructorError(None, None, f"the key {twice[1][:40]!r} comes twice", node.start_mark)
            return super().construct_mapping(node, deep)

    return Loader


def _size(node: Any, known: dict[int, int]) -> int:
    """How many values a node stands for, each alias counted as what it is an alias of."""
    if id(node) in known:
        if not known[id(node)]:
            raise ValueError("an alias of what it is part of")
        return known[id(node)]
    known[id(node)] = 0
    inner = node.value if isinstance(node.value, list) else ()
    parts = [part for each in inner for part in (each if isinstance(each, tuple) else (each,))]
    known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]
