"""Values that the shell offers for an option: runs of the store, datasets, systems, report formats; and defaults of
several commands.

Nothing opens the store as a run does, so a key press is answered at once. Errors are silent. Nothing here loads
pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
    path = Path(str(store).removeprefix("sqlite:///")).expanduser()
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


DEFAULT_MODEL = "claude-haiku-4-5-20251001"
DEFAULT_STORE = "./.context-bench/store.db"
DEFAULT_CONTROLS = ["full", "full#2", "none", "head_tail", "random_drop"]
