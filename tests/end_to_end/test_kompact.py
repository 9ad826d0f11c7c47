"""A proxy from the package index, measured by the documented command: tokens and role changes are those of an
independent count.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer, Received
from outside_count import tokens

pytestmark = pytest.mark.vendor("kompact")

KOMPACT = Path(__file__).parents[2] / ".vendors/kompact/bin/kompact"
SHAPES = ("tool-result", "openai-agent")
CASES = 6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def kompact(upstream_port: int) -> AsyncIterator[str]:
    port = free_port()
    upstream = f"http://127.0.0.1:{upstream_port}"
    options = [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-otel",
        "--openai-base-url",
        upstream,
        "--anthropic-base-url",
        upstream,
    ]
    env = {**os.environ, "NO_PROXY": "127.0.0.1"}
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(str(KOMPACT), "proxy", *options, stdout=quiet, stderr=quiet, env=env)
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{port}/health"):
                        break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def measure(folder: Path, *options: str) -> dict:
    report = folder / "report.json"
    command = [
        sys.executable,
        "-m",
        "context_bench",
        *options,
        "--dataset",
        str(folder / "cases.jsonl"),
        "--model",
        "gpt-4o",
        "--quiet",
    ]
    command += [
        "--shape",
        ",".join(SHAPES),
        "--store",
        str(folder / f"{len(options)}.db"),
        "--output",
        "json",
        "--out",
        str(report),
    ]
    return await reported(command, report)


async def reported(command: list[str], report: Path) -> dict:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=report.parent, stderr=pipe, stdout=pipe)
    out, error = await process.communicate()
    assert process.returncode == 0, (out + error).decode()
    return json.loads(await asyncio.to_thread(report.read_text))


def cases(folder: Path) -> None:
    lines = []
    for number in range(CASES):
        rows = [
            {"id": 1000 + i, "dock": f"D{i % 5}", "kind": "pallet", "weight_kg": i * 17 % 211, "open": i % 3 == 0}
            for i in range(40)
        ]
        example = {
            "id": number,
            "context": json.dumps(rows),
            "question": f"CASE-{number}: which dock has id {1000 + number}?",
        }
        lines.append(json.dumps({**example, "answer": f"D{number % 5}"}))
    (folder / "cases.jsonl").write_text("\n".join(lines))


def by_case(server: ModelServer) -> dict[tuple[str, str], Received]:
    """What arrived, by (shape, question): the agent's shape has several tools, the other one."""
    found = {}
    for received in server.requests:
        if received.method != "POST" or "CASE-" not in received.text:
            continue
        shape = "openai-agent" if len(received.body.get("tools", [])) > 1 else "tool-result"
        key = shape, received.text.partition("CASE-")[2][:1]
        assert key not in found
        found[key] = received
    return found


def tokens_of(body: dict) -> int:
    """By the documented rule, with another tokenizer library and none of our readers."""

    def canonical(value: object) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    total = tokens(canonical(body["tools"]))
    for message in body["messages"]:
        content = message.get("content") or ""
        total += sum(
            tokens(text) for text in ([content] if isinstance(content, str) else [part["text"] for part in content])
        )
        calls = [
            {"id": c["id"], **{k: c["function"][k] for k in ("name", "arguments")}}
            for c in message.get("tool_calls") or []
        ]
        total += tokens(canonical(calls)) if calls else 0
    return total


async def test_kompact_is_measured_as_it_is(tmp_path):
    cases(tmp_path)
    tap = free_port()
    async with ModelServer(Echo()) as behind, kompact(tap) as proxy:
        report = await measure(
            tmp_path, "--proxy", proxy, "--name", "kompact", "--tap", str(tap), "--upstream", behind.url
        )
        async with ModelServer(Echo()) as direct:
            await measure(tmp_path, "--proxy", direct.url, "--name", "direct")
            sent, received = by_case(direct), by_case(behind)
    assert len(sent) == len(received) == CASES * len(SHAPES)
    for shape in SHAPES:
        wire = report["wire"][f"kompact[{shape}]"]
        pairs = [(sent[key].body, received[key].body) for key in sent if key[0] == shape]
        changed = [
            (before["role"], after["role"])
            for ours, theirs in pairs
            for before, after in zip(ours["messages"], theirs["messages"], strict=True)
            if before["role"] != after["role"]
        ]
        assert wire["sent"] == sum(tokens_of(ours) for ours, _ in pairs)
        assert wire["forwarded"] == sum(tokens_of(theirs) for _, theirs in pairs)
        assert wire["role_changes"] == len(changed)
        assert ("assistant", "user") in changed
        assert wire["forwarded"] < wire["sent"]
    assert (
        report["wire"]["kompact[openai-agent]"]["role_changes"] > report["wire"]["kompact[tool-result]"]["role_changes"]
    )


async def test_kompact_over_a_whole_session(tmp_path):
    """The recipe of the guide, on one session: fewer tokens, every instruction and reply under another role, and
    controls of its size.
    """
    report, tap = tmp_path / "report.json", free_port()
    command = [
        sys.executable,
        "-m",
        "context_bench",
        "compress",
        "run",
        "bundled:sessions/order-sync-zh",
        "--per-type",
        "1",
        "--quiet",
    ]
    command += ["--tap", str(tap), "--model", "gpt-4o", "--name", "kompact", "--controls", "full,head_tail"]
    command += ["--store", str(tmp_path / "store.db"), "--output", "json", "--out", str(report)]
    async with kompact(tap) as proxy:
        found = await reported([*command, "--proxy", proxy], report)
    rows = {
        name: [row for row in found["rows"] if row["system"] == name]
        for name in ("kompact", "full", "head_tail@kompact")
    }
    probes = len(rows["kompact"])
    assert probes == len(rows["full"]) == len(rows["head_tail@kompact"]) > 0
    assert not any(row.get("errors") for row in found["rows"])
    wire = found["wire"]["kompact"]
    # A message that holds more than was sent is named and not summed.
    assert wire["violations"].keys() == {"assistant_role_changed", "system_role_lost", "text_added"}
    assert wire["violations"]["system_role_lost"] == probes
    assert wire["forwarded"] < wire["sent"] == found["wire"]["full"]["forwarded"]
    for own, cut in zip(rows["kompact"], rows["head_tail@kompact"], strict=True):
        assert cut["metadata"]["budget"] == own["metadata"]["tokens_after"] < own["metadata"]["tokens_before"]


async def test_the_doctor_finds_what_kompact_does_to_agents(tmp_path):
    """Roles, cache marks and signed thinking of the turn in progress are lost; a packed stream loses the header that
    says so.
    """
    tap = free_port()
    async with kompact(tap) as proxy:
        command = [sys.executable, "-m", "context_bench", "doctor", "--proxy", proxy, "--tap", str(tap), "--json"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
    assert process.returncode == 1
    found = {finding["name"]: finding for finding in json.loads(out)}
    assert {name for name, finding in found.items() if finding["status"] == "fail"} == {
        "roles",
        "cache_control",
        "thinking blocks",
    }
    assert "its thinking is gone" in found["thinking blocks"]["detail"]
    assert found["streaming"]["detail"].count("passed on as it comes") == 2
    assert found["packed replies"]["status"] == "warn"
    assert found["route responses"]["detail"] == "not offered (HTTP 404)"
    assert found["tools"]["status"] == found["parameters"]["status"] == "ok"
    assert {name for name in found if name.startswith("shape ") and "JSON rows −" in found[name]["detail"]} == {
        f"shape {shape}" for shape in ("plain-system", "plain-user", "tool-result", "claude-code", "openai-agent")
    }
