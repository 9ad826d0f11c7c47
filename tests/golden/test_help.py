"""Hold the help of every command to the texts that are kept here: `--help` and `--help-all`, at 80 columns.

Only the command line is used, so the texts hold wherever the code lies.
"""

import re
import sys
from pathlib import Path

import pytest

from context_bench.__main__ import main

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import manual  # noqa: E402

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def ask(capsys, monkeypatch):
    """(words) → the help text of that command."""
    monkeypatch.setenv("COLUMNS", "80")

    def printed(*words):
        assert main(list(words)) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        return COLOUR.sub("", shown.out)

    return printed


def commands_in(text):
    """The names in the list of commands of a help text, plain or in a box."""
    listed = re.split(r"\n\n|╰", text.partition("Commands")[2])[0]
    return re.findall(r"^(?:  |│ )([a-z]\S*)", listed, re.M)


def every_command(ask):
    """The root as `""`, and each command and subcommand as its words."""
    yield ""
    for name in commands_in(ask("--help")):
        yield name
        yield from (f"{name} {below}" for below in commands_in(ask(name, "--help")))


def kept(option):
    """The commands whose help is kept; `context-bench` is the root."""
    return sorted(file.stem.removeprefix("context-bench").strip() for file in (HERE / option).glob("*.txt"))


def hold(line, ask, golden):
    for option in ("help", "help-all"):
        golden(f"{option}/{line or 'context-bench'}.txt", ask(*line.split(), f"--{option}"))


def test_every_command_has_its_help_kept(ask, golden, refreshing):
    commands = sorted(every_command(ask))
    if refreshing:
        for line in commands:
            hold(line, ask, golden)
    assert commands == kept("help") == kept("help-all")


@pytest.mark.parametrize("line", kept("help"))
def test_help_reads_as_it_is_kept(line, ask, golden):
    hold(line, ask, golden)


@pytest.mark.parametrize(
    "name", ["man/man1/context-bench.1", *(f"completions/{file}" for file in manual.SHELLS.values())]
)
def test_what_the_wheel_installs_for_man_and_shells_is_current(name, golden):
    golden(f"../../share/{name}", manual.files()[name])


def test_the_manual_page_has_every_command_and_option():
    page = manual.manual()
    lines = page.splitlines()
    assert {line.split()[0] for line in lines if line.startswith(".")} == {".TH", ".SH", ".SS", ".B", ".TP", ".PP"}
    plain = page.replace("\\-", "-").replace("\\e", "\\")
    for line in kept("help-all"):
        text = (HERE / "help-all" / f"{line or 'context-bench'}.txt").read_text()
        assert not line or f".SS context-bench {line}" in plain, line
        for option in re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]+)", text, re.M) if line else ():
            assert option == "--help" or re.search(rf"^\.B .*{option}\b", plain, re.M), (line, option)
