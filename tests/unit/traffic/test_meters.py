"""Meters: what tools print is read by its form, and the gap to the same work recomputed is told by reasons."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.traffic.meters import (
    DENOMINATORS,
    Meter,
    MeteredWork,
    explained,
    explained_usage,
    meter_formats,
    meter_grids,
    read_meter,
    shares_of,
)

RTK = {
    "summary": {
        "total_commands": 2,
        "total_input": 300,
        "total_output": 100,
        "total_saved": 220,
        "avg_savings_pct": 73.3,
        "oversized_excluded": 0,
    }
}
CCUSAGE = {
    "session": [],
    "totals": {
        "inputTokens": 5,
        "cacheReadTokens": 70,
        "cacheCreationTokens": 0,
        "outputTokens": 9,
        "totalTokens": 84,
        "totalCost": 0.5,
    },
}


def saved(tmp_path, document):
    path = tmp_path / "meter.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_file_is_known_by_what_it_holds(tmp_path):
    meter = read_meter(saved(tmp_path, RTK))
    assert (meter.name, meter.saved, meter.before, meter.after) == ("rtk gain", 220, 300, 100)
    assert (meter.share, meter.denominator, meter.floored) == (pytest.approx(0.733), "passed", True)
    usage = read_meter(saved(tmp_path, CCUSAGE))
    assert (usage.name, usage.spent, usage.read, usage.written, usage.usd) == ("ccusage", 75, 70, 0, 0.5)


def test_a_command_is_run_and_what_it_prints_is_read():
    script = f"import json; print(json.dumps({RTK!r}))"
    assert read_meter(f'{sys.executable} -c "{script}"').saved == 220


def test_a_url_is_asked():
    class Stats(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(RTK).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Stats)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert read_meter(f"http://127.0.0.1:{server.server_port}/stats").before == 300
    finally:
        server.shutdown()
        server.server_close()


def test_places_in_json_of_no_known_form(tmp_path):
    path = saved(tmp_path, {"a": {"b": [40]}, "c": 100})
    meter = read_meter(f"{path}#saved=a.b.0,before=c,of=results")
    assert (meter.saved, meter.before, meter.after, meter.share, meter.denominator) == (40, 100, 60, 0.4, "results")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{path}", "no meter that is known, its JSON has a, c"),
        ("{path}#saved=x", "no number at 'x'"),
        ("{path}#wrong=c", "expected before"),
        ("{path}#saved=c,of=all", "expected one of passed"),
        ("/no/such/program-at-all", "--meter /no/such/program-at-all"),
        ("http://127.0.0.1:9/", "cannot be read"),
    ],
)
def test_what_is_no_meter_is_refused_with_the_reason(tmp_path, source, said):
    path = saved(tmp_path, {"a": {"b": [40]}, "c": 100})
    with pytest.raises(BadInput, match=said):
        read_meter(source.format(path=path))


def test_text_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "x").write_text("Total saved: 5")
    with pytest.raises(BadInput, match="expected JSON, found 'Total saved: 5'"):
        read_meter(str(tmp_path / "x"))


def test_an_open_telemetry_export_is_summed(tmp_path):
    def point(kind, value):
        return {"attributes": [{"key": "type", "value": {"stringValue": kind}}], "asInt": str(value)}

    points = [point("input", 5), point("cacheRead", 70), point("output", 9), point("input", 1)]
    metrics = [
        {"name": "claude_code.token.usage", "sum": {"dataPoints": points}},
        {"name": "claude_code.cost.usage", "sum": {"dataPoints": [{"asDouble": 0.25}]}},
    ]
    document = {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    meter = read_meter(saved(tmp_path, document))
    assert (meter.spent, meter.read, meter.output, meter.usd) == (76, 70, 9, 0.25)


LONG = "pier seven has a fare of eleven; " * 2_000


def test_the_gap_is_told_by_reasons_that_add_up():
    count = counter_for("gpt-4.1").count
    work = [
        MeteredWork("grep", LONG, "3 hits"),
        MeteredWork("ls", "a", "a b c d e"),
        MeteredWork("cat", LONG, "", sent=False),
    ]
    characters = [-(-len(item.before) // 4) - -(-len(item.after) // 4) for item in work]
    meter = Meter(
        "tool", "passed", saved=sum(max(0, each) for each in characters), tokenizer="characters / 4", floored=True
    )
    told = explained(meter, work, model="gpt-4.1", overhead=50)
    assert told.recomputed == count(LONG[:30_000]) - count("3 hits") + count("a") - count("a b c d e") - 50
    assert told.reasons["own overhead left out"] == 50
    assert told.reasons["output never sent"] == count(LONG[:30_000])
    assert told.reasons["the client would have cut anyway"] == 2 * (count(LONG) - count(LONG[:30_000]))
    assert told.reasons["floored at zero"] == -characters[1]
    assert told.rest == 0
    assert any(note.startswith("one huge item: cat") or "items grew" in note for note in told.notes)


def test_what_no_reason_explains_is_left_over():
    told = explained(Meter("tool", "passed", saved=1_000), [MeteredWork("x", "a b c", "a")], model="gpt-4.1")
    assert told.rest == 1_000 - told.recomputed
    assert told.rest_share > 0.9


def test_a_meter_that_measures_another_text_says_so():
    work = [MeteredWork("ls", "a b c", "a")]
    count = counter_for("gpt-4.1").count
    told = explained(Meter("tool", "passed", saved=90, before=100, after=10), work, model="gpt-4.1")
    assert told.reasons["another baseline: its texts before are not the command's"] == 100 - count("a b c")
    assert told.rest == 0


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 500),
    st.integers(0, 500),
)
def test_the_reasons_of_a_meter_that_tells_both_sizes_always_add_up(items, before, after):
    work = [MeteredWork(f"{n}", *item) for n, item in enumerate(items)]
    told = explained(Meter("t", "passed", saved=before - after, before=before + 1, after=after), work, model="gpt-4.1")
    assert told.rest == pytest.approx(0)


def test_a_meter_of_usage_is_held_to_the_log_and_to_the_bill():
    logged = Usage(100, 9, 70, 25)
    told = explained_usage(Meter("ccusage", "bill", spent=75, read=70, written=0), logged, Usage(140, 9))
    assert (told.claimed, told.recomputed, told.billed) == (75, 100, 140)
    assert told.reasons == {"tokens written to the cache left out": -25}
    assert told.rest == 0
    assert "lacks 40 input tokens" in told.notes[0]


def test_savings_and_usage_are_not_mixed_up():
    with pytest.raises(BadInput, match="tells no saving"):
        explained(Meter("u", "bill", spent=5), [])
    with pytest.raises(BadInput, match="tells no usage"):
        explained_usage(Meter("s", "passed", saved=5), Usage())


def test_every_form_names_a_denominator_and_what_it_is_known_by():
    forms = meter_formats()
    assert {"rtk", "headroom", "llmtrim", "ccusage", "codeburn", "claude_context_cost"} <= forms.keys()
    for form in forms.values():
        assert form["denominator"] in DENOMINATORS
        assert form["has"]


def test_a_saving_has_a_share_of_each_known_denominator():
    assert shares_of(10, passed=20, results=100, prompts=None) == {"passed": 0.5, "results": 0.1}


def test_the_tables_show_claimed_recomputed_and_billed():
    told = explained_usage(Meter("ccusage", "bill", spent=75, read=70, written=0), Usage(100, 9, 70, 25), Usage(140, 9))
    table, why = meter_grids([told])
    assert table.rows == [("ccusage", "used", "75", "100", "140", "+0", "of the bill")]
    assert why.rows[0][:3] == ("ccusage", "tokens written to the cache left out", "-25")
    assert meter_grids([]) == []
