"""What Tab offers in a shell: commands and options, and the names that they take (runs of the store, datasets, systems, formats …).

`context-bench --install-completion` puts a script in place that asks this program; what goes wrong here is silent, and what is offered is
found without opening the store as a run does, so that a key press is answered at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

VARIABLE = "_CONTEXT_BENCH_COMPLETE"
_MOST_RUNS = 200
#: Names that a shell takes as they are: others are not offered, since some shells evaluate what they are given.
_HARMLESS = re.compile(r"[\w@.+#:/,=%-]+")


def wanted() -> bool:
    """Is it a shell that asks what can come next?"""
    return VARIABLE in os.environ


def answer(root: Any, complete_line: Callable[[list[str]], list[str]]) -> int:
    """Print what can come next, in the shell's own form. `complete_line` puts in the command that may be left out."""
    with suppress(Exception):
        print(_answered(root, complete_line))
    return 0


def script(args: list[str]) -> int | None:
    """`--show-completion SHELL` and `--install-completion SHELL`; `None` for all else, also where the shell is to be found out."""
    if len(args) != 2 or args[0] not in ("--show-completion", "--install-completion"):
        return None
    from typer._completion_shared import get_completion_script, install

    from context_bench.core.errors import UnknownName

    shells = ("bash", "zsh", "fish", "powershell", "pwsh")
    if args[1] not in shells:
        raise UnknownName("shell", args[1], shells)
    if args[0] == "--show-completion":
        print(get_completion_script(prog_name="context-bench", complete_var=VARIABLE, shell=args[1]))
        return 0
    _, path = install(shell=args[1], prog_name="context-bench", complete_var=VARIABLE)
    print(f"context-bench: completion for {args[1]} is in {path}; it works in terminals opened from now on")
    return 0


def _answered(root: Any, complete_line: Callable[[list[str]], list[str]]) -> str:
    from click.shell_completion import get_completion_class
    from typer._completion_classes import completion_init

    completion_init()
    shell = os.environ[VARIABLE].partition("_")[2]
    kind = get_completion_class(shell)
    if kind is None:
        return ""
    asked = kind(root, {}, "context-bench", VARIABLE)
    args, incomplete = asked.get_completion_args()
    head = ""
    if shell == "bash":
        args, incomplete, head = _joined(args, incomplete)
    if len(args) > 1 or "-" in (incomplete[:1], *(each[:1] for each in args)):
        args = complete_line([*args, incomplete])[:-1]
    found = [item for item in asked.get_completions(args, incomplete) if _HARMLESS.fullmatch(item.value)]
    for item in found:
        item.value = item.value.removeprefix(head)
    setattr(asked, "get_completion_args", lambda: (args, incomplete))  # noqa: B010
    setattr(asked, "get_completions", lambda *_: found)  # noqa: B010
    return str(asked.complete())


def _joined(args: list[str], incomplete: str) -> tuple[list[str], str, str]:
    """Words as they were typed, where bash has broken them at `:` and `=`; and the part of the last one that bash will not replace."""
    words: list[str] = []
    glue = False
    for word in [*args, incomplete]:
        mark = word in (":", "=")
        if words and (glue or mark):
            words[-1] += word
        else:
            words.append(word)
        glue = mark
    last = words.pop() if words else ""
    if last.startswith("-") and "=" in last:  # --option=value: the parser wants them apart
        option, _, last = last.partition("=")
        words.append(option)
        return words, last, last[: last.rfind(":") + 1]
    return words, last, last[: max(last.rfind(":"), last.rfind("=")) + 1]


# --- names ---

Offered = Callable[[Any, list[str], str], list[str]]


def _offered(source: Callable[[Any], Iterable[str]], *, listed: bool = False) -> Offered:
    """Names of a source that begin as what was typed; nothing if it fails. `listed`: the last of several, separated by commas."""

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

    from context_bench.cli.defaults import DEFAULT_STORE

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
    from context_bench.core.registry import registry
    from context_bench.datasets import catalogue_names

    return sorted({*catalogue_names(), *registry.names("dataset")})


def _plugins(kind: str, place: str) -> Callable[[Any], Iterable[str]]:
    def named(_: Any) -> Iterable[str]:
        from importlib import import_module

        from context_bench.core.families import brought
        from context_bench.core.registry import registry

        return sorted({*import_module(place).BUILTINS, *brought(kind), *registry.names(kind)})

    return named


def _systems(context: Any) -> list[str]:
    """Systems that `--system` takes by name: memories for `memory`, else controls and what packages offer."""
    from context_bench.core.registry import registry

    if "questions" in context.params:
        from context_bench.systems.memories import BUILTINS, SCHEMES

        return sorted({*BUILTINS, *registry.names("memory")}) + [f"{scheme}:" for scheme in SCHEMES]
    from context_bench.core.families import brought
    from context_bench.systems.compressors import ADAPTED, COMPRESSORS

    return sorted({*COMPRESSORS, *ADAPTED, *brought("system"), *registry.names("system")})


def _controls(_: Any) -> list[str]:
    """Names of control arms."""
    from context_bench.cli.arms import BUDGETED_CONTROLS, PLAIN_CONTROLS

    return [*PLAIN_CONTROLS, *BUDGETED_CONTROLS]


def _formats(_: Any) -> list[str]:
    """Forms of a report."""
    from context_bench.core.registry import registry
    from context_bench.reports.output import FORMATS

    return [*FORMATS, *registry.names("reporter")]


def _exports(context: Any) -> list[str]:
    """Forms of an export."""
    from context_bench.cli import exporting

    return [*(each for each in _formats(context) if each != "table"), *exporting.formats()]


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
