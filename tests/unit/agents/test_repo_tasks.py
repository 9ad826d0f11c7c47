"""The twelve tasks that are shipped: unsolved as they are, solved by their own patch, and hard to mix up."""

import re
import tomllib

import pytest

from context_bench.agents.datasets import BUNDLED, SCRIPT, load_tasks
from context_bench.sandbox import find_agent_sandbox, verify, workspace

TASKS = {task["id"]: task for task in load_tasks(BUNDLED)}
RULES = tomllib.loads(SCRIPT.read_text())["rules"]


@pytest.fixture(scope="module")
def house():
    return find_agent_sandbox()


def test_there_are_twelve_of_as_many_kinds():
    assert len(TASKS) == 12
    assert len({task["kind"] for task in TASKS.values()}) == 12
    assert len({task["cluster"] for task in TASKS.values()}) == 12
    assert [task["id"] for task in load_tasks(f"{BUNDLED}:rename-acct,ci-log-month-end")] == [
        "rename-acct",
        "ci-log-month-end",
    ]


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("name", TASKS)
def test_it_fails_before_and_passes_after_its_patch(name, house):
    task = TASKS[name]
    check = task["verify"]
    with workspace(task["repo"], house=house) as copy:
        before = verify(copy, check)
        assert (list(before.failed), list(before.passed)) == (check["fail_to_pass"], check["pass_to_pass"])
    with workspace(task["repo"], house=house) as copy:
        assert copy.run(["git", "apply", "-"], stdin=task["gold_patch"].encode()).ok
        after = verify(copy, check)
        assert after.solved, after
        assert after.undone == ()


@pytest.mark.parametrize("name", TASKS)
def test_gold_lines_are_those_that_the_patch_changes(name):
    """Every line that the patch takes away, or next to which it puts one, is gold; what else had to be known does not
    overlap it.
    """
    task = TASKS[name]
    sources = task["repo"]["files"]
    gold = {(item["file"], line) for item in task["gold"]["init"] for line in range(item["first"], item["last"] + 1)}
    known = {
        (item["file"], line) for item in task["gold"].get("add", []) for line in range(item["first"], item["last"] + 1)
    }
    for file, line in gold | known:
        assert 1 <= line <= len(sources[file].splitlines())
    for file, line in removed(task["gold_patch"]):
        assert (file, line) in gold, (file, line)


def removed(patch):
    """(file, line) of every line that a patch takes away, as the file was before."""
    file, line = "", 0
    for text in patch.splitlines():
        if text.startswith("--- "):
            file = text[6:]
        elif seen := re.match(r"@@ -(\d+)", text):
            line = int(seen[1])
        elif text.startswith("-"):
            yield file, line
            line += 1
        elif text.startswith(" "):
            line += 1


def test_nothing_shown_to_an_agent_gives_the_solution_away():
    for task in TASKS.values():
        shown = set(task["repo"]["files"])
        assert not any(name in task["instruction"] for name in task["verify"]["fail_to_pass"])
        hidden = [name for name in task["verify"]["files"] if name in shown and not name.endswith("__init__.py")]
        assert hidden in ([], ["tests/test_wrap.py"])  # a visible test that the hidden one replaces


def test_the_scripts_rules_each_belong_to_one_task():
    for rule in RULES:
        assert sum(bool(re.search(rule["when"]["text"], task["instruction"])) for task in TASKS.values()) == 1
    for task in TASKS.values():
        turns = [rule["when"]["turn"] for rule in RULES if re.search(rule["when"]["text"], task["instruction"])]
        assert turns == list(range(1, len(turns) + 1))
        assert len(turns) >= 4
