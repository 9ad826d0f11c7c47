"""The fenced blocks of the documentation's pages: what stands in them, what they should print, and which are not run
and why.

A block that cannot be run is marked on a line before it: `<!-- not run: why -->`. A block without a language, or of
`text`, that follows another one directly is what that one prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=ticks) *$\n?", re.M | re.S
)
_MARK = re.compile(r"<!-- not run: ((?:(?!-->).)+) -->\s*\Z", re.S)
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """`line`: of the opening fence. `prints`: the block after it, where that is its output. `reason`: why it is not
    run.
    """

    page: str
    line: int
    heading: str
    language: str
    text: str
    prints: str | None = None
    reason: str | None = None

    @property
    def place(self) -> str:
        """`docs/guide/watch.md:3`."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README and every page that was written by hand, by name."""
    return [
        ROOT / "README.md",
        *sorted(path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts),
    ]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page in order; outputs belong to the block before them and are none of their own."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(text):
        between, body = text[end : fence.start()], _outdented(fence["text"], len(fence["indent"]))
        output = (
            fence["language"] in ("", "text")
            and found
            and found[-1].language in ("python", "sh")
            and not between.strip()
        )
        end = fence.end()
        if output and found[-1].prints is None:
            found[-1] = _with_output(found[-1], body)
            continue
        before = text[: fence.start()]
        reason = _MARK.search(before)
        headings = _HEADING.findall(_FENCE.sub("", before))
        found.append(
            Block(
                page=page.relative_to(ROOT).as_posix(),
                line=before.count("\n") + 1,
                heading=headings[-1] if headings else "",
                language=fence["language"],
                text=body,
                reason=" ".join(reason[1].split()) if reason else None,
            )
        )
    return found


def _outdented(text: str, indent: int) -> str:
    return "".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in text.splitlines(keepends=True))


def _with_output(block: Block, output: str) -> Block:
    return Block(block.page, block.line, block.heading, block.language, block.text, output, block.reason)
