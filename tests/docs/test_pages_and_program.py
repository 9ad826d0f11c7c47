"""What the pages say of the program is so: names, options, classes, tables. Their blocks are executed by
test_every_block.py.
"""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from context_bench.__main__ import main
from context_bench.cli.app import COMMANDS, built, names_in
from context_bench.cli.judge_audit import PARTS
from context_bench.compression.compressors import ADAPTED, COMPRESSORS, SCHEMES as OF_COMPRESSORS, compressor_for
from context_bench.core.records import Verdict
from context_bench.core.rubric import default_rubric
from context_bench.memory.systems import BUILTINS, SCHEMES as OF_MEMORIES, http_memory as http, mcp
from context_bench.memory.systems.command import CommandClient
from context_bench.traces.reports.trace_summary import COLUMNS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import badges  # noqa: E402

README = (ROOT / "README.md").read_text()
PAGES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text()
    for path in (ROOT / "docs").rglob("*.md")
    if "reference" not in path.parts
}

#: Flags of other programs that a page names.
FOREIGN = {
    "--exit-immediately", "--message", "--yes-always",
    "--no-otel", "--openai-base-url", "--host", "--context-bench-store", "--log-dir", "--help", "--help-all", "--install-completion",  # noqa: E501
    "--output-format", "--verbose", "--dbname", "--encoding", "--file", "--no-owner", "--schema", "--template", "--username",  # noqa: E501
    "--address", "--block", "--cpus-per-task", "--exclude", "--head", "--include-dashboard", "--nodes", "--ntasks", "--ntasks-per-node",  # noqa: E501
    "--num-cpus", "--time", "--from", "--wheel", "--headless", "--rm",
    "--anthropic-base-url", "--anthropic-api-url", "--openai-api-url",
}  # fmt: skip


def guide(name):
    return PAGES[f"guide/{name}.md"]


def flags(command):
    """All flags of a command and of those below it."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(flags(child) for child in getattr(command, "commands", {}).values()))


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


# Everything
# ------------------------------------------------------------------------


def test_every_flag_named_exists():
    known = FOREIGN.union(*(flags(built(name)) for name in COMMANDS))
    guides = [text for name, text in PAGES.items() if name.startswith("guide/")]
    assert options("\n".join([README, PAGES["tour.md"], *guides])) <= known


def test_every_command_is_on_the_page_of_commands():
    outside = re.sub(r"^```.*?^```", "", PAGES["commands.md"], flags=re.M | re.S)
    told = set(re.findall(r"[a-z]+", " ".join(re.findall(r"`([^`]+)`", outside))))
    assert COMMANDS.keys() - {"version"} <= told


def test_make_targets_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(
        re.findall(r"(?:`|^)make ([a-z]+)", "\n".join([README, PAGES["index.md"], PAGES["tour.md"]]), re.M)
    ):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_readme_is_short_and_shows_what_the_tour_prints():
    lines = README.splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= 240
    shown = [" ".join(line[2:].split()) for line in lines if line.startswith("#> ")]
    tour = " ".join(PAGES["tour.md"].split())
    assert len(shown) == 2 * 3
    assert [line for line in shown if line not in tour] == []


def test_badges_are_those_of_the_projects_own_files():
    for name, (left, right) in badges.told().items():
        kept = (ROOT / f"docs/pictures/badge-{name}.svg").read_text("utf-8")
        assert kept == badges.drawn(left, right), "run python scripts/badges.py"
        assert f"docs/pictures/badge-{name}.svg" in README
    assert "shields.io" not in README


def test_one_table_tells_which_command_answers_which_question():
    table = PAGES["index.md"].partition("## Is it for me?")[2].partition("| you have |")[2]
    named = set(re.findall(r"`([a-z]+)", table.split("\n\n")[0]))
    asked = {"watch", "replay", "explain", "grade", "doctor", "run", "compress", "memory", "agent", "trace", "gate"}
    assert asked <= named <= COMMANDS.keys()
    assert [name for name, text in PAGES.items() if "| you have | you want to know |" in text] == ["index.md"]


# Families
# ------------------------------------------------------------------------


def test_agents_options_are_those_of_the_command():
    assert options(guide("agents")) <= flags(built("agent"))


def test_every_class_of_aborted_runs_is_explained():
    from context_bench.agents.systems.arm_specs import CLASSES

    told = guide("agents").split("| class |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z ]+)`", told)) == set(CLASSES)


def test_the_command_with_all_bundled_tasks_names_what_is_there(tmp_path, monkeypatch, capsys):
    """`--dry-run` makes nothing; test_every_block.py runs the same line on one task."""
    (command,) = re.findall(
        r"```sh\n(context-bench agent bundled.*?)```", guide("agents").split("## Try it, offline")[1], re.S
    )
    words = shlex.split(command.replace("\\\n", " "))[1:]
    at = words.index("--")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    assert main([*words[:at], "--dry-run", *words[at:]]) == 0
    assert "12 tasks × 2 arms (base, other) × 1 trial(s): 24 runs" in capsys.readouterr().out


def test_bundled_tasks_that_are_named_are_there():
    from context_bench.agents.datasets import load_tasks

    [names] = re.findall(r"`(bundled:repo-tasks:[\w,-]+)`", guide("tasks"))
    assert len(load_tasks(names)) == 2


def test_guarded_names_are_those_of_the_code():
    from context_bench.sandbox.workspace import _NAMES

    for name in re.findall(r"`([\w/*.]+\.(?:py|pth))`", guide("tasks").split("what steers tests:")[1].split("\n\n")[0]):
        assert name.split("/")[-1] in _NAMES | {"*.pth", "__init__.py"}


def test_the_workflow_holds_a_run_against_the_accepted_one():
    text = (ROOT / "examples" / "context-bench.yml").read_text()
    assert "\t" not in text
    for words in (
        "context-bench gate run.json --against accepted/run.json",
        "--junit gate.xml",
        '--markdown "$GITHUB_STEP_SUMMARY"',
    ):
        assert words in text


def test_the_published_table_is_as_inconsistent_as_told():
    rows = [
        line.split("|")[2:-1]
        for line in guide("compression").split("## A published table")[1].splitlines()
        if line.startswith("| ")
    ]
    titles = [cell.strip() for cell in rows[0][1:]]
    assert titles == [dimension.title for dimension in default_rubric().dimensions]
    for (overall, *dimensions), mean in zip(rows[1:], (3.955, 3.770, 3.720), strict=True):
        assert sum(map(float, dimensions)) / 6 == pytest.approx(mean, abs=0.0006)
        assert 0.25 < mean - float(overall) < 0.38


def test_every_compressor_is_in_the_tables():
    text = guide("compressors")
    rows = [
        line.split("|")[1]
        for line in text.split("## What stands ready")[1].split("## Bring your own")[0].splitlines()
        if line[:1] == "|"
    ]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == COMPRESSORS.keys() | ADAPTED.keys()
    assert all(f"`{scheme}:" in text for scheme in OF_COMPRESSORS)


@pytest.mark.parametrize("example", re.findall(r"`(regenerative:\S+?)`", guide("compressors")))
def test_specs_in_the_text_are_understood(example):
    assert compressor_for(example).name == "regenerative"


def test_judge_commands_and_parts_are_those_of_the_program():
    assert set(re.findall(r"context-bench judge (\w+)", guide("judge"))) == names_in("judge")
    assert set(re.findall(r"^\| `(\w+)` \|", guide("judge"), re.M)) == set(PARTS)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", guide("memory"), re.S))
def test_files_of_memories_are_understood(text, monkeypatch):
    for name in re.findall(r'env = "(\w+)"', text):
        monkeypatch.setenv(name, "any-key-will-do-here")
    given = tomllib.loads(text)
    read = CommandClient.from_dict if "store" in given else mcp.from_dict if "command" in given else http.from_dict
    memory = read(given)
    assert memory.name == given["name"]
    assert {"add", "search"} <= memory.capabilities


def test_every_memory_is_named():
    named = set(re.findall(r"`(\w+)[`:]", guide("memory").split("## What")[1].split("Options follow")[0]))
    assert {*BUILTINS, *OF_MEMORIES, "py"} <= named


def test_the_columns_of_traces_named_are_there():
    table = guide("traces").split("| column of the CSV | what |")[1].split("\n\n")[0]
    for pattern in re.findall(r"`(contextbench_\w+(?:\*\w*)?\w*|status|evaluator_result)\*?`", table):
        assert any(re.fullmatch(pattern.replace("*", r"\w*") + r"\w*", name) for name in COLUMNS), pattern


def test_the_table_names_every_verdict():
    told = re.findall(r"^\| `([^`]+)` \|", guide("verdicts"), re.M)
    assert told == ["better", "non-inferior", "inferior", "undecided", "insensitive", "no verdict"]
    assert set(get_args(Verdict)) == set(told)


@pytest.mark.parametrize(
    "page",
    sorted(name for name in PAGES if name.startswith("guide/") or name in ("commands.md", "install.md", "tour.md")),
)
def test_a_page_begins_with_what_one_will_be_able_to_do(page):
    title, first, _ = PAGES[page].split("\n\n", 2)
    assert title.startswith("# ")
    assert first.startswith("You will be able to "), f"{page} begins with {first[:60]!r}"
