"""Compactions that logs record: boundaries within one session, what they cost, what they lost, and the recorded summary
as an arm.
"""

import json

import pytest
from typer.testing import CliRunner

from context_bench.cli.app import app
from context_bench.compression.compressors import compressor_of
from context_bench.compression.datasets.generating import generate_probes
from context_bench.compression.recorded import audit, compaction_grids, recorded_points, segment_after
from context_bench.compression.session_rules.losses import facts_of, losses
from context_bench.core.errors import BadInput
from context_bench.transcripts import read_sessions
from context_bench.transcripts.session import verbatim
from context_bench.transcripts.session_files import shortened
from context_bench.wire.conversation import message_text

SUMMARY = "This session is being continued from a previous conversation that ran out.\n\nSummary:\nUse pnpm, not npm."


class TenADollar:
    """A price of 1 USD for ten new tokens, a tenth of it for read ones, 1.25 times for written ones, 2 for output."""

    def cost(self, usage, model):
        read, written = usage.cache_read or 0, usage.cache_write or 0
        new = usage.input_tokens - read - written
        return (new + 0.1 * read + 1.25 * written + 20 * (usage.output_tokens or 0)) / 10


def claude_line(kind, ident, content, *, second, usage=None, **more):
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"msg_{ident}", "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "usage": usage}
    stamp = f"2026-11-24T10:00:{second:02d}.000Z"
    head = {"sessionId": "s-1", "uuid": ident, "parentUuid": None, "cwd": "/work/ferry", "version": "2.1.197"}
    return {"type": kind, **head, "timestamp": stamp, "message": message, **more}


def used(new, read=0, written=0, output=10):
    return {
        "input_tokens": new,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    }


def call(ident, name, **arguments):
    return [{"type": "tool_use", "id": ident, "name": name, "input": arguments}]


def result(ident, text):
    return [{"type": "tool_result", "tool_use_id": ident, "content": text}]


@pytest.fixture
def claude_log(tmp_path):
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "s-1",
        "uuid": "b",
        "timestamp": "2026-11-24T10:00:10.000Z",
        "compactMetadata": {
            "trigger": "auto",
            "preTokens": 1010,
            "postTokens": 40,
            "durationMs": 2500,
            "preservedMessages": {"uuids": ["a2"]},
        },
    }
    lines = [
        claude_line("user", "u1", "Never edit migrations/001.sql. Use pnpm, not npm.", second=0),
        claude_line("assistant", "a1", call("c1", "Read", file_path="src/fees.py"), second=1, usage=used(100, 0, 800)),
        claude_line("user", "u2", result("c1", "1\tRATE = 0.02"), second=2),
        claude_line("assistant", "a2", "I have read it.", second=3, usage=used(100, 900, 0)),
        boundary,
        claude_line("user", "u3", SUMMARY, second=12, isCompactSummary=True),
        claude_line("user", "u4", "Go on.", second=13),
        claude_line(
            "assistant", "a3", call("c2", "Read", file_path="src/fees.py"), second=14, usage=used(100, 100, 200)
        ),
        claude_line("user", "u5", result("c2", "1\tRATE = 0.02"), second=15),
        claude_line(
            "assistant",
            "a4",
            call("c3", "Bash", command="sed -i s/INTEGER/BIGINT/ migrations/001.sql"),
            second=16,
            usage=used(900, 400, 0),
        ),
        claude_line("user", "u6", result("c3", ""), second=17),
    ]
    path = tmp_path / "s-1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_compaction_is_a_boundary_within_one_session(claude_log):
    [session] = read_sessions(claude_log)
    [found] = session.compactions
    assert (found.request, found.trigger, found.stated_before, found.stated_after) == (2, "auto", 1010, 40)
    assert found.seconds == 2.5
    assert [m["role"] for m in found.make_before()] == ["user", "assistant", "tool", "assistant"]
    assert [message_text(m) for m in found.make_opening()] == [SUMMARY, "I have read it."]
    assert [m["role"] for m in segment_after(session, 0)] == ["user", "assistant", "tool", "assistant", "tool"]
    assert len(session.requests) == 4


def test_size_cost_and_time_until_full_again_are_those_of_the_log(claude_log):
    [session] = read_sessions(claude_log)
    [found] = audit(session, prices=TenADollar())
    assert (found.before, found.after, found.counted) == (1010, 400, False)
    assert found.stated == (1010, 40)
    # the call for the summary is not in the log: 1,010 tokens read, and the summary written
    assert found.predicted
    assert found.cost == pytest.approx((0.1 * 1010 + 20 * found.summary_tokens) / 10)
    # 100 new and 200 written tokens, which would have been read from the cache: 100 + 250 - 30
    assert found.prefix_cost == pytest.approx((100 + 1.25 * 200 - 0.1 * 300) / 10)
    assert (found.full_again, found.full_again_seconds) == (2, pytest.approx(6.0))


def test_losses_are_told_with_what_shows_that_they_were_missed(claude_log):
    [session] = read_sessions(claude_log)
    [found] = audit(session)
    told = {(loss.kind, loss.need): loss.text for loss in found.needed}
    assert told == {("rule", "violated"): "Never edit migrations/001.sql", ("file", "read again"): "src/fees.py"}
    assert not any("pnpm" in loss.text for loss in found.losses)


def test_the_tables_tell_sizes_losses_and_what_was_missed(claude_log):
    [session] = read_sessions(claude_log)
    said, sizes, lost, missed = compaction_grids(audit(session, prices=TenADollar()))
    assert "1 compaction lost" in said.title
    assert said.title.endswith("2 of them were missed afterwards (rule 1, file 1).")
    assert sizes.rows == [("s-1 #1", "auto", "1,010", "400", sizes.rows[0][4], "32.0000", "2 requests, 0 min")]
    assert sizes.rows[0][4].startswith("≈")
    assert ("rule", "1", "1", "1") in lost.rows
    assert [row[1:4] for row in missed.rows] == [
        ("rule", "Never edit migrations/001.sql", "violated"),
        ("file", "src/fees.py", "read again"),
    ]
    assert compaction_grids([]) == []


def test_a_summary_is_never_taken_for_the_users_request(claude_log):
    [session] = read_sessions(claude_log)
    probes = generate_probes(session.messages)
    assert probes
    assert not any("pnpm" in atom.text or "continued from" in atom.text for probe in probes for atom in probe.atoms)
    assert [fact.kind for fact in facts_of(session.messages)].count("rule") == 0


def test_the_recorded_summary_is_an_arm_beside_truncation_to_its_size(claude_log, tmp_path):
    told = ["compress", "run", str(claude_log), "--system", "as-recorded", "--controls", "full,none,head_tail"]
    done = CliRunner().invoke(app, [*told, "--store", str(tmp_path / "s.db")])
    assert done.exit_code == 0, done.output
    assert "Compressed at recorded" in done.output
    assert "head_tail@as-recorded" in done.output
    assert "SetupFailed" not in done.output


def test_as_recorded_refuses_a_history_that_nobody_compacted():
    with pytest.raises(BadInput, match="recorded no compaction of this history"):
        compressor_of("as-recorded").compress([{"role": "user", "content": "x"}], [])


def test_recorded_points_hold_the_history_and_what_came_after(claude_log):
    [session] = read_sessions(claude_log)
    [(point, opening)] = recorded_points(session)
    assert (point.index, len(point.tail)) == (4, 5)
    assert message_text(opening[0]) == SUMMARY


def test_codex_says_which_answer_is_the_summary_and_what_it_cost(tmp_path):
    def line(kind, payload, second):
        return {"timestamp": f"2026-11-24T10:00:{second:02d}.000Z", "type": kind, "payload": payload}

    def said(role, text):
        part = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}

    def tokens(new, output, total):
        usage = {"input_tokens": new, "cached_input_tokens": 0, "output_tokens": output}
        info = {"last_token_usage": usage, "total_token_usage": {**usage, "input_tokens": total}}
        return {"type": "token_count", "info": info}

    summary = "Another language model started to solve this problem and produced a summary of it:\nThe fees are read."
    lines = [
        line("session_meta", {"id": "c-1", "cwd": "/work/ferry"}, 0),
        line("turn_context", {"model": "gpt-4.1"}, 0),
        line("response_item", said("user", "Look at the fees."), 0),
        line("response_item", said("assistant", "I have looked."), 1),
        line("event_msg", tokens(500, 20, 500), 1),
        line("response_item", said("assistant", "The fees are read."), 2),
        line("event_msg", tokens(530, 7, 1030), 2),
        line("compacted", {"message": summary, "replacement_history": [said("user", summary)]}, 3),
        line("event_msg", tokens(0, 0, 1030), 3),
        line("response_item", said("user", "Go on."), 4),
        line("response_item", said("assistant", "Gone on."), 5),
        line("event_msg", tokens(90, 5, 1120), 5),
    ]
    path = tmp_path / "rollout-1.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    [session] = read_sessions(path)
    [found] = session.compactions
    assert (found.request, found.made) == (2, 1)
    assert [message_text(m) for m in found.make_before()] == ["Look at the fees.", "I have looked."]
    [told] = audit(session, prices=TenADollar())
    assert (told.before, told.after, told.predicted) == (520, 90, False)
    assert told.cost == pytest.approx((530 + 20 * 7) / 10)


def gemini_log(tmp_path, *held):
    first = {"id": "1", "type": "user", "content": "Mend it.", "timestamp": "2026-11-24T10:00:00Z"}
    answer = {"id": "2", "type": "gemini", "content": "Mended.", "timestamp": "2026-11-24T10:00:01Z"}
    head = {"sessionId": "g", "projectHash": "h", "startTime": "2026-11-24T10:00:00Z"}
    rows = [head, first, answer, {"$set": {"messages": list(held)}}]
    rows += [{**first, "id": "5", "content": "And now?"}, {**answer, "id": "6", "content": "Now this."}]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_gemini_writes_down_what_it_remembers_after_a_compression(tmp_path):
    snapshot = {"id": "3", "type": "user", "content": [{"text": "<state_snapshot>mended</state_snapshot>"}]}
    reply = {"id": "4", "type": "gemini", "content": [{"text": "Got it."}]}
    [session] = read_sessions(gemini_log(tmp_path, snapshot, reply), agents=True)
    [found] = session.compactions
    assert [message_text(m) for m in found.make_before()] == ["Mend it.", "Mended."]
    assert [message_text(m) for m in found.make_opening()] == ["<state_snapshot>mended</state_snapshot>", "Got it."]
    assert len(session.requests) == 2


def test_gemini_without_a_snapshot_is_no_compaction(tmp_path):
    [session] = read_sessions(gemini_log(tmp_path), agents=True)
    assert session.compactions == []


ASKED = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}],
    },
]


def shown(text):
    return {"role": "tool", "tool_call_id": "c", "content": text}


def test_outputs_that_a_client_cleared_from_its_bodies_are_told():
    requests = [
        verbatim("openai-chat", {"model": "m", "messages": [*ASKED, shown("x" * 400)]}),
        verbatim(
            "openai-chat", {"model": "m", "messages": [*ASKED, shown("[cleared]"), {"role": "user", "content": "On."}]}
        ),
    ]
    [found] = shortened(requests)
    assert (found.request, found.summary) == (1, "")


def test_a_summary_that_an_sdk_put_into_its_bodies_is_told():
    summary = {"role": "user", "content": "<context_summary>a.py was read</context_summary>"}
    requests = [
        verbatim("openai-chat", {"model": "m", "messages": [*ASKED, shown("x" * 400)]}),
        verbatim("openai-chat", {"model": "m", "messages": [summary, {"role": "user", "content": "On."}]}),
    ]
    [found] = shortened(requests)
    assert [message_text(m) for m in found.make_opening()] == [summary["content"]]
    assert len(found.make_before()) == 3


def test_bodies_that_go_on_from_one_another_have_no_compaction():
    first = [*ASKED, shown("x" * 400)]
    requests = [verbatim("openai-chat", {"model": "m", "messages": m}) for m in (first, [*first, *ASKED[:1]])]
    assert list(shortened(requests)) == []


# What was lost, on messages written by hand
# ------------------------------------------------------------------------


def user(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


def runs(ident, command, output):
    made = {
        "id": ident,
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": ident, "content": output},
    ]


FAILS = "error: BUILD_TOKEN is not set"


def needed(before, opening, after):
    found = losses(facts_of(before), before, [user(opening)], after)
    return {(loss.kind, loss.need) for loss in found if loss.need}


def test_a_failed_command_that_is_tried_again_without_a_change():
    before = [user("Build it."), *runs("a", "sh build.sh", FAILS)]
    again = runs("b", "cd /work && sh build.sh", FAILS)
    assert needed(before, "They want a build.", again) == {("failed", "tried again")}
    assert needed(before, "`sh build.sh` fails.", again) == set()
    changed = [*runs("c", "sed -i s/a/b/ build.sh", ""), *again]
    assert needed(before, "They want a build.", changed) == set()


def test_a_failed_command_that_fails_otherwise_is_another_try():
    before = [user("Build it."), *runs("a", "sh build.sh", FAILS)]
    assert needed(before, "They want a build.", runs("b", "sh build.sh", "error: no space left")) == set()


def test_a_decision_that_is_turned_round():
    before = [user("How?"), says("I chose `decimal_rate` over `float_rate` because floats drift in sums.")]
    assert needed(before, "Rates.", runs("a", "echo float_rate >> a.py", "")) == {("decision", "turned round")}
    assert needed(before, "It is `decimal_rate`.", runs("a", "echo float_rate >> a.py", "")) == set()


def test_what_the_user_has_to_say_again():
    before = [user("Always answer in British English."), says("Yes.")]
    assert needed(before, "Nothing.", [user("I told you: always answer in British English!")]) == {
        ("rule", "asked again")
    }
    assert needed(before, "Nothing.", [user("Thank you.")]) == set()


def test_a_file_that_was_changed_since_is_not_read_again():
    before = [user("Look."), *runs("a", "cat src/a.py", "x = 1"), *runs("b", "sed -i s/1/2/ src/a.py", "")]
    assert needed(before, "Nothing.", runs("c", "cat src/a.py", "x = 2")) == set()
