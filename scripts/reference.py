"""Write docs/reference: what there is, from the program's own tables and docstrings.

Nothing of it is kept in git; `make docs` runs this.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from blocks import ROOT, blocks, pages

PLACE = ROOT / "docs" / "reference"

#: The public modules, in the order of the menu.
FACADES = (
    "context_bench",
    "context_bench.types",
    "context_bench.results",
    "context_bench.runner",
    "context_bench.evaluators",
    "context_bench.metrics",
    "context_bench.datasets",
    "context_bench.systems",
    "context_bench.reporters",
    "context_bench.memory",
    "context_bench.compression",
    "context_bench.traces",
    "context_bench.agents",
    "context_bench.comparison",
    "context_bench.stats",
    "context_bench.tap",
    "context_bench.traffic.figures",
    "context_bench.registry",
    "context_bench.viewer",
    "context_bench.testing",
)

#: Variables that the program itself reads. A test finds those that are missing here.
VARIABLES = {
    "OPENAI_API_KEY": "The key that is sent to an upstream or relay when no other is named. Never stored.",
    "ANTHROPIC_API_KEY": "The same where the wire is Anthropic's.",
    "CONTEXT_BENCH_GGUF": "A GGUF file of your own in place of the bundled model.",
    "HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_ENDPOINT": "As the Hub's client reads them: token, cache, "
    "offline, another hub.",
    "XDG_CACHE_HOME": "Where the bundled model's weights are kept (else `~/.cache`).",
    "NO_COLOR, TERM": "No colours; what the terminal can do.",
    "CI": "In this project's own test suite: a program that a test needs and that is missing is a failure.",
}


def main() -> None:
    """Write all pages anew."""
    shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "api").mkdir(parents=True)
    for name, page in PAGES.items():
        (PLACE / f"{name}.md").write_text(page().rstrip() + "\n", encoding="utf-8")
    for facade in FACADES:
        (PLACE / "api" / f"{facade}.md").write_text(_api(facade), encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table; what would break a cell is escaped."""
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "---|" * lines[0].count(" | ") + "---|")
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)]) + "\n"


def _cell(value: Any) -> str:
    return " ".join(str("" if value is None else value).split()).replace("|", "\\|")


def _code(names: Iterable[Any] | None) -> str:
    return ", ".join(f"`{name}`" for name in names or ())


def _first(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


def _object(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _options(thing: Any) -> str:
    """What may follow the name: parameters of the constructor with their defaults."""
    hidden = {"python", "relay", "api_key", "key", "embedder", "space", "prices", "args", "kwargs"}
    plain = [each for each in inspect.signature(thing).parameters.values() if each.name not in hidden]
    return ", ".join(
        f"`{each.name}`" if each.default in (None, each.empty) else f"`{each.name}={each.default}`" for each in plain
    )


def _datasets() -> str:
    from context_bench.datasets import datasets_known, describe

    described = [each for name in datasets_known() if (each := describe(name))]
    words = {True: "yes", False: "no", None: "known once read"}
    parts = [
        "# Datasets\n",
        f"The {len(described)} that `--dataset` knows by name; `context-bench datasets NAME` shows one with an "
        "example. Files (JSONL, CSV, "
        "Parquet, JSON) and `hf:OWNER/NAME` are taken as well. *Context*: is there one that can be compressed?\n",
        table(
            ("dataset", "context", "examples", "evaluators", "licence"),
            (
                (
                    f"[{each['name']}](#{_anchor(each['name'])})",
                    words[each.get("has_context")],
                    f"{each['size']:,}" if each.get("size") else "",
                    _code(each.get("evaluators")),
                    each.get("licence"),
                )
                for each in described
            ),
        ),
    ]
    for each in described:
        facts = {
            "source": " ".join(filter(None, [f"`{each.get('source')}`", _pin(each)])),
            "configurations": _code(each.get("configs")),
            "fields of an example": _code(each.get("fields")),
            "evaluators": _code(each.get("evaluators")),
            "licence of the data": each.get("licence"),
            "citation": each.get("citation"),
            "to know": each.get("note"),
        }
        parts += [
            f"\n## {each['name']} {{ #{_anchor(each['name'])} }}\n",
            f"{each['about']}\n",
            *(f"- {name}: {fact}" for name, fact in facts.items() if fact),
        ]
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _pin(described: Mapping[str, Any]) -> str:
    told = [described.get("config"), described.get("split"), (described.get("revision") or "")[:12]]
    return ", ".join(f"`{each}`" for each in told if each)


def _evaluators() -> str:
    from context_bench.evaluators import BUILTINS

    found = {name: _object(place) for name, place in BUILTINS.items()}
    return (
        "# Evaluators\n\nEach makes named numbers of one example and one answer. `--evaluator NAME`; datasets name "
        "their own.\n\n"
        + table(
            ("name, class", "scores", "fields it needs", "what"),
            (
                (
                    f"`{name}` `{each.__name__}`",
                    _code(getattr(each, "fields", ())),
                    _code(getattr(each, "needs", ())),
                    _first(each),
                )
                for name, each in found.items()
            ),
        )
    )


def _metrics() -> str:
    from context_bench.metrics import BUILTINS

    found = {name: _object(place) for name, place in BUILTINS.items()}
    return "# Metrics\n\nEach makes a few figures of all rows of one system. `--metric NAME`.\n\n" + table(
        ("name, class", "options", "figures"),
        ((f"`{name}` `{each.__name__}`", _options(each), _first(each)) for name, each in found.items()),
    )


def _systems() -> str:
    from context_bench import systems
    from context_bench.compression.compressors import COMPRESSORS
    from context_bench.session import arms

    classes = [getattr(systems, name) for name in ("OpenAIProxy", "ClaudeCLI", "Replay", "Served", "Control")]
    controls = [
        (
            f"`{name}`",
            "on its own" if name in arms.PLAIN_CONTROLS else "at each system's own size",
            _first(_object(COMPRESSORS[name.split("#")[0]])),
        )
        for name in (*arms.PLAIN_CONTROLS, *arms.BUDGETED_CONTROLS)
    ]
    return "\n".join(
        [
            "# Systems and controls\n",
            "What is measured turns an example into an answer: a proxy (`--proxy URL`), any name below or of the "
            "lists of "
            "[compressors](compressors.md) and [memories](memories.md), or `py:package.module:Class`.\n",
            table(("class", "what"), ((f"`{each.__name__}`", _first(each)) for each in classes)),
            "## Controls\n",
            "They shorten for free. `full#2` is the baseline once more: the noise floor. `none` and `random_drop` "
            "have to lose.\n",
            table(("control", "size", "what"), controls),
        ]
    )


def _memories() -> str:
    from context_bench.memory.datasets.formats import FORMATS
    from context_bench.memory.systems import BUILTINS, SCHEMES

    rows = (
        (f"`{name}`", _options(made), _first(made))
        for name, made in ((name, _object(place)) for name, place in BUILTINS.items())
    )
    schemes = ((f"`{name}:`", _first(_object(place))) for name, place in SCHEMES.items())
    return "\n".join(
        [
            "# Memories\n",
            "`context-bench memory --system NAME:option=value,…`. [How to measure one](../guide/memory.md).\n",
            table(("name", "options", "what"), rows),
            "## Your own\n",
            table(("begins with", "what"), schemes),
            "## Formats of data\n",
            "Told by what a document holds, not by its name.\n",
            table(("format", "shape"), ((each.name, f"`{each.shape}`") for each in FORMATS)),
        ]
    )


def _compressors() -> str:
    from context_bench.compression.compressors import ADAPTED, COMPRESSORS, SCHEMES

    def rows(places: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for name, place in places.items():
            made = _object(place)
            yield f"`{name}`", _options(made), _first(made)

    return "\n".join(
        [
            "# Compressors\n",
            "`context-bench compress run --system NAME:option=value,…`; most can also be systems of a run, or be "
            "served as a proxy "
            "(`context-bench serve`). [Guide](../guide/compressors.md).\n",
            table(("name", "options", "what"), rows(COMPRESSORS)),
            "## With a model, a provider or a package\n",
            table(("name", "options", "what"), rows(ADAPTED)),
            "## Your own\n",
            table(("begins with", "what"), ((f"`{name}:`", _first(_object(place))) for name, place in SCHEMES.items())),
        ]
    )


def _formats() -> str:
    from context_bench.reports.renderers import FORMATS as REPORTS
    from context_bench.session.reporting import writers
    from context_bench.transcripts.formats import formats
    from context_bench.transcripts.harness_results import answer_formats, report_formats

    def rows(found: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
        return [(f"`{name}`", one.about or _first(importlib.import_module(one.read.__module__))) for name, one in found]

    logs = formats().items()
    reports = [(f"`{name}`", _first(_explained_by(f"reports.{place}"))) for name, place in REPORTS.items()]
    exports = [(f"`{name}`", _first(writer)) for name, writer in writers().items()]
    head = ("format", "what")
    return "\n".join(
        [
            "# Formats\n",
            "All are recognised by what is in a file. They are tried in this order, the particular before the "
            "general.\n",
            "## Recorded sessions\n",
            "For `replay`, `compress` and `watch --records`.\n",
            table(head, rows((name, one) for name, one in logs if one.conversation)),
            "## Agents' logs\n",
            "For `trace`; `compress run` reads them too.\n",
            table(head, rows((name, one) for name, one in logs if one.calls)),
            "## What came of patches\n",
            "For `trace score --results`.\n",
            table(head, rows(report_formats().items())),
            "## Recorded answers\n",
            "For `import`.\n",
            table(head, rows(answer_formats().items())),
            "## Reports\n",
            "For `--output` and `--report`.\n",
            table(head, reports),
            "## Exports\n",
            "For `export --format`, beside the reports.\n",
            table(head, exports),
            *_plots(),
        ]
    )


def _explained_by(place: str) -> Any:
    """The file of a chart or of a form of a report, or its function where a file has several."""
    name, _, function = place.partition(":")
    module = importlib.import_module(f"context_bench.{name}")
    return module if function in ("draw", "render") else getattr(module, function)


def _plots() -> Iterator[str]:
    from context_bench.reports.charts import KINDS

    yield "## Plots\n"
    yield "For `plot RUN --kind`; each is in the report as well, where a run has what it takes.\n"
    drawn = ((f"`{kind}`", _first(_explained_by(f"reports.charts.{place}"))) for kind, place in KINDS.items())
    yield table(("kind", "what"), drawn)


def _commands() -> str:
    from context_bench.cli.app import COMMANDS, built

    parts = [
        "# Commands\n",
        table(("command", "what for"), ((f"[{name}](#{name})", each.about) for name, each in COMMANDS.items())),
    ]
    for name in COMMANDS:
        parts += _command((name,), built(name))
    return "\n".join(parts)


def _command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(("context-bench", *path)))
    yield f"\n{'#' * (len(path) + 1)} {' '.join(path)} {{ #{'-'.join(path)} }}\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    yield f"`{' '.join([context.info_name or '', *command.collect_usage_pieces(context)])}`\n"
    options = [
        (_code((*each.opts, *each.secondary_opts)), _meta(each, context), each.help)
        for each in command.params
        if isinstance(each, click.Option)
    ]
    arguments = [
        (f"`{each.make_metavar(context)}`", getattr(each, "help", ""))
        for each in command.params
        if isinstance(each, click.Argument)
    ]
    if any(told for _, told in arguments):
        yield table(("argument", "what"), arguments)
    if options:
        yield table(("option", "value", "what"), options)
    for name, child in getattr(command, "commands", {}).items():
        yield from _command((*path, name), child)


def _meta(option: click.Option, context: click.Context) -> str:
    if option.is_flag:
        return ""
    default = option.get_default(context, call=False)
    told = f" (default `{default}`)" if default not in (None, "", [], ()) and not callable(default) else ""
    return f"`{option.make_metavar(context)}`{told}"


def _environment() -> str:
    from context_bench.core import errors

    codes = {0: ["done"], 130: ["interrupted (Ctrl-C); what was finished is stored, the same command goes on"]}
    for each in vars(errors).values():
        if inspect.isclass(each) and issubclass(each, errors.Stop) and each is not errors.Stop:
            codes.setdefault(each.exit_code, []).append(f"`{each.__name__}`: {_first(each)}")
    codes.setdefault(1, []).append("more failures than `--max-failures` allows, or nothing at all could be measured")
    return "\n".join(
        [
            "# Exit codes and environment\n",
            "## Exit codes\n",
            table(("code", "when"), ((code, " · ".join(dict.fromkeys(told))) for code, told in sorted(codes.items()))),
            "## Environment variables\n",
            table(("variable", "what"), ((_code(name.split(", ")), told) for name, told in VARIABLES.items())),
            "Keys are read when they are needed and never written: not into a store, a log, a report or an error "
            "message.",
        ]
    )


def _store() -> str:
    from context_bench.engine.store import schema

    parts = ["# The store\n", f"{inspect.getdoc(schema)}\n", f"Newest migration: `{schema.HEAD}`.\n"]
    for each in schema.metadata.sorted_tables:
        columns = (
            (
                f"`{column.name}`",
                str(column.type).lower(),
                "key" if column.primary_key else "",
                "" if column.nullable else "always",
            )
            for column in each.columns
        )
        parts += [f"## {each.name}\n", table(("column", "type", "", "there"), columns)]
    return "\n".join(parts)


def _not_run() -> str:
    found = [block for page in pages() for block in blocks(page)]
    left = [block for block in found if block.reason]
    rows = (
        (_where(block.page), block.heading, f"`{(block.text.splitlines() or [''])[0][:70]}`", block.reason)
        for block in left
    )
    told = (
        f"{len(found) - len(left)} of {len(found)} blocks of these pages are executed by the test suite. These are "
        "not:\n\n"
        if left
        else ""
    )
    return f"# Blocks that are not run\n\n{told}" + table(("page", "section", "block", "why"), rows)


def _where(page: str) -> str:
    return f"[{page}](../{page.removeprefix('docs/')})" if page.startswith("docs/") else page


def _index() -> str:
    titles = (
        (f"[{(PLACE / f'{name}.md').read_text().splitlines()[0][2:]}]({name}.md)") for name in PAGES if name != "index"
    )
    return "# Reference\n\nMade from the program itself when the site is built.\n\n" + "\n".join(
        [*(f"- {title}" for title in titles), "- Python: " + ", ".join(f"[{each}](api/{each}.md)" for each in FACADES)]
    )


def _api(facade: str) -> str:
    module = importlib.import_module(facade)
    things = [getattr(module, name) for name in getattr(module, "__all__", ())]
    places = [
        f"{each.__module__}.{each.__qualname__}" for each in things if inspect.isclass(each) or inspect.isfunction(each)
    ]
    if not places:  # a package of modules
        places = [
            f"{facade}.{each.name}" for each in pkgutil.iter_modules(module.__path__) if not each.name.startswith("_")
        ]
    doc = re.sub(r"^(#+)", r"#\1", inspect.getdoc(module) or "", flags=re.M)
    return f"# {facade}\n\n{doc}\n\n" + "\n\n".join(f"::: {place}" for place in places) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "datasets": _datasets,
    "evaluators": _evaluators,
    "metrics": _metrics,
    "systems": _systems,
    "memories": _memories,
    "compressors": _compressors,
    "formats": _formats,
    "commands": _commands,
    "environment": _environment,
    "store": _store,
    "not-run": _not_run,
    "index": _index,
}

if __name__ == "__main__":
    main()
