"""The pytest plugin, in a pytest of its own as a user has it."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from textwrap import dedent

import pytest

SYSTEMS = """
import pytest

EXAMPLES = [{"id": i, "context": f"Box {i} holds {i * 7}.", "question": "What?", "answer": str(i * 7)} for i in range(200)]

class Answers:
    def __init__(self, name, right=True):
        self.name, self.right = name, right
    def process(self, example):
        return {**example, "response": example["answer"] if self.right or example["id"] % 3 else "no"}
    def fingerprint(self):
        return {"right": self.right}

class Nothing(Answers):
    def process(self, example):
        return {**example, "response": "no idea"}

ROLES = {"none": "known_bad"}
"""  # noqa: E501


@pytest.fixture
def pytester_run(tmp_path):
    def run(body, *args):
        (tmp_path / "test_bench.py").write_text(SYSTEMS + dedent(body))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "out.xml", *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, tmp_path

    return run


def test_verdicts_pass_and_fail_tests(pytester_run):
    code, out, folder = pytester_run("""
        @pytest.mark.context_bench(metric="f1", margin=0.05)
        @pytest.mark.parametrize("right", [True, False])
        def test_mine(context_bench, right):
            result = context_bench.evaluate([Answers("full"), Answers("mine", right), Nothing("none")], EXAMPLES, roles=ROLES)
            found = context_bench.assert_not_worse(result, "mine", baseline="full")
            assert found.verdict == "non-inferior"
            context_bench.assert_at_least(result, "mean_score", 0.99)

        def test_nothing_shown(context_bench):
            result = context_bench.evaluate([Answers("full"), Answers("mine")], EXAMPLES, n=None)
            context_bench.assert_not_worse(result, "mine", margin=0.05)

        def test_earlier_state(context_bench):
            arms = [[Answers("full"), Answers("mine", right), Nothing("none")] for right in (True, False)]
            before, now = (context_bench.evaluate(each, EXAMPLES, roles=ROLES) for each in arms)
            context_bench.assert_not_worse(now, "mine", before=before, margin=0.5)
    """)  # noqa: E501
    assert code == 1, out
    assert "2 failed, 2 passed" in out
    assert "mine: inferior to full" in out
    assert "mine: insensitive against full" in out  # without an arm that must lose, nothing was shown
    assert "mine: non-inferior to mine before" in out
    assert any(
        "non-inferior to full" in each.get("value") for each in ET.parse(folder / "out.xml").getroot().iter("property")
    )


def test_a_dataset_by_name_and_a_store(pytester_run):
    code, out, folder = pytester_run(
        """
        def test_named(context_bench):
            result = context_bench.evaluate([Answers("full")], "bundled:pydocs-qa", n=6)
            assert len(result.rows) == 6 and set(result.rows[0].scores) >= {"f1", "contains"}
            context_bench.assert_at_least(result, "mean_score", 1.0)
        """,
        "--context-bench-store",
        "bench.db",
    )
    assert code == 0, out
    assert (folder / "bench.db").exists()
    assert "full: mean_score is 1, wanted at least 1" in out


def test_a_wrong_marker_is_told(pytester_run):
    code, out, _ = pytester_run("""
        @pytest.mark.context_bench(margins=1)
        def test_it(context_bench):
            raise AssertionError("not reached")
    """)
    assert code == 1
    assert "not 'margins'" in out
