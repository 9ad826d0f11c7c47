"""Tab in real shells. Bash: the script that is printed is sourced, and what it puts into COMPREPLY is looked at. Fish
says itself what it would offer; in zsh keys are pressed at a terminal, and the line that they leave is looked at.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.cli.app import _joined

ASK = """
set -f
{script}
ask() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _context_bench_completion context-bench; echo "${{COMPREPLY[*]}}"; }}
{questions}
"""  # noqa: E501
# Ctrl-X keeps the line as Tab left it and says so: the next line is typed then.
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'kept() {{ print -r -- "$BUFFER" >>answers; BUFFER=; zle -M "KE""PT" }}; zle -N kept; bindkey "^X" kept'
zpty -w shell '{load}; print REA""DY'
zpty -r shell said '*READY*' || exit 9
for line in {lines}; do
  zpty -w -n shell $line$'\\t\\C-x'
  zpty -r shell said '*KEPT*' || exit 9
done
zpty -d shell
"""
AUTOLOADED = "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"
SOURCED = "autoload -Uz compinit; compinit -u -D; source {folder}/_context-bench"
FILES = Path(__file__).parents[2] / "share" / "completions"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(folder with a store, environment in which the program is found)."""
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "bin" / "context-bench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m context_bench "$@"\n')
    program.chmod(0o755)
    (folder / "boxes.jsonl").write_text(
        '{"id": 1, "context": "Box holds a word", "question": "what?", "answer": "word"}\n'
    )
    (folder / "my.py").write_text(
        "class S:\n    name = 's'\n    def process(self, example):\n        return {'response': 'word'}\n"
    )
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    runs = (
        "from context_bench.__main__ import main; import sys; "
        "[main(['--system', 'py:my:S', '--dataset', 'boxes.jsonl', '--run', name, '--quiet', '--out', 'x.txt']) for "
        "name in sys.argv[1:]]"
    )
    more = {"cwd": folder, "env": environment, "check": True, "capture_output": True, "text": True}
    subprocess.run([sys.executable, "-c", runs, "alpha", "alp$(touch pwned)"], **more)
    return folder, more


@pytest.fixture(scope="module")
def ask(place):
    folder, more = place
    program = folder / "bin" / "context-bench"
    script = subprocess.run([str(program), "--show-completion", "bash"], **more).stdout

    def asked(*questions):
        lines = "\n".join(f"ask {question}" for question in questions)
        done = subprocess.run(["bash", "-c", ASK.format(script=script, questions=lines)], **more)
        assert done.stderr == ""
        assert not (folder / "pwned").exists()
        return [line.split() for line in done.stdout.splitlines()] if len(questions) > 1 else done.stdout.split()

    return asked


@pytest.fixture(scope="module")
def in_zsh(place):
    """(how the file is loaded, lines) → each line as one Tab leaves it."""
    folder, more = place
    assert shutil.which("zsh"), "zsh is not installed (.ci/run installs it)"

    def asked(load, *lines):
        (folder / "answers").unlink(missing_ok=True)
        script = ZSH.format(load=load.format(folder=FILES), lines=" ".join(f"'{line}'" for line in lines))
        subprocess.run(["zsh", "-f", "-c", script], **{**more, "env": {**more["env"], "TERM": "xterm"}}, timeout=120)
        assert not (folder / "pwned").exists()
        return [line.rstrip() for line in (folder / "answers").read_text().splitlines()]

    return asked


@pytest.fixture(scope="module")
def in_fish(place):
    """Lines → the words that are offered for each."""
    folder, more = place
    assert shutil.which("fish"), "fish is not installed (.ci/run installs it)"

    def asked(*lines):
        asks = "\n".join(f"string join -- ' ' (complete -C '{line}' | string split -f 1 \\t); echo ." for line in lines)
        script = f"source {FILES}/context-bench.fish\n{asks}"
        done = subprocess.run(["fish", "--no-config", "-c", script], **more, timeout=120)
        assert done.stderr == ""
        assert not (folder / "pwned").exists()
        return [answer.split() for answer in done.stdout.split(".\n")[:-1]]

    return asked


def test_bash_offers_commands_options_and_the_names_they_take(ask):
    command, runs, data, control, form = ask(
        "context-bench resc",
        'context-bench show ""',
        "context-bench --proxy u --dataset hot",
        "context-bench run --controls full,he",
        "context-bench export last --format par",
    )
    assert command == ["rescore"]
    assert runs == ["alpha", "last"]  # a name that a shell would take for something else is not offered
    assert data == ["hotpotqa"]
    assert control == ["full,head_tail"]
    assert form == ["parquet"]


def test_bash_replaces_only_what_it_took_for_a_word_and_errors_are_silent(ask):
    colon, unknown, broken = ask(
        "context-bench run --dataset bundled : py",
        "context-bench no-such-command --x",
        "context-bench show --store boxes.jsonl a",
    )
    assert colon == ["pydocs-qa"]
    assert unknown == []
    assert broken == []


QUESTIONS = {
    "context-bench resc": "rescore",
    "context-bench show al": "alpha",  # not the other run, whose name a shell would evaluate
    "context-bench run --dataset bundled:py": "bundled:pydocs-qa",
    "context-bench run --dataset=hot": "--dataset=hotpotqa",
    "context-bench run --controls full,he": "full,head_tail",
    "context-bench --proxy u --dataset hot": "hotpotqa",
    "context-bench export last --format par": "parquet",
}


def test_zsh_completes_at_the_first_tab(in_zsh):
    """The file is loaded by the first Tab where zsh finds it by its name: that one, too, is answered."""
    wanted = [f"{line.rpartition(' ')[0]} {answer}" for line, answer in QUESTIONS.items()]
    assert in_zsh(AUTOLOADED, *QUESTIONS) == wanted
    assert in_zsh(SOURCED, *list(QUESTIONS)[:1]) == wanted[:1]


def test_fish_offers_commands_options_and_the_names_they_take(in_fish):
    assert in_fish(*QUESTIONS) == [[answer] for answer in QUESTIONS.values()]
    assert in_fish("context-bench no-such-command --x", "context-bench show --store box", "context-bench ru") == [
        [],
        ["boxes.jsonl"],
        ["run", "runs"],
    ]


def test_words_as_they_were_typed():
    assert _joined(["run", "--evaluator", "="], "a") == (["run", "--evaluator"], "a", "")
    assert _joined(["--dataset", "bundled", ":"], "") == (["--dataset"], "bundled:", "bundled:")
    assert _joined([], "sh") == ([], "sh", "")


@pytest.mark.parametrize(
    ("shell", "mark"), [("zsh", "#compdef context-bench"), ("fish", "complete --command context-bench")]
)
def test_other_shells_have_a_script(shell, mark, capsys):
    assert main(["--show-completion", shell]) == 0
    assert mark in capsys.readouterr().out


def test_an_unknown_shell_is_named_and_a_known_one_gets_its_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--show-completion", "csh"]) == 2
    assert "csh" in capsys.readouterr().err
    assert main(["--install-completion", "bash"]) == 0
    path = Path(capsys.readouterr().out.split(" is in ")[1].split(";")[0])
    assert tmp_path in path.parents
    assert "_CONTEXT_BENCH_COMPLETE" in path.read_text()
