"""Every fenced block of README and of the documentation is executed here, page by page, or says why it is not.

Python runs in one namespace per page and prints what the block after it shows; a block that begins with `# name.py` (or
`.toml`, …) is that file. Shell runs as written, with loopback addresses in the place of providers, proxies and ports,
and with fewer examples; our own commands run in this process. The recipes are run by `test_recipes.py`. What a page
leaves behind is looked at in `outcomes.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from context_bench.__main__ import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(Path(__file__).parent))
import blocks as documentation  # noqa: E402
import outcomes  # noqa: E402
import reference  # noqa: E402

PAGES = {page.relative_to(ROOT).as_posix(): documentation.blocks(page) for page in documentation.pages()}
#: Pages whose blocks are pasted as they are, into programs of their own.
RECIPES = "docs/recipes/"
#: Pages on which an agent is started.
WALLED = {"docs/guide/agents.md", "docs/guide/tasks.md"}
LANGUAGES = {"python", "sh", "toml", "json", "jsonl", "yaml", "text", ""}
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
#: The same commands on less: what is measured is not what these pages are tested for.
LESS = (
    (r"-n \d+", "-n 2"),
    (r"bundled:sessions(?![/\w])", "bundled:sessions/order-sync-zh"),
    (r"compress run (?=--)", "compress run bundled:sessions/order-sync-zh "),
    (r"(?<!scripted:)bundled:repo-tasks(?![:\w])", "bundled:repo-tasks:split-parsing"),
    (r"--trials \d+", "--trials 1"),
    (r"tokens=32k", "tokens=1200"),
    (r"bundled:long-context(?= )", "bundled:long-context:tokens=1200"),
    (r"turns=10k", "turns=40"),
    (r"(?<=turns=40 )-n 2", "-n 1"),
    (r"(?<=memory )(.*bundled:recall-lab) -n 2$", r"\1:turns=40 -n 1 --reader none"),  # the bundled model reads slowly
)
#: A gate that does not hold on less is no fault of the page.
HELD = {"gate": {0, 4}, "compare": {0}, "wire": {0, 4}}


def run_python(block, names):
    """Execute one block; what it printed."""
    file = FILE.match(block.text)
    if file:
        write(file[1], block.text)
        if file[1].endswith(".py") and "/" not in file[1]:
            sys.modules.pop(Path(file[1]).stem, None)
            importlib.invalidate_caches()
            importlib.import_module(Path(file[1]).stem)
        return ""
    if "import pytest" in block.text:
        return run_pytest(block)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block.text, block.place, "exec"), names)
        for test in re.findall(r"^def (test_\w+)\(\)", block.text, re.M):
            names[test]()
    return said.getvalue()


def run_pytest(block):
    Path("test_of_the_page.py").write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_of_the_page.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def write(name, text):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def run_shell(block, world):
    """Commands of ours in this process; what only a shell can do in a shell."""
    less = block.text
    for pattern, smaller in LESS:
        less = re.sub(pattern, smaller, less, flags=re.M)
    with world.proxies(block.text):
        text = HERE.sub(written, world.standing_in(less))
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["export"]:
                os.environ.update(word.split("=", 1) for word in words[1:])
            elif words[:1] == ["context-bench"] and not SHELL.search(QUOTED.sub("", line)):
                if tuple(words) in DONE:
                    continue
                if words[1] in ALONE and "--run" not in words:
                    DONE.add(tuple(words))
                code = main(expanded(words[1:]))
                assert code in allowed(words), f"{block.place}: {shlex.join(words)}"
            elif words:
                in_a_shell(line, block)


#: Blocks that have been executed on an earlier page, and commands of those that no other line of a page builds on.
DONE = set()
ALONE = {"memory", "power", "datasets", "version"}

#: A file that is written out in a block; quoted words; what makes a line one for a shell.
HERE = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END\n", re.M | re.S)
QUOTED = re.compile(r"'[^']*'|#.*")
SHELL = re.compile(r"[|&<>$;]")


def written(found):
    write(found[1], found[2])
    return ""


def in_a_shell(line, block):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True, timeout=180)
    assert done.returncode in allowed(line.split()), f"{block.place}\n{done.stdout}{done.stderr}"


def allowed(words):
    return set().union({0}, *(codes for name, codes in HELD.items() if name in words))


def expanded(words):
    """As a shell does: `~` and `*`."""
    told = []
    for word in words:
        word = str(Path(word).expanduser()) if word.startswith("~") else word
        told += sorted(map(str, Path().glob(word))) if "*" in word and not word.startswith("/") else [word]
    return told


def executed():
    """The pages with something to run; what starts an agent needs walls for it."""
    for page, found in PAGES.items():
        if not page.startswith(RECIPES) and any(not block.reason for block in found):
            yield pytest.param(page, marks=[pytest.mark.program("bwrap")] if page in WALLED else [])


@pytest.mark.parametrize("page", list(executed()))
def test_blocks_run_as_written(page, world, given, capsys):
    given(page)
    capsys.readouterr()
    names, said = {"__name__": "page"}, []
    for block in PAGES[page]:
        printed = "" if block.reason else run(block, world, names) + capsys.readouterr().out
        said.append(printed)
        if block.language == "python" and block.prints is not None and not block.reason:
            assert printed == block.prints, block.place
    outcomes.OUTCOMES.get(page, lambda *_: None)(said, names)


def run(block, world, names):
    """Whatever a block is for; what it printed through Python. What stands word for word on an earlier page has been
    executed there.
    """
    if block.language == "sh" and block.text in DONE:
        return ""
    DONE.add(block.text)
    if block.language == "python":
        return run_python(block, names)
    if block.language == "sh":
        run_shell(block, world)
    elif block.language in ("toml", "json", "jsonl"):
        read(block)
    return ""


def read(block):
    """Data has to be what it says it is; with a name in its first line it is that file."""
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "jsonl":
        [json.loads(line) for line in block.text.splitlines()]
    else:
        json.loads(block.text)
    if file := FILE.match(block.text):
        write(file[1], block.text)


@pytest.mark.parametrize("block", [block for found in PAGES.values() for block in found], ids=lambda block: block.place)
def test_no_block_hides_from_being_run(block):
    """Languages are those that are executed or read here, and what only shows something holds no command."""
    assert block.language in LANGUAGES, block.place
    if block.language in ("text", "") and not block.reason:
        assert not re.search(
            r"^\s*(\$ |context-bench [a-z-]|make [a-z]|pip install|import |from \w+ import |class \w+|def )",
            block.text,
            re.M,
        ), block.place
    assert block.reason is None or len(block.reason) > 8


def test_what_is_not_run_is_listed():
    reasons = {block.reason for found in PAGES.values() for block in found if block.reason}
    listed = reference.PAGES["not-run"]()
    assert {reason for reason in reasons if " ".join(reason.split()).replace("|", "\\|") not in listed} == set()


def anchors(page):
    """The places in a page that can be linked to, as the site names them."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(), flags=re.M | re.S)
    titles = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for title in re.findall(r"^#+ +(.+?)\s*$", text, re.M))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\- ]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_with_the_anchors_of_the_site(page):
    place = ROOT / page
    text = re.sub(r"^(`{3,}).*?^\1", "", place.read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (place.parent / file).resolve() if file else place
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_every_variable_that_is_read_is_told():
    told = {name for names in reference.VARIABLES for name in names.split(", ")}
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    found = set(re.findall(r"[\"'`](CONTEXT_BENCH_[A-Z0-9_]+[A-Z0-9])[\"'`]", sources))
    own_process = {name for name in found if name.startswith("CONTEXT_BENCH_WORKER_")}
    assert found - own_process <= told
