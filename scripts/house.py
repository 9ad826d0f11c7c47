"""Measure how the source is laid out: rooms, imports, modules, names, options, docstrings.

    python scripts/house.py [--list MEASURE] [--root src/context_bench]

Prints one line a measure. `--list` prints the places behind one: `up`, `across`, `asks`, `modules`, `classes`,
`options`, `questions`, `words`, `long`. Nothing is imported: every figure comes from the syntax trees.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "context_bench"
FAMILIES = ("memory", "compression", "traces", "traffic", "agents")
DOORS = ("cli", "testing", "__main__")
#: Modules in a family that play the same role under the same name in each.
ROLES = {
    "systems",
    "datasets",
    "evaluators",
    "metrics",
    "family",
    "figures",
    "sections",
    "command",
    "run",
    "app",
    "options",
    "__init__",
}
KEYS = {
    "replay",
    "agents",
    "compression",
    "memory",
    "traces",
    "watch",
}  # of a manifest, by which families are told apart
QUESTIONS = re.compile(r"^(what|how|whether|which|where|who|whose|whom|when|why)\b", re.IGNORECASE)
#: Coined words for which the field has a term (docs/glossary.md), as whole words of a name.
BANNED = frozenset(
    re.findall(
        r"\w+",
        "owing owed pen pens hand hands books bench house houses walls told said known scribe shelf witness "
        "surroundings "
        "circumstances material familiar unreadable gitting telling showing blur declining rowfacts tallies tallying "
        "tally gathering agenting remembering replaying judging watching room rooms sheet lane openwork saying moves "
        "ended gone hungup trouble haystack folders keyring collecting twin",
    )
)

#: Proper names that hold such a word: benchmarks, this program, and a role of the glossary.
PROPER = re.compile(r"(swe|mt|context)_?bench|known_bad", re.IGNORECASE)


@dataclass(frozen=True)
class Import:
    """One import of one module by another, wherever in the file it stands."""

    importer: str
    imported: str
    line: int


@dataclass
class Module:
    """A file of the package: its dotted name without the package's, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def family(self) -> str | None:
        """The family that a module belongs to, by its folder."""
        return self.room if self.room in FAMILIES else None


class House:
    """The modules of the package and what is counted of them."""

    def __init__(self, root: Path) -> None:
        self.modules = {module.name: module for module in _read(root)}

    @cached_property
    def imports(self) -> list[Import]:
        return [edge for module in self.modules.values() for edge in self._imports(module)]

    def _imports(self, module: Module) -> Iterator[Import]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                known = self._module_of(name)
                if known is not None and known != module.name:
                    yield Import(module.name, known, node.lineno)

    def _module_of(self, dotted: str) -> str | None:
        package, _, name = dotted.partition(".")
        while package == PACKAGE and name:
            if name in self.modules:
                return name
            name = name.rpartition(".")[0]
        return None

    def up(self) -> list[str]:
        """Imports from the platform up into a family."""
        return [
            f"{edge.importer}:{edge.line} -> {edge.imported}"
            for edge in self.imports
            if self._place(edge.importer) is None and self._place(edge.imported) is not None
        ]

    def across(self) -> list[str]:
        """Imports from one family to another."""
        pairs = ((edge, self._place(edge.importer), self._place(edge.imported)) for edge in self.imports)
        return [
            f"{edge.importer}:{edge.line} -> {edge.imported}"
            for edge, one, other in pairs
            if one is not None and other is not None and one != other and one not in DOORS
        ]

    def _place(self, name: str) -> str | None:
        """The family of a module; a door's own name, since doors may import all; `None` for the platform."""
        module = self.modules[name]
        return module.room if module.room in DOORS else module.family

    def rooms(self) -> dict[str, list[str]]:
        """The first folders over which each family is spread; doors apart."""
        found = defaultdict(set)
        for module in self.modules.values():
            if module.family is not None and module.room not in DOORS:
                found[module.family].add(module.room)
        return {family: sorted(found[family]) for family in FAMILIES}

    def asks(self) -> list[str]:
        """Places that look up or compare a family's manifest key outside that family."""
        found = []
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if (key := _asked(node)) in KEYS and module.family is None:
                    found.append(f"{module.name}:{getattr(node, 'lineno', 0)} {key}")
        return found

    def same_modules(self) -> list[str]:
        """Modules that share their name with another, the role names of the families apart."""
        by_name = defaultdict(list)
        for module in self.modules.values():
            if module.last not in ROLES and module.path.name != "__init__.py":
                by_name[module.last].append(module.name)
        return [name for names in by_name.values() if len(names) > 1 for name in names]

    def same_classes(self) -> list[str]:
        """Public classes that share their name with another."""
        by_name = defaultdict(list)
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    by_name[node.name].append(f"{module.name}.{node.name}")
        return [name for names in by_name.values() if len(names) > 1 for name in names]

    def options(self) -> list[str]:
        """Declarations of an option beyond its first."""
        by_name = defaultdict(list)
        for module in self.modules.values():
            for line, flag in _declared(module.tree):
                by_name[flag].append(f"{module.name}:{line} {flag}")
        return [place for places in by_name.values() for place in places[1:]]

    def docstrings(self) -> list[tuple[str, str]]:
        """(place, first line) of every docstring."""
        found = []
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        found.append((f"{module.name}:{getattr(node, 'lineno', 1)}", text.splitlines()[0]))
        return found

    def questions(self) -> list[str]:
        """Docstrings that begin with a question word."""
        return [f"{place} {first}" for place, first in self.docstrings() if QUESTIONS.match(first)]

    def words(self) -> list[str]:
        """Names of modules, classes, functions and fields that hold a coined word."""
        found = []
        for module in self.modules.values():
            names = [(module.last, 1)]
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    names.append((node.name, node.lineno))
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    names.append((node.target.id, node.lineno))
            found += [f"{module.name}:{line} {name}" for name, line in names if _parts(PROPER.sub("", name)) & BANNED]
        return found

    def long(self) -> list[str]:
        """Modules by length, the longest first."""
        ordered = sorted(self.modules.values(), key=lambda module: -module.lines)
        return [f"{module.lines:5} {module.name}" for module in ordered]

    def statements(self) -> int:
        """Statements of the syntax trees."""
        return sum(isinstance(node, ast.stmt) for module in self.modules.values() for node in ast.walk(module.tree))


def _read(root: Path) -> Iterator[Module]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"
        text = path.read_text("utf-8")
        yield Module(name, path, ast.parse(text), text.count("\n"))


def _asked(node: ast.AST) -> object:
    """The constant key that a comparison, `.get()` or subscript asks for."""
    if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        owner = ast.unparse(node.comparators[0])
        return node.left.value if isinstance(node.left, ast.Constant) and _of_a_run(owner) else None
    get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args
    if get and _of_a_run(ast.unparse(node.func.value)):
        return node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    if isinstance(node, ast.Subscript) and "manifest" in ast.unparse(node.value):
        return node.slice.value if isinstance(node.slice, ast.Constant) else None
    return None


def _of_a_run(owner: str) -> bool:
    """True for an expression that names the manifest of a run, or what a report was told of it."""
    return any(word in owner for word in ("manifest", "told", "about", "result"))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _declared(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, flag) of every option: `name: type = flag(...)` of the table, and `typer.Option(...)` on a parameter or
    beside one.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            found = [node.value] if _called(node.value) == "flag" else []
            name = node.target.id
        elif isinstance(node, ast.arg) and node.annotation is not None:
            found = [
                call for call in ast.walk(node.annotation) if isinstance(call, ast.Call) and _called(call) == "Option"
            ]
            name = node.arg
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found = [call for call in ast.walk(node.value) if isinstance(call, ast.Call) and _called(call) == "Option"]
            name = node.targets[0].id
        else:
            continue
        for call in found:
            yield from ((call.lineno, flag) for flag in _flags(call) or [f"--{name.replace('_', '-')}"])


def _flags(node: ast.Call) -> list[str]:
    """The long names that a declaration gives."""
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "names")]
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return [word for text in texts if text.startswith("-") for word in text.split() if word.startswith("--")]


def _parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def measures(house: House) -> list[tuple[str, str]]:
    """(measure, value), in the order in which they are printed."""
    rooms = house.rooms()
    questions, docstrings = len(house.questions()), len(house.docstrings())
    longest = max(house.modules.values(), key=lambda module: module.lines)
    files = [module for module in house.modules.values() if module.path.name != "__init__.py"]
    return [
        ("rooms that a family spans", ", ".join(f"{family} {len(found)}" for family, found in rooms.items())),
        ("imports from the platform up into a family", str(len(house.up()))),
        ("imports between families", str(len(house.across()))),
        ("places that ask which family it is", str(len(house.asks()))),
        ("modules (and with __init__)", f"{len(files)} ({len(house.modules)})"),
        ("statements", f"{house.statements():,}"),
        ("longest module", f"{longest.name}, {longest.lines} lines"),
        ("modules that share their name", str(len(house.same_modules()))),
        ("public classes that share their name", str(len(house.same_classes()))),
        ("options declared more than once", str(len(house.options()))),
        ("docstrings that open with a question word", f"{questions} of {docstrings} ({questions / docstrings:.1%})"),
        ("names that hold a coined word", str(len(house.words()))),
    ]


def main() -> None:
    """Print the table, or the places behind one measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    lists = {"up": "up", "across": "across", "asks": "asks", "modules": "same_modules", "classes": "same_classes"}
    lists |= {name: name for name in ("options", "questions", "words", "long")}
    parser.add_argument("--list", choices=lists, metavar="MEASURE", help=", ".join(lists))
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1] / "src" / PACKAGE)
    asked = parser.parse_args()
    house = House(asked.root)
    if asked.list:
        print("\n".join(getattr(house, lists[asked.list])()))
        return
    table = measures(house)
    width = max(len(name) for name, _ in table)
    print("\n".join(f"{name:{width}}  {value}" for name, value in table))


if __name__ == "__main__":
    main()
