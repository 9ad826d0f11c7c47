"""`context-bench agent` as a user runs it: the bundled tasks, the scripted model, a proxy, a hook, limits, a kill, a
real agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.agents.datasets import SCRIPT
from context_bench.testing.hostile import MisbehavingProxy

ROOT = Path(__file__).parents[2]
TINY = ["--", "python3", str(ROOT / "examples" / "tiny_agent.py"), "{instruction}"]
SPLIT, WRAP, FORGETS = "split-parsing", "wrap-long-words", "job-priority-two-files"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def words(folder, tasks, *more, port=None, script=SCRIPT, agent=TINY):
    kept = [
        "--store",
        str(folder / "store.db"),
        "--output",
        "json",
        "--out",
        str(folder / "out.json"),
        "--quiet",
        "--run",
        "r",
    ]
    return ["agent", tasks, *kept, "--upstream", f"scripted:{script}", "--tap", str(port or free_port()), *more, *agent]


def report(folder):
    return json.loads((folder / "out.json").read_text())


def test_a_proxy_a_hook_and_nothing(tmp_path):
    hook = tmp_path / "hook.sh"
    hook.write_text("echo 'cat() { command cat \"$@\" | head -c 200; }' > $HOME/.hook\ntouch left-by-the-hook\n")
    port = free_port()
    with MisbehavingProxy("nothing", f"http://127.0.0.1:{port}") as proxy:
        arms = ["--arm", "base=", "--arm", f"hr=OPENAI_BASE_URL={proxy.url}/v1 SOME_API_KEY=sk-of-this-arm-alone"]
        arms += [
            "--arm",
            f"hook=BASH_ENV={{home}}/.hook {hook}",
            "--trials",
            "1",
            "--noise-floor",
            "--price",
            "scripted=1,2",
        ]
        assert main(words(tmp_path, f"bundled:repo-tasks:{SPLIT},{FORGETS}", *arms, port=port)) == 0
    told = report(tmp_path)
    rows = {(row["system"], row["example_id"]): row for row in told["rows"]}
    assert len(rows) == len(told["rows"]) == 10
    for arm in ("base", "hr", "hook", "base#2"):
        assert rows[arm, SPLIT]["scores"]["solved"] == 1
        assert rows[arm, FORGETS]["scores"]["solved"] == 0
    assert rows["none", SPLIT]["scores"]["solved"] == rows["none", FORGETS]["scores"]["solved"] == 0
    agents = told["agents"]
    base, hr = agents["arms"]["base"], agents["arms"]["hr"]
    assert (base["solved"], base["runs"], base["aborted"], base["failures"]) == (1, 2, 0, 0)
    assert base["calls_sum"] == hr["calls_sum"] > 4  # seen behind the proxy too
    assert base["cost_sum"] == pytest.approx((base["tokens_sum"] + 2 * base["output_sum"]) / 1e6)
    assert agents["against"]["hr"]["cost"]["ratio"] == agents["against"]["base#2"]["cost"]["ratio"] == 1
    assert agents["against"]["hook"]["tokens"]["ratio"] < 1
    assert agents["without_one"].keys() == {"hr", "hook"}
    assert "left-by-the-hook" not in (tmp_path / "out.json").read_text()
    assert b"sk-of-this-arm-alone" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for name in ("table", "markdown", "html"):
        out = tmp_path / f"report.{name}"
        assert (
            main(["show", "r", "--full", "--store", str(tmp_path / "store.db"), "--output", name, "--out", str(out)])
            == 0
        )
        assert "Does one task decide?" in out.read_text()


def test_limits_are_the_same_for_all_and_end_runs_unsolved(tmp_path):
    more = ["--arm", "base=", "--arm", "slow=STEP_LIMIT=1", "--no-nothing", "--max-calls", "3"]
    assert main(words(tmp_path, f"bundled:repo-tasks:{WRAP}", *more)) == 0
    told = report(tmp_path)
    assert told["agents"]["limits"]["max_calls"] == 3
    rows = {row["system"]: row for row in told["rows"]}
    assert (rows["base"]["scores"]["solved"], rows["base"]["metadata"]["abort"]) == (0, "step limit")
    assert (rows["slow"]["scores"]["solved"], rows["slow"]["metadata"]["abort"]) == (0, "agent error")
    assert told["agents"]["arms"]["base"]["aborts"] == {"step limit": 1}


def test_a_model_that_never_answers_is_a_failure_and_not_the_arms(tmp_path):
    script = tmp_path / "down.json"
    script.write_text(json.dumps({"rules": [{"status": 500, "error": "down"}]}))
    assert main(words(tmp_path, f"bundled:repo-tasks:{WRAP}", "--arm", "base=", "--no-nothing", script=script)) == 1
    (row,) = report(tmp_path)["rows"]
    assert row["errors"]["system"].startswith("ServerFailed: none of the agent's 1 call(s) was answered")
    assert not row["scores"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "--arm is missing"),
        (["--arm", "base=", "--tap", "http://127.0.0.1:1"], "need a tap of their own"),
        (["--arm", "base=", "--max-calls", "3"], "need --upstream"),
        (["--arm", "base=", "--pass-env", "NO_SUCH_VARIABLE_HERE"], "this shell has no such variable"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is(given, said, capsys):
    assert main(["agent", "bundled:repo-tasks", *given, "--", "true"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_command_is_asked_for(capsys):
    assert main(["agent", "bundled:repo-tasks", "--arm", "base="]) == 2
    assert "after --" in capsys.readouterr().err


def finished(path):
    """Outputs that are in the store of a run that goes on."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store,
    ):
        return int(store.execute("SELECT count(*) FROM outputs").fetchone()[0])
    return 0


def test_killed_and_resumed(tmp_path):
    line = words(tmp_path, f"bundled:repo-tasks:{SPLIT},{WRAP}", "--arm", "base=", "--arm", "hr=MODE=x", "--no-nothing")
    process = subprocess.Popen(
        [sys.executable, "-m", "context_bench", *line], stderr=subprocess.DEVNULL, start_new_session=True
    )
    while (done := finished(tmp_path / "store.db")) < 1:
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = finished(tmp_path / "store.db")
    assert done <= before < 4
    assert main(line) == 0
    told = report(tmp_path)
    assert sorted((row["system"], row["example_id"]) for row in told["rows"]) == [
        (arm, task) for arm in ("base", "hr") for task in (SPLIT, WRAP)
    ]
    assert all(row["scores"]["solved"] == 1 for row in told["rows"])
    assert finished(tmp_path / "store.db") == 4  # what was there was not done again


@pytest.mark.vendor("mini-swe-agent")
def test_a_real_agent(tmp_path):
    edit = "sed -i 's/return round(price - price \\* discount, 2)/return round(price, 2)/' shop.py"
    task = tmp_path / "task"
    task.mkdir()
    (task / "shop.py").write_text(
        "def net(price, discount):\n    price = price - price * discount\n    return round(price - price * discount, "
        "2)\n"
    )
    steps = ["cat shop.py", "cat shop.py", edit, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    rules = [
        {
            "when": {"step": i},
            "text": f"Step {i}.",
            "tool_calls": [{"name": "bash", "id": f"c{i}", "arguments": {"command": step}}],
        }
        for i, step in enumerate(steps)
    ]
    script = tmp_path / "model.json"
    script.write_text(json.dumps({"rules": rules}))
    from context_bench.agents import run_agents

    quiet = (
        "MSWEA_CONFIGURED=true MSWEA_SILENT_STARTUP=1 MSWEA_COST_TRACKING=ignore_errors "
        "LITELLM_LOCAL_MODEL_COST_MAP=True"
    )
    example = {
        "id": "twice",
        "context": "",
        "instruction": "The discount in shop.py is taken twice. Repair it.",
        "repo": {"kind": "folder", "path": str(task)},
        "verify": {"command": "python3 -c 'import shop; assert shop.net(100, 0.1) == 90.0'", "timeout": 60},
    }
    mini = ROOT / ".vendors/mini-swe-agent/bin/mini"
    command = [
        str(mini),
        "-m",
        "openai/gpt-4o",
        "-y",
        "--exit-immediately",
        "-t",
        "{instruction}",
        "-o",
        "/tmp/trajectory.json",
    ]
    result = run_agents(
        [example], {"base": f"MSWEA_GLOBAL_CONFIG_DIR={{home}}/config {quiet}"}, command, upstream=f"scripted:{script}"
    )
    (row,) = (row for row in result.rows if row.system == "base")
    assert row.scores == {"solved": 1.0}, (row.errors, row.metadata)
    assert row.wire["client_calls"] == len(steps)
    assert (row.metadata["reads"], row.metadata["again"]) == (2, 1)
    assert row.usage["cost"] > 0  # gpt-4o has a price
