"""What a proxy did to the messages is shown exactly: in the details of a row, in the fragment of the report, by
`context-bench diff`.
"""

import json
import re
import socket
from contextlib import ExitStack

import pytest

from context_bench.__main__ import main
from context_bench.core.errors import UnknownName
from context_bench.engine import open_store, rows
from context_bench.evaluators import AnswerQuality, LLMJudge
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore
from context_bench.reports.detail import detail_html
from context_bench.runner import detail_of, details, evaluate
from context_bench.systems import OpenAIProxy
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body

MARKS = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e\u200b"
EXAMPLES = [
    {
        "id": f"house-{n}",
        "question": f"Who lives in house {n}?",
        "answer": "Ada",
        "context": f"Lane {n} is old.\n\nAda lives in house {n}.",
    }
    for n in range(2)
] + [{"id": 7, "question": "Who?", "answer": "Bo", "context": f"{MARKS} " * 60 + "Bo does."}]


def edit(body):
    """Puts the system's words into the user's message, drops what the assistant called, takes a word away, and changes
    parameters.
    """
    system, user, *_, read = body["messages"]
    text = f"{system['content']}\n\n{user['content']}"
    body["messages"] = [
        {"role": "user", "content": text},
        {"role": "user", "content": read["content"].replace(" old", "")},
    ]
    body["model"], body["temperature"] = "other-model", 0.5
    body["tools"] = body["tools"][:1]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sent") / "store.db"
    with ExitStack() as stack:
        model, judge = (
            ModelServer(Scripted({"default": "Ada"})),
            ModelServer(Scripted({"default": f"4 Right, and brief. {MARKS}"})),
        )
        for server in (model, judge):
            run_sync(server.start())
            stack.callback(lambda server=server: run_sync(server.stop()))
        tap = stack.enter_context(Tap(model.url, upstream_key="none-needed"))
        made = {"rewrites": stack.enter_context(Rewriting(in_body(edit), tap.url))}
        made |= {
            habit: stack.enter_context(MisbehavingProxy(habit, tap.url))
            for habit in ("user-only", "halves", "calls-twice", "nothing")
        }
        systems = [
            OpenAIProxy(proxy.url, model="gpt-4o-mini", name=name, shape="openai-agent") for name, proxy in made.items()
        ]
        judges = [AnswerQuality(), LLMJudge(judge.url)]
        evaluate(systems, EXAMPLES, judges, [MeanScore("f1")], store=path, run="houses", recorder=tap, progress=False)
    return path


@pytest.fixture
def opened(store):
    found = open_store(store)
    yield found
    found.close()


def diff(store, *words, capsys):
    code = main(["diff", *words, "--store", str(store)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_details_hold_both_bodies_and_the_calls(opened):
    told = detail_of(opened, "houses", "user-only", "house-1")
    (exchange,) = told["exchanges"]
    assert (exchange["turn"], exchange["matched_by"]) == (1, "key")
    assert [message["role"] for message in exchange["sent"]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert {message["role"] for message in exchange["forwarded"]["messages"]} == {"user"}
    assert exchange["tokens"]["sent"] == exchange["tokens"]["forwarded"]
    assert told["where"] == {"run": "houses", "system": "user-only", "example_id": "house-1", "trial": 0}
    assert (told["question"], told["answer"], told["response"]) == ("Who lives in house 1?", "Ada", "Ada")
    assert [call["account"] for call in told["calls"]][:1] == ["system"]
    assert detail_of(opened, "houses", "user-only", "7")["question"] == "Who?"  # an id as typed
    assert detail_of(opened, "houses", "user-only", "house-9") is None
    with pytest.raises(UnknownName):
        detail_of(opened, "houses-2", "user-only", "house-1")


def test_details_are_given_in_order_and_out_of_order(opened):
    found = list(rows(opened, "houses"))
    told = details(opened, "houses")
    along = [told(row) for row in found]
    assert [each["where"]["system"] for each in along] == [row.system for row in found]
    assert [told(row) for row in reversed(found)] == along[::-1]


def test_a_judge_is_quoted_also_where_its_reply_was_remembered(opened):
    """All systems gave the same answer, so it was judged once."""
    for system in ("rewrites", "user-only", "halves", "calls-twice", "nothing"):
        (said,) = detail_of(opened, "houses", system, "house-0")["judges"]
        assert (said["evaluator"], said["score"]) == ("llm_judge", 0.75)
        assert said["reason"].startswith("4 Right, and brief.")


def test_what_a_proxy_asks_on_its_own_account_is_told_apart(opened):
    asked, extra = detail_of(opened, "houses", "calls-twice", "house-0")["exchanges"]
    assert asked["sent"]["messages"] == asked["forwarded"]["messages"]
    assert (extra["turn"], extra["sent"]) == (None, None)
    assert extra["forwarded"]["messages"][0]["content"].startswith("Summarise")
    assert "on its own account" in extra["why"]


def test_the_fragment_shows_what_was_done(opened):
    row = next(row for row in rows(opened, "houses", "rewrites") if row.example_id == "house-0")
    html = str(detail_html(row, detail_of(opened, "houses", "rewrites", "house-0")))
    assert re.search(r"messages 1 \+ 2 → 1 .*system \+ user → user.*merged.*role changed", html)
    assert re.search(r"message 3 .*assistant.*dropped", html)
    assert "<del>old</del>" in html or "<del> old</del>" in html or "<del>old.</del>" in html
    assert "<del>gpt-4o-mini</del>" in html
    assert "<ins>other-model</ins>" in html
    assert "<ins>0.5</ins>" in html
    assert "2 roles changed" in html
    same = next(row for row in rows(opened, "houses", "nothing") if row.example_id == "house-0")
    html = str(detail_html(same, detail_of(opened, "houses", "nothing", "house-0")))
    assert "forwarded as sent" in html
    assert "<del>" not in html


def test_hostile_texts_are_texts_in_the_fragment(opened):
    told = details(opened, "houses")
    for row in rows(opened, "houses"):
        html = str(detail_html(row, told(row)))
        assert "<img" not in html
        assert "</script" not in html
        assert not {"\x1b", "\u202e", "\u200b"} & set(html)


def test_the_command_tells_all_that_changed_something(store, capsys):
    code, out, _ = diff(store, "last", "house-0", capsys=capsys)
    assert code == 0
    assert out.startswith("Changed nothing, or nothing is known of it (--system NAME shows it): nothing\n")
    assert all(f"{name} · house-0" in out for name in ("rewrites", "user-only", "halves", "calls-twice"))
    assert "nothing · house-0" not in out
    assert "model changed: [-gpt-4o-mini-]{+other-model+}" in out
    assert re.search(r"\[- ?old ?-\]", out)
    assert "message 1 system → user · role changed" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_one_system_and_hostile_texts_in_the_terminal(store, capsys):
    code, out, _ = diff(store, "houses", "7", "--system", "halves", "--full", capsys=capsys)
    assert code == 0
    assert out.count(r"\x1b[31m\u202e\u200b") >= 60
    assert not {"\x1b", "\u202e", "\u200b"} & set(out)
    assert "words unchanged" not in out
    _, short, _ = diff(store, "houses", "7", "--system", "halves", capsys=capsys)
    assert f"context-bench diff houses 7 --system halves --store {store} --full" in " ".join(short.split())
    assert len(short) < len(out)


def test_as_json(store, capsys):
    _, out, _ = diff(store, "houses", "house-1", "--system", "rewrites", "--json", capsys=capsys)
    (found,) = json.loads(out)
    (compared,) = found["diffs"]
    assert found["row"]["system"] == "rewrites"
    assert compared["turn"] == 1
    assert compared["messages"][0]["marks"] == ["merged", "role"]
    assert ["model", "gpt-4o-mini", "other-model"] in [
        [each["name"], each.get("before"), each.get("after")] for each in compared["changed"]
    ]
    assert found["exchanges"][0]["sent"]["model"] == "gpt-4o-mini"


def test_errors_name_what_is_near(store, capsys):
    assert diff(store, "houses", "house-3", capsys=capsys)[::2] == (
        2,
        "context-bench: Unknown example 'house-3'. Did you mean house-1 or house-0? Known: house-1, house-0, 7.\n",
    )
    code, _, err = diff(store, "houses", "house-1", "--system", "halve", capsys=capsys)
    assert (code, "Did you mean halves?" in err) == (2, True)
    code, _, err = diff(store, "houses", "house-1", "--trial", "3", capsys=capsys)
    assert (code, "no answer of trial 3" in err) == (2, True)
    code, _, err = diff(store, "hauses", "house-1", capsys=capsys)
    assert (code, "houses" in err) == (2, True)


def test_where_bodies_were_not_kept_the_reason_is_told(tmp_path, capsys):
    data, port = tmp_path / "houses.jsonl", 0
    data.write_text("".join(json.dumps(each) + "\n" for each in EXAMPLES[:1]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = ModelServer(Scripted({"default": "Ada"}))
    run_sync(model.start())
    try:
        for bodies, why in (
            ("none", "bodies none"),
            ("changed", "of changed requests only: this one was forwarded as sent"),
        ):
            with MisbehavingProxy("nothing", f"http://127.0.0.1:{port}") as proxy:
                options = [
                    "--tap",
                    str(port),
                    "--upstream",
                    model.url,
                    "--bodies",
                    bodies,
                    "--shape",
                    "openai-agent",
                    "--quiet",
                ]
                where = ["--store", str(tmp_path / f"{bodies}.db"), "--run", "kept", "--out", str(tmp_path / "out")]
                assert main(["--proxy", proxy.url, "--name", "through", "--dataset", str(data), *options, *where]) == 0
            capsys.readouterr()
            _, out, _ = diff(tmp_path / f"{bodies}.db", "kept", "house-0", "--system", "through", capsys=capsys)
            assert why in " ".join(out.split())
    finally:
        run_sync(model.stop())
