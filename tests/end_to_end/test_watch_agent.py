"""A real agent on a scripted model, watched: byte for byte as it was behind an honest proxy, counted right behind one
that halves.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.testing.hostile import MisbehavingProxy
from outside_count import tokens

pytestmark = pytest.mark.vendor("mini-swe-agent")

MINI = Path(__file__).parents[2] / ".vendors/mini-swe-agent/bin/mini"
TASK = "The discount in shop/prices.py is taken twice. Find out where, repair it, and see that the tests pass."
FILES = {
    "shop/__init__.py": "",
    "shop/prices.py": "def net(price, discount):\n    price = price - price * discount\n    return round(price - "
    "price * discount, 2)\n",
    "shop/cart.py": "from shop.prices import net\n\n\ndef total(items):\n    return sum(net(price, off) for price, "
    "off in items)\n",
    "tests/test_prices.py": "from shop.prices import net\n\nassert net(100, 0.1) == 90.0, net(100, "
    "0.1)\nprint('prices are right')\n",
    "NOTES.md": "".join(
        f"{i}. Order {4100 + i} left dock {i % 7} at {6 + i % 12}:{i % 60:02d}, weight {i * 13 % 97} kg.\n"
        for i in range(120)
    ),
}
STEPS = [
    "cat shop/prices.py",
    "cat shop/cart.py",
    "cat tests/test_prices.py",
    "head -40 NOTES.md",
    "grep -rn discount shop",
    "PYTHONPATH=. python3 -B tests/test_prices.py 2>&1 | tail -1",
    "git log --oneline | cut -d' ' -f2-",
    "git status --short",
    "sed -n '41,80p' NOTES.md",
    "sed -i 's/return round(price - price \\* discount, 2)/return round(price, 2)/' shop/prices.py",
    "cat shop/prices.py",
    "PYTHONPATH=. python3 -B tests/test_prices.py",
    "git diff | tail -8",
    "sed -n '81,120p' NOTES.md",
    "wc -l NOTES.md shop/*.py",
    "grep -c dock NOTES.md",
    "git add -A && git status --short",
    "git -c user.name=a -c user.email=a@b.invalid commit -q -m 'Take the discount once' && echo committed",
    "git log --oneline | wc -l",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
]


def model() -> Scripted:
    """Twenty steps of work; the calls have ids of their own, so that what the agent sends depends on nothing else."""
    steps = [
        {
            "when": {"step": i},
            "text": f"Step {i + 1}.",
            "tool_calls": [{"name": "bash", "id": f"call_{i}", "arguments": {"command": command}}],
        }
        for i, command in enumerate(STEPS)
    ]
    return Scripted({"rules": steps})


def repository(home: Path) -> Path:
    """The same repository at the same place, every time."""
    shutil.rmtree(home, ignore_errors=True)
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A shop"]):
        subprocess.run([*git, *command], cwd=home, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"})
    return home


def agent(home: Path, **more: str) -> tuple[list[str], dict[str, str]]:
    """The agent's command, and the environment in which it asks nobody anything."""
    told = {
        "MSWEA_GLOBAL_CONFIG_DIR": str(home.parent / "config"),
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
    }
    told |= {
        "MSWEA_COST_TRACKING": "ignore_errors",
        "OPENAI_API_KEY": "sk-a-key-of-the-client-0123456789",
        "NO_PROXY": "127.0.0.1",
    }
    told |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    command = [
        str(MINI),
        "-m",
        "openai/gpt-4o",
        "-y",
        "--exit-immediately",
        "-t",
        TASK,
        "-o",
        str(home.parent / "trajectory.json"),
    ]
    return command, {**os.environ, **told, **more}


async def run(command: list[str], home: Path, env: dict[str, str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


async def watched(home: Path, habit: str) -> tuple[dict, ModelServer, dict]:
    """The agent's run behind `context-bench watch` and a proxy: the report, the model's server, the agent's own
    account.
    """
    command, env = agent(repository(home))
    front, back = free_port(), free_port()
    async with ModelServer(model()) as server, MisbehavingProxy(habit, f"http://127.0.0.1:{back}") as proxy:
        report = home.parent / f"{habit}.json"
        watch = [
            sys.executable,
            "-m",
            "context_bench",
            "watch",
            "--front",
            str(front),
            "--via",
            proxy.url,
            "--back",
            str(back),
        ]
        watch += [
            "--upstream",
            server.url,
            "--store",
            str(home.parent / "store.db"),
            "--output",
            "json",
            "--out",
            str(report),
        ]
        code, out, error = await run([*watch, "--", *command], home, env)
    assert code == 0, out + error
    return json.loads(report.read_text()), server, json.loads((home.parent / "trajectory.json").read_text())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def counted(bodies: list[bytes]) -> int:
    """Tokens of the bodies by the documented rule, counted with another library and without our readers."""
    total = 0
    for raw in bodies:
        body = json.loads(raw)
        for message in body["messages"]:
            content = message.get("content") or ""
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            total += sum(tokens(text) for text in texts)
            calls = [
                {"id": c["id"], **{k: c["function"][k] for k in ("name", "arguments")}}
                for c in message.get("tool_calls") or []
            ]
            total += tokens(canonical(calls)) if calls else 0
        total += tokens(canonical(body["tools"]))
    return total


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


async def test_an_agent_is_watched_without_being_changed_and_counted_right_when_its_context_is(tmp_path):
    home = tmp_path / "work" / "repository"

    command, env = agent(repository(home))
    async with ModelServer(model()) as alone:
        code, out, error = await run(
            command, home, {**env, "OPENAI_BASE_URL": f"{alone.url}/v1", "OPENAI_API_BASE": f"{alone.url}/v1"}
        )
    assert code == 0, out + error
    before = [received.raw for received in alone.requests]
    trajectory = json.loads((home.parent / "trajectory.json").read_text())
    assert len(before) == len(STEPS) == 20
    assert "round(price, 2)" in (home / "shop/prices.py").read_text()

    report, server, account = await watched(home, "nothing")
    figures = report["arms"]["main"]["total"]
    assert [received.raw for received in server.requests] == before
    assert {received.headers["authorization"] for received in server.requests} == {
        "Bearer sk-a-key-of-the-client-0123456789"
    }
    assert [m.get("content") for m in account["messages"]] == [m.get("content") for m in trajectory["messages"]]
    assert figures["turns"] == figures["calls"] == figures["compared"] == figures["unchanged"] == 20
    assert len(report["arms"]["main"]["sessions"]) == 1
    assert figures["sent"] == figures["forwarded"] == counted(before)
    assert figures["billed"]["input"] == sum(usage(server))
    assert (figures["extra"], figures["violations"], figures["failed"]) == (0, {}, 0)

    report, server, _ = await watched(home, "halves")
    figures = report["arms"]["main"]["total"]
    assert figures["turns"] == figures["calls"] == 20
    assert figures["unchanged"] == 0
    assert figures["forwarded"] == counted([received.raw for received in server.requests])
    assert figures["billed"]["input"] == sum(usage(server))
    assert figures["sent"] == counted(before)
    assert figures["forwarded"] < 0.8 * figures["sent"]


def usage(server: ModelServer) -> list[int]:
    """What the model itself billed, request by request."""
    from context_bench.core.tokens import counter_for
    from context_bench.wire.request import count_request

    return [count_request(received.request, counter_for("gpt-4o")).total for received in server.requests]
