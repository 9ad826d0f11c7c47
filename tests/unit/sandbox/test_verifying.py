"""Hidden tests over what an agent left: an honest solution passes, and ways to fake one do not."""

import base64
import textwrap

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.sandbox import Bounds, NoSandbox, find_agent_sandbox, verify, workspace
from context_bench.sandbox.verification import plain_name, results

TEST = """
import unittest
from pkg.add import add

class T(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)
    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
FILES = {
    "pkg/__init__.py": "",
    "pkg/add.py": "def add(a, b):\n    return a - b\n",
    "tests/__init__.py": "",
    "tests/test_add.py": "seen = 1\n",
}
CHECK = {
    "files": {"tests/test_add.py": base64.b64encode(TEST.encode()).decode()},
    "command": "python -m unittest discover -v -s tests -t .",
    "timeout": 30,
    "fail_to_pass": ["tests.test_add.T.test_sum"],
    "pass_to_pass": ["test_zero (tests.test_add.T)"],
}
SOLVE = "printf 'def add(a, b):\\n    return a + b\\n' > pkg/add.py"


@pytest.fixture(scope="module")
def house():
    return find_agent_sandbox()


@pytest.fixture
def copy(house):
    with workspace({"kind": "files", "files": FILES}, house=house, bounds=Bounds(processes=60)) as made:
        yield made


@pytest.mark.program("bwrap")
def test_unsolved_then_solved(copy):
    verdict = verify(copy, CHECK)
    assert not verdict.solved
    assert verdict.passed == ("test_zero (tests.test_add.T)",)
    assert verdict.failed == ("tests.test_add.T.test_sum",)
    assert verdict.reason == "1 of 2 tests did not pass: tests.test_add.T.test_sum"
    assert verdict.finished.exit == 1
    assert copy.run(SOLVE).ok
    verdict = verify(copy, CHECK)
    assert (verdict.solved, verdict.reason, verdict.failed, verdict.undone) == (True, "", (), ())
    assert "test_sum" in verdict.finished.stdout_tail


SAYS = r"print('test_sum (tests.test_add.T) ... ok\ntest_zero (tests.test_add.T) ... ok')"
EASY = """import unittest
class T(unittest.TestCase):
    def test_sum(self): pass
    def test_zero(self): pass
"""


def written(text, *places):
    """Shell text that puts this into files."""
    return f"tee {' '.join(places)} <<'END' >/dev/null\n{text}\nEND\n"


COMPILED = f"""python - <<'END'
import importlib.util, marshal, pathlib
code = compile({EASY!r}, "tests/test_add.py", "exec")
place = pathlib.Path(importlib.util.cache_from_source("tests/test_add.py"))
place.parent.mkdir(exist_ok=True)
place.write_bytes(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code))
END"""
IN_HOME = "~/bin/python ~/.local/bin/python"
#: Ways to pass without solving. Each is shell text that a dishonest agent runs.
FAKES = {
    "the tests are edited": written(EASY, "tests/test_add.py"),
    "the tests are a link": "cp -r tests /tmp/t; rm -r tests; ln -s /tmp/t tests; "
    f"{written(EASY, 'tests/test_add.py')}",
    "the tests cannot be written": f"{written(EASY, 'tests/test_add.py')} chmod 444 tests/test_add.py; chmod 555 tests",
    "a folder is in the way": "rm tests/test_add.py; mkdir -p tests/test_add.py/x",
    "a unittest of one's own": written(SAYS, "unittest.py", "tests/unittest.py"),
    "a package unittest": f"mkdir unittest; touch unittest/__init__.py; {written(SAYS, 'unittest/__main__.py')}",
    "another module of the standard library": written(
        f"import os\n{SAYS[:-1]}, flush=True)\nos._exit(0)", "argparse.py"
    ),
    "sitecustomize": written(SAYS, "sitecustomize.py", "pkg/sitecustomize.py"),
    "usercustomize in HOME": f"d=$(python -m site --user-site); mkdir -p $d; {written(SAYS, '$d/usercustomize.py')}",
    "tests/__init__.py": written(SAYS, "tests/__init__.py"),
    "a python in HOME": f"mkdir -p ~/bin ~/.local/bin; {written(SAYS, IN_HOME)} chmod +x {IN_HOME}; echo "
    "'PATH=~/bin:$PATH' > ~/.profile",
    "leaving early with 0": written("import os; os._exit(0)", "pkg/__init__.py"),
    "leaving when the tests are over": written(
        "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return a - b", "pkg/add.py"
    ),
    "a compiled test that is not checked": COMPILED,
    "a daemon that waits for the tests": f"{written(EASY, '/tmp/fake')} "
    "setsid sh -c 'while sleep 0.05; do cp /tmp/fake tests/test_add.py; done' </dev/null >/dev/null 2>&1 &",
    "every test skipped": written("import unittest\nraise unittest.SkipTest", "pkg/add.py"),
}
IN_THE_CODE = {"leaving early with 0", "leaving when the tests are over", "every test skipped"}


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("way", FAKES)
def test_faking_does_not_pass(copy, way):
    copy.run(["bash", "-c", FAKES[way]])
    verdict = verify(copy, CHECK)
    assert not verdict.solved, verdict
    assert "tests.test_add.T.test_sum" in verdict.failed


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("way", sorted(set(FAKES) - IN_THE_CODE))
def test_traces_of_a_fake_do_not_hinder_a_solution(copy, way):
    """What only steers tests is put back, so an agent that also solved the task is not failed for it."""
    copy.run(["bash", "-c", FAKES[way]])
    copy.run(SOLVE)
    assert verify(copy, CHECK).solved


@pytest.mark.program("bwrap")
def test_what_was_put_back_is_named(house):
    with workspace(
        {"kind": "files", "files": {**FILES, "conftest.py": "old = 1\n", "lib/random.py": "mine = 1\n"}}, house=house
    ) as copy:
        copy.run(
            "echo bad | tee conftest.py unittest.py >x.pth; mkdir pkg/tests; echo bad > pkg/tests/__init__.py; ln -s "
            "/tmp pytest"
        )
        copy.run(SOLVE)
        verdict = verify(copy, CHECK)
        assert verdict.solved
        assert verdict.undone == ("conftest.py", "pkg/tests/__init__.py", "pytest", "unittest.py", "x.pth")
        assert copy.read("conftest.py") == b"old = 1\n"
        assert copy.read("lib/random.py") == b"mine = 1\n"


@pytest.mark.program("bwrap")
def test_known_gap_code_under_test_can_print_what_a_test_prints(copy):
    """Said in `verify`'s own text. Whoever closes the gap turns this test over."""
    lines = "test_sum (tests.test_add.T) ... ok\\ntest_zero (tests.test_add.T) ... ok"
    copy.write("pkg/__init__.py", f"import os\nprint('{lines}', flush=True)\nos._exit(0)\n".encode())
    assert verify(copy, CHECK).solved


@pytest.mark.program("bwrap")
def test_without_named_tests_the_status_counts(copy):
    check = {"command": "test -e done.txt", "timeout": 10}
    assert verify(copy, check).reason == "the tests ended with status 1"
    copy.write("done.txt", b"")
    assert verify(copy, check).solved
    slow = verify(copy, {"command": "sleep 60", "timeout": 0.5})
    assert (slow.solved, slow.reason) == (False, "the tests did not end within 0.5 s")
    flood = verify(copy, {"command": "yes; true", "timeout": 0.5})
    assert len(flood.finished.stdout_tail) == 16384
    assert verify(copy, {"command": "true", "remove": ["done.txt", "pkg"]}).solved
    assert copy.read("done.txt") is None
    assert copy.read("pkg/add.py") is None


@pytest.mark.program("bwrap")
@pytest.mark.parametrize(
    ("says", "reward", "reason"),
    [
        ("echo 1 > /logs/verifier/reward.txt", 1.0, ""),
        ("echo 0.5 > /logs/verifier/reward.txt", 0.5, "reward 0.5"),
        ("""echo '{"reward": 1.0, "style": 0}' > /logs/verifier/reward.json""", 1.0, ""),
        ("""echo '{"a": 1, "b": 0}' > /logs/verifier/reward.json""", 0.5, "reward 0.5"),
        ("echo yes > /logs/verifier/reward.txt", None, "the verifier wrote no reward (status 0)"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt; exit 3", None, "the verifier wrote no reward (status 3)"),
    ],
)
def test_a_verifier_that_writes_a_reward(copy, says, reward, reason):
    script = base64.b64encode(f"#!/bin/bash\ntest -f /tests/data/x || exit 9\n{says}\n".encode()).decode()
    check = {
        "outside": {"/tests/test.sh": script, "/tests/data/x": ""},
        "command": "bash /tests/test.sh",
        "reward": "/logs/verifier/reward.txt",
    }
    verdict = verify(copy, check)
    assert (verdict.reward, verdict.reason, verdict.solved) == (reward, reason, reason == "")


def test_absolute_places_need_walls():
    with workspace({"kind": "files", "files": FILES}, house=NoSandbox()) as copy:
        with pytest.raises(BadInput, match="needs a sandbox"):
            verify(copy, {"command": "true", "reward": "/logs/verifier/reward.txt"})
        assert copy.run(SOLVE).ok
        assert verify(copy, CHECK).solved


@pytest.mark.parametrize("test", ["test_x (a.b.T)", "test_x (a.b.T.test_x)", "a.b.T.test_x", "  a.b.T.test_x "])
def test_one_spelling_for_a_test(test):
    assert plain_name(test) == "a.b.T.test_x"


def test_outputs_of_the_usual_runners_are_read():
    output = textwrap.dedent(
        """
        test_a (m.T.test_a) ... ok
        test_b (m.T)
        The first line of its text. ... FAIL
        test_c (m.T.test_c) ... printed by the test ok
        test_d (m.T.test_d) ... skipped 'no reason'
        test_e (m.T.test_e) ... ERROR
        test_f (m.T.test_f) ... expected failure
        tests/a.py::test_g[x y] PASSED                                   [ 10%]
        tests/a.py::test_h FAILED
        PASSED tests/a.py::test_i[a - b]
        FAILED tests/a.py::test_j - AssertionError: PASSED
        ERROR tests/a.py
        test_k ok
        test_l F
        test_m (m.T.test_m) ... ok
        FAIL: test_m
        FAILED tests/a.py::test_g[x y] - at teardown
        test_n (m.T.test_n) ...
        """
    )
    passed = {"m.T.test_a", "m.T.test_c", "m.T.test_f", "test_k", "m.T.test_m", "tests/a.py::test_i[a - b]"}
    seen = results(output)
    assert {test for test, word in seen.items() if word == "passed"} == passed
    assert seen["m.T.test_d"] == "skipped"
    for test in (
        "m.T.test_b",
        "m.T.test_e",
        "tests/a.py::test_h",
        "tests/a.py::test_j",
        "test_l",
        "tests/a.py::test_g[x y]",
        "m.T.test_n",
    ):
        assert seen[test] == "failed", test
    assert results("") == {}


@given(st.text())
def test_any_output_is_read_and_spelling_is_settled(text):
    for test, word in results(text).items():
        assert word in ("passed", "failed", "skipped")
        assert plain_name(test) == test


@given(
    st.lists(
        st.sampled_from(
            ["test_x (m.T.test_x) ... ", "ok", "FAIL", "PASSED t.py::test_x", " - ", "\n", "x", "FAILED t.py::test_x"]
        ),
        max_size=12,
    )
)
def test_a_test_that_failed_once_has_failed(parts):
    output = "".join(parts)
    seen = results(output)
    if any(line.startswith("FAILED t.py::test_x") and (line == "FAILED t.py::test_x") for line in output.split("\n")):
        assert seen["t.py::test_x"] == "failed"
