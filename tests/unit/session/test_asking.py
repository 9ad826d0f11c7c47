"""How models are asked means the same in every command that asks some: limits, deadlines, money."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from context_bench.cli.app import built, run_line
from context_bench.engine import open_store, rows, run_of
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.runner import detail_of
from context_bench.session.options import RunOptions
from context_bench.session.run_parts import Accounts
from context_bench.testing.rule_judge import RuleJudge

ASK = {"max_cost", "price", "timeout", "retries", "rpm", "tpm"}
RUN = ASK | {"example_timeout", "run_timeout", "fixed_concurrency"}
GROUPS = RUN | {"setup_timeout", "judge_rpm", "judge_tpm"}
ASKING = {
    "run": GROUPS,
    "memory run": GROUPS,
    "compress run": GROUPS,
    "replay": RUN,
    "rescore": ASK | {"example_timeout", "run_timeout"},
    "judge audit": ASK,
    "judge pairs": ASK,
    "compress probe": ASK,
}
SESSION = [
    "bundled:sessions/order-sync-zh",
    "-n",
    "1",
    "--system",
    "head_tail:keep=0.3",
    "--controls",
    "full",
    "--per-type",
    "1",
]


def options_of(words: str) -> dict[str, click.Option]:
    name, _, below = words.partition(" ")
    command = built(name)
    if below:
        assert isinstance(command, click.Group)
        command = command.commands[below]
    return {str(one.name): one for one in command.params if isinstance(one, click.Option)}


@pytest.mark.parametrize("words", ASKING)
def test_every_command_that_asks_models_has_the_same_options(words: str) -> None:
    known, reference = options_of(words), options_of("run")
    assert known.keys() >= ASKING[words]
    for name in ASKING[words]:
        assert (known[name].opts, known[name].help, known[name].hidden) == (
            reference[name].opts,
            reference[name].help,
            reference[name].hidden,
        )


@pytest.fixture
def serve() -> Iterator[object]:
    servers: list[ModelServer] = []

    def serving(responder: object) -> ModelServer:
        servers.append(run_sync(ModelServer(responder).start()))  # type: ignore[arg-type]
        return servers[-1]

    yield serving
    for server in servers:
        run_sync(server.stop())


def test_a_judges_pace_of_its_own() -> None:
    accounts = Accounts(RunOptions(max_workers=4, rpm=60, judge_rpm=30))
    ours, judges = accounts.of("http://a"), accounts.of_judge("http://a")
    assert (ours.pace.rpm, judges.pace.rpm) == (60, 30)
    assert ours is not judges  # one server, two accounts
    assert Accounts(RunOptions(judge_tpm=1000, judge_key_env="OTHER")).of_judge("http://j").pace.tpm == 1000


def test_sessions_are_asked_about_under_the_limits(tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    server, judge, store = serve(Scripted({"default": "in.py"})), serve(RuleJudge()), tmp_path / "s.db"
    words = [
        "compress",
        "run",
        *SESSION,
        "--responder",
        server.url,
        "--eligibility",
        "0",
        "--store",
        str(store),
        "--run",
        "r",
        "--quiet",
    ]
    words += ["--judge-url", judge.url, "--judge-model", "gpt-rules", "--judge-rpm", "6000", "--fixed-concurrency", "2"]
    assert run_line([*words, "--output", "json", "--out", str(tmp_path / "r.json")]) == 0
    assert server.most_in_flight <= 2
    with open_store(store) as kept:
        manifest = run_of(kept, "r").manifest
        assert manifest["load"] == {"mode": "fixed", "at_once": 2, "stream": False}
        (history,) = manifest["limits"]
        assert history.keys() == {"all endpoints", f"{judge.url.rstrip('/')} (judge)"}
        row = next(iter(rows(kept, "r")))
        told = detail_of(kept, "r", row.system, row.example_id, 0)
        assert told is not None
        assert {call["account"]: call["in_flight"] for call in told["calls"]}.keys() == {"reader", "judge"}
    again = [
        "--store",
        str(store),
        "--judge-url",
        judge.url,
        "--judge-model",
        "gpt-rules",
        "--price",
        "gpt-rules=1000,1000",
    ]
    before = judge.seen
    assert run_line(["judge", "audit", "r", *again, "-n", "1", "--only", "repeats", "--max-cost", "0.01"]) == 5
    assert run_line(["rescore", "r", *again, "--max-cost", "0.01"]) == 5
    assert judge.seen == before  # not even the question whether it is there


@pytest.mark.parametrize("line", ["rpm = 60", "tpm = 60", "fixed_concurrency = 2"])
def test_an_agents_own_requests_are_not_paced_by_us(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "a.toml"
    config.write_text(line)
    words = ["agent", "bundled:repo-tasks", "--arm", "base=", "--config", str(config), "--", "true"]
    assert run_line(words) == 2
    assert "an agent sends its own" in capsys.readouterr().err


def test_a_memory_and_a_replay_are_asked_under_the_limits(
    tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    server, store = serve(Scripted({"default": "nine"})), tmp_path / "s.db"
    kept = [
        "--store",
        str(store),
        "--quiet",
        "--output",
        "json",
        "--out",
        str(tmp_path / "r.json"),
        "--latency-mode",
        "3",
    ]
    words = [
        "memory",
        "run",
        "--dataset",
        "bundled:recall-lab",
        "-n",
        "1",
        "--questions",
        "2",
        "--relay",
        server.url,
        "--system",
        "bm25",
    ]
    assert run_line([*words, "--no-floors", "--run", "m", "--tpm", "1000000", *kept]) == 0
    log = tmp_path / "log.jsonl"
    log.write_text(
        json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}]}
        )
    )
    assert (
        run_line(
            [
                "replay",
                str(log),
                "--proxy",
                server.url,
                "--upstream",
                "echo",
                "--tap",
                "0",
                "--no-tap-check",
                "--run",
                "p",
                *kept,
            ]
        )
        == 0
    )
    with open_store(store) as opened:
        for name, more in (("m", {"tpm": 1000000.0}), ("p", {})):
            manifest = run_of(opened, name).manifest
            assert manifest["load"] == {"mode": "fixed", "at_once": 3, "stream": False, **more}
            assert [sorted(each) for each in manifest["limits"]] == [["all endpoints"]]
            assert all(row.usage["in_flight"] <= 3 for row in rows(opened, name))
