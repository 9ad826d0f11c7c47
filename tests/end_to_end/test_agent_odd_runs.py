"""`context-bench agent` where a run ends early, the tasks come from elsewhere, the wire is another, or the walls are
missing.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.agents import run_agents

pytestmark = pytest.mark.program("bwrap")
ROOT = Path(__file__).parents[2]
TINY = ["--", "python3", str(ROOT / "examples" / "tiny_agent.py"), "{instruction}"]
ONE = "bundled:repo-tasks:split-parsing"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ran(folder, tasks, *more, agent=TINY, script="bundled:repo-tasks", code=0, tap=True):
    """The report of a run as JSON."""
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
    model = ["--upstream", f"scripted:{script}", "--tap", str(free_port())] if tap else []
    arms = [] if "--arm" in more else ["--arm", "base=", "--no-nothing"]
    assert main(["agent", str(tasks), *kept, *model, *arms, *map(str, more), *agent]) == code
    return json.loads((folder / "out.json").read_text())


def shown(folder, form="table"):
    out = folder / f"shown.{form}"
    assert main(["show", "r", "--full", "--store", str(folder / "store.db"), "--output", form, "--out", str(out)]) == 0
    return out.read_text()


def only(told):
    (row,) = told["rows"]
    return row


def scripted(folder, rules):
    place = folder / "model.json"
    place.write_text(json.dumps({"rules": rules}))
    return place


def test_every_bundled_task_in_two_arms_with_the_scripted_model(tmp_path):
    told = ran(
        tmp_path, "bundled:repo-tasks", "--arm", "base=", "--arm", "hr=MODE=x", "--no-nothing", "--max-workers", "2"
    )
    solved = {(row["system"], row["example_id"]): row["scores"]["solved"] for row in told["rows"]}
    assert len(solved) == 24
    assert sorted(key for key, value in solved.items() if not value) == [
        ("base", "job-priority-two-files"),
        ("hr", "job-priority-two-files"),
    ]
    assert told["agents"]["against"]["hr"]["tokens"]["ratio"] == 1
    assert told["agents"]["without_one"]["hr"]["tasks"] == 12
    assert told["agents"]["sandbox"] == {"bubblewrap": 24}
    ((walls, runs),) = told["agents"]["walls"].items()
    assert runs == 24
    assert walls.startswith("Sandbox: bubblewrap; system calls filtered by seccomp; no nested user namespaces; ")
    assert walls in told["notes"]
    head = shown(tmp_path).split("Verdicts")[0]
    assert "Tasks 12" in head
    assert "Sandbox bubblewrap" in head
    assert "Shape" not in head
    assert "Model" not in head, "which model an agent calls is the agent's business"


def test_the_money_and_the_time_of_one_run(tmp_path):
    told = ran(tmp_path, ONE, "--max-cost-per-task", "0.001", "--price", "scripted=100,100")
    assert (only(told)["metadata"]["abort"], only(told)["scores"]["solved"]) == ("money limit", 0)
    assert only(told)["usage"]["cost"] > 0.001
    (tmp_path / "slow").mkdir()
    told = ran(tmp_path / "slow", ONE, "--max-seconds", "0.5", agent=["--", "sleep", "1000"], tap=False)
    assert (only(told)["metadata"]["abort"], only(told)["scores"]["solved"]) == ("time limit", 0)
    assert told["agents"]["limits"]["max_seconds"] == 0.5


def test_the_money_of_the_whole_run(tmp_path):
    arms = ["--arm", "base=", "--arm", "hr=MODE=x", "--no-nothing"]
    told = ran(tmp_path, ONE, *arms, "--max-cost", "0.001", "--price", "scripted=100,100", code=5)
    assert len(told["rows"]) == 1, "no second agent was begun"
    told = ran(tmp_path, ONE, *arms, "--max-cost", "100", "--price", "scripted=100,100")
    assert [row["scores"]["solved"] for row in told["rows"]] == [1, 1]


def test_a_request_that_is_too_long_for_the_model(tmp_path):
    look = {"when": {"turn": 1}, "text": "```bash\nls\n```"}
    full = {
        "when": {"turn": 2},
        "status": 400,
        "error": {"code": "context_length_exceeded", "message": "maximum context length is 8192 tokens"},
    }
    told = ran(tmp_path, ONE, script=scripted(tmp_path, [look, full]))
    assert (only(told)["metadata"]["abort"], only(told)["scores"]["solved"]) == ("context overflow", 0)
    assert told["agents"]["arms"]["base"]["aborts"] == {"context overflow": 1}


def test_calls_are_known_without_keys_too(tmp_path):
    told = ran(tmp_path, ONE, "--marker", "serial", "--arm", "base=OPENAI_API_KEY=of-my-own", "--no-nothing")
    assert only(told)["scores"]["solved"] == 1
    assert only(told)["wire"]["client_calls"] > 2
    assert told["summary"]["base"].get("unmatched", 0) == 0


ANTHROPIC = """
import json, os, urllib.request
body = {"model": "scripted", "max_tokens": 50, "messages": [{"role": "user", "content": "repair"}]}
headers = {"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
for block in json.load(urllib.request.urlopen(request))["content"]:
    exec(block.get("text", ""))
"""  # noqa: E501


def test_an_agent_that_speaks_anthropic(tmp_path):
    agent = tmp_path / "agent.py"
    agent.write_text(ANTHROPIC)
    task = {
        "id": "add",
        "context": "",
        "instruction": "repair",
        "repo": {"kind": "files", "files": {"calc.py": "def add(a, b):\n    return a - b\n"}},
        "verify": {"command": "python3 -c 'import calc; assert calc.add(1, 2) == 3'", "timeout": 60},
    }
    mend = "open('calc.py', 'w').write('def add(a, b): return a + b')"
    script = scripted(tmp_path, [{"text": mend, "usage": {"input_tokens": 1000, "output_tokens": 10}}])
    result = run_agents([task], {"base": ""}, ["python3", str(agent)], upstream=f"scripted:{script}", nothing=False)
    (row,) = result.rows
    assert row.scores == {"solved": 1.0}, (row.errors, row.metadata)
    assert row.wire["client_calls"] == 1
    assert row.usage["output_tokens"] > 0


class Metered(http.server.BaseHTTPRequestHandler):
    """A provider whose every reply uses up one hundredth of the five-hour window more, and tells of a key's limit."""

    used = 0

    def do_POST(self):
        Metered.used += 1
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"input_tokens": 100, "output_tokens": 10}
        text = "open('calc.py', 'w').write('def add(a, b): return a + b')"
        told = {"type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
        body = json.dumps({"id": "msg_1", "stop_reason": "end_turn", "usage": usage, **told}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("anthropic-ratelimit-unified-5h-utilization", str(Metered.used / 100))
        self.send_header("anthropic-ratelimit-requests-limit", "50")
        self.send_header("anthropic-ratelimit-requests-remaining", "40")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_quotas_are_told_by_arm(tmp_path):
    Metered.used = 0
    agent = tmp_path / "agent.py"
    first, ask = ANTHROPIC[: ANTHROPIC.index("for block")], ANTHROPIC[ANTHROPIC.index("for block") :]
    agent.write_text(f"{first}\nfor turn in range(int(os.environ['TURNS'])):\n" + textwrap.indent(ask, "    "))
    task = {
        "id": "add",
        "context": "",
        "instruction": "repair",
        "repo": {"kind": "files", "files": {"calc.py": "def add(a, b):\n    return a - b\n"}},
        "verify": {"command": "python3 -c 'import calc; assert calc.add(1, 2) == 3'", "timeout": 60},
    }
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metered)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        result = run_agents(
            [task],
            {"few": "TURNS=2", "many": "TURNS=5"},
            ["python3", str(agent)],
            upstream=f"http://127.0.0.1:{server.server_port}",
            nothing=False,
            trials=2,
            noise_floor=False,
            store=tmp_path / "store.db",
            run="r",
        )
    finally:
        server.shutdown()
        server.server_close()
    few, many = (result.agents["arms"][name]["quotas"] for name in ("few", "many"))
    # of a run's first reply it is not known what it used up itself
    assert few["five hours"]["used"] == pytest.approx(2 * 0.01)
    assert many["five hours"]["used"] == pytest.approx(2 * 0.04)
    assert many["five hours"]["used_mean"] == pytest.approx(0.04)
    assert max(few["five hours"]["most"], many["five hours"]["most"]) == pytest.approx(0.14)
    assert (few["requests"]["runs"], few["requests"]["most"]) == (2, pytest.approx(0.2))
    out = tmp_path / "report.md"
    asked = ["show", "r", "--score-field", "solved", "--store", str(tmp_path / "store.db"), "--output", "markdown"]
    assert main([*asked, "--out", str(out)]) == 0
    assert "Of the account's quotas" in out.read_text()
    assert re.search(r"many *\| five hours *\| 8", out.read_text())


def swe_rows(folder):
    """One row like SWE-bench's and the clone it is about; one row about a repository that is not there."""
    clone = folder / "repos" / "owner__name"
    clone.mkdir(parents=True)
    (clone / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    git = ["git", "-C", str(clone), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    case = "class T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
    test = f"import unittest\nfrom calc import add\n\n\n{case}"
    lines = "".join(f"+{line}\n" for line in test.splitlines())
    patch = (
        "diff --git a/test_calc.py b/test_calc.py\nnew file mode 100644\n--- /dev/null\n+++ "
        f"b/test_calc.py\n@@ -0,0 +1,7 @@\n{lines}"
    )
    row = {
        "instance_id": "owner__name-1",
        "repo": "owner/name",
        "base_commit": commit,
        "problem_statement": "add subtracts",
        "patch": "",
    }
    row |= {"test_patch": patch, "FAIL_TO_PASS": '["test_add (test_calc.T)"]', "PASS_TO_PASS": "[]"}
    place = folder / "swe.jsonl"
    place.write_text(
        "".join(
            json.dumps({**row, **more}) + "\n" for more in ({}, {"instance_id": "other__one-2", "repo": "other/one"})
        )
    )
    return place


MEND = ["--", "sed", "-i", "s/a - b/a + b/", "calc.py"]


def test_rows_like_swe_bench_and_what_was_passed_over(tmp_path):
    place = swe_rows(tmp_path)
    more = ["--repos", tmp_path / "repos", "--test-command", "python3 -m unittest -v test_calc", "--arm", "base="]
    told = ran(tmp_path, place, *more, agent=MEND, tap=False)
    assert {row["system"]: row["scores"]["solved"] for row in told["rows"]} == {"base": 1, "none": 0}
    assert "1 task(s) passed over: other__one-2: no clone of other/one in" in " ".join(shown(tmp_path).split())
    result = run_agents(
        place,
        {"base": ""},
        MEND[1:],
        nothing=False,
        repos=tmp_path / "repos",
        test_command="python3 -m unittest -v test_calc",
    )
    assert [row.scores["solved"] for row in result.rows] == [1.0]
    assert any(note.startswith("1 task(s) passed over: other__one-2") for note in result.notes)


def test_harbor_tasks(tmp_path):
    for name, image in (
        ("plain", "FROM python:3.11-slim\nWORKDIR /app\nCOPY start.txt .\n"),
        ("built", "FROM nvidia/cuda:12\nRUN make\n"),
    ):
        for folder in ("environment", "tests"):
            (tmp_path / "harbor" / name / folder).mkdir(parents=True)
        task = tmp_path / "harbor" / name
        (task / "task.toml").write_text(
            'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n'
        )
        (task / "instruction.md").write_text("Write hello.txt.\n")
        (task / "environment" / "Dockerfile").write_text(image)
        (task / "environment" / "start.txt").write_text("hello\n")
        (task / "tests" / "test.sh").write_text("grep -q hello hello.txt && echo 1 > /logs/verifier/reward.txt\n")
    told = ran(tmp_path, tmp_path / "harbor", "--arm", "base=", agent=["--", "cp", "start.txt", "hello.txt"], tap=False)
    assert {(row["system"], row["example_id"]): row["scores"]["solved"] for row in told["rows"]} == {
        ("base", "plain"): 1,
        ("none", "plain"): 0,
    }
    assert "built: its image has to be built" in " ".join(shown(tmp_path).split())


def test_no_walls_are_said_in_every_report(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "sh", "python3", "sed"):
        (programs / name).symlink_to(shutil.which(name))
    place = swe_rows(tmp_path)
    monkeypatch.setenv("PATH", str(programs))  # neither bubblewrap nor docker
    more = [
        "--repos",
        tmp_path / "repos",
        "--test-command",
        f"{sys.executable} -m unittest -v test_calc",
        "--unsafe",
        "--arm",
        "base=",
        "--no-nothing",
    ]
    told = ran(tmp_path, place, *more, agent=MEND, tap=False)
    assert only(told)["scores"]["solved"] == 1
    assert told["agents"]["sandbox"] == {"none": 1}
    assert any(note.startswith("Sandbox: NONE; ") for note in told["notes"])
    for form in ("table", "markdown", "html"):
        text = " ".join(shown(tmp_path, form).split())
        assert "NO SANDBOX: 1 of 1 runs had no walls" in text, form
        assert "NONE (1 runs without walls)" in text, form


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("hr=OPENAI_BASE_URL=http://127.0.0.1:{free}/v1", "nothing listens at OPENAI_BASE_URL=http://127.0.0.1:"),
        ("hr=ANTHROPIC_BASE_URL=localhost", "ANTHROPIC_BASE_URL=localhost is no URL"),
        ("hr=X={tap}/v1", "arm 'hr': X asks for {tap}, which this run does not have"),
    ],
)
def test_an_arm_that_leads_nowhere_is_told_before_anything_is_run(tmp_path, capsys, arm, said):
    arm = arm.replace("{free}", str(free_port()))
    words = ["agent", ONE, "--store", str(tmp_path / "store.db"), "--arm", "base=", "--arm", arm, "--quiet", *TINY]
    assert main(words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
