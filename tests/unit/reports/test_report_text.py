from __future__ import annotations

import json
import re
import sys
import unicodedata

import numpy
import pytest
from hypothesis import example, given, strategies as st

from context_bench.core.records import Estimate
from context_bench.reports.visible_text import (
    csv_cell,
    error_text,
    excerpt,
    fold_at,
    json_line,
    json_ready,
    markdown,
    script_json,
    visible,
)

ANY = st.text(alphabet=st.characters(), max_size=60)
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}


@given(ANY)
@example("\x1b[31mred\x1b[0m\x1b]0;title\x07")
@example("abc\u202ecba\u200b\ufeff\u3164")
def test_visible_has_nothing_that_hides_or_steers(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(character) for character in shown} & STEERING
    assert shown.isprintable()
    assert visible(shown, 10_000) == shown  # a second pass changes nothing


def test_visible_says_what_was_there() -> None:
    assert visible("\x1b[31mred") == "\\x1b[31mred"
    assert visible("a\u202eb") == "a\\u202eb"
    assert visible("a\u3164b") == "a\\u3164b"
    assert visible("tag\U000e0041") == "tag\\U000e0041"
    assert visible("one\r\ntwo\tthree") == "one two three"
    assert visible("one\r\ntwo\tthree", lines=True) == "one\ntwo    three"
    assert visible("naïve 東京 🙂 العربية") == "naïve 東京 🙂 العربية"


def test_a_name_that_is_cut_tells_itself_from_others_and_a_text_only_that_it_was_cut() -> None:
    long, other = "ab " * 200, "ab " * 199 + "c"
    assert visible(long, 40) != visible(other, 40)
    assert re.fullmatch(r"[ab ]{40}…[0-9a-f]{6}", visible(long, 40))
    assert re.fullmatch(r"[ab ]{400}…", visible(long, 400))
    assert visible("x\n" * 100, 10, lines=True) == "x\n" * 5 + "…"
    assert excerpt(long, 40) == "ab " * 12 + "ab\u00a0…"  # not within a word
    assert excerpt("ab" * 100, 40) == "ab" * 20 + "…"
    assert excerpt("short\x1b", 40) == "short\\x1b"
    assert excerpt("\u202e" * 900, 200).endswith("…")


@given(ANY, st.integers(1, 50))
def test_a_text_is_folded_at_the_end_of_a_line_or_a_word(text: str, most: int) -> None:
    at = fold_at(text, most)
    if len(text) <= 1.25 * most:
        assert at == len(text)
        return
    assert most - most // 4 <= at <= most
    near = text[most - most // 4 : most]
    ends = "\n" if "\n" in near else " " if " " in near else ""
    assert text[:at].endswith(ends)
    assert not ends or ends not in text[at:most]


def test_an_error_has_its_source_where_it_is_not_the_systems_own() -> None:
    assert error_text({"system": "Refused: HTTP 400", "rouge": "EvaluatorFailed: x"}) == (
        "Refused: HTTP 400; rouge: EvaluatorFailed: x"
    )
    assert error_text({}) == ""


@given(ANY)
def test_an_excerpt_is_the_text_itself_where_nothing_is_cut(text: str) -> None:
    assert excerpt(text, 60) == visible(text, 60 + 241)


def test_stacked_marks_are_kept_to_a_sane_height() -> None:
    assert visible("e\u0301") == "e\u0301"
    assert visible("z" + "\u0300" * 50).count("\u0300") == 4


def test_long_texts_are_cut_and_stay_different() -> None:
    first, second = visible("x" * 500 + "a"), visible("x" * 500 + "b")
    assert first != second
    assert len(first) < 130
    assert len(visible("\u200b" * 500)) < 260  # escapes are long, but not without end


@given(ANY)
def test_markdown_leaves_no_markup(text: str) -> None:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    tokens = parser.parse(f"| head | other |\n| --- | --- |\n| {markdown(text)} | x |\n")
    kinds = [token.type for token in tokens]
    assert kinds.count("td_open") == 2
    inline = [child.type for token in tokens for child in token.children or []]
    assert set(inline) <= {"text", "text_special"}


@given(ANY)
@example("# heading")
@example("1. item")
@example("- item")
@example("---")
def test_markdown_text_in_a_list_stays_in_its_item(text: str) -> None:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark", {"html": True}).parse(f"- note: {markdown(text)}\n- {markdown(text)}\n- last")
    kinds = {token.type for token in tokens}
    assert kinds <= {
        "bullet_list_open",
        "bullet_list_close",
        "list_item_open",
        "list_item_close",
        "paragraph_open",
        "paragraph_close",
        "inline",
    }
    assert sum(token.type == "list_item_open" for token in tokens) == 3


def test_markdown_keeps_ordinary_names_readable() -> None:
    assert markdown("openai_proxy_localhost:7878") == "openai_proxy_localhost:7878"
    assert markdown("head_tail@kompact") == "head_tail@kompact"
    assert markdown("a|b") == "a\\|b"
    assert markdown("<b>") == "&lt;b&gt;"


@given(ANY)
@example("=1+1")
@example("'=1+1")
@example("''@x")
def test_csv_cell_is_no_formula_and_can_be_undone(text: str) -> None:
    cell = csv_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"))
    undone = cell[1:] if re.match("'+[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]", cell) else cell
    assert undone == re.sub("[\ud800-\udfff\0]", "\ufffd", text)


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY
    | st.just(numpy.float32(0.5))
    | st.just(numpy.float64("nan"))
    | st.just({1, 2}),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(ANY | st.integers(), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(JSON_LIKE)
def test_json_ready_is_always_strict_json(value: object) -> None:
    text = json.dumps(json_ready(value), allow_nan=False, ensure_ascii=False)
    text.encode("utf-8")
    json.loads(text, parse_constant=pytest.fail)
    assert json_line(value) == text


@pytest.mark.parametrize(
    "hidden", [{"api_key": "s"}, {"in": {"password": "s", 1: 2}}, {"url": "http://u:s@host/x"}, {"u": [1e-5, "\ud800"]}]
)
def test_a_line_of_json_hides_what_json_ready_hides(hidden: object) -> None:
    assert json_line(hidden) == json.dumps(json_ready(hidden), ensure_ascii=False)


def test_json_ready_drops_what_was_not_measured() -> None:
    assert json_ready({"a": float("inf"), "b": None, "c": numpy.float32("nan"), "d": 0, "e": ""}) == {"d": 0, "e": ""}
    assert json_ready([1.0, float("nan")]) == [1.0, None]
    assert json_ready(Estimate(0.5, n=3))["value"] == 0.5
    assert "low" not in json_ready(Estimate(0.5))
    assert json_ready({"x": numpy.int64(3)}) == {"x": 3}


def test_secrets_are_a_second_time_kept_out() -> None:
    ready = json_ready(
        {"api_key": "sk-1", "judge_api_key": "sk-2", "Authorization": "Bearer x", "api_key_env": "OPENAI_API_KEY"}
    )
    assert ready == {
        "api_key": "(hidden)",
        "judge_api_key": "(hidden)",
        "Authorization": "(hidden)",
        "api_key_env": "OPENAI_API_KEY",
    }
    assert json_ready("https://user:pass@example.org:8080/v1?x=1") == "https://example.org:8080/v1?x=1"
    assert json_ready({"max_tokens": 5, "mail": "a@b.c"}) == {"max_tokens": 5, "mail": "a@b.c"}


@given(ANY)
@example("</script><!--")
def test_script_json_cannot_end_its_block(text: str) -> None:
    block = script_json(json.dumps({"x": text}, ensure_ascii=False))
    assert not re.search("[<>&\u2028\u2029]", block)
    assert json.loads(block) == {"x": text}


def test_long_names_of_a_mapping_are_not_remembered():
    name = "".join(["k"] * 1_000)
    before = sys.getrefcount(name)
    assert json_line({name: 1}) == f'{{"{name}": 1}}'
    assert sys.getrefcount(name) == before
