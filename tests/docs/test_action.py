"""The steps of action.yml, run on this machine as a runner would: a wheel is installed, two equal runs pass the gate, a
worse one does not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SYSTEMS = """
class Good:
    name = "mine"

    def process(self, example):
        return example


class Bad(Good):
    def process(self, example):
        return {**example, "context": "Nothing is left."} if example["id"] % 2 else example
"""
RUN = (
    "--system py:mine:{} --controls none --upstream scripted:reader.json --model any --dataset rows.jsonl "
    "--score-field contains --margin 0.1"
)


class Runner:
    """One job: a folder to work in, one of its own for temporary files, a summary."""

    def __init__(self, folder):
        self.folder = folder
        self.summary = folder / "summary.md"
        (folder / "temp").mkdir()
        packages = sysconfig.get_paths()["purelib"]
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "RUNNER_TEMP": str(folder / "temp"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_ACTION_PATH": str(ROOT),
            # What it depends on is installed here already, and tests need no package index.
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": packages,
        }

    def step(self, name, **given):
        """The exit code and what was said by one step with these inputs; `None` where its condition does not hold."""
        inputs = {key: str(each.get("default", "")) for key, each in ACTION["inputs"].items()} | given
        step = STEPS[name]
        if "if" in step and not any(inputs[each] for each in re.findall(r"inputs\.(\w+) != ''", step["if"])):
            return None
        own = {
            key: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
            for key, value in step["env"].items()
        }
        # As a runner calls `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env | own, capture_output=True, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """A job in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("job")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    (folder / "mine.py").write_text(SYSTEMS)
    rows = [
        {"id": n, "context": f"Town {n} is Aa{n}.", "question": f"Which is {n}?", "answer": f"Aa{n}"} for n in range(60)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    key = {row["question"]: {"answer": row["answer"], "evidence": row["context"]} for row in rows}
    (folder / "reader.json").write_text(json.dumps({"answer_key": key}))
    job = Runner(folder)
    code, said = job.step("Install context-bench", **{"from": str(wheel), "python": sys.executable})
    assert code == 0, said
    assert "context-bench" in said
    return job


def test_equal_runs_pass_and_a_worse_one_fails_with_a_comment(runner):
    for result, system in (("accepted.json", "Good"), ("worse.json", "Bad")):
        code, said = runner.step("Measure", run=RUN.format(system), result=result)
        assert code in (0, 4), said
        assert json.loads((runner.folder / result).read_text())
    gate = {"against": "accepted.json", "gate": "--metric contains --margin 0.1"}
    code, said = runner.step("Gate", result="accepted.json", comment="good.md", junit="good.xml", **gate)
    assert code == 0, said
    code, said = runner.step("Gate", result="worse.json", comment="bad.md", junit="bad.xml", **gate)
    assert code == 4, said
    comment = (runner.folder / "bad.md").read_text()
    assert "mine" in comment
    assert "<failure" in (runner.folder / "bad.xml").read_text()
    assert runner.summary.read_text() == (runner.folder / "good.md").read_text() + comment


def test_an_input_is_never_read_as_a_script(runner):
    for name, step in STEPS.items():
        assert "${{" not in step["run"], name
        assert step["shell"] == "bash"
    code, _ = runner.step(
        "Measure", run="--dataset rows.jsonl --system '$(touch stolen)'; touch stolen", result="x.json"
    )
    assert code == 2
    assert not (runner.folder / "stolen").exists()


def test_steps_without_their_inputs_do_not_run(runner):
    assert runner.step("Measure") is None
    assert runner.step("Gate") is None


def test_every_input_is_used_and_described():
    used = set(re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == ACTION["inputs"].keys()
    assert all(each["description"] for each in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
