from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from rich.cells import cell_len

from context_bench.core.records import Estimate, EvalRow, Result
from context_bench.reports import build_page, to_html, to_markdown, to_table
from context_bench.reports.table import TerminalReport, folded

from .conftest import six_systems

ANY = st.text(alphabet=st.characters(), max_size=40)


def test_it_fits_and_starts_with_the_verdicts(results: Callable[..., Result]) -> None:
    for result in (results(), results(shapes=("plain-user", "codex"))):
        for width in (40, 80, 120):
            text = to_table(result, width=width)
            assert max(cell_len(line) for line in text.splitlines()) <= width
    assert to_table(result).index("kompact loses 0.061") < to_table(result).index("Quality")


def test_the_short_form_answers_in_forty_lines_of_eighty_columns(result: Result) -> None:
    many = replace(result, notes=[f"Note {number}: {'word ' * 40}" for number in range(20)])
    for told in (result, many):
        text = to_table(told, full=False)
        assert len(text.splitlines()) <= 40
        assert max(cell_len(line) for line in text.splitlines()) <= 80
        assert all(f"{card.title.partition(';')[0]}" in " ".join(text.split()) for card in build_page(told).cards)
        assert text.count("System") == 1
        assert "All of it: context-bench show demo --full" in text
        assert text.splitlines()[-1].startswith("Next: context-bench ")
    assert "more notes with --full" in to_table(many, full=False)
    assert "more note" not in to_table(result, full=False)


def test_the_short_form_of_six_systems_of_the_user_fits_too(results: Callable[..., Result]) -> None:
    found = results(systems=("full", "kompact", "headroom"))
    names = [f"{name}-{number}" for name in ("kompact", "headroom") for number in range(3)]
    rows = [replace(row, system=name) for name in names for row in found.rows if row.system == name.partition("-")[0]]
    compared = [
        replace(each, system=name)
        for name in names
        for each in found.comparisons
        if each.system == name.partition("-")[0]
    ]
    summary = {name: found.summary[name.partition("-")[0]] for name in names}
    text = to_table(replace(found, rows=rows, comparisons=compared, summary=summary, estimates={}, wire={}), full=False)
    assert all(f"{name} sends" in text for name in names)
    assert len(text.splitlines()) <= 40


def test_six_systems_of_the_user_and_their_controls_fit_too() -> None:
    told = six_systems()
    text = to_table(told, full=False)
    assert len(text.splitlines()) <= 40
    assert all(f"kompact-{number} saves 47 %" in text for number in range(6))
    said = " ".join(text.split())
    assert said.count("truncation (6 of them)") == said.count("words dropped at random (6 of them)") == 1
    assert "head_tail@kompact-3" not in text
    assert "head_tail@kompact-3" in to_table(told)


def test_wide_tables_are_cut_into_narrow_ones_that_repeat_the_names(result: Result) -> None:
    section = to_table(result).split("\nTokens\n")[1].split("\nOn the wire")[0]
    heads = [line for line in section.splitlines() if line.startswith("System")]
    assert len(heads) == 2
    words = [word for head in heads for word in head.split() if word not in ("System", "(95", "%)")]
    assert words == ["sent", "forwarded", "billed", "compression", "seen", "by", "cached", "reply", "grew", "n"]
    assert section.count("random_drop@kompact") == 2


def test_each_part_of_a_table_about_systems_and_data_names_both() -> None:
    scores = {
        "hotpotqa": {"f1": 0.5},
        "gsm8k": {"f1": 0.25, "math_equiv": 1.0},
        "ifeval": {"f1": 0.0, "ifeval_instruction_strict": 0.75},
    }
    rows = [EvalRow("a-system-of-some-length", 1, each, 1, 1, dataset=name) for name, each in scores.items()]
    text = to_table(Result(rows, {"a-system-of-some-length": {"mean_score": 0.25}}, config={"score_field": "f1"}))
    section = text.split("\nBy dataset\n")[1].split("\nTokens\n")[0]
    assert sum("mean f1" in line for line in section.splitlines()) == 1
    for line in section.splitlines():
        if "a-system" in line:
            assert line.split()[1] in scores
    assert section.count("math_equiv") == 1
    assert section.count("gsm8k") == 2


def test_a_mean_over_other_rows_than_the_first_says_over_how_many() -> None:
    found = {
        "f1": Estimate(0.5, 0.2, 0.8, 8),
        "mc_accuracy": Estimate(0.5, n=2),
        "recall": Estimate(0.6, n=8),
        "mean_score": Estimate(0.5, n=8),
    }
    rows = [EvalRow("a", number, {"f1": 0.5, "recall": 0.6}, 1, 1) for number in range(8)]
    result = Result(rows, {"a": {"mean_score": 0.5}}, config={"score_field": "f1"}, estimates={"a": found})
    text = to_table(result).split("\nQuality\n")[1]
    assert "0.500, n 2" in text
    assert "0.600, n" not in text
    assert "0.500, n 2" in to_html(result)
    assert "0.500, n 2" in to_markdown(result)


def test_metrics_that_stand_above_are_not_repeated(result: Result) -> None:
    text = to_table(result)
    assert "num_passing" in text
    assert "mean_input_tokens" not in text


def test_own_metrics_are_shown() -> None:
    text = to_table(Result([EvalRow("a", 1, {"f1": 1.0}, 1, 1)], {"a": {"mean_score": 1.0, "my_metric": 0.25}}))
    assert "my_metric" in text
    assert "0.2500" in text


def test_notes_and_missing_values(result: Result) -> None:
    text = to_table(result)
    assert "- Upstream caching was kept apart per arm." in text
    latency = text.split("\nLatency\n")[1]
    lines = [line.split() for line in latency.splitlines()]
    assert any(line[:1] == ["headroom"] and line[-3:] == ["—", "—", "40"] for line in lines)  # no time to first token


def test_an_empty_result_says_so() -> None:
    assert "No results to report." in to_table(Result([], {}))


def test_colour_only_on_request_and_never_with_no_color(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in to_table(result)
    assert "\x1b[31mloss" in to_table(result, color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in to_table(result, color=True)


def test_the_cli_can_print_it_at_the_terminals_width(result: Result) -> None:
    import io

    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=60, color_system=None).print(TerminalReport(build_page(result)))
    assert max(cell_len(line) for line in stream.getvalue().splitlines()) <= 60


def test_hostile_text_steers_nothing(nasty: str, hostile: Callable[[str], Result]) -> None:
    check(hostile(nasty))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY)
def test_no_text_steers_the_terminal(text: str, hostile: Callable[[str], Result]) -> None:
    check(hostile(text))


def check(result: Result) -> None:
    text = to_table(result)
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert not {unicodedata.category(character) for character in text.replace("\n", "")} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
        "Cn",
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("head_tail@mask_observations", "head_tail@\nmask_observations"),
        ("random_drop@head_tail:keep=0.25", "random_drop@\nhead_tail:keep=0.25"),
        ("py:package.module:Compressor", "py:package.module:\nCompressor"),
        ("x" * 40, "x" * 26 + "\n" + "x" * 14),
        ("short", "short"),
    ],
)
def test_a_long_name_is_broken_where_it_has_a_mark(name: str, shown: str) -> None:
    assert folded(name, 26) == shown
