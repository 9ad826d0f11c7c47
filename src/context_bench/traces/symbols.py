"""The definitions of a source file by its syntax tree, and the files of a repository as scoring asks about them.

Needs the extra `traces` (tree-sitter and one grammar wheel per language); without it `CodeFiles.definitions` says
`None` and the symbol level is unknown, never full.

Profiles: `contextbench-v1` counts the kinds of nodes the original counts, mentions of a C struct included;
`definitions` is the same where a C or C++ type counts only with its body; `full` adds the kinds the original leaves out
(enums, type aliases, arrow functions with a name …).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from context_bench.core.lazy import version_of
from context_bench.core.ledger import LineTable
from context_bench.shell.repo import Repo
from context_bench.traces.coverage import Definition, Definitions

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query

PROFILES = ("definitions", "contextbench-v1", "full")
#: Files above this size are not parsed: generated code, and hostile input.
SIZE_LIMIT = 8 * 1024 * 1024
_BY_ENDING = {
    ".py": "python",
    ".js": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".tsx": "tsx",
    ".java": "java",
    ".go": "go",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".hpp": "cpp",
    ".cs": "c_sharp",
    ".php": "php",
    ".rb": "ruby",
    ".swift": "swift",
    ".kt": "kotlin",
    ".scala": "scala",
}
_MORE_ENDINGS = {  # profile `full` only
    ".pyi": "python",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".cxx": "cpp",
    ".hh": "cpp",
    ".hxx": "cpp",
    ".kts": "kotlin",
    ".sh": "bash",
    ".bash": "bash",
}
_TYPESCRIPT = ("function_declaration", "class_declaration", "method_definition", "interface_declaration")
_TYPESCRIPT_MORE = (
    "abstract_class_declaration",
    "type_alias_declaration",
    "enum_declaration",
    "arrow_function",
    "function_expression",
)
#: Kinds of nodes the original counts.
_KINDS: dict[str, tuple[str, ...]] = {
    "bash": ("function_definition",),
    "python": ("function_definition", "class_definition"),
    "javascript": ("function_declaration", "class_declaration", "method_definition", "arrow_function"),
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "java": ("method_declaration", "class_declaration", "interface_declaration", "constructor_declaration"),
    "go": ("function_declaration", "method_declaration", "type_declaration"),
    "rust": ("function_item", "impl_item", "struct_item", "trait_item"),
    "c": ("function_definition", "struct_specifier"),
    "cpp": ("function_definition", "class_specifier", "struct_specifier"),
    "c_sharp": ("method_declaration", "class_declaration", "interface_declaration"),
    "php": ("function_definition", "method_declaration", "class_declaration"),
    "ruby": ("method", "class", "module"),
    "swift": ("function_declaration", "class_declaration", "protocol_declaration"),
    "kotlin": ("function_declaration", "class_declaration"),
    "scala": ("function_definition", "class_definition", "trait_definition"),
}
_MORE_KINDS: dict[str, tuple[str, ...]] = {
    "javascript": ("function_expression", "generator_function_declaration"),
    "typescript": _TYPESCRIPT_MORE,
    "tsx": _TYPESCRIPT_MORE,
    "java": ("enum_declaration", "record_declaration", "annotation_type_declaration"),
    "rust": ("enum_item", "union_item", "macro_definition", "mod_item", "type_item"),
    "c": ("enum_specifier", "union_specifier", "type_definition"),
    "cpp": ("enum_specifier", "union_specifier", "type_definition", "namespace_definition"),
    "c_sharp": (
        "constructor_declaration",
        "property_declaration",
        "struct_declaration",
        "enum_declaration",
        "record_declaration",
    ),
    "php": ("interface_declaration", "trait_declaration", "enum_declaration"),
    "ruby": ("singleton_method",),
    "kotlin": ("object_declaration",),
    "scala": ("object_definition", "enum_definition"),
}
_NEEDS_BODY = {"struct_specifier", "class_specifier", "enum_specifier", "union_specifier"}
_WHEELS = {
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "php": ("tree_sitter_php", "language_php"),
}
_RANKS = {"identifier": 0, "field_identifier": 1, "property_identifier": 2, "method_identifier": 3}
_NAME_KINDS = {
    *_RANKS,
    "type_identifier",
    "scoped_identifier",
    "namespace_identifier",
    "constant_identifier",
    "simple_identifier",
    "name",
}


def available() -> bool:
    """True if the extra `traces` is installed."""
    return _language("python") is not None


def grammar_versions() -> dict[str, str]:
    """Versions of the parsers installed: part of every report, and of the cache's key."""
    names = ("tree-sitter", *sorted({_wheel(language)[0].replace("_", "-") for language in _KINDS}))
    return {name: found for name in names if (found := version_of(name)) is not None}


def language_of(path: str, profile: str = "definitions") -> str | None:
    """The grammar a file is read with, by the ending of its name; `None` if it has none."""
    ending = os.path.splitext(path.lower())[1]  # noqa: PTH122 - the path is one of a repository, not of this machine
    return _BY_ENDING.get(ending) or (_MORE_ENDINGS.get(ending) if profile == "full" else None)


def definitions(data: bytes, path: str, profile: str = "definitions", *, names: bool = True) -> list[Definition] | None:
    """The definitions in a file's bytes, in the order of the file; `None` if its grammar is not installed, nothing if
    it has none.

    `names=False` leaves their names out, which is much of the time.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}, expected one of {', '.join(PROFILES)}")
    name = language_of(path, profile)
    if name is None or len(data) > SIZE_LIMIT:
        return []
    tools = _tools(name, profile)
    if tools is None:
        return None
    from tree_sitter import Parser, QueryCursor

    language, query = tools
    found: list[tuple[int, int, str, tuple[str, ...]]] = []
    for kind, nodes in QueryCursor(query).captures(Parser(language).parse(data).root_node).items():
        kept = [node for node in nodes if _counts(node, kind, profile)] if _is_choosy(kind, profile) else nodes
        if names:
            found += [(node.start_byte, -node.end_byte, kind, _called(node, data, profile)) for node in kept]
        else:
            found += [(node.start_byte, -node.end_byte, kind, ()) for node in kept]
    found.sort()
    return [_new(Definition, (kind, called, start, -end)) for start, end, kind, called in found]


_new = tuple.__new__  # for definitions by the thousand: half the time of `Definition(…)`


def _called(node: Node, data: bytes, profile: str) -> tuple[str, ...]:
    names = (_first_identifier(node, data),) if profile == "contextbench-v1" else _names(node, data)
    return tuple(name for name in names if name)


def _is_choosy(kind: str, profile: str) -> bool:
    """True if not every node of a kind counts."""
    if profile != "contextbench-v1" and kind in _NEEDS_BODY:
        return True
    return profile == "full" and kind in ("arrow_function", "function_expression")


def _counts(node: Node, kind: str, profile: str) -> bool:
    """True if a node of a choosy kind counts."""
    return node.child_by_field_name("body") is not None if kind in _NEEDS_BODY else bool(_declared(node))


def _declared(node: Node) -> Node | None:
    """The name an unnamed function is given by what it is assigned to."""
    parent = node.parent
    if parent is None or parent.type not in (
        "variable_declarator",
        "public_field_definition",
        "pair",
        "assignment_expression",
    ):
        return None
    return parent.child_by_field_name("name") or parent.child_by_field_name("key") or parent.child_by_field_name("left")


def _names(node: Node, data: bytes) -> tuple[str, ...]:
    """Names of a definition: a group of Go types has several, a Rust `impl` that of its type, a typedef its last."""
    if node.type == "type_declaration":
        return tuple(_text(name, data) for child in node.named_children if (name := child.child_by_field_name("name")))
    if node.type == "impl_item":
        kind = node.child_by_field_name("type")
        return (_text(kind, data).split("<", 1)[0],) if kind else ()
    if node.type in ("arrow_function", "function_expression") and (given := _declared(node)):
        return (_text(given, data),)
    if name := node.child_by_field_name("name"):
        return (_text(name, data),)
    if node.type == "arrow_function":
        return ()
    return (_first_identifier(node, data),)


def _first_identifier(node: Node, data: bytes) -> str:
    """The original's name of a node: its name field, else the first plain identifier in its declarator or anywhere in
    it.
    """
    if name := node.child_by_field_name("name"):
        return _text(name, data)
    best, rank = "", 1000
    stack = [node.child_by_field_name("declarator") or node]
    while stack:
        one = stack.pop()
        if one.type in _NAME_KINDS and _RANKS.get(one.type, 100) < rank:
            best, rank = _text(one, data), _RANKS.get(one.type, 100)
            if rank == 0:
                break
        stack.extend(reversed(one.children))
    return best


def _text(node: Node, data: bytes) -> str:
    return data[node.start_byte : node.end_byte].decode("utf-8", "replace").strip()


def _wheel(name: str) -> tuple[str, str]:
    return _WHEELS.get(name, (f"tree_sitter_{name}", "language"))


@cache
def _language(name: str) -> Language | None:
    try:
        from tree_sitter import Language

        module, function = _wheel(name)
        make: Callable[[], Any] = getattr(importlib.import_module(module), function)
        return Language(make())
    except (ImportError, ValueError):  # ValueError: a grammar of another generation than the library
        return None


@cache
def _tools(name: str, profile: str) -> tuple[Language, Query] | None:
    language = _language(name)
    if language is None:
        return None
    from tree_sitter import Query

    kinds = [*_KINDS[name], *(_MORE_KINDS.get(name, ()) if profile == "full" else ())]
    known = [kind for kind in dict.fromkeys(kinds) if language.id_for_node_kind(kind, True) is not None]
    return language, Query(language, " ".join(f"({kind}) @{kind}" for kind in known))


class CodeFiles:
    """A repository as `traces.coverage.score` asks about it: every file is read, tabled and parsed once, however many
    steps touch it.

    With a `cache` folder the definitions are kept across runs, under the content of the file and the versions of the
    grammars.
    """

    def __init__(self, repo: Repo, cache: Path | None = None) -> None:
        self._repo = repo
        self._cache = cache
        self._tables: dict[str, LineTable | None] = {}
        self._found: dict[tuple[str, str], Definitions | None] = {}

    @property
    def repo(self) -> Repo:
        """The repository itself."""
        return self._repo

    def paths(self) -> Collection[str]:
        """All files of the repository."""
        return self._repo.paths()

    def table(self, path: str) -> LineTable | None:
        """Offsets at which the lines of a file begin; `None` if there is no such file."""
        if path not in self._tables:
            data = self._repo.blob(path)
            self._tables[path] = None if data is None else LineTable.of(data)
        return self._tables[path]

    def definitions(self, path: str, profile: str) -> Definitions | None:
        """The definitions of a file that count under a profile; `None` if no grammar is installed."""
        key = (path, profile)
        if key not in self._found:
            found = self._look(path, profile, names=False)
            self._found[key] = None if found is None else Definitions(found, lambda: self._look(path, profile) or ())
        return self._found[key]

    def _look(self, path: str, profile: str, *, names: bool = True) -> Sequence[Definition] | None:
        """The definitions that count; `names=False`: where they are is enough. What is kept across runs has its
        names.
        """
        name = language_of(path, profile)
        if name is None or not (data := self._repo.blob(path)):
            return () if available() else None
        place = self._place(data, path, profile)
        found = _load(place) if place else None
        if found is None:
            found = definitions(data, path, profile, names=names or place is not None)
            if found is not None and place:
                _keep(place, found)
        return found

    def _place(self, data: bytes, path: str, profile: str) -> Path | None:
        if self._cache is None:
            return None
        name = language_of(path, profile) or ""
        versions = grammar_versions()
        wheel = _wheel(name)[0].replace("_", "-")
        code = hashlib.sha256(data).hexdigest()
        return (
            self._cache / code[:2] / f"{code}-{name}-{profile}-{versions.get('tree-sitter')}-{versions.get(wheel)}.json"
        )


def _load(place: Path) -> list[Definition] | None:
    try:
        return [
            Definition(kind, tuple(names), start, end) for kind, names, start, end in orjson.loads(place.read_bytes())
        ]
    except (OSError, ValueError, TypeError):
        return None


def _keep(place: Path, found: Sequence[Definition]) -> None:
    """A cache that cannot be written costs time, nothing else."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(orjson.dumps([list(one) for one in found]))
        Path(file.name).replace(place)
    except OSError:
        return
