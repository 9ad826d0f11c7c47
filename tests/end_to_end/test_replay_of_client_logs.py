"""One bill: sessions of real clients, replayed from the logs that the clients left and from the requests that they
sent.

The fixtures are recordings of Claude Code, Codex and opencode against a scripted provider, with every text made
(tests/fixtures/clients). Five changes stand for what proxies do. What the log allows to say about money must be what
the requests themselves say.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from context_bench.__main__ import main
from context_bench.core.records import Usage
from context_bench.llm.prices import GenaiPrices
from context_bench.systems.serve import Served
from context_bench.testing.hostile import Rewriting, in_body

Body = dict[str, Any]
SESSIONS = (
    "claude-lookaround",
    "claude-long",
    "claude-agently",
    "codex-lookaround",
    "codex-long",
    "opencode-lookaround",
    "opencode-long",
)
#: Changes whose money a log cannot tell where it holds no system prompt, since they edit it.
EDITS_THE_SYSTEM_PROMPT = "head_tail"


def items_of(body: Body) -> tuple[str, list[Body]]:
    name = "input" if "input" in body else "messages"
    return name, body[name]


def flatten(body: Body) -> None:
    """Every role of the system becomes the user's, cache marks and thinking are dropped."""
    name, items = items_of(body)
    system = body.pop("system", None) or []
    first = (
        [{"role": "user", "content": [{"type": "text", "text": block["text"]} for block in system]}] if system else []
    )
    kept = []
    for item in items:
        content = item.get("content")
        if isinstance(content, list):
            blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
            item = {**item, "content": [block for block in blocks if block.get("type") != "thinking"]}
        kept.append({**item, "role": "user"} if item.get("role") in ("system", "developer") else item)
    body[name] = [*first, *kept]


def clip_later(body: Body) -> None:
    """Each tool result loses two thirds one turn after it was new."""
    _, items = items_of(body)
    made = [
        place
        for place, item in enumerate(items)
        if item.get("role") == "assistant" or "call" in str(item.get("type", "")).split("_")[-1]
    ]
    newest = max(made, default=0)
    for item in items[:newest]:
        if str(item.get("type")).endswith("_output"):
            item["output"] = clipped(item["output"])
        for block in item["content"] if isinstance(item.get("content"), list) else []:
            if block.get("type") == "tool_result":
                block["content"] = clipped(block["content"])


def clipped(content: Any) -> Any:
    if isinstance(content, str):
        return content[: len(content) // 3]
    return [
        {**block, "text": clipped(block["text"])} if isinstance(block.get("text"), str) else block for block in content
    ]


def summarise(body: Body) -> None:
    """A long history becomes a summary; the latest exchange stays."""
    name, items = items_of(body)
    if len(json.dumps(items)) < 30_000 or len(items) < 6:
        return
    lead = [item for item in items[:4] if item.get("role") in ("system", "developer")]
    kind = "input_text" if name == "input" else "text"
    summary = {
        "role": "user",
        "content": [{"type": kind, "text": "The agent looked at the files and goes on with the task. " * 16}],
    }
    body[name] = [
        *lead,
        {"type": "message", **summary} if name == "input" else summary,
        *items[-3 if name == "input" else -2 :],
    ]


CHANGES: dict[str, Callable[[Body], None]] = {
    "passthrough": lambda body: None,
    "flatten": flatten,
    "clip_later": clip_later,
    "summary": summarise,
}


def proxies(stack: ExitStack, upstream: str) -> Iterator[tuple[str, str]]:
    for name, change in CHANGES.items():
        yield name, stack.enter_context(Rewriting(in_body(change), upstream)).url
    yield "head_tail", stack.enter_context(Served("head_tail:keep=0.3", upstream)).url


def replay(sessions: Path, folder: Path, *more: str) -> dict[str, Any]:
    """The replay's JSON, all five changes in one run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    out = folder / f"{sessions.name}.json"
    with ExitStack() as stack:
        named = [
            part
            for name, url in proxies(stack, f"http://127.0.0.1:{port}")
            for part in ("--proxy", url, "--name", name)
        ]
        line = [
            "replay",
            str(sessions),
            *named,
            "--tap",
            str(port),
            "--upstream",
            "echo",
            "--quiet",
            "--store",
            str(folder / "store.db"),
        ]
        assert main([*line, "--output", "json", "--out", str(out), *more]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def verdict(facts: Body) -> str:
    """As the report words it: cheaper, dearer, same or none."""
    if "no_verdict" in facts["recorded"]:
        return "none"
    ratio, same = facts["cost"]["net_cost_ratio"], 0.02 if facts["recorded"].get("missing") else 0.0005
    return "cheaper" if ratio < 1 - same else "dearer" if ratio > 1 + same else "same"


def billed(folder: Path) -> float:
    """What the provider's own log says that the session cost."""
    prices, total = GenaiPrices(), 0.0
    for line in (folder / "usage.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] != "prompt":
            continue
        told = row["usage"]
        details = told.get("input_tokens_details") or {}
        write, read = (
            told.get("cache_creation_input_tokens"),
            told.get("cache_read_input_tokens", details.get("cached_tokens", 0)),
        )
        whole = told["input_tokens"] + ((write or 0) + read if write is not None else 0)
        cost = prices.cost(Usage(whole, told["output_tokens"], read, write or 0), row["model"])
        assert cost is not None
        total += cost
    return total


@pytest.fixture(scope="module")
def both(
    client_session: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Body, Body, Path]]:
    """Session → (replay of its requests, replay of its log, its folder)."""
    found = {}
    for name in SESSIONS:
        folder = client_session(name)
        work = tmp_path_factory.mktemp(name)
        log = next(folder.glob("log/export-*.json"), folder / "log")
        found[name] = (
            replay(folder / "records.jsonl", work)["replay"]["systems"],
            replay(log, work)["replay"]["systems"],
            folder,
        )
    return found


def test_a_log_says_what_the_requests_say_or_nothing(both: dict[str, tuple[Body, Body, Path]]) -> None:
    cells = {
        (session, change): (bodies[change], log[change]) for session, (bodies, log, _) in both.items() for change in log
    }
    assert len(cells) >= 30
    given = {cell: pair for cell, pair in cells.items() if verdict(pair[1]) != "none"}
    assert len(given) >= 0.8 * len(cells)
    for cell, (bodies, log) in given.items():
        assert {verdict(bodies), verdict(log)} != {"cheaper", "dearer"}, cell
        assert log["cost"]["net_cost_ratio"] == pytest.approx(bodies["cost"]["net_cost_ratio"], rel=0.1), cell
        if cell[1] == "passthrough":
            assert log["cost"]["net_cost_ratio"] == pytest.approx(1.0, abs=0.02), cell
    for session, change in cells.keys() - given.keys():
        assert change == EDITS_THE_SYSTEM_PROMPT, session
        assert "what it does to the real ones is not known" in cells[session, change][1]["recorded"]["no_verdict"]
        assert "net_cost_ratio" not in cells[session, change][1]["cost"]


def test_replay_and_compress_cache_and_the_provider_state_one_bill(
    both: dict[str, tuple[Body, Body, Path]], tmp_path: Path
) -> None:
    for name, (bodies, log, folder) in both.items():
        truth = billed(folder)
        assert bodies["passthrough"]["recorded"]["usd"] == pytest.approx(truth), name
        out = tmp_path / f"{name}.json"
        source = next(folder.glob("log/export-*.json"), folder / "log")
        assert main(["compress", "cache", str(source), "--output", "json", "--out", str(out)]) == 0
        cached = sum(row["cost_usd"] for row in json.loads(out.read_text())["recorded"])
        assert log["passthrough"]["cost"]["alone_usd"] == pytest.approx(cached), name
        if not name.startswith("opencode"):  # its title is asked of another model, and is in no log of the session
            assert cached == pytest.approx(truth), name
        recorded = log["passthrough"]["recorded"]
        assert abs(recorded["predicted_read_share"] - recorded["stated_read_share"]) < 0.1, name
