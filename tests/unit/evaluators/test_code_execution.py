"""CodeExecution: the documented values, every shape in which models write code, and what is a failure of ours and not
theirs.
"""

import asyncio
import json
import os
import pickle
import shutil

import pytest
from hypothesis import given, strategies as st

from context_bench import evaluate
from context_bench.core.errors import EvaluatorFailed, MissingProgram
from context_bench.engine import open_store, rescore
from context_bench.evaluators import AnswerQuality, CodeExecution
from context_bench.evaluators.code_program import NoProgram, fenced, program
from context_bench.runner import collect
from context_bench.sandbox import Bubblewrap

run_for_real = pytest.mark.program("bwrap")

ADD = {"context": "def add(a, b):\n", "test": "def check(f):\n    assert f(1, 2) == 3\n", "entry_point": "add"}
#: As HumanEval's prompts are: imports, a helper, a signature with a docstring.
MEAN = {
    "context": "from typing import List\n\n\ndef total(numbers: List[float]) -> float:\n    return sum(numbers)\n\n\n"
    'def mean(numbers: List[float]) -> float:\n    """The mean.\n\n    >>> mean([1.0, 3.0])\n    2.0\n    """\n',
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1.0, 3.0]) == 2.0\n    assert "
    "candidate([5.0]) == 5.0\n",
    "entry_point": "mean",
}
METHOD = {
    "context": (
        'class Stack:\n    """A stack.\n\nIt grows upwards."""\n\n'
        '    def __init__(self):\n        self.items = []\n\n    def top(self):\n        """The newest."""\n'
    ),
    "test": "def check(stack):\n    s = stack()\n    s.items += [1, 2]\n    assert s.top() == 2\n",
    "entry_point": "Stack",
}
MBPP = {
    "context": "Write a function to find the smallest of some numbers.",
    "test_list": ["assert smallest([3, 1, 2]) == 1", "assert smallest([math.inf, 5]) == 5"],
    "test_imports": ["import math"],
    "test_setup_code": "",
}
PAIRS = {
    "test_list": ["assert span(Pair(1, 4)) == 3"],
    "test_setup_code": "class Pair(object):\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n",
}


@pytest.fixture(scope="module")
def judge():
    return CodeExecution(timeout=30.0)


async def passes(judge, example, response):
    assert judge.applies(example, {"response": response})
    return (await judge.ascore(example, {"response": response}))["pass_at_1"]


# --- the documented values
# ------------------------------------------------------------------------


@run_for_real
@pytest.mark.parametrize(
    ("original", "response", "expected"),
    [
        (ADD, "    return a + b", 1.0),
        (ADD, "    return a - b", 0.0),
        (ADD, "", 0.0),
        (ADD, " \n ", 0.0),
        (ADD, None, 0.0),
        ({"test_list": ["assert add(1, 2) == 3"]}, "def add(a, b):\n    return a + b", 1.0),
        ({"test_list": ["assert add(1, 2) == 3"]}, "def add(a, b):\n    return a * b", 0.0),
        ({"context": "anything"}, "def add(a, b):\n    return a + b", 0.0),
        (ADD, "    return ((", 0.0),
    ],
)
def test_direct_calls_keep_the_documented_values(judge, original, response, expected):
    assert judge.score(original, {"response": response}) == {"pass_at_1": expected}


@run_for_real
def test_a_direct_call_with_a_time_limit():
    assert CodeExecution(timeout=0.5).score(ADD, {"response": "    while True: pass"}) == {"pass_at_1": 0.0}


def test_in_a_run_only_examples_with_tests_are_scored():
    judge = CodeExecution()
    assert judge.name == "code_execution"
    assert judge.applies(ADD, {"response": ""})
    assert judge.applies(MBPP, {"response": "x"})
    assert not judge.applies({"context": "c", "answer": "a"}, {"response": "x"})
    assert not judge.applies({"test": "", "test_list": []}, {"response": "x"})
    assert not judge.applies(ADD, {"context": "shortened"})


# --- shapes of answers
# ------------------------------------------------------------------------

BODY = "total_of = total(numbers)\nif numbers:\n    return total_of / len(numbers)\nreturn 0.0"
INDENTED = "\n".join("    " + line for line in BODY.split("\n"))
WHOLE = "def mean(numbers):\n    s = 0\n    for n in numbers:\n        s += n\n    return s / len(numbers)"
SHAPES = {
    "indented body": INDENTED,
    "bare body": BODY,
    "body whose first indent is lost": INDENTED.lstrip(),
    "loop whose first indent is lost": "for n in numbers[:0]:\n        pass\n    return sum(numbers) / len(numbers)",
    "one line": "return sum(numbers) / len(numbers)",
    "body with tabs": "\treturn sum(numbers) / len(numbers)",
    "body with a text at the margin": '    text = """\nat the margin\n"""\n    return sum(numbers) / len(numbers)',
    "bare body with a text at the margin": 'text = """\n  kept\n"""\nassert text == "\\n  kept\\n"\nreturn '
    "sum(numbers) / len(numbers)",
    "body, then more": INDENTED + "\n\ndef other():\n    pass\n",
    "body, then prose": INDENTED + "\n\nThis divides the sum by the count; it's simple.",
    "prose, then body": "Here is the body:\n\n" + INDENTED + "\n",
    "whole": WHOLE,
    "whole with its imports": "from typing import List, Optional\nimport math\n\n" + WHOLE,
    "whole that uses the context's names": "def mean(numbers: List[float]) -> float:\n    return total(numbers) / "
    "len(numbers)",
    "future import": "from __future__ import annotations\n" + WHOLE,
    "Windows line ends": WHOLE.replace("\n", "\r\n"),
    "fenced whole": f"```python\n{WHOLE}\n```",
    "fenced whole, unnamed language": f"```\n{WHOLE}\n```",
    "fenced whole, tildes": f"~~~py\n{WHOLE}\n~~~",
    "fenced body": f"```python\n{INDENTED}\n```",
    "fenced bare body": f"```python\n{BODY}\n```",
    "fence never closed": f"Sure!\n```python\n{WHOLE}",
    "fence only closed": f"{INDENTED}\n```\n\nThat's it.",
    "fence in a list": "1. Do this:\n\n   ```python\n"
    + "\n".join("   " + line for line in WHOLE.split("\n"))
    + "\n   ```",
    "prose around a fence": f"Of course! It's easy:\n\n```python\n{WHOLE}\n```\n\nWe don't check for 0.",
    "a fence with example calls": f"```python\n{WHOLE}\n```\nUse it so:\n```python\nprint(mean([x for x in "
    "input()]))\n```",
    "helpers in a fence of their own": (
        "```python\ndef own(x):\n    return x / one\none = 1\n```\nand\n"
        "```python\ndef mean(numbers):\n    return own(sum(numbers)) / len(numbers)\n```"
    ),
    "a second thought": "```python\ndef mean(numbers):\n    return 0\n```\nWait, no:\n```python\n" + WHOLE + "\n```",
    "another language beside it": f"```bash\npip install numpy\n```\n```python\n{WHOLE}\n```\n```text\n2.0\n```",
    "prose around it without a fence": f"Here is the function:\n\n{WHOLE}\n\nfrom what I see, it's right.",
    "prose between definitions": "First import:\nimport math\n\nThen:\n@staticmethod\ndef unused():\n    pass\n\n"
    + WHOLE
    + "\nDone!",
    "thinking first": f"<think>\ndef mean(x): return 0\nHm, it's wrong.\n</think>\n{WHOLE}",
    "main guard": WHOLE + "\n\nif __name__ == '__main__':\n    import sys\n    sys.exit(mean([int(input())]))",
    "class with a docstring": (
        'class Mean:\n    """Means.\n\nAt the margin: """\n\n    def of(self, x):\n        return sum(x) / '
        "len(x)\n\nmean = Mean().of"
    ),
    "fence inside a docstring": (
        'def mean(numbers):\n    """Use:\n\n    ```python\n    mean([])\n    ```\n    """\n    return sum(numbers) / '
        "len(numbers)"
    ),
    "lambda": "mean = lambda numbers: sum(numbers) / len(numbers)",
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass S:\n    n: 'int'\n    t: float\n"
        "def mean(numbers):\n    s = S(len(numbers), sum(numbers))\n    return s.t / s.n"
    ),
    "long": "# padding\n" * 25_000 + WHOLE,
    "long in a fence": "It's long.\n```python\n" + "# padding\n" * 25_000 + WHOLE + "\n```",
}


@run_for_real
@pytest.mark.parametrize("response", SHAPES.values(), ids=SHAPES.keys())
async def test_every_shape_of_a_right_answer_passes(judge, response):
    outcome = await judge.outcome(MEAN, {"response": response})
    assert outcome.passed, outcome.reason


@run_for_real
@pytest.mark.parametrize(
    "response",
    [
        "I cannot do that.",
        "None",
        "pass",
        "def mean(numbers):\n    return 0",
        "return 0",
        "```python\nimport numpy as np\n```",
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "def mean(numbers):\n    import sys\n    sys.exit(0)",
        "def check(candidate): pass",
        "x" * 200_000,
        "(" * 100_000,
        "def mean(numbers):\n    return 2.0  # \x00",
        "def mean(numbers):\n    return '\ud800'",
        "print('S' + '1' * 10**6)",
    ],
    ids=lambda text: ascii(text[:30]),
)
async def test_wrong_answers_of_any_shape_score_zero(judge, response):
    assert await passes(judge, MEAN, response) == 0.0


@run_for_real
@pytest.mark.parametrize(
    "response",
    [
        "        return self.items[-1]",
        "return self.items[-1]",
        "```python\nreturn self.items[-1]\n```",
        "class Stack:\n    def __init__(self): self.items = []\n    def top(self): return self.items[-1]",
    ],
)
async def test_methods(judge, response):
    assert await passes(judge, METHOD, response) == 1.0


@run_for_real
@pytest.mark.parametrize(
    ("example", "response", "expected"),
    [
        (MBPP, "```python\ndef smallest(x):\n    return min(x)\n```", 1.0),
        (MBPP, "Here:\ndef smallest(x):\n    return min(x)\nIt's min.", 1.0),
        (MBPP, "def smallest(x):\n    return math.inf and min(x)", 1.0),
        (MBPP, "def smallest(x):\n    return x[0]", 0.0),
        (MBPP, "import sys\nsys.exit(0)", 0.0),
        (PAIRS, "def span(p: Pair):\n    return p.b - p.a", 1.0),
        (
            PAIRS,
            "class Pair:\n    def __init__(self, x, y): self.a, self.b = x, y\ndef span(p):\n    return p.b - p.a",
            1.0,
        ),
        ({"test_list": "assert f() == 1"}, "def f(): return 1", 1.0),
        ({"test": "assert f() == 1", "entry_point": None}, "def f(): return 1", 1.0),
    ],
)
async def test_other_forms(judge, example, response, expected):
    assert await passes(judge, example, response) == expected


@run_for_real
async def test_a_context_that_is_no_code_does_not_stand_in_the_way(judge):
    assert await passes(judge, ADD | {"context": "Write add(a, b), please."}, "def add(a, b):\n    return a + b") == 1.0


# --- programs from replies, without running them
# ---------------------------------------------------------------------------------


@given(st.text(max_size=200), st.sampled_from(["", ADD["context"], MEAN["context"], "prose it is"]))
def test_any_text_is_a_program_or_none(text, context):
    try:
        trees = program(text, context, "add")
    except NoProgram:
        return
    assert trees
    assert all(hasattr(tree, "body") for tree in trees)


@given(
    st.lists(
        st.sampled_from(["```", "```python", "~~~", "x = 1", "  ```", "prose", "", "    return 1", "def f():"]),
        max_size=12,
    )
)
def test_fences_lose_and_invent_nothing(lines):
    inside = [line for _, block in fenced("\n".join(lines)) for line in block.split("\n")]
    rest = iter(line.strip() for line in lines)
    assert all(line.strip() in rest for line in inside if line.strip())  # in order


def test_fences():
    assert fenced("a\n```Python title\nx\n```\n````md\n```\ny\n```\n````\n```{.py}\nz") == [
        ("python", "x"),
        ("md", "```\ny\n```"),
        ("py", "z"),
    ]


# --- in a run
# ------------------------------------------------------------------------


@run_for_real
async def test_many_at_once_and_in_threads(judge):
    right, wrong = {"response": "return a + b"}, {"response": "return a"}
    found = await asyncio.gather(
        *(judge.ascore(ADD, right if n % 2 else wrong) for n in range(6)),
        *(asyncio.to_thread(judge.score, ADD, right if n % 2 else wrong) for n in range(6)),
    )
    assert [one["pass_at_1"] for one in found] == [0.0, 1.0] * 6


@run_for_real
async def test_no_more_sandboxes_than_allowed_at_once(tmp_path, monkeypatch):
    """A bwrap that notes when it begins and ends."""
    noted, wrapper = tmp_path / "noted", tmp_path / "bwrap"
    wrapper.write_text(
        f'#!/bin/sh\nprintf b >> {noted}\n{shutil.which("bwrap")} "$@"\nended=$?\nprintf e >> {noted}\nexit $ended\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    judge = CodeExecution(timeout=30.0, at_once=1)
    await judge.preflight()
    noted.unlink()
    found = await asyncio.gather(*(judge.ascore(ADD, {"response": "return a + b"}) for _ in range(4)))
    assert found == [{"pass_at_1": 1.0}] * 4
    assert noted.read_text() == "bebebebe"


async def test_a_sandbox_that_does_not_start_is_an_error_and_no_score():
    judge = CodeExecution()
    judge._sandbox = Bubblewrap("/nonexistent/bwrap")
    with pytest.raises(EvaluatorFailed, match="did not start"):
        await judge.ascore(ADD, {"response": "return a + b"})
    with pytest.raises(EvaluatorFailed, match="did not start"):
        await asyncio.to_thread(judge.score, ADD, {"response": "return a + b"})


async def test_preflight_refuses_where_there_is_no_sandbox(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="bubblewrap"):
        await CodeExecution().preflight()
    assert await CodeExecution().ascore({}, {"response": "x"}) == {"pass_at_1": 0.0}  # nothing to run, nothing needed


def test_identity_changes_with_the_limits_and_is_plain():
    told = CodeExecution(timeout=5).fingerprint()
    assert told != CodeExecution(timeout=6).fingerprint()
    assert json.loads(json.dumps(told)) == told


class Answers:
    """A system that adds."""

    name = "adds"

    def process(self, example):
        return {**example, "response": "    return a + b"}


@run_for_real
async def test_another_machine_looks_for_its_own_sandbox(judge):
    await judge.preflight()
    there = pickle.loads(pickle.dumps(judge))
    assert (judge.walls() != "", there.walls()) == (True, "")
    assert there.fingerprint() == judge.fingerprint()


@run_for_real
@pytest.mark.parametrize("later", [False, True], ids=["with the answers", "afterwards"])
def test_the_run_says_which_walls_stood(tmp_path, later):
    place = tmp_path / "s.db"
    examples = [{"id": n, **ADD} for n in range(2)]
    found = evaluate(
        Answers(), examples, [AnswerQuality() if later else CodeExecution()], progress=False, store=place, run="r"
    )
    if later:
        assert not any("Sandbox" in note for note in found.notes)
        with open_store(str(place)) as store:
            asyncio.run(rescore(store, "r", [CodeExecution()]))
            found = collect(store, "r", [], score_field="pass_at_1")
    (said,) = [note for note in found.notes if note.startswith("Sandbox: ")]
    assert said.startswith(
        "Sandbox: bubblewrap; system calls filtered by seccomp; no nested user namespaces; memory and processes "
        "limited "
    )
    assert found.manifest["walls"] == [said]
    assert CodeExecution().walls() == ""
