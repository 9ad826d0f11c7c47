"""Table, Markdown, JSON, CSV and HTML show the same figures."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from context_bench.core.measures import dollars, percent
from context_bench.core.records import Result
from context_bench.reports import build_page, render
from context_bench.reports.page import Figure, Page
from context_bench.reports.table import cell_text


class Tables(HTMLParser):
    """Cell texts of every table in the page; the drawn intervals are left out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th") and "barcell" not in (dict(attrs).get("class") or ""):
            self.cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self.cell).split()))
            self.cell = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data)


def in_markdown(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def in_page(page: Page) -> list[list[list[str]]]:
    return [
        [[column.title for column in table.columns], *([cell_text(cell) for cell in row] for row in table.rows)]
        for section in [*([page.overview] if page.overview else []), *page.sections]
        for table in section.tables
    ]


@pytest.fixture(params=["one shape", "two shapes"])
def measured(request: pytest.FixtureRequest, results: Callable[..., Result]) -> Result:
    return (
        results()
        if request.param == "one shape"
        else results(shapes=("plain-user", "codex"), systems=("kompact", "headroom", "full"))
    )


def test_html_and_markdown_show_every_table_of_the_page(measured: Result) -> None:
    page = build_page(measured)
    expected = in_page(page)
    html = Tables(render(page, "html")).tables
    assert [[]] in html  # the examples, drawn by the script
    assert sorted(table for table in html if table != [[]]) == sorted(expected)
    markdown = in_markdown(render(page, "markdown"))
    assert sorted(markdown) == sorted(expected)


def test_the_terminal_shows_every_figure_beside_its_name(measured: Result) -> None:
    page = build_page(measured)
    text = render(page, "table", width=400)
    for section in page.sections:
        part = text.split(f"\n{section.title}\n", 1)[1] if f"\n{section.title}\n" in text else ""
        for table in section.tables:
            shown = [at for at, column in enumerate(table.columns) if not column.repeated]
            for row in table.rows if len(shown) > 1 else []:
                words = [cell_text(row[at]) for at in shown]
                assert any(all(word in line for word in words) for line in part.splitlines()), words


def test_json_holds_the_numbers_behind_the_figures(measured: Result) -> None:
    page = build_page(measured)
    read = json.loads(render(page, "json"))
    metrics = page.section("metrics")
    assert metrics is not None
    for table in metrics.tables:
        for row in table.rows:
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                value = read["summary"][row[0]].get(column.title)
                assert (cell is None) == (value is None)
                assert cell is None or (isinstance(cell, Figure) and cell.value == value)
    for each, compared in zip(measured.comparisons, read["comparisons"], strict=True):
        assert (compared["difference"], compared["low"], compared["verdict"]) == (
            each.difference,
            each.low,
            each.verdict,
        )


def test_csv_rows_add_up_to_the_figures(results: Callable[..., Result]) -> None:
    page = build_page(results())
    by_system: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in csv.DictReader(io.StringIO(render(page, "csv"), newline="")):
        by_system[line["system"]].append(line)
    quality, tokens, money = (page.section(name) for name in ("quality", "tokens", "money"))
    assert quality
    assert tokens
    assert money
    for q, t, m in zip(quality.tables[0].rows, tokens.tables[0].rows, money.tables[0].rows, strict=True):
        lines = by_system[str(q[0])]
        scores = [float(line["f1"]) for line in lines if line["f1"]]
        pairs = [(int(line["input_tokens"]), int(line["output_tokens"])) for line in lines if line["output_tokens"]]
        costs = [float(line["cost"]) for line in lines if line["cost"]]
        expected = [
            f"{sum(scores) / len(scores):.3f}", str(len(scores)), f"{sum(b for _, b in pairs) / len(pairs):,.0f}",
            percent(1 - sum(b for _, b in pairs) / sum(a for a, _ in pairs)), dollars(sum(costs)),
        ]  # fmt: skip
        forwarded = t[2]
        assert isinstance(forwarded, Figure)
        total = [column.title for column in money.tables[0].columns].index("total")
        shown = [q[1], q[2], forwarded, t[4], m[total]]
        texts = [cell.short if isinstance(cell, Figure) else cell for cell in shown]
        assert texts == expected or (forwarded.value < 100 and texts[:2] + texts[3:] == expected[:2] + expected[3:])


def test_the_rows_are_the_same_in_html_csv_and_json(measured: Result) -> None:
    page = build_page(measured)
    block = re.search(r'id="row-data">(.*?)</script>', render(page, "html"), re.S)
    assert block
    drawn = json.loads(block[1])
    titles = [column["title"] for column in drawn["columns"]]
    lines = list(csv.DictReader(io.StringIO(render(page, "csv"), newline="")))
    told = json.loads(render(page, "json"))["rows"]
    assert len(drawn["rows"]) == len(lines) == len(told) == len(measured.rows)
    names = {
        "system": "system",
        "example": "example_id",
        "sent": "input_tokens",
        "forwarded": "output_tokens",
        "f1": "f1",
        "latency": "latency",
    }
    for shown, line, record in zip(drawn["rows"], lines, told, strict=True):
        cells = dict(zip(titles, shown, strict=True))
        flat = {**record, **record["scores"]}
        for title, name in names.items():
            value = cells[title]
            assert line[name] == ("" if value is None else str(value)), name
            assert flat.get(name) == value, name
        assert bool(cells["failure"]) == bool(record.get("errors"))


def test_the_figures_beside_a_verdict_are_those_of_the_tables(results: Callable[..., Result]) -> None:
    measured = results()
    page = build_page(measured)

    def forwarded(system: str) -> dict[Any, int]:
        return {
            (row.dataset, row.example_id): row.output_tokens
            for row in measured.rows
            if row.system == system and row.output_tokens is not None
        }

    def saved_tokens(system: str) -> float:
        own, full = forwarded(system), forwarded("full")
        return 1 - sum(own[each] for each in own if each in full) / sum(full[each] for each in own if each in full)

    compared, money = (page.section(name) for name in ("comparisons", "money"))
    assert compared
    assert money
    differences = {row[0]: row[1] for row in compared.tables[0].rows}
    column = [each.title for each in money.tables[0].columns].index("saved against full")
    saved = {row[0]: row[column] for row in money.tables[0].rows}
    html = render(page, "html")
    assert page.verdicts
    for each in page.verdicts:
        assert each.difference == differences[each.system]
        tokens_saved = each.saved.get("tokens", Figure(0.0, "share"))
        assert tokens_saved.value == pytest.approx(saved_tokens(each.system)), each.system
        assert each.saved.get("money") == (None if each.system == "full#2" else saved[each.system])
        assert each.difference
    assert [card.system for card in page.cards] == ["kompact", "headroom"]
    for card in page.cards:
        assert card.difference == differences[card.system]
        assert card.difference
        assert f'aria-label="difference {card.difference.text} against full"' in html
        for figure in card.saved.values():
            assert f"<dd>{figure.short.removeprefix('-')}</dd>" in html
    assert saved["full#2"] == Figure(0.0, "share"), (
        "a repeated baseline saves nothing: the table says so, its verdict need not"
    )
    assert {each.system: each.control for each in page.verdicts} == {
        **dict.fromkeys(("kompact", "headroom"), False),
        **dict.fromkeys(("full#2", "none", "head_tail@kompact", "random_drop@kompact"), True),
    }


def test_a_control_that_shortens_before_it_sends_saves_what_the_baseline_forwarded(
    results: Callable[..., Result],
) -> None:
    measured = results(systems=("headroom", "full", "none"))
    for row in measured.rows:
        if row.system == "none":
            row.input_tokens = row.output_tokens
    [saved] = [each.saved["tokens"] for each in build_page(measured).verdicts if each.system == "none"]
    forwarded = {
        name: sum(row.output_tokens or 0 for row in measured.rows if row.system == name) for name in ("full", "none")
    }
    assert saved.value == pytest.approx(1 - forwarded["none"] / forwarded["full"])
    assert saved.value > 0.9
