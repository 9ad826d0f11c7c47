"""Values of options: their types and how they are read, what the shell offers, and defaults of several commands.

What the shell offers (runs of the store, datasets, systems, report formats) opens no store as a run does, so a key
press is answered at once, and its errors are silent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from urllib.parse import quote

from context_bench.core.addresses import EXPECTED, fault_of
from context_bench.core.errors import BadInput
from context_bench.core.machine import expanded
from context_bench.core.numbers import MOST_PORT, MOST_SECONDS, number, whole

_MOST_RUNS = 200
Offered = Callable[[Any, list[str], str], list[str]]


def _offered(source: Callable[[Any], Iterable[str]], *, listed: bool = False) -> Offered:
    """Names of a source that begin as what was typed; nothing if it fails. `listed`: the last of several, separated by
    commas.
    """

    def offered(ctx: Any, args: list[str], incomplete: str) -> list[str]:
        head, comma, part = incomplete.rpartition(",") if listed else ("", "", incomplete)
        try:
            return [f"{head}{comma}{each}" for each in source(ctx) if str(each).startswith(part)]
        except Exception:
            return []

    return offered


def _named(*names: str) -> Offered:
    return _offered(lambda _: names)


def _runs(context: Any) -> list[str]:
    """Names of the store's runs, the newest first, and `last`."""
    import sqlite3

    params = context.params
    store = params.get("store") or (f"{params['cache_dir']}/store.db" if params.get("cache_dir") else DEFAULT_STORE)
    path = expanded(str(store).removeprefix("sqlite:///"))
    if not path.is_file():
        return []
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0.2)) as connection:
        names = connection.execute("SELECT name FROM runs ORDER BY number DESC LIMIT ?", (_MOST_RUNS,)).fetchall()
    return [*(str(name) for (name,) in names), "last"]


def _datasets(_: Any) -> list[str]:
    """Names of the catalogue, bundled ones and memory data; those of installed packages."""
    from context_bench.core.lazy import registry
    from context_bench.datasets import catalogue_names

    return sorted({*catalogue_names(), *registry.names("dataset")})


def _plugins(kind: str, place: str) -> Callable[[Any], Iterable[str]]:
    def named(_: Any) -> Iterable[str]:
        from importlib import import_module

        from context_bench.core.families import brought
        from context_bench.core.lazy import registry

        return sorted({*import_module(place).BUILTINS, *brought(kind), *registry.names(kind)})

    return named


def _systems(context: Any) -> list[str]:
    """Systems that `--system` takes by name: memories for `memory`, else controls and what packages offer."""
    from context_bench.core.families import brought, offered
    from context_bench.core.lazy import registry

    if "questions" in context.params:
        schemes = [f"{scheme}:" for scheme in offered("memory_schemes")]
        return sorted({*offered("memories"), *registry.names("memory")}) + schemes
    return sorted(
        {*offered("compressors"), *offered("adapted_compressors"), *brought("system"), *registry.names("system")}
    )


def _controls(_: Any) -> list[str]:
    """Names of control arms."""
    from context_bench.session.arms import BUDGETED_CONTROLS, PLAIN_CONTROLS

    return [*PLAIN_CONTROLS, *BUDGETED_CONTROLS]


def _formats(_: Any) -> list[str]:
    """Forms of a report."""
    from context_bench.core.lazy import registry
    from context_bench.reports.renderers import FORMATS

    return [*FORMATS, *registry.names("reporter")]


def _exports(context: Any) -> list[str]:
    """Forms of an export."""
    from context_bench.session import reporting

    return [*(each for each in _formats(context) if each != "table"), *reporting.formats()]


def _kinds(_: Any) -> list[str]:
    """Kinds of charts."""
    from context_bench.reports.charts import KINDS

    return list(KINDS)


def _shapes(_: Any) -> list[str]:
    """Shapes of requests."""
    from context_bench.llm.shapes import SHAPES

    return list(SHAPES)


runs, datasets, systems = _offered(_runs), _offered(_datasets), _offered(_systems)
formats, exports, kinds = _offered(_formats), _offered(_exports), _offered(_kinds)
controls, shapes = _offered(_controls, listed=True), _offered(_shapes, listed=True)
evaluators = _offered(_plugins("evaluator", "context_bench.evaluators"))
metrics = _offered(_plugins("metric", "context_bench.metrics"))
markers = _named("key", "header", "serial")
records = _named("meta", "hashes", "redacted", "full")
wires = _named("openai", "anthropic", "responses")
bodies = _named("all", "changed", "none")
upstreams = _named("embedded", "echo")


class ValueCheck(NamedTuple):
    """Changes to a value before or after its type is checked. `split`: one text that holds several values."""

    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None
    split: bool = False


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) or value is None else [value]


def _comma(value: Any) -> Any:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _url(value: str) -> str:
    if (fault := fault_of(value.strip())) is not None:
        raise ValueError(f"{fault}; expected {EXPECTED}")
    return value.strip()


def _url_or_name(value: str) -> str:
    return _url(value) if value.startswith(("http:", "https:")) or "://" in value else value


def _port_or_url(value: str) -> str:
    if value.isdigit() and not 0 <= (-1 if (found := whole(value)) is None else found) <= MOST_PORT:
        raise ValueError(
            f"no port: expected a number from 0 (any free one) to {MOST_PORT}, or the URL of a running tap"
        )
    return _url_or_name(value)


#: The largest whole number that a store takes (seeds are often that large), and the largest amount or time: what is
#: far longer overflows the clocks of libraries.
_MOST_WHOLE, _MOST_AMOUNT = 2**63 - 1, MOST_SECONDS
#: Numbers with bounds and a sentence of their own.
_PORTS = ("port", "front", "back", "shadow_back")


def too_far(name: str, value: Any) -> str | None:
    """Tell what would fit, where the option of that name is a number that no loop, clock, sum or store could hold."""
    if type(value) is int and abs(value) > _MOST_WHOLE and name not in _PORTS:
        return f"expected a whole number from {-_MOST_WHOLE} to {_MOST_WHOLE}"
    if type(value) is float and not abs(value) <= _MOST_AMOUNT:  # nor what is no number
        return f"expected a number from {-_MOST_AMOUNT:.0f} to {_MOST_AMOUNT:.0f}"
    return None


def _above_zero(value: Any) -> int | None:
    return found if (found := whole(value)) is not None and found >= 1 else None


def number_or_all(value: Any) -> Any:
    """A whole number above 0, or `all`; `ValueError` for anything else."""
    if value is None or value == "all":
        return value
    if (found := _above_zero(value)) is None:
        raise ValueError("expected a whole number above 0, or all")
    return found


def _numbers(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    given = [str(item).strip() for item in items if str(item).strip()]
    found = [_above_zero(item) for item in given]
    if None in found:
        raise ValueError("expected whole numbers above 0, such as 1,5,10")
    return sorted({each for each in found if each is not None})


#: A base URL, and what may be one or the name of something else.
Url = Annotated[str, ValueCheck(after=_url)]
UrlOrName = Annotated[str, ValueCheck(after=_url_or_name)]
PortOrUrl = Annotated[str, ValueCheck(after=_port_or_url)]
#: Values of a flag that can be repeated, and of one that separates them by commas.
Urls = Annotated[list[Url], ValueCheck(before=_listed)]
Many = Annotated[list[str], ValueCheck(before=_listed)]
Comma = Annotated[list[str], ValueCheck(before=_comma, split=True)]
Numbers = Annotated[list[int], ValueCheck(before=_numbers, split=True)]


class Misfit(NamedTuple):
    """A value that does not fit its option. `place`: the option, then keys and positions within its value. `expected`:
    what would fit; empty where there is no such option.
    """

    place: tuple[str | int, ...]
    value: Any
    expected: str


class Misfits(BadInput, ValueError):
    """Values do not fit their options; `found` has all of them."""

    def __init__(self, found: list[Misfit]) -> None:
        self.found = found
        told = ((".".join(map(str, each.place)), each.expected or "no such option") for each in found)
        super().__init__("; ".join(f"{where}: {what}" for where, what in told))


_TRUTHS = dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True) | dict.fromkeys(
    ("0", "false", "f", "no", "n", "off"), False
)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError
    return int(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or math.isnan(made := float(value)):
        raise TypeError
    return made


#: Type → its words, and the function that reads a value as one; it raises one of `_UNFIT` for what is none.
_SORTS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    int: ("a whole number", _whole),
    float: ("a number", _amount),
    bool: ("true or false", lambda value: _TRUTHS[str(value).lower()]),
    str: ("text", _text),
    Path: ("a path", Path),
}
_UNFIT = (TypeError, ValueError, KeyError, OverflowError)
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least {:g}", operator.ge),
    "gt": ("above {:g}", operator.gt),
    "le": ("at most {:g}", operator.le),
    "lt": ("below {:g}", operator.lt),
}


class ValueReader:
    """Reads values as the types of their options; `found` has those that do not fit."""

    def __init__(self) -> None:
        self.found: list[Misfit] = []

    def read(
        self, value: Any, type_: Any, place: tuple[str | int, ...], bounds: Mapping[str, float] | None = None
    ) -> Any:
        """The value as one of that type: a type of `_SORTS`, a list, a table, a class of options, a `Literal`, one of
        several, or `Any`; changed by its `ValueCheck`.
        """
        origin, parts = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self._checked(value, parts, place)
        if origin in (Union, UnionType):
            inner = [each for each in parts if each is not NoneType]
            return None if value is None else self.read(value, inner[0] if len(inner) == 1 else Any, place, bounds)
        if origin is Literal:
            expected = " or ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
            return value if value in parts else self._misfit(place, value, f"expected {expected}")
        if origin is list:
            if not isinstance(value, list | tuple):
                return self._misfit(place, value, "expected a list")
            return [self.read(each, parts[0], (*place, at)) for at, each in enumerate(value)]
        if origin is dict or hasattr(type_, "flags"):
            return self._table(value, type_, place)
        return value if type_ is Any else self._one(value, type_, place, bounds or {})

    def _checked(self, value: Any, parts: tuple[Any, ...], place: tuple[str | int, ...]) -> Any:
        """A value with a `ValueCheck`."""
        before = len(self.found)
        check: ValueCheck = parts[1]
        try:
            made = self.read(value if check.before is None else check.before(value), parts[0], place)
            return made if check.after is None or len(self.found) > before else check.after(made)
        except ValueError as error:
            return self._misfit(place, value, str(error))

    def _table(self, value: Any, type_: Any, place: tuple[str | int, ...]) -> Any:
        of_options = hasattr(type_, "flags")
        if not isinstance(value, dict):
            return value if of_options and isinstance(value, type_) else self._misfit(place, value, "expected a table")
        if not of_options:
            return dict(value)
        try:
            return type_(**value)
        except Misfits as inside:
            self.found += [each._replace(place=(*place, *each.place)) for each in inside.found]

    def _one(self, value: Any, type_: Any, place: tuple[str | int, ...], bounds: Mapping[str, float]) -> Any:
        sort, reader = _SORTS[type_]
        try:
            made = reader(value)
            if (expected := too_far(str(place[0]), made)) is not None:
                return self._misfit(place, value, expected)
            if all(_BOUNDS[name][1](made, limit) for name, limit in bounds.items()):
                return made
        except _UNFIT:
            pass
        limits = " and ".join(words.format(bounds[name]) for name, (words, _) in _BOUNDS.items() if name in bounds)
        expected, given = f"expected {sort} {limits}".strip(), number(value)
        if bounds.get("lt") == 1 and given is not None and 1 <= given <= 100:
            expected += f", a share of 1: {given:g} points of 100 are {given / 100:g}"
        return self._misfit(place, value, expected)

    def _misfit(self, place: tuple[str | int, ...], value: Any, expected: str) -> None:
        self.found.append(Misfit(place, value, expected))


def json_of(value: Any) -> Any:
    """A read value for JSON."""
    if isinstance(value, dict):
        return {name: json_of(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_of(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "as_json"):
        return value.as_json()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # a moment of TOML; a path


DEFAULT_MODEL = "claude-haiku-4-5-20251001"
DEFAULT_STORE = "./.context-bench/store.db"
DEFAULT_CONTROLS = ["full", "full#2", "none", "head_tail", "random_drop"]
