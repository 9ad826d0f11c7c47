"""`examples/context-bench.yml`: its own two commands pass for two identical runs and fail for a bad one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.datasets import load
from context_bench.testing.hostile import MisbehavingProxy

WORKFLOW = Path(__file__).parents[2] / "examples" / "context-bench.yml"


def step(name):
    """The shell of a step of the workflow, as it stands there."""
    found = re.search(
        rf"- name: {name}\n(?:(?!      - ).*\n)*?        run: (?:\|\n)?((?:(?!      - |\n).*\n)+)", WORKFLOW.read_text()
    )
    assert found, name
    return "\n".join(line.strip() for line in found[1].splitlines())


def shell(script, folder, **more):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory, free_port_of_module):
    """Three runs of the workflow's first command: the accepted state, the same again, and a proxy that drops half of
    the context.

    An exact reader stands where the workflow has the bundled model, and the proxy listens where a port is free.
    """
    folder = tmp_path_factory.mktemp("workflow")
    examples = load("bundled:pydocs-qa").examples()
    key = {one["question"]: {"answer": one["answer"], "evidence": one["evidence"]} for one in examples}
    (folder / "reader.json").write_text(json.dumps({"answer_key": key}))
    for name, habit in (("accepted", "nothing"), ("same", "nothing"), ("bad", "halves")):
        (folder / name).mkdir()
        with MisbehavingProxy(habit, f"http://127.0.0.1:{free_port_of_module}") as proxy:
            script = re.sub(r"--proxy \S+", f"--proxy {proxy.url}", step("Measure"))
            script = re.sub(r"--tap \d+", f"--tap {free_port_of_module}", script)
            assert "--upstream embedded" in script
            done = shell(
                script.replace("--upstream embedded", "--upstream scripted:../reader.json --model gpt-4o-mini"),
                folder / name,
            )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def free_port_of_module():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gate(place, name, more=""):
    folder = place / name
    if not (folder / "accepted").exists():
        (folder / "accepted").symlink_to(place / "accepted")
    return shell(step("Gate") + more, folder, GITHUB_STEP_SUMMARY=str(folder / "summary.md"))


def test_an_identical_run_passes_and_a_bad_one_fails(place):
    same, bad = gate(place, "same"), gate(place, "bad")
    assert (same.returncode, bad.returncode) == (0, 4), same.stderr + bad.stderr
    assert "exploratory" not in (place / "same" / "summary.md").read_text()
    assert "inferior to proxy before" in bad.stderr
    assert "margin of 10 points" in bad.stderr
    assert (place / "bad" / "gate.xml").exists()


def test_the_margin_is_the_runs_and_another_one_is_exploratory(place, capsys):
    run, accepted = place / "same" / "run.json", place / "accepted" / "run.json"
    assert (
        json.loads(run.read_text())["manifest"]["margin"].items()
        >= {"value": 0.1, "rule": "given", "score_field": "f1"}.items()
    )
    assert main(["gate", str(run), "--against", str(accepted), "--junit", str(place / "all.xml")]) == 0  # metric, too
    assert "not worse by 0.1 than proxy before" in capsys.readouterr().out
    assert "exploratory" not in (place / "all.xml").read_text()
    assert gate(place, "same", " --margin 0.1").returncode == 0
    later = gate(place, "bad", " --margin 0.09")
    assert later.returncode == 4
    assert "Margin chosen after the run: exploratory." in " ".join(later.stderr.split())


def test_the_proxy_is_started_where_it_is_measured_and_asks_the_tap():
    port, upstream = re.search(r"--port (\d+) --upstream \S+:(\d+)", step("Start the proxy under test")).groups()
    assert f"--proxy http://127.0.0.1:{port} " in step("Measure")
    assert f"--tap {upstream} " in step("Measure")


def test_it_says_what_to_set_where_it_does_not_know_where_we_come_from(tmp_path):
    done = shell(step("Install context-bench"), tmp_path, CONTEXT_BENCH="")
    assert done.returncode != 0
    assert "set this repository variable to where context-bench comes from" in done.stderr
    assert "OWNER" not in WORKFLOW.read_text()
