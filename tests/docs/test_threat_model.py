"""The page of threats names, for each promise, a test that is there; and what it says that is not promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text("utf-8")
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
NAMES = {name for each in TESTS for name in re.findall(r"^\s*(?:async )?def (test_\w+)", each.read_text("utf-8"), re.M)}
#: Modules that make objects of bytes: of those that another process of ours made, over a pipe or a node's connection.
UNPACKERS = {
    "engine/executors/node.py": "what the driver sends to its node",
    "engine/executors/ray_nodes.py": "what its nodes send to the driver",
    "llm/background.py": "what this process and its reader of bodies send each other",
    "sandbox/inside.py": "the orders of the process that made this one",
    "sandbox/launch.py": "the same",
    "tap/record_writer.py": "what was packed in memory, here or by the reader of bodies",
    "traces/recorded_runs.py": "what was packed in memory, here or by the reader of bodies",
}


def rows(heading: str) -> list[tuple[str, str]]:
    """The first and last cells of each row of the table beneath a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in part.splitlines() if line.startswith("| ")]
    return [(each[0], each[-1]) for each in cells[1:]]


PROMISES = rows("Defences") + rows("The breaks found by the attack from outside, and what holds them")


@pytest.mark.parametrize(("promise", "held"), PROMISES, ids=[promise for promise, _ in PROMISES])
def test_what_holds_a_promise_is_there(promise: str, held: str) -> None:
    named = [each for each in re.findall(r"`([^`]+)`", held) if not each.startswith("benchmarks/")]
    assert named, f"{promise}: no test is named"
    for each in named:
        if each.endswith(".py"):
            assert any(str(path).endswith(f"/{each}") for path in TESTS), each
        elif each.startswith("test_"):
            assert each in NAMES, each
        else:
            assert any((root / each).exists() for root in (ROOT, ROOT / "tests")), each


def test_the_page_says_what_is_not_promised() -> None:
    said = PAGE.split("\n## Not defended\n")[1].split("\n## ")[0]
    assert len(re.findall(r"^\* ", said, re.MULTILINE)) >= 15
    for subject in (
        "reversed, encrypted",
        "Plug-ins",
        "--record full",
        "without control groups",
        "clocks differ",
        "--unsafe",
    ):
        assert subject.lower() in said.lower(), subject


def test_every_trial_has_its_table_of_what_was_promised_and_what_held() -> None:
    page = (ROOT / "benchmarks/trials/README.md").read_text("utf-8")
    for script in (ROOT / "benchmarks/trials").glob("*.py"):
        if script.name not in ("common.py", "certificates.py"):
            assert f"`python benchmarks/trials/{script.name}" in page, script.name
    headings = [part.split("\n", 1) for part in page.split("\n## ")[1:]]
    assert [heading for heading, _ in headings] == [
        "PostgreSQL under kills and restarts",
        "Upstreams that speak TLS badly",
        "Two machines",
        "The bundled model as a server",
        "An ordinary user",
        "Judges with weaknesses",
    ]
    for heading, part in headings:
        table = [line for line in part.splitlines() if line.startswith("| ")]
        assert len(table) > 6, heading
        assert all(re.search(r"\bheld \|$", line) for line in table[1:]), heading


def test_no_file_is_unpickled() -> None:
    source = ROOT / "src/context_bench"
    unpacks = re.compile(
        r"\b(?:pickle|cloudpickle|marshal|dill|joblib|shelve)\.(?:loads?|Unpickler|open)\b|allow_pickle\s*=\s*True"
    )
    found = {str(path.relative_to(source)): path.read_text("utf-8") for path in source.rglob("*.py")}
    found = {name: text for name, text in found.items() if unpacks.search(text)}
    assert set(found) == set(UNPACKERS)
    assert not any(re.search(r"\b(?:pickle|marshal)\.load\(|shelve", text) for text in found.values())
