"""Every recipe, pasted: each block into a program of its own, in the order of the page, with the vendors' real
packages.

Only ports are others, providers are a scripted model, and what would take minutes is done on less of the same data. A
block that is a server runs while the rest of its page does. What needs an account, or weights that nobody here can
fetch, says so and is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import blocks as documentation  # noqa: E402

PAGES = {
    place.relative_to(ROOT).as_posix(): documentation.blocks(place)
    for place in sorted((ROOT / "docs" / "recipes").glob("*.md"))
}
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")

VENDOR = {"docs/recipes/headroom.md": "headroom", "docs/recipes/kompact.md": "kompact", "docs/recipes/mem0.md": "mem0"}
#: Blocks that other pages' test does not run and this one does, by their reason.
SERVER, HERE = (
    "a server; tests/docs/test_recipes.py starts it",
    "needs make vendors; tests/docs/test_recipes.py runs it",
)
#: The same commands on less data.
LESS = (
    (r"bundled:sessions(?![/\w])", "bundled:sessions/order-sync-zh"),
    (r"compress run (?=--)", "compress run bundled:sessions/order-sync-zh "),
    (r"(--dataset bundled:recall-lab) -n 6", r"\1:turns=40 -n 1"),
    (r"turns=40 -n 6", "turns=40 -n 1"),
    (r"^make vendors$", ":"),
)
#: What a command of the page may end with besides 0, as the page says.
SAID = {"docs/recipes/kompact.md": {"doctor": 1}, "docs/recipes/ci-gate.md": {"gate run.json": 4}}


def pasted():
    for page, found in PAGES.items():
        if any(runs(block) for block in found):
            yield pytest.param(page, marks=[pytest.mark.vendor(VENDOR[page])] if page in VENDOR else [])


def runs(block):
    return block.reason in (None, SERVER, HERE)


@pytest.mark.parametrize("page", list(pasted()))
def test_a_recipe_works_as_it_is_pasted(page, world):
    (world.folder / ".vendors").symlink_to(ROOT / ".vendors")
    with contextlib.ExitStack() as servers:
        for block in filter(runs, PAGES[page]):
            text = world.standing_in(less(block.text))
            file = FILE.match(text)
            if file and block.language != "sh":
                Path(file[1]).write_text(text)
            elif block.reason == SERVER:
                servers.enter_context(served(text, world))
            elif block.language == "python":
                done([sys.executable, "-c", text], block)
            elif block.language == "sh":
                for line in filter(None, text.replace("\\\n", " ").splitlines()):
                    done(["bash", "-euo", "pipefail", "-c", line], block, expected(page, line))


def less(text):
    for pattern, smaller in LESS:
        text = re.sub(pattern, smaller, text, flags=re.M)
    return text


def expected(page, line):
    return next((code for part, code in SAID.get(page, {}).items() if f"context-bench {part}" in line), 0)


def done(command, block, code=0):
    """Run one command as a reader would; its streams are in the failure, if it is one."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert ended.returncode == code, f"{block.place}: {command[-1]}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"


@contextlib.contextmanager
def served(line, world):
    """The server of a block, as in a terminal of its own, once it listens."""
    port = int(re.search(r"--port (\d+)", line)[1])
    with Path("server.log").open("wb") as log:
        direct = {**os.environ, "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # it asks the network else
        program = subprocess.Popen(["bash", "-c", line], stdout=log, stderr=log, start_new_session=True, env=direct)
    try:
        end = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert program.poll() is None, Path("server.log").read_text()[-4000:]
            assert time.monotonic() < end, Path("server.log").read_text()[-4000:]
            time.sleep(0.1)
        yield
    finally:
        os.killpg(program.pid, signal.SIGTERM)
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)


def test_what_a_recipe_does_not_run_needs_what_nobody_here_has():
    """An account or weights; all else is pasted above."""
    left = {block.reason for found in PAGES.values() for block in found if not runs(block)}
    assert all(re.search(r"account|key|weights", reason) for reason in left), left
