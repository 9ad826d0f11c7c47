"""A real agent on a scripted model and a small git repository: its own trajectory, and what a tap saw of it, scored
from end to end.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.tap.control_api import record_file
from context_bench.traces import gold_of_row, load_traces, open_repo, score_trace

pytestmark = pytest.mark.vendor("mini-swe-agent")

MINI = Path(__file__).parents[2] / ".vendors/mini-swe-agent/bin/mini"
FILES = {
    "shop/prices.py": "def net(price, discount):\n    price = price - price * discount\n    return round(price - "
    "price * discount, 2)\n",
    "shop/cart.py": "from shop.prices import net\n\n\ndef total(items):\n    return sum(net(price, off) for price, "
    "off in items)\n",
    "NOTES.md": "".join(f"{number}. Nothing to see here.\n" for number in range(1, 41)),
}
STEPS = [
    "sed -n 11,20p NOTES.md",
    "cat shop/nowhere.py",
    "grep -n discount shop/prices.py",
    "cat shop/prices.py",
    "sed -i 's/return round(price - price \\* discount, 2)/return round(price, 2)/' shop/prices.py",
    "git diff > patch.txt && cat patch.txt",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt",
]
GOLD = {
    "inst_id": "shop-1",
    "init_ctx": [{"file": "shop/prices.py", "start_line": 3, "end_line": 3}],
    "add_ctx": [{"file": "shop/cart.py", "start_line": 4, "end_line": 5}],
}


def repository(home: Path) -> Path:
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A shop"]):
        subprocess.run([*git, *command], cwd=home, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"})
    return home


async def run(home: Path, url: str, trajectory: Path) -> None:
    """The agent as a user starts it; it asks nobody but the model."""
    told = {
        "MSWEA_GLOBAL_CONFIG_DIR": str(home.parent / "config"),
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
    }
    told |= {"MSWEA_COST_TRACKING": "ignore_errors", "OPENAI_API_KEY": "sk-none", "NO_PROXY": "127.0.0.1"}
    told |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    told |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1"}
    command = [
        str(MINI),
        "-m",
        "openai/gpt-4o",
        "-y",
        "--exit-immediately",
        "-t",
        "Repair the discount.",
        "-o",
        str(trajectory),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env={**os.environ, **told},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, out.decode() + error.decode()


async def test_an_agents_trajectory_and_the_tap_in_front_of_it_score_the_same(tmp_path: Path) -> None:
    home = repository(tmp_path / "work" / "shop")
    rules = [
        {
            "when": {"step": step},
            "text": "Next.",
            "tool_calls": [{"name": "bash", "id": f"call_{step}", "arguments": {"command": command}}],
        }
        for step, command in enumerate(STEPS)
    ]
    trajectory, records = tmp_path / "shop-1.traj.json", tmp_path / "records" / "shop-1.jsonl"
    records.parent.mkdir()
    async with ModelServer(Scripted({"rules": rules})) as model:
        with record_file(records) as sink:
            async with Tap(model.url, record="full", sink=sink) as tap:
                await run(home, tap.url, trajectory)
    gold = gold_of_row(GOLD)
    found = []
    with open_repo(home, "HEAD") as repo:
        for log in (trajectory, records):
            (trace,) = load_traces(log, repo=repo)
            assert trace.instance_id == "shop-1"
            assert trace.step_count == len(STEPS)
            assert [event.path for event in trace.events if event.kind == "read" and not event.ok] == [
                "shop/nowhere.py"
            ]
            assert {event.path for event in trace.events if event.kind == "edit"} >= {"shop/prices.py"}
            row = score_trace(gold, trace, repo)
            assert row.score is not None
            assert row.error is None
            final = row.score.final
            assert (final["file"].coverage, final["file"].precision) == (0.5, 0.5)
            assert (final["line"].intersection, final["line"].gold_size, final["line"].pred_size) == (1, 3, 13)
            assert row.missed == {"shop/cart.py": [(4, 5)]}
            found.append((row.score.final, row.score.auc, row.score.redundancy))
    assert found[0] == found[1]
    (own,) = load_traces(trajectory)
    assert own.patch is not None
    assert "-    return round(price - price * discount, 2)" in own.patch
    with open_repo(home, "HEAD") as repo:
        edited = score_trace(gold, own, repo).score
    assert edited is not None
    assert edited.editloc is not None
    assert edited.editloc["precision"] == 1.0
