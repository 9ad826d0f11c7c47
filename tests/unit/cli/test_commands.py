"""The table of commands: each is there, is built alone, and what lists them loads none."""

import json
import subprocess
import sys

import click
import pytest
import typer

from context_bench.cli.app import COMMANDS, app, built, run_line
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name, capsys):
    assert built(name).name == name
    assert run_line([name, "--help"]) == 0
    assert f"context-bench {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rnu", "No command 'rnu'. Did you mean run?"),
        ("shwo demo", "No command 'shwo'. Did you mean show?"),
        ("compre", "No command 'compre'. Did you mean compare or compress?"),
        ("compress rnu", "No command 'compress rnu'. Did you mean run?"),
        ("memory rnu", "No command 'memory rnu'. Did you mean run?"),
        ("judge audti x", "No command 'judge audti'. Did you mean audit?"),
        ("model zzz", "No command 'model zzz'. There are: fetch, serve."),
    ],
)
def test_a_misspelt_command_is_named_once_with_the_nearest(line, said, capsys):
    assert run_line(line.split()) == 2
    assert capsys.readouterr().err == f"context-bench: {said}\n"


def arguments_of(command):
    for child in getattr(command, "commands", {}).values():
        yield from arguments_of(child)
    for one in command.params:
        if one.param_type_name == "argument" and not one.hidden:
            yield command.name, one


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_described(name):
    bare = [f"{command} {one.name}" for command, one in arguments_of(built(name)) if not one.help]
    assert not bare


def test_descriptions_of_arguments_stand_in_the_help(capsys):
    assert run_line(["replay", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "SESSIONS... Files or folders of recorded sessions" in said


def test_hidden_options_are_shown_when_asked_for(capsys):
    assert run_line(["replay", "--help"]) == 0
    assert "--marker" not in capsys.readouterr().out
    assert run_line(["replay", "--help-all"]) == 0
    assert "--marker" in capsys.readouterr().out
    assert run_line(["memory", "--help-all"]) == 0
    assert "--overlay" in capsys.readouterr().out
    assert run_line(["--help-all"]) == 0
    assert "--cache-namespace" in capsys.readouterr().out


def test_the_list_loads_no_command_but_the_main_one():
    code = (
        "import sys; from context_bench.cli.app import run_line; run_line(['--help'])\n"
        "print([name for name in sys.modules if name.startswith('context_bench.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "context_bench.cli.planning'" in done.stderr, "it has the main command, whose options the list shows"
    assert ".command" not in done.stderr, "no family's commands"
    assert not any(
        f"context_bench.{other}'" in done.stderr
        for other in ("cli.demo", "cli.grade", "cli.stored", "cli.judge", "session.gate", "session.runs", "viewer")
    )


#: All that a plain run loads of other people's: the parser, options, the wire, JSON, tokens, the store, sums.
NEEDED = {
    *("typer", "click", "shellingham", "annotated_doc", "typing_extensions"),
    *("httptools", "orjson", "splintr", "sqlalchemy", "greenlet", "zstandard", "numpy"),
}
#: Parts of ours that other kinds of runs need.
UNUSED = (
    *(
        "datasets.spec",
        "memory.datasets",
        "datasets.hub",
        "datasets.pydocs",
        "datasets.synthetic",
        "core.rubric",
        "compression.probes",
    ),
    *(
        "memory.figures",
        "wire.cache",
        "memory.sections",
        "compression.sections",
        "reports.html_page",
        "reports.charts",
        "memory.systems",
    ),
    *("wire.violations", "session.gate", "session.grade", "engine.store.browsing"),
)
PLAIN_RUN = """
import sys
from context_bench.__main__ import main

code = main(sys.argv[1:])
files = {name: getattr(getattr(module, "__spec__", None), "origin", None) for name, module in list(sys.modules.items())}
others = {name.partition(".")[0] for name, file in files.items() if "site-packages" in str(file) and not name.startswith("_")}
own = [name.removeprefix("context_bench.") for name in files if name.startswith("context_bench.")]
from context_bench.core import tokens
print(tokens._loaded.cache_info().currsize, file=sys.stderr)
print(code, "\\n", *others, "\\n", *own, file=sys.stderr)
"""  # noqa: E501


def test_a_plain_run_loads_what_it_needs_and_no_more(tmp_path):
    example = {"id": 1, "context": "It is in the harbour.", "question": "Where?", "answer": "in the harbour"}
    (tmp_path / "one.jsonl").write_text(json.dumps(example) + "\n")
    server = ModelServer(Scripted({"default": "in the harbour"}))
    run_sync(server.start())
    words = ["--proxy", server.url, "--dataset", "one.jsonl", "--price", "*=1,2", "--store", "store.db", "--quiet"]
    command = [sys.executable, "-c", PLAIN_RUN, *words, "--output", "json", "--out", "report.json"]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    finally:
        run_sync(server.stop())
    vocabularies, code, others, own = done.stderr.splitlines()[-4:]
    assert code.strip() == "0"
    assert vocabularies == "0", "none is held while the report is made"
    assert set(others.split()) <= NEEDED
    assert not [name for name in own.split() if name.startswith(UNUSED)]


def commands(found=None, words=()):
    """(words, command) of every command and subcommand."""
    found = found or typer.main.get_command(app)
    yield " ".join(words), found
    if isinstance(found, click.Group):
        for name in found.list_commands(click.Context(found)):
            yield from commands(found.get_command(click.Context(found), name), (*words, name))


@pytest.fixture(scope="module")
def names():
    """words → (all names of its options, those that are switches)."""
    return {
        words: (
            {name for option in command.params for name in option.opts},
            {name for option in command.params if getattr(option, "is_flag", False) for name in option.opts},
        )
        for words, command in commands()
    }


def test_one_option_has_one_name_in_all_commands(names):
    assert len(names) > 50
    for words, (options, switches) in names.items():
        limits = {"--max-conversations", "--max-sessions", "--max-tasks", "--items"}
        assert not options & limits or {"-n", "--max-examples"} <= options, words
        assert "--json" not in switches or "--output" in options, words
        assert "--responder" not in options or "--reader" in options, words
        assert "--via" not in options or "--proxy" in options, words
        assert "--report" not in options or "--out" in options, words


@pytest.mark.parametrize(
    "line",
    ["watch --via URL", "compress run --responder X", "memory run --max-conversations 1", "judge audit --items 1"],
)
def test_names_of_old_still_work(line, names):
    command, _, option = line.partition(" --")
    assert f"--{option.split()[0]}" in names[command][0]


def test_json_is_asked_for_as_in_reports(capsys):
    assert run_line(["datasets", "bundled:pydocs-qa", "--json"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said)["name"]
    assert run_line(["datasets", "bundled:pydocs-qa", "--output", "json"]) == 0
    assert capsys.readouterr().out == said
    assert run_line(["datasets", "bundled:pydocs-qa", "--output", "jsn"]) == 2
    assert "--output 'jsn': expected table or json" in capsys.readouterr().err


def test_the_proxy_of_doctor_is_an_argument_or_an_option(capsys):
    assert run_line(["doctor", "http://127.0.0.1:1", "--proxy", "http://127.0.0.1:2"]) == 2
    assert (
        "doctor examines one proxy, found http://127.0.0.1:1 and --proxy http://127.0.0.1:2" in capsys.readouterr().err
    )
    assert run_line(["doctor", "http://127.0.0.1:1", "--mcp", "x"]) == 2
    assert "found --proxy and --mcp" in capsys.readouterr().err
