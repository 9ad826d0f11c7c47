"""The code somebody had to read for a task: what the reads of an agent are held against.

`init` is the region that had to be edited, `add` what had to be known for it. A gold is never silently empty: `gold_of_row` raises
`ValueError` where a row names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.jsontext import load_json
from context_bench.core.numbers import line

_CONTAINER = re.compile(r"/testbed/|/workspace/[^/]+/")
_BLOCK = re.compile(r"^\s*context\s*\d+\s*[:：]", re.MULTILINE | re.IGNORECASE)
_FIELD = re.compile(r"^\s*(file|lines?|start_line|end_line|content)\s*[:：][ \t]*(.*)$", re.IGNORECASE)
_LINES = re.compile(r"(\d+)\s*[-–,:]\s*(\d+)|(\d+)")
_INSTANCE = re.compile(r"^(?:instance_)?([A-Za-z0-9.-]+(?:_[A-Za-z0-9.-]+)*?)__([A-Za-z0-9_.-]+?)-(?:\d+|[0-9a-f]{40}(?:-v.*)?)$")


@dataclass(frozen=True, slots=True)
class GoldItem:
    """Lines `first` to `last` of a file, from 1, both included; `content` is their text where the data set gives it."""

    file: str
    first: int
    last: int
    content: str | None = None


@dataclass(slots=True)
class Gold:
    """What one task's reader had to read. `ids`: every id it is known by. `patch`: the reference solution."""

    instance_id: str
    init: list[GoldItem] = field(default_factory=list)
    add: list[GoldItem] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    repo: str | None = None
    commit: str | None = None
    patch: str | None = None
    language: str | None = None
    source: str | None = None

    @property
    def items(self) -> list[GoldItem]:
        """Everything: the region to edit, then what had to be known."""
        return [*self.init, *self.add]


def gold_of_row(row: Mapping[str, Any]) -> Gold:
    """The gold of one row of a published table, of JSONL or of an `annot.json`.

    Contexts are taken from `init_ctx` and `add_ctx`; from `gold_ctx` or `gold_context` (a list, JSON text of one, or blocks of text) only
    where both are empty. Raises `ValueError` where there is no id, no context, or a context that cannot be understood.
    """
    names = [str(row[key]) for key in ("inst_id", "instance_id", "original_inst_id") if row.get(key)]
    if not names:
        raise ValueError("a gold row names no instance: expected inst_id, instance_id or original_inst_id")
    init, add = _items(row.get("init_ctx")), _items(row.get("add_ctx"))
    if not init and not add:
        init = _items(row.get("gold_ctx")) or _items(row.get("gold_context"))
    if not init and not add:
        raise ValueError(f"gold of {names[0]} is empty: no context in init_ctx, add_ctx, gold_ctx or gold_context")
    return Gold(
        names[0],
        init,
        add,
        tuple(dict.fromkeys(names)),
        repo_of_row(row),
        _text(row.get("commit") or row.get("base_commit")),
        _text(row.get("patch")),
        _text(row.get("language")),
        _text(row.get("source")),
    )


def repo_of_row(row: Mapping[str, Any]) -> str | None:
    """`owner/name` of a row, from its repository, its address or its id; `name` alone where none names the owner, `None` without any."""
    named = [slug for key in ("repo", "repo_url") if (slug := _slug(_text(row.get(key)) or ""))]
    if whole := next((slug for slug in named if "/" in slug), None):
        return whole
    for key in ("original_inst_id", "instance_id", "inst_id"):
        match = _INSTANCE.match(str(row.get(key) or ""))
        if match and match[2].casefold() in [name.casefold() for name in named or [match[2]]]:
            return f"{match[1]}/{match[2]}"
    return named[0] if named else None


def _slug(address: str) -> str:
    """`owner/name` of an address or a folder's name."""
    slug = address.rstrip("/").removesuffix(".git")
    if slug.startswith("git@"):
        slug = slug.split("://", 1)[-1].split(":", 1)[-1]
    elif "://" in slug:
        slug = slug.split("://", 1)[1].split("/", 1)[-1]
    return slug if "/" in slug else slug.replace("__", "/", 1)


def clean_path(path: str) -> str:
    """A gold path relative to its repository: the folders of containers (`/testbed/`, `/workspace/<one>/`) and `./` are taken off."""
    match = _CONTAINER.match(path)
    path = path[match.end() :] if match else path
    while path.startswith(("./", "/")):
        path = path[1:] if path.startswith("/") else path[2:]
    return path


def upstream_path(path: str) -> str:
    """The same as the original evaluator does it: dots at the beginning are lost too (`.github/x` becomes `github/x`)."""
    path = path.replace("\\", "/")
    if path.startswith("/testbed/"):
        return path[len("/testbed/") :]
    if path.startswith("/workspace/"):
        first, _, rest = path[len("/workspace/") :].partition("/")
        return rest if "/" in path[len("/workspace/") :] else first
    return path.lstrip("/") if path.startswith("/") else path.lstrip("./")


def _items(value: Any) -> list[GoldItem]:
    if isinstance(value, str):
        if not value.strip():
            return []
        try:
            value = load_json(value)
        except ValueError:
            return list(_blocks(value))
    if isinstance(value, Mapping):
        value = [value]
    if value is None:
        return []
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ValueError(f"a context is {str(value)[:60]!r}, expected a list of {{file, start_line, end_line}}")
    return [_item(item) for item in value]


def _item(item: Any) -> GoldItem:
    try:
        content, first, last = item.get("content"), line(item["start_line"]), line(item["end_line"])
        if first is None or last is None:
            raise ValueError
        return GoldItem(str(item["file"]), first, last, None if content is None else str(content))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"a context is {str(item)[:120]!r}, expected {{file, start_line, end_line}}") from None


def _blocks(text: str) -> Iterable[GoldItem]:
    """Contexts told in blocks of text: `context0:`, then `file:`, `lines: a-b` (or `start_line:`, `end_line:`), then the lines."""
    parts = _BLOCK.split(text)[1:]
    if not parts:
        raise ValueError(f"a context is text that is neither JSON nor blocks: {text.strip()[:60]!r}")
    for part in parts:
        found: dict[str, str] = {}
        content: list[str] | None = None
        for row in part.splitlines():
            match = None if content is not None else _FIELD.match(row)
            if match and match[1].lower() == "content":
                content = [match[2]] if match[2] else []
            elif match:
                found[match[1].lower().rstrip("s") if match[1].lower() == "lines" else match[1].lower()] = match[2].strip()
            elif content is not None:
                content.append(row)
        first, last = _block_lines(found, content)
        if not found.get("file"):
            raise ValueError(f"a block of a context names no file: {part.strip()[:60]!r}")
        yield GoldItem(found["file"].strip("`'\""), first, last, "\n".join(content) if content else None)


def _block_lines(found: Mapping[str, str], content: list[str] | None) -> tuple[int, int]:
    if match := _LINES.search(found.get("line", "")):
        first, last = (line(match[1]), line(match[2])) if match[1] else (line(match[3]),) * 2
    else:
        first, last = line(found.get("start_line")), line(found.get("end_line"))
    if first is None or last is None:
        raise ValueError(f"a block of a context names no lines: file {found.get('file', '')!r}")
    return first, last


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
