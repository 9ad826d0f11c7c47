"""`context-bench datasets`: what there is to measure on, and what one of them holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from context_bench.session import offers
from context_bench.session.flags import takes
from context_bench.session.options import StoredOptions

#: Is there a context that can be compressed?
_WORDS: dict[bool | None, str] = {True: "yes", False: "–", None: "known once read"}


@takes(StoredOptions)
def command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one: fields, evaluators, licence, an example.", autocompletion=offers.datasets),
    ] = None,
    *,
    json: bool,
    context: bool,
    imports: list[str] | None,
) -> int:
    """List the datasets that `--dataset` knows by name, or show one. Nothing is downloaded."""
    from context_bench.datasets import datasets_known, describe
    from context_bench.session.run_parts import import_modules

    import_modules(imports or [])
    if name is not None:
        found = describe(name)
        _as_json(found) if json else _one(found)
        return 0
    listed = [
        described
        for each in datasets_known()
        if (described := describe(each)) and (described.get("has_context") or not context)
    ]
    _as_json(listed) if json else _table(listed)
    return 0


def _as_json(found: Any) -> None:
    from json import dumps

    from context_bench.session.output_files import write_out

    write_out(dumps(found, indent=2, ensure_ascii=False, default=str) + "\n", None)


def _table(listed: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    shown = _columns(console.width)
    numbers = {
        "size": Column("size", justify="right", no_wrap=True, min_width=6),
        "context": Column("context", no_wrap=True, min_width=7),
    }
    table = Table(*(numbers.get(name) or Column(name, overflow="fold") for name in shown), box=None)
    for each in listed:
        cells = _cells(each)
        table.add_row(*(cells[name] for name in shown))
    console.print(table, markup=False)
    print(f"{len(listed)} datasets. Context –: the text is the question itself, so there is nothing to compress.")
    print("All about one: context-bench datasets NAME")


def _columns(width: int) -> list[str]:
    """The facts that fit a line; the rest is shown for one dataset by itself."""
    if width < 60:
        return ["dataset", "size"]
    return ["dataset", "context", "size", *(["evaluators"] if width >= 100 else []), "about"]


def _cells(each: dict[str, Any]) -> dict[str, str]:
    from context_bench.reports.visible_text import visible

    size, suffix = each.get("size"), "[:…]" if each.get("configs") else ""
    cells = {
        "dataset": f"{each['name']}{suffix}",
        "context": _WORDS[each.get("has_context")],
        "size": f"{size:,}" if size else "?",
        "evaluators": ", ".join(each.get("evaluators", [])),
        "about": re.split(r"(?<=\w)[.;]\s", each["about"])[0].partition(": ")[0].rstrip("."),
    }
    return {name: visible(cell, 400) for name, cell in cells.items()}


def _one(found: dict[str, Any]) -> None:
    from context_bench.reports.visible_text import visible

    configs = found.get("configs") or []
    context = {**_WORDS, False: "no: the text is the question itself, so there is nothing to compress"}[
        found.get("has_context")
    ]
    facts = {
        "about": found["about"],
        "source": found.get("source"),
        "revision": found.get("revision")
        or ("newest (not pinned)" if str(found.get("source", "")).startswith("hf:") else None),
        "config": found.get("config"),
        "configs": f"{len(configs)}: {', '.join(configs)}" if configs else None,
        "split": found.get("split"),
        "size": f"{found['size']:,} examples" if found.get("size") else None,
        "licence": found.get("licence"),
        "citation": found.get("citation"),
        "context": context,
        "evaluators": ", ".join(found.get("evaluators", [])) or None,
        "fields": ", ".join(found.get("fields", [])) or None,
    }
    print(visible(found["name"]))
    for label, value in facts.items():
        if value:
            print(f"  {label:<11}{visible(value, 4000)}")
    if found.get("sample"):
        print("  example (invented, in the dataset's shape):")
        for key, value in found["sample"].items():
            print(f"    {visible(key)}: {visible(value, 300)}")
