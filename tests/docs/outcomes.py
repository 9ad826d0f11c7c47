"""What has to be there when the blocks of a page have run: a look at what was printed, block by block, and at the files
they left.
"""

from __future__ import annotations

import re
from pathlib import Path

from context_bench.compression.compressors import compressor_for
from context_bench.testing.compressor_contract import check_compressor

ROOT = Path(__file__).parents[2]


def ci(said, names):
    assert any("mine: non-inferior to full" in each for each in said)
    assert Path("gate.xml").stat().st_size > 0
    assert "mine" in Path("summary.md").read_text() or "head_tail" in Path("summary.md").read_text()


def compression(said, names):
    assert "recall" in said[-1]
    assert "retention index" in names["report"]


def compressors(said, names):
    named = {"py:squeeze:LastWords": "last_words", "cli:squeeze.toml": "squeeze", "http:hosted.toml": "hosted"}
    assert {spec: compressor_for(spec).name for spec in named} == named
    assert check_compressor(lambda: compressor_for("py:lingua:Lingua"), huge=5000) == []


def interchange(said, names):
    assert any("'system': 'full'" in each for each in said)
    assert len(list(Path("logs").iterdir())) == 3  # a log for each arm
    assert Path("run.csv").stat().st_size > 0


def judge(said, names):
    text = (ROOT / "docs" / "guide" / "judge.md").read_text()
    told = [line.rpartition("# ")[2] for block in re.findall(r"```python\n(.*?)```", text, re.S) for line in block.splitlines()  # noqa: E501
            if line.startswith("print(")]  # fmt: skip
    assert [line for line in "".join(said).splitlines() if line in told] == told


def memory(said, names):
    assert any("ok delete it is gone" in each for each in said)


def commands(said, names):
    assert float(said[-1]) >= 0.0


def traces(said, names):
    assert any("0.727" in each for each in said)
    assert "{'src/calc.py': ((8, 10),)}" in said[-1]
    text = (ROOT / "docs" / "guide" / "traces.md").read_text()
    told = re.findall(
        r"`([\w.]+\.(?:jsonl|csv|json|md|html))`", text.split("`--out-dir` keeps")[1].split("The same command")[0]
    )
    assert len(told) == 5
    assert set(told) <= {file.name for file in Path("scored").iterdir()}


OUTCOMES = {
    "docs/commands.md": commands,
    "docs/guide/ci.md": ci,
    "docs/guide/compression.md": compression,
    "docs/guide/compressors.md": compressors,
    "docs/guide/interchange.md": interchange,
    "docs/guide/judge.md": judge,
    "docs/guide/memory.md": memory,
    "docs/guide/traces.md": traces,
}
