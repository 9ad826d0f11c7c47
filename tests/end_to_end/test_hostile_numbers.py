"""One hostile number among good ones: runs, imports and descriptions go on, or end with one sentence that names it."""

import json
import math
import zipfile
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.core.records import Usage
from context_bench.core.templates import load_toml
from context_bench.engine import Arm, RunSettings, execute, open_store, rows, run_of
from context_bench.evaluators import AnswerQuality
from context_bench.llm.chat import ChatClient
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.servers import ModelServer
from context_bench.systems import OpenAIProxy
from context_bench.tap import Tap
from context_bench.traffic.watch.watcher import Watch
from context_bench.wire.apis.shared import Reply
from context_bench.wire.turns import total

HUGE = 2**63
HOSTILE = [HUGE, 10**30, -1, 1e308, True, "12", [1]]


class Claims:
    """Answers right, and claims a hostile number of tokens wherever the request asks for it."""

    name = "claims"

    async def reply(self, request, headers):
        asked = str(request.messages)
        claimed = next((value for at, value in enumerate(HOSTILE) if f"hostile {at}." in asked), 7)
        if request.wire == "anthropic" and not isinstance(claimed, int | float):
            claimed = 10**20  # the server itself counts with them there
        return Reply("Paris", finish_reason="stop", usage=Usage(claimed, claimed, claimed, claimed, claimed), model="m")


def examples():
    asked = ["good.", *(f"hostile {at}." for at in range(len(HOSTILE))), "good too."]
    return [
        {"id": i, "context": f"Example {i}, {text}", "question": "Where?", "answer": "Paris"}
        for i, text in enumerate(asked)
    ]


@pytest.mark.parametrize("tapped", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
async def test_a_run_outlives_any_count_of_a_reply(wire, stream, tapped, tmp_path):
    async with ModelServer(Claims()) as server, Tap(server.url, record="full") as tap:
        prices = GenaiPrices({"m": {"input": 1, "output": 2}})
        url = tap.url if tapped else server.url
        system = OpenAIProxy(
            url, model="m", name="asked", api_key="k", wire=wire, stream=stream, prices=prices, max_retries=0
        )
        with open_store(tmp_path / "s.db") as store:
            how = {
                "settings": RunSettings(max_workers=3, late_grace=0.0, bodies="all"),
                "evaluators": [AnswerQuality()],
            }
            done = await execute(
                store,
                name="r",
                arms=[Arm(system)],
                examples=examples(),
                recorder=tap if tapped else None,
                manifest={},
                **how,
            )
            assert done.completed
            found = list(rows(store, "r"))
            record = run_of(store, "r")
    assert [row.errors for row in found] == [{}] * len(found), "a count that is none is absent, and the answer counts"
    assert all(row.scores["f1"] == 1.0 for row in found)
    assert len(found) == len(HOSTILE) + 2
    assert record.failed == 0
    for row in (found[0], found[-1]):
        assert row.usage["output_tokens"] == 7
    for row in found[1:-1]:
        assert all(value is None or 0 <= value <= 2**53 for name, value in row.usage.items() if name != "calls")
        assert "input_tokens" not in row.usage or row.usage["input_tokens"] <= 2**53
        assert row.usage.get("cost") is None or math.isfinite(row.usage["cost"])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _line(at, value, **more):
    usage = {"input_tokens": value, "output_tokens": value, "cost": value}
    told = {"system": "s", "id": at, "question": "q", "answer": "a", "response": "a", "usage": usage, "latency": value}
    return json.dumps({**told, "input_tokens": value, "scores": {"f1": value}, **more})


def test_recorded_answers_with_any_number_are_imported(here, capsys):
    odd = [*HOSTILE, math.inf, math.nan, 10**400]
    lines = [_line(0, 3), *(_line(at, value) for at, value in enumerate(odd, 1)), _line(99, 3)]
    Path("f.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["import", "f.jsonl", "--name", "n", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert all(3.0 in row["scores"].values() for row in (told[0], told[-1]))
    assert all(abs(value) <= 2**53 for row in told for value in row["scores"].values())
    assert len(told) == len(odd) + 2
    assert not any(row.get("errors") for row in told)
    assert main(["import", "f.jsonl", "--name", "n", "--output", "json"]) in (0, 2), "once more is no traceback"


def test_a_trial_that_no_plan_holds_is_passed_over(here, capsys):
    lines = [_line(0, 3), _line(1, 3, trial=HUGE), _line(2, 3)]
    Path("f.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["import", "f.jsonl", "--name", "n", "--output", "json"]) == 0
    told = capsys.readouterr()
    assert [row["example_id"] for row in json.loads(told.out)["rows"]] == [0, 2]
    assert "a trial that no run has" in told.err


def test_an_inspect_log_with_any_number_is_imported(here, capsys):
    def sample(at, value):
        used = {
            "m": {"input_tokens": value, "output_tokens": value, "total_cost": value, "input_tokens_cache_read": value}
        }
        told = {"id": at, "epoch": 1, "input": "q", "target": "a", "output": {"completion": "a"}, "model_usage": used}
        return {**told, "scores": {"s": {"value": 1}}, "working_time": value, "started_at": value}

    samples = [sample(at, value) for at, value in enumerate([3, *HOSTILE, 10**400, 3])]
    header = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}
    with zipfile.ZipFile("a.eval", "w") as made:
        made.writestr("header.json", json.dumps(header))
        for at, each in enumerate(samples):
            made.writestr(f"samples/{at}_epoch_1.json", json.dumps(each))
    assert main(["import", "a.eval", "--name", "n", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert len(told) == len(samples)
    assert not any(row.get("errors") for row in told)


@pytest.mark.parametrize(
    "lines", [("Infinity", 2), (1, "1e999"), (10**400, 2), ('"x"', 2), ("NaN", "NaN"), ("[1]", 2), (1, 2**40)]
)
def test_gold_with_an_odd_line_is_passed_over_and_counted(lines, here):
    from context_bench.traces.gold import load_gold

    item = f'{{"file": "a.py", "start_line": {lines[0]}, "end_line": {lines[1]}}}'
    odd = f'{{"inst_id": "odd", "repo": "a/b", "commit": "1", "gold_ctx": [{item}]}}'
    good = (
        '{"inst_id": "good", "repo": "a/b", "commit": "1", "gold_ctx": [{"file": "a.py", "start_line": 1, '
        '"end_line": 2}]}'
    )
    Path("gold.jsonl").write_text(f"{odd}\n{good}\n")
    found = load_gold("gold.jsonl")
    assert [each.ids[0] for each in found] == ["good"]
    assert sum(found.skipped.values()) == 1


CRITERION = 'id = "c"\nquestion = "q"\nanchors = {{"0" = "no", "5" = "yes"}}\n{}\n'
RUBRIC = '[[dimension]]\nid = "d"\ntitle = "D"\n{}\n[[dimension.criterion]]\n' + CRITERION


@pytest.mark.parametrize(
    ("dimension", "criterion", "named"),
    [
        ("probes = 5", "", "probes of d are 5"),
        ('probes = "recall"', "", "probes of d are 'recall'"),
        ("probes = {a = 1}", "", "probes of d are"),
        ("", "weight = inf", "weight of c is inf"),
        ("", "weight = nan", "weight of c is nan"),
        ("", "weight = 1e300", "weight of c is"),
        ("", 'weight = "1"', "weight of c is '1'"),
    ],
)
def test_an_odd_rubric_is_refused_by_name(dimension, criterion, named):
    from context_bench.core.errors import BadInput
    from context_bench.core.rubric import read_rubric

    with pytest.raises(BadInput) as refused:
        read_rubric(load_toml(RUBRIC.format(dimension, criterion)), "my.toml")
    assert named in str(refused.value)
    assert "my.toml" in str(refused.value)


MEMORY = {
    "toml": 'name = "n"\nbase_url = "{}"\n{}[add]\npath = "/add"\nbody = {{text = "{{content}}"}}\n[search]\npath = '
    '"/s"\nhits = "r"\n',
    "yaml": "name: n\nbase_url: '{}'\n{}add: {{path: /add, body: {{text: '{{content}}'}}}}\nsearch: {{path: /s, hits: "
    "r}}\n",
}


@pytest.mark.parametrize("kind", MEMORY)
@pytest.mark.parametrize(
    "url", ["http://12[7", "http://127.0.0.1:99999", "http://[::1/b", "ftp://h", "http://u:PLANTED@h:0", "h:80"]
)
def test_a_memory_at_an_odd_url_is_refused_by_the_name_of_its_file(kind, url, here):
    from context_bench.core.errors import ContextBenchError
    from context_bench.memory.systems import http_memory as http

    Path(f"memory.{kind}").write_text(MEMORY[kind].format(url, ""))
    with pytest.raises(ContextBenchError) as refused:
        http.from_spec(f"memory.{kind}")
    assert f"memory.{kind}" in str(refused.value)
    assert "`base_url` is expected to be http://HOST[:PORT]" in str(refused.value)
    assert "PLANTED" not in str(refused.value)


@pytest.mark.parametrize("timeout", ["inf", "nan", "-1", "1e300"])
def test_a_memory_with_an_odd_timeout_is_refused(timeout, here):
    from context_bench.core.errors import BadSpec
    from context_bench.memory.systems import http_memory as http

    Path("memory.toml").write_text(MEMORY["toml"].format("http://127.0.0.1:1", f"timeout = {timeout}\n"))
    with pytest.raises(BadSpec, match="`timeout` is expected to be seconds"):
        http.from_spec("memory.toml")


ODD_URLS = [
    "http://[::1/b",
    "http://127.0.0.1:99999",
    "http://u:PLANTED@[::1",
    "http://127.0.0.1:0",
    "file:///x?PLANTED",
    "http://h:0/v1?code=PLANTED#PLANTED",
    "http://a..b/",
    "http://::1:80/",
]
PLACES = {
    "--proxy": ["run", "--proxy", "{}", "--dataset", "f.jsonl"],
    "--judge-url": ["run", "--proxy", "http://127.0.0.1:1", "--judge-url", "{}", "--dataset", "f.jsonl"],
    "--upstream": ["run", "--proxy", "http://127.0.0.1:1", "--tap", "0", "--upstream", "{}", "--dataset", "f.jsonl"],
    "--tap": ["run", "--proxy", "http://127.0.0.1:1", "--tap", "{}", "--dataset", "f.jsonl"],
    "--reader": ["run", "--proxy", "http://127.0.0.1:1", "--reader", "{}", "--dataset", "f.jsonl"],
    "c.toml": ["run", "--config", "c.toml", "--dataset", "f.jsonl"],
    "upstream": ["tap", "--port", "0", "--upstream", "{}"],
    "upstream ": ["serve", "--system", "full", "--upstream", "{}"],
}


@pytest.mark.parametrize("where", PLACES)
def test_an_odd_url_is_refused_by_where_it_was_given(where, here, capsys):
    Path("f.jsonl").write_text('{"id": 1, "context": "c", "question": "q", "answer": "a"}\n')
    for url in ODD_URLS:
        Path("c.toml").write_text(f'[[proxies]]\nurl = "{url}"\n')
        assert main([word.format(url) for word in PLACES[where]]) == 2
        said = capsys.readouterr().err
        assert where.strip() in said
        assert "Traceback" not in said
        assert "http://HOST[:PORT]" in said
        assert "PLANTED" not in said


@pytest.mark.parametrize("port", ["65536", "99999999999999999999", "²"])
def test_a_port_that_is_none_is_refused(port, here, capsys):
    assert main(["run", "--proxy", "http://127.0.0.1:1", "--tap", port, "--dataset", "f.jsonl"]) == 2
    assert "--tap" in capsys.readouterr().err


async def test_a_watch_outlives_any_count_of_a_reply():
    kept = []

    async def keep(turns):
        kept.extend(turns)

    async with (
        ModelServer(Claims()) as server,
        Watch(server.url, record="full", prices=GenaiPrices(), keep=keep) as watch,
    ):
        async with ChatClient(watch.url, api_key="k") as client:
            for example in examples():
                reply = await client.chat("gpt-4o", [{"role": "user", "content": example["context"]}])
                assert reply.text == "Paris"
        await watch.drain()
        assert watch.fault is None
    assert len(kept) == len(HOSTILE) + 2
    counts = [
        value
        for turn in kept
        for value in (turn.usage.input_tokens if turn.usage else None, turn.cost)
        if value is not None
    ]
    assert len(counts) >= 4
    assert all(0 <= value <= 2**53 for value in counts)


async def test_a_prompt_has_no_more_of_it_from_the_cache_than_there_is():
    class Contradicts(Claims):
        async def reply(self, request, headers):
            return Reply("Paris", finish_reason="stop", usage=Usage(100, 10, 500), model="gpt-4o")

    kept = []

    async def keep(turns):
        kept.extend(turns)

    async with ModelServer(Contradicts()) as server, Watch(server.url, keep=keep) as watch:
        async with ChatClient(watch.url, api_key="k") as client:
            await client.chat("gpt-4o", [{"role": "user", "content": "Where?"}])
        await watch.drain()
    figures = total(kept)
    assert (figures.usage.input_tokens, figures.usage.cache_read, figures.new_tokens) == (100, 100, 0)
