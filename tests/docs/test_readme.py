"""What README says works as written: its Python runs, its commands exist, its flags are real, its tables are complete."""

import re
from pathlib import Path

import pytest

from context_bench.cli.commands import COMMANDS, built

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUIDE = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "guide").glob("*.md")))
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.S))


@pytest.mark.parametrize("block", PYTHON)
def test_python_blocks_run(block, capsys):
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert float(capsys.readouterr().out.splitlines()[-1]) >= 0.0


#: Flags of other programs that a guide names.
FOREIGN = {
    "--no-otel",
    "--openai-base-url",
    "--host",
    "--context-bench-store",
    "--log-dir",
    "--help",
    "--help-all",
    "--install-completion",
    "--output-format",
    "--verbose",
}


def flags(command):
    """All flags of a command and of those below it."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(flags(child) for child in getattr(command, "commands", {}).values()))


def test_every_flag_named_exists():
    known = FOREIGN.union(*(flags(built(name)) for name in COMMANDS))
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README + GUIDE)):
        assert flag in known, flag


def test_make_targets_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|^)make ([a-z]+)", README, re.M)):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in link:
            assert (ROOT / link).exists(), link
