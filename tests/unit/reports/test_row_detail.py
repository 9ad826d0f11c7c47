"""The fragment a row opens to, and the same in a terminal: limits, folds, hostile and very large texts, what is not
known.
"""

import re
import shlex

import pytest

from context_bench.core.families import RowPart, RowStep, TextMark
from context_bench.core.records import EvalRow
from context_bench.reports.detail import command_for, detail_html, detail_text, placed, readable_reason
from context_bench.reports.exchanges import shown_exchanges
from context_bench.reports.row_parts import page_limit

WHERE = {"run": "my run", "system": "a$(b)", "example_id": 7, "trial": 2}
LONG = " ".join(f"word{n}" for n in range(2000))


def row(**more):
    return EvalRow("proxy", 7, {"f1": 0.5, "judge_score": 1.0}, **more)


def exchange(sent, forwarded, **more):
    bodies = {
        side: None
        if texts is None
        else {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
        for side, texts in (("sent", sent), ("forwarded", forwarded))
    }
    return {"turn": 1, "tokens": {"sent": 1204, "forwarded": 640}, "wires": ["openai-chat"] * 2, **bodies, **more}


def html(told, limit=None, of=None):
    return str(detail_html(of or row(), told, limit=limit))


def test_texts_scores_reasons_errors_and_calls():
    judges = [
        {"evaluator": "llm_judge", "score": 0.75, "reason": "4 Quite right."},
        {"evaluator": "rubric", "reason": "{"},
    ]
    calls = [
        {
            "account": "system",
            "model": "m",
            "attempt": 2,
            "status": 200,
            "sent_tokens": 1204,
            "seconds": 1.5,
            "cost": 0.00012,
        }
    ]
    told = {"question": "Who?", "answer": "Ada\nBo", "response": "Ada <b>", "judges": judges, "calls": calls}
    shown = html(told, of=row(errors={"rouge": "EvaluatorFailed: <no>"}))
    for text in (
        "Who?",
        "Ada\nBo",
        "Ada &lt;b&gt;",
        "llm_judge said (0.750)",
        "4 Quite right.",
        "rouge: EvaluatorFailed: &lt;no&gt;",
        "1,204",
    ):
        assert text in shown
    assert "0.00012" in shown
    assert "1 call<" in shown
    text = detail_text(row(), told)
    assert "llm_judge  0.750: 4 Quite right." in text
    assert "Scores     f1 0.500, judge_score 1.000" in text


def test_scores_of_a_row_have_the_digits_that_they_have_everywhere():
    told = detail_text(EvalRow("a", 7, {"f1": 10 / 11, "seconds": 0.00042, "hits": 120.0, "none": 0.0}), {})
    assert "f1 0.909" in told
    assert "0.9091" not in told
    assert "seconds 0.0004, hits 120, none 0.000" in told


def test_nothing_is_known():
    assert "Scores" in html(None)
    assert "(none)" in html({})
    assert detail_text(row(), None).startswith("proxy · 7\n")


def test_counts_come_first():
    said = shown_exchanges({"exchanges": [exchange(["one two three four", "gone"], ["one three"])]})[0].sentence
    assert said == "Sent 1,204 tokens, forwarded 640: 40 % of the words kept as they were, 1 message dropped."
    assert (
        shown_exchanges({"exchanges": [exchange(["x"], ["x"])]})[0].sentence
        == "Sent 1,204 tokens, forwarded 640: forwarded as sent."
    )
    words = " ".join(str(n) for n in range(1000))
    said = shown_exchanges({"exchanges": [exchange([words], [words.removesuffix(" 999")])]})[0].sentence
    assert "more than 99 % of the words" in said


def test_what_is_missing_is_explained():
    told = {
        "exchanges": [
            exchange(["sent <i>"], None, why="no tap stood before the provider"),
            exchange(None, None, why="bodies none"),
        ]
    }
    shown = html(told)
    assert "No tap stood before the provider" in shown
    assert "sent &lt;i&gt;" in shown
    assert "Bodies none" in shown
    assert "Bodies none" in detail_text(row(), told)


def test_a_request_whose_other_side_is_not_known_is_neither_unchanged_nor_what_the_row_sent():
    told = {"exchanges": [exchange([LONG], None, tokens={"sent": 67}, why="no tap")]}
    shown, text = html(told), detail_text(row(), told)
    assert "The request that went out had 67 tokens." in shown
    assert "No tap." in shown
    assert "<summary>… 1,986 more words</summary>" in shown
    assert "1,986 more words" in text
    assert "unchanged" not in shown + text
    cut = html({"exchanges": [exchange([LONG] * 3, None, why="no tap")]}, limit=500)
    assert "more words" in cut
    assert "unchanged" not in cut


def test_a_context_that_a_system_gave_back_is_compared():
    told = {"context": "Lane 3 is very old.", "context_after": "Lane 3 is old."}
    shown = html(told)
    assert "What the system made of the context" in shown
    assert "<del>very </del>" in shown
    assert "[-very -]" in detail_text(row(), told)


def test_long_unchanged_runs_are_folded():
    told = {"exchanges": [exchange([f"{LONG} old {LONG}"], [f"{LONG} new {LONG}"])]}
    shown = html(told)
    assert re.findall(r"<summary>… ([\d,]+) words unchanged</summary>", shown) == ["1,986", "1,986"]
    assert "<del>old</del>" in shown
    assert "<ins>new</ins>" in shown
    assert shown.count("word1000") == 2
    text = detail_text(row(), told)
    assert text.count("1,986 words unchanged") == 2
    assert "word1000" not in text
    assert "[-old-]{+new+}" in text
    assert detail_text(row(), told, full=True).count("word1000") == 2


def test_many_unchanged_messages_are_one_fold():
    told = {"exchanges": [exchange(["a b"] * 40 + ["last one"], ["a b"] * 40 + ["last"])]}
    assert "… messages 1 to 40: 80 words unchanged" in html(told)
    assert "… messages 1 to 40: 80 words unchanged" in detail_text(row(), told)


def test_beside_a_change_an_unchanged_message_is_said_to_be_so():
    shown = html({"exchanges": [exchange(["kept as it is", "one two"], ["kept as it is", "one"])]})
    kept = re.search(r'class="message kept">(.*?)</div>\n</div>', shown, re.DOTALL)[1]
    assert re.findall(r'class="text (\w+)">(.*?)</div>', kept) == [
        ("sent", "kept as it is"),
        ("forwarded", '<span class="none">unchanged</span>'),
    ]
    assert ">unchanged<" not in html({"exchanges": [exchange(["kept as it is"], ["kept as it is"])]})


@pytest.mark.parametrize("limit", [0, 120, 1000, 4000])
def test_the_limit_holds_and_says_what_is_cut(limit):
    texts = [" ".join(f"word{n}" for n in range(2000) if n % step) for step in (3, 7)]
    told = {"response": LONG, "context": LONG, "exchanges": [exchange([LONG, LONG], texts)] * 2, "where": WHERE}
    shown = html(told, limit)
    plain = re.sub(r"<[^>]*>", "", shown)
    assert len(plain) < 10 * limit + 2500
    assert len(shown) < 20 * limit + 5000
    assert "context-bench diff &#39;my run&#39; 7 --system &#39;a$(b)&#39; --trial 2 --full" in plain
    assert "words" in plain


def test_a_whole_page_needs_no_such_sentence():
    assert "--full" not in html({"response": LONG, "exchanges": [exchange([LONG], [LONG[:200]])], "where": WHERE})
    assert command_for({}) == ""


def test_the_command_names_a_store_that_is_not_the_usual_one():
    """As the page names it, which knows it; a row without a run has no command, in whatever store."""
    found = placed({"question": "?", "where": WHERE}, "o'ther.db")
    assert shlex.split(command_for(found["where"]))[-3:] == ["--store", "o'ther.db", "--full"]
    assert placed({"where": WHERE}, "")["where"] == WHERE
    assert placed({"question": "?"}, "other.db") == {"question": "?"}
    assert placed(None, "other.db") is None


HOSTILE = "</script></template><img src=x onerror=alert(1)>\x1b[2J\u202e\u200b\ud800\x00 [-x-] {{ 1 }}"


def test_hostile_texts_everywhere():
    body = {
        "model": HOSTILE,
        "messages": [{"role": HOSTILE, "content": HOSTILE}],
        HOSTILE: HOSTILE,
        "tools": [{"name": HOSTILE}],
    }
    hostile = {
        "turn": 1,
        "sent": body,
        "forwarded": {"messages": [{"role": "user", "content": f"a {HOSTILE}"}]},
        "why": HOSTILE,
    }
    told = dict.fromkeys(("question", "answer", "response", "context", "context_after", HOSTILE), HOSTILE)
    told |= {
        "judges": [{"evaluator": HOSTILE, "reason": HOSTILE}],
        "calls": [{"account": HOSTILE, "model": HOSTILE, "error": HOSTILE}],
    }
    told |= {"exchanges": [hostile], "where": dict.fromkeys(WHERE, HOSTILE)}
    of = EvalRow(HOSTILE, HOSTILE, {HOSTILE: 1.0}, errors={HOSTILE: HOSTILE})
    for shown in (html(told, None, of), html(told, 300, of)):
        assert "<img" not in shown
        assert "</script" not in shown
        assert "</template" not in shown
        assert "{{ 1 }}" in shown
        assert not set("\x1b\u202e\u200b\ud800\x00") & set(shown)
    for full in (True, False):
        assert not set("\x1b\u202e\u200b\ud800\x00") & set(detail_text(of, told, full=full))


def test_white_space_that_is_lost_is_written_out():
    shown = html({"exchanges": [exchange(["one\n\ntwo"], ["one two"])]})
    assert "<del>↵\n↵\n</del>" in shown
    assert "<ins>␣</ins>" in shown


def test_colour_only_repeats_what_the_marks_say():
    told = {"exchanges": [exchange(["one two three"], ["one three four"])]}
    coloured, plain = detail_text(row(), told, color=True), detail_text(row(), told)
    assert "\x1b[31m" in coloured
    assert [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()] == plain.splitlines()
    narrow = detail_text(row(), {"exchanges": [exchange([LONG], [LONG[:3000]])]}, width=40, full=True)
    assert max(map(len, narrow.splitlines())) <= 40


def test_a_megabyte_is_shown():
    text = "lane mill stone " * 62_500
    shown = html({"exchanges": [exchange([text], [text[: len(text) // 2]])]})
    assert "<summary>… 93,700 words dropped</summary>" in shown
    assert len(html({"exchanges": [exchange([text], [text[: len(text) // 2]])]}, 1000)) < 6000


def test_judges_replies_in_json_are_made_readable():
    rubric = (
        '{"criterionResults": [{"criterionId": "facts", "reasoning": "All kept.", "score": 5}, '
        '{"criterionId": "files", "score": 1}]}'
    )
    assert readable_reason(rubric) == "facts: 5. All kept.\nfiles: 1."
    assert readable_reason('{"reasoning": "Shorter.", "winner": "first"}') == "winner first. Shorter."
    assert readable_reason("4 Fine.") == "4 Fine."
    assert readable_reason('{"a": 1}') == '{"a": 1}'
    assert readable_reason("[" * 10_000) == "[" * 10_000


def test_parts_of_a_family_are_laid_out_folded_cut_and_harmless():
    nasty = "</pre><script>alert(1)</script>\x1b[31m\u202e"
    marks = (TextMark(2000, 2004, "kept <b>", "good"), TextMark(9000, 9003, "lost", "bad"))
    parts = [
        RowPart(
            title=f"T {nasty}", note=nasty, columns=("n", "seen", nasty), rows=[(1, True, nasty), (2.5, None, "x")]
        ),
        RowPart(title="Marked", text="a" * 2000 + "FACT" + "b" * 6996 + "FAX" + "c" * 3000, marks=marks),
        RowPart(title="Changed", text="--- a\n+++ b\n@@ 1 @@\n-old\n+new\n same\n", changes=True),
        RowPart(title="Steps", steps=(RowStep("step 1", (("in", "9"),), (("output", nasty + "w" * 9000),)),)),
    ]
    told = {"parts": parts, "response": "an answer"}
    for limit in (None, 100_000, 250):
        shown = html(told, limit)
        assert "<script" not in shown
        assert "\x1b" not in shown
        assert "kept &lt;b&gt;" in shown
    whole = html(told)
    assert 'class="good">FACT</mark>' in whole
    assert "show 1,360 more characters" in whole, "what lies between marks is folded"
    assert "show 6,356 more characters" in whole
    assert '<span class="line dropped">-old' in whole
    assert "✓ yes" in whole
    assert "more characters, not in this page" in html(told, 250)
    assert "more characters, not in this page" not in whole
    text = " ".join(detail_text(row(), told, full=True).split())
    for said in ("Marked", "FACT", "kept <b>", "step 1 · in 9", "-old"):
        assert said in text


def test_a_part_has_no_column_without_a_value_and_no_empty_table():
    columns = ("rank", "score", "words")
    full = html({"parts": [RowPart(title="Found", columns=columns, rows=[(1, None, "a"), (2, None, "b")])]})
    assert '<th scope="col" class="n">rank</th><th scope="col">words</th>' in full
    assert '<td class="n" data-of="rank">2</td><td data-of="words">b</td>' in full
    told = {"parts": [RowPart(title="Found", note="Nothing came back.", columns=columns)]}
    assert "Nothing came back." in html(told)
    assert "<table" not in html(told)
    assert "rank" not in detail_text(row(), told)
    calls = html({"calls": [{"model": "m", "attempt": 1}, {"attempt": 2, "seconds": 0.0123, "cost": 0.000214}]})
    heads = [*re.findall(r"<th scope=.col.[^>]*>([^<]*)</th>", calls)]
    assert heads == ["model", "attempt", "time", "cost"]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", calls) == ["m", "1", "—", "—", "—", "2", "12 ms", "$0.000214"]


def test_a_part_stands_for_what_it_shows_better():
    told = {"response": "an answer", "context": "a b c", "context_after": "a c", "exchanges": [exchange(["x"], ["y"])]}
    assert "What the system made of the context" in html(told)
    better = RowPart(title="Better", text="-", replaces=("answer", "context", "exchanges"))
    shown = html(told | {"parts": [better]})
    assert "Better" in shown
    for gone in ("What the system made", "an answer", "Sent and forwarded", "(none)"):
        assert gone not in shown


def test_a_page_of_a_row_stays_small_however_large_the_row_is():
    assert page_limit({"context": "a " * 1000}) is None
    huge = "word <&> " * 1_800_000
    parts = [
        RowPart(title="Text", text=huge, marks=tuple(TextMark(at, at + 9, "kept") for at in range(0, 16_000_000, 9000)))
    ]
    parts += [RowPart(title="Steps", steps=(RowStep("s", (), (("output", huge),)),) * 500)]
    told = {"question": huge, "response": huge, "parts": parts}
    limit = page_limit(told)
    assert limit is not None
    assert 10_000 < len(html(told, limit)) < 4_000_000
    assert "show" in html(told, limit)
