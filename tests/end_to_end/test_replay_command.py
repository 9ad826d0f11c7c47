"""`context-bench replay` as a user runs it: sessions through loopback proxies, against counts and bills made here by
other means.
"""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from outside_count import tokens

TOOLS = [
    {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}}}
]


def canonical(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def listing(turn):
    return "\n".join(
        f"{number}: value_{turn}_{number} = {(number * 7919 + turn * 104729) % 10007}" for number in range(40)
    )


def conversation(name, turns=5):
    """A finished conversation: the agent reads a file per turn, then says what it found."""
    messages = [
        {"role": "system", "content": f"You are careful. Session {name}."},
        {"role": "user", "content": "Which values are odd?"},
    ]
    for turn in range(turns):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"src/{turn}.txt"})},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": listing(turn)})
    return [*messages, {"role": "assistant", "content": "The first and the third value are odd."}]


@pytest.fixture
def recorded(tmp_path):
    """Two sessions of six requests each."""
    path = tmp_path / "log.jsonl"
    lines = [
        {"model": "gpt-4o", "messages": conversation(name), "tools": TOOLS, "session_id": name}
        for name in ("one", "two")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@contextmanager
def serving(responder):
    server = ModelServer(responder)
    run_sync(server.start())
    try:
        yield server
    finally:
        run_sync(server.stop())


@contextmanager
def behind(*habits):
    """Proxies with these habits whose upstream is a free port, for a tap; gives the command's options for them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with ExitStack() as stack:
        made = {
            habit: MisbehavingProxy(habit, f"http://127.0.0.1:{port}") for habit in habits if isinstance(habit, str)
        }
        proxies = [
            stack.enter_context(made.get(habit) or Rewriting(in_body(habit), f"http://127.0.0.1:{port}"))
            for habit in habits
        ]
        names = [getattr(habit, "__name__", habit) for habit in habits]
        named = [
            part for name, proxy in zip(names, proxies, strict=True) for part in ("--proxy", proxy.url, "--name", name)
        ]
        yield [*named, "--tap", str(port), "--quiet"]


def replay(folder, sessions, arms, *more, code=0, name="replay"):
    out = folder / f"{name}.json"
    line = [
        "replay",
        str(sessions),
        *arms,
        "--store",
        str(folder / "store.db"),
        "--run",
        name,
        "--output",
        "json",
        "--out",
        str(out),
        *more,
    ]
    assert main(line) == code
    return json.loads(out.read_text()) if out.exists() else None


def prompt(body):
    """A request of the chat wire as texts in order, counted by the rule that the documentation gives."""
    texts = [canonical(body["tools"])]
    for message in body["messages"]:
        if message.get("content"):
            texts.append(message["content"])
        if message.get("tool_calls"):
            calls = [
                {"id": call["id"], **{name: call["function"][name] for name in ("name", "arguments")}}
                for call in message["tool_calls"]
            ]
            texts.append(canonical(calls))
    return texts


def length(texts):
    return sum(tokens(text) for text in texts)


def shared(one, other):
    """Tokens of the longest common prefix of two prompts given as texts."""
    total = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return total + tokens(a[:same])
        total += tokens(a)
    return total


def bill(prompts):
    """Dollars for a session's prompts on gpt-4o by hand: 2.50 per million new tokens, 1.25 from the cache, in steps of
    128 from 1,024.
    """
    cost = 0.0
    for t, now in enumerate(prompts):
        best = max((shared(before, now) for before in prompts[:t]), default=0)
        cached = best // 128 * 128 if best // 128 * 128 >= 1024 else 0
        cost += 2.5e-6 * (length(now) - cached) + 1.25e-6 * cached
    return cost


def replayed_bodies(server):
    """Bodies by (session, number of messages), in order of arrival; checks that are no part of the replay are left
    out.
    """
    found = {}
    for request in server.requests:
        opening = request.body["messages"][0].get("content") or ""
        if "Session " in opening:
            found.setdefault(opening.rpartition(" ")[2].rstrip("."), []).append(request.body)
    return found


def test_figures_equal_an_independent_count_to_the_token(recorded, tmp_path):
    with serving(Echo()) as provider, behind("nothing", "halves") as arms:
        report = replay(tmp_path, recorded, [*arms, "--upstream", provider.url, "--level", "0", "--max-workers", "1"])
        arrived = replayed_bodies(provider)
    replies = sum(
        tokens(canonical([{"id": f"c{t}", "name": "read", "arguments": json.dumps({"path": f"src/{t}.txt"})}]))
        for t in range(5)
    )
    replies = 1e-5 * (replies + tokens("The first and the third value are odd."))
    sent, forwarded, alone, through, stability, last = [], [], [], [], [], []
    for name in ("one", "two"):
        bodies = arrived[name]
        assert len(bodies) == 12
        whole = conversation(name)
        full = [prompt({"tools": TOOLS, "messages": whole[:end]}) for end in (2, 4, 6, 8, 10, 12)]
        seen = [prompt(body) for body in bodies]
        cut = seen[:6] if seen[6:] == full else seen[6:]
        last.append("\n".join(cut[-1]))
        assert sorted(map(canonical, seen)) == sorted(
            map(canonical, [*full, *cut])
        )  # one arm got every request as it was
        assert cut != full
        sent += map(length, full)
        forwarded += map(length, cut)
        alone.append(bill(full) + replies)
        through.append(bill(cut) + replies)
        stability += [shared(before, now) / length(before) for before, now in pairwise(cut)]
    halves, nothing = (report["replay"]["systems"][name] for name in ("halves", "nothing"))
    assert halves["tokens"] == {"sent": sum(sent), "forwarded": sum(forwarded)}
    assert nothing["tokens"] == {"sent": sum(sent), "forwarded": sum(sent)}
    assert sum(row["output_tokens"] for row in report["rows"] if row["system"] == "halves") == sum(forwarded)
    assert halves["cost"]["alone_usd"] == pytest.approx(sum(alone))
    assert halves["cost"]["through_usd"] == pytest.approx(sum(through))
    assert halves["cost"]["net_cost_ratio"] == pytest.approx(sum(through) / sum(alone))
    assert halves["cost"]["net_cost_ratio_mean"] == pytest.approx(
        sum(t / a for t, a in zip(through, alone, strict=True)) / 2
    )
    saving = 1 - sum(forwarded) / sum(sent)
    assert halves["cost"]["cache_penalty"] == pytest.approx(sum(through) / sum(alone) - (1 - saving))
    assert halves["cache"]["prefix_stability"] == pytest.approx(sum(stability) / len(stability))
    assert (nothing["fidelity"]["retained"], nothing["fidelity"]["pairs"]) == (1.0, 2)
    assert 0.3 < halves["fidelity"]["retained"] < 0.7
    gone = [each["atom"].split("=") for each in halves["fidelity"]["lost_atoms"] if each["kind"] == "number"]
    assert len(gone) > 5
    assert not [atom for atom in gone if any(all(part in text for part in atom) for text in last)]
    assert report["summary"]["halves"]["net_cost_ratio"] == halves["cost"]["net_cost_ratio"]
    assert nothing["cost"]["net_cost_ratio"] == 1.0
    assert nothing["cache"] == nothing["cache_alone"] == halves["cache_alone"]
    assert (nothing["cache"]["prefix_stability"], nothing["cache"]["prefix_breaks"]) == (1.0, 0)
    assert (nothing["violations"], nothing["unseen"], nothing["failed"], nothing["sessions"]) == ({}, 0, 0, 2)


def test_what_shortens_is_held_against_truncation_to_the_same_size(tmp_path, capsys):
    """Half of every text is kept by the proxy: its first half; what truncation of the whole to that size keeps is
    counted beside it.
    """
    path = tmp_path / "log.jsonl"
    lines = [
        {"model": "gpt-4o", "messages": conversation(str(n), 2), "tools": TOOLS, "session_id": str(n)} for n in range(7)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with behind("nothing", "halves") as arms, serving(Echo()) as upstream:
        report = replay(tmp_path, path, [*arms, "--upstream", upstream.url])
    [lift] = report["lifts"]
    assert (lift["system"], lift["baseline"], lift["n"], lift["clusters"]) == (
        "halves",
        "truncation to the same size",
        7,
        7,
    )
    kept = report["replay"]["systems"]["halves"]["fidelity"]["retained"]
    assert lift["sentence"].startswith(
        f"halves keeps {100 * kept:.0f} % of a conversation's atoms (names, numbers, paths …), truncation to "
    )
    assert lift["low"] <= lift["difference"] <= lift["high"]
    assert lift["verdict"] in ("better", "inferior", "undecided", "non-inferior")
    capsys.readouterr()
    assert main(["show", "replay", "--full", "--store", str(tmp_path / "store.db")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.index("of a conversation's atoms") < told.rindex("the sessions cost")


def test_without_a_model_of_its_own_a_replay_asks_for_the_recorded_one(recorded, tmp_path, capsys):
    with serving(Echo()) as provider, behind("nothing") as arms:
        told = [word for word in arms if word != "--quiet"]
        replay(tmp_path, recorded, [*told, "--upstream", provider.url])
        assert {body["model"] for bodies in replayed_bodies(provider).values() for body in bodies} == {"gpt-4o"}
    assert "no --model is given" not in capsys.readouterr().err


def test_the_same_sessions_again_give_the_same_bytes(recorded, tmp_path):
    store, texts = str(tmp_path / "store.db"), []
    with behind("nothing", "halves", "rewrites-history", "calls-twice", "user-only") as arms:
        for name in ("first", "second"):
            report = replay(tmp_path, recorded, [*arms, "--upstream", "echo"], name=name)
            out = tmp_path / f"{name}.canonical"
            assert main(["export", name, "--store", store, "--canonical", "--out", str(out)]) == 0
            texts.append(out.read_text())
    assert texts[0] == texts[1]
    systems = report["replay"]["systems"]
    assert report["replay"]["level"] == 0
    assert {row["group"] for row in report["rows"]} == {"one", "two"}
    assert (
        systems["rewrites-history"]["cache"]["prefix_stability"]
        < systems["nothing"]["cache"]["prefix_stability"]
        == 1.0
    )
    assert systems["rewrites-history"]["cost"]["cache_penalty"] > 0.05
    assert systems["calls-twice"]["cost"]["extra_calls_usd"] > 0
    assert systems["calls-twice"]["cost"]["net_cost_ratio"] > 1
    assert (
        systems["calls-twice"]["cache"] == systems["nothing"]["cache"]
    )  # the proxy's own calls are no prompts of the session
    assert systems["user-only"]["violations"]["system_role_lost"] == {"times": 12, "requests": 12}
    assert systems["user-only"]["violations"]["assistant_role_changed"]["times"] == 2 * sum(range(6))


def test_tools_that_a_proxy_adds_are_named_and_words_about_tools_are_told_apart(recorded, tmp_path, capsys):
    def adds(body):
        if "tools" not in body:
            return
        body["tools"][0]["function"]["description"] = "Read."
        body["tools"].append(
            {"type": "function", "function": {"name": "headroom_retrieve", "parameters": {"type": "object"}}}
        )

    with behind(adds) as arms:
        report = replay(tmp_path, recorded, [*arms, "--upstream", "echo"])
        limits = ["--max", "tool_schema_changed=0", "--max", "violations=12", "--max", "tool_annotation_changed=12"]
        assert main(["compress", "wire", str(recorded), *arms, "--store", str(tmp_path / "store.db"), *limits]) == 4
    capsys.readouterr()
    assert report["replay"]["systems"]["adds"]["violations"] == {
        "tool_added": {"times": 12, "requests": 12, "tools": {"headroom_retrieve": 12}},
        "tool_annotation_changed": {"times": 12, "requests": 12, "tools": {"read": 12}},
    }
    assert report["wire"]["adds"]["violations"] == 12
    assert main(["show", "replay", "--store", str(tmp_path / "store.db"), "--output", "markdown"]) == 0
    assert "| adds | tool_added headroom_retrieve | 12 |" in capsys.readouterr().out.replace("\\", "")


def test_every_format_tells_the_same_and_says_what_a_replay_cannot_see(recorded, tmp_path, capsys):
    with behind("halves") as arms:
        report = replay(tmp_path, recorded, [*arms, "--upstream", "echo"])
    ratio = f"{report['replay']['systems']['halves']['cost']['net_cost_ratio']:.3f}"
    for output in ("table", "markdown", "html"):
        assert main(["show", "replay", "--full", "--store", str(tmp_path / "store.db"), "--output", output]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ratio in shown, output
        assert "Prompt cache" in shown
        assert "cannot be seen" in shown
        assert "2 of 2 sessions are transcripts" in shown
        assert "No row has the score" not in shown
        assert "action_match" not in shown
        assert "OpenAI, GPT-4o and o1" in shown


def test_a_session_has_a_key_of_its_own_and_keeps_it(tmp_path):
    """The proxy remembers paragraphs per key: within a session what was said before is cut, in the next session it is
    said anew.
    """
    path = tmp_path / "twins.jsonl"
    lines = [
        {"model": "gpt-4o", "messages": conversation("same"), "tools": TOOLS, "session_id": name} for name in ("a", "b")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with behind("remembers") as arms:
        report = replay(tmp_path, path, [*arms, "--upstream", "echo", "--max-workers", "1"])
    first, second = report["replay"]["systems"]["remembers"]["by_session"]
    assert {**first, "session": ""} == {**second, "session": ""}
    assert first["forwarded"] < first["sent"]


def test_next_actions_against_the_recording_and_against_passthrough_twice(recorded, tmp_path, capsys):
    """The model reads the next file if it sees the last line of what it read before; the halving proxy cuts that line
    off.
    """
    rules = [
        {
            "when": {"step": turn, "text": f"39: value_{turn - 1}_39"} if turn else {"step": 0, "text": "Which values"},
            "tool_calls": [{"name": "read", "arguments": {"path": f"./src/{turn}.txt"}}],
        }
        for turn in range(5)
    ]
    script = {
        "rules": [*rules, {"when": {"text": "39: value_4_39"}, "text": "The first and the third value are odd."}],
        "default": "No idea.",
    }
    with serving(Scripted(script)) as provider, behind("nothing", "halves") as arms:
        report = replay(tmp_path, recorded, [*arms, "--upstream", provider.url])
    summary, estimates = report["summary"], report["estimates"]
    assert set(summary) == {"nothing", "halves", "full", "full#2"}
    assert {name: estimates[name]["action_match"]["value"] for name in summary} == pytest.approx(
        {"nothing": 1.0, "full": 1.0, "full#2": 1.0, "halves": 1 / 6}
    )
    assert summary["full#2"]["agreement_with_passthrough"] == 1.0
    assert "agreement_with_passthrough" not in summary["full"]
    assert summary["halves"]["agreement_with_passthrough"] == pytest.approx(1 / 6)
    assert estimates["halves"]["agreement_with_passthrough"]["n"] == 12
    assert {each["system"]: each["baseline"] for each in report["comparisons"]} == dict.fromkeys(
        ("nothing", "halves", "full#2"), "full"
    )
    assert report["replay"]["passthrough"] == "full"
    assert main(["show", "last", "--full", "--store", str(tmp_path / "store.db")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "noise floor" in shown
    assert "No tool was executed" in shown


def test_a_finished_run_is_not_sent_again_and_a_request_that_failed_is_left_out_on_both_sides(recorded, tmp_path):
    broken = {"rules": [{"when": {"step": 2}, "status": 400, "error": "too odd"}], "default": "ok"}
    with serving(Scripted(broken)) as provider, behind("nothing") as arms:
        line = [*arms, "--upstream", provider.url, "--level", "0", "--max-failures", "1"]
        report = replay(tmp_path, recorded, line)
        facts = report["replay"]["systems"]["nothing"]
        assert (facts["requests"], facts["failed"]) == (12, 2)
        assert facts["tokens"]["sent"] == facts["tokens"]["forwarded"]
        assert facts["cost"]["net_cost_ratio"] == 1.0
        assert [each["requests"] for each in facts["by_session"]] == [5, 5]
    with serving(Echo()) as provider, behind("nothing") as arms:
        first = replay(tmp_path, recorded, [*arms, "--upstream", provider.url, "--level", "0"], name="whole")
        seen = len(replayed_bodies(provider)["one"])
        again = replay(tmp_path, recorded, [*arms, "--upstream", provider.url, "--level", "0"], name="whole")
        assert len(replayed_bodies(provider)["one"]) == seen == 6
    assert again["replay"] == first["replay"]


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_sessions_on_the_other_wires(recorded, tmp_path, wire):
    with behind("nothing", "halves") as arms:
        report = replay(
            tmp_path,
            recorded,
            [*arms, "--upstream", "echo", "--wire", wire, "--profile", "claude-sonnet-4-5", "-n", "1"],
        )
    systems = report["replay"]["systems"]
    assert systems["nothing"]["violations"] == {}
    assert systems["nothing"]["cost"]["net_cost_ratio"] == 1.0
    assert systems["halves"]["tokens"]["forwarded"] < systems["nothing"]["tokens"]["forwarded"]
    assert list(report["replay"]["cache_rules"]["models"]) == ["claude-sonnet-4-5"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["replay", "{log}", "--upstream", "echo"], "--proxy URL"),
        (["replay", "{log}", "--proxy", "http://127.0.0.1:9"], "--upstream is missing"),
        (["replay", "{log}.gone", "--proxy", "http://127.0.0.1:9", "--upstream", "echo"], "no sessions at"),
        (
            ["replay", "bundled:sessions/none-such", "--proxy", "http://127.0.0.1:9", "--upstream", "echo"],
            "Unknown session",
        ),
        (["replay", "hf:nowhere", "--proxy", "http://127.0.0.1:9", "--upstream", "echo"], "expected hf:OWNER/NAME"),
        (
            [
                "replay",
                "{log}",
                "--proxy",
                "http://127.0.0.1:9",
                "--proxy",
                "http://127.0.0.1:9",
                "--upstream",
                "echo",
                "--tap",
                "0",
            ],
            "two systems",
        ),
    ],
)
def test_what_cannot_be_replayed_is_said_before_anything_is_sent(recorded, capsys, line, said):
    assert main([part.format(log=recorded) for part in line]) == 2
    assert said in capsys.readouterr().err


def test_a_dry_run_says_what_it_would_take_and_sends_nothing(recorded, tmp_path, capsys):
    with serving(Echo()) as provider, behind("nothing") as arms:
        line = [
            "replay",
            str(recorded),
            *arms,
            "--upstream",
            provider.url,
            "--store",
            str(tmp_path / "s.db"),
            "--dry-run",
        ]
        assert main(line) == 0
        assert provider.seen == 0
    assert "36 calls" in capsys.readouterr().out


def test_a_tap_that_keeps_no_bodies_is_named_as_the_reason(recorded, tmp_path):
    with (
        serving(Echo()) as provider,
        Tap(provider.url, record="meta") as tap,
        MisbehavingProxy("halves", tap.url) as proxy,
    ):
        arms = ["--proxy", proxy.url, "--name", "halves", "--tap", tap.url, "--quiet"]
        report = replay(tmp_path, recorded, arms)
    facts = report["replay"]["systems"]["halves"]
    assert (facts["requests"], facts["unseen"]) == (12, 12)
    assert "net_cost_ratio" not in facts["cost"]
    assert any("--record full" in note for note in report["notes"])
    assert 0.3 < report["summary"]["halves"]["compression_ratio"] < 0.7  # counted by the tap all the same


def test_a_stored_replay_is_explained_by_what_arrived_behind_the_system(tmp_path, recorded):
    with behind("halves") as arms:
        figures = replay(tmp_path, recorded, [*arms, "--upstream", "echo"])["replay"]["systems"]["halves"]
    out = tmp_path / "explained.json"
    line = ["explain", "replay", "--store", str(tmp_path / "store.db"), "--output", "json", "--out", str(out)]
    assert main(line) == 0
    told = json.loads(out.read_text())
    assert (told["sessions"], told["turns"]) == (2, figures["requests"])
    assert told["by_kind"]["results"]["new"] > 0
    stated = sum(turn["input"] for session in told["by_session"] for turn in session["by_turn"])
    assert told["total"]["input"] == pytest.approx(stated)
    assert main([*line, "--reach", "tool-results", "--reach", "bash", "--reach", "history"]) == 0
    reach = json.loads(out.read_text())["reach"]
    assert 0 < reach["history"]["saved_tokens"] < reach["history"]["sent_tokens"] < reach["history"]["all_tokens"]
    assert all(row["saved_tokens"] <= row["sent_tokens"] for row in reach.values())  # of the reach itself, no other
    assert reach["tool-results"]["sent_tokens"] >= reach["bash"]["sent_tokens"]
    shown = tmp_path / "explained.txt"
    line[line.index("json")], line[line.index(str(out))] = "table", str(shown)
    assert main([*line, "--reach", "history"]) == 0
    assert "achieved" in shown.read_text()
    assert main([*line, "--system", "nobody"]) == 2
    assert main(["explain", "no-such-run", "--store", str(tmp_path / "store.db")]) == 2


def test_the_same_session_twice_is_compared_byte_by_byte_and_priced(recorded, tmp_path, capsys):
    asked = iter(range(10_000))

    def dates(body):
        head = body["messages"][0]
        head["content"] = f"It is 2026-11-24T10:00:{next(asked) % 60:02}Z. {head['content']}"

    with behind("nothing", dates) as arms:
        report = replay(tmp_path, recorded, [*arms, "--upstream", "echo", "--repeat", "2"])
        assert main(["show", "replay", "--full", "--store", str(tmp_path / "store.db")]) == 0
    systems = report["replay"]["systems"]
    same, dated = systems["nothing"]["repeats"], systems["dates"]["repeats"]
    assert (same["differing"], same["causes"], same["lost_tokens"]) == (0, {}, 0)
    assert "forwarded_differently" not in systems["nothing"]["violations"]
    assert dated["differing"] == dated["requests"] == same["requests"] == systems["dates"]["requests"] / 2
    assert dated["causes"] == {"timestamps": dated["requests"]}
    assert dated["first"]["path"] == "messages[0].content"
    assert systems["dates"]["violations"]["forwarded_differently"]["times"] == dated["requests"]
    assert dated["lost_tokens"] > 0.5 * systems["dates"]["tokens"]["forwarded"] / 2
    assert dated["lost_usd"] > 0
    assert "The same session twice" in capsys.readouterr().out
