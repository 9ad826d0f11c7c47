from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st
from rich.cells import cell_len

from context_bench.session.output_files import run_list


def run(name: str, systems: list[str], status: str = "done") -> dict[str, Any]:
    return {
        "name": name,
        "started": "2026-11-22T10:26:42Z",
        "status": status,
        "rows": 184,
        "failed": 3,
        "systems": systems,
    }


def labelled(name: str, systems: list[str], title: str) -> dict[str, Any]:
    return {**run(name, systems), "title": title, "tags": [name]}


NAMES = ["bm25", "embedding", "hybrid", "recency", "random", "oracle"]


def test_of_many_systems_the_first_are_named_and_all_are_counted() -> None:
    heading, first, second = run_list(
        [run("20261122-102642-148a", NAMES, "interrupted"), run("demo", ["full"])], width=80
    ).splitlines()
    assert heading.split() == ["run", "status", "rows", "failed", "systems"]
    assert first == "20261122-102642-148a  interrupted   184       3  6 systems: bm25, embedding, …"
    assert second.split() == ["demo", "done", "184", "3", "full"]
    wide = run_list([run("demo", NAMES)], width=120)
    assert "2026-11-22 10:26" in wide
    assert "bm25, embedding, hybrid, recency, random, oracle" in wide


def test_a_name_stays_whole_however_long() -> None:
    lines = run_list([run("n" * 130, NAMES), run("demo", NAMES)], width=40).splitlines()
    assert lines[1] == "n" * 130
    assert [line.split() for line in lines[2:]] == [["done", "184"], ["demo", "done", "184"]]


def test_colour_only_where_it_is_asked_for_and_nothing_steers() -> None:
    hostile = [run("a\x1b[31mb\u202e", ["x\x07"])]
    assert "\x1b" not in run_list(hostile)
    assert "\x1b[32mdone\x1b[0m" in run_list(hostile, color=True)


def test_title_and_tags_stand_below_the_line_and_no_wider_than_it() -> None:
    titled = {**run("demo", ["full"]), "title": "Nightly, with bm25", "tags": ["nightly", "a\x1bb"]}
    watch = {**run("watch-1", []), "kind": "watch", "failed": None, "title": "T" * 200}
    _, first, label, second, other, last = run_list([titled, watch, run("bare", ["full"])], width=80).splitlines()
    assert first.split()[0] == "demo"
    assert label == "    Nightly, with bm25  [nightly, a\\x1bb]"
    assert second.split()[0] == "watch-1"
    assert second.split()[-4:] == ["done", "184", "live", "traffic"]
    assert other == "    " + "T" * 75 + "…"
    assert last.split()[0] == "bare"


@given(
    runs=st.lists(
        st.builds(labelled, st.text(min_size=1, max_size=25), st.lists(st.text(max_size=60), max_size=8), st.text()),
        min_size=1,
        max_size=5,
    ),
    width=st.integers(1, 250),
)
def test_no_line_but_a_long_name_is_wider_than_the_terminal(runs: list[dict[str, Any]], width: int) -> None:
    from context_bench.reports.visible_text import visible

    names = {visible(one["name"], 300) for one in runs}
    for line in run_list(runs, width=width).splitlines():
        assert cell_len(line) <= max(20, width) or line in names
