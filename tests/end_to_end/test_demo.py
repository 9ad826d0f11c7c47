"""`context-bench demo`, small: a real model, proxies, the tap; a second run asks nothing.

What the bundled model itself answers is tested in tests/unit/llm; here it has one of its layers, which takes a tenth of
the time.
"""

import json
import re

from context_bench.__main__ import main
from context_bench.llm.weights import VARIABLE

from .shallow import shallow


def test_the_demo_measures_and_a_second_run_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, str(shallow(tmp_path / "model.gguf")))
    assert main(["demo", "-n", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"bm25 with plain-user requests: inferior to full: evidence_all -\d", said)
    assert re.search(r"The sentence that holds the answer arrived, .* full 100 %.*none 0 %", said)
    assert said.index("decided (no model, exact)") < said.index("by the answers of a small model")
    for part in (
        "what the instrument can see",
        "System score",
        "caught in the act",
        "prompt-cache money",
        "Your own proxy",
    ):
        assert part in said
    assert "Responder" not in said, "part 2 is in the short form"
    assert re.search("“flattens roles”: .* role changes: message 1: system → user", said)
    assert "“changes nothing”" in said
    assert (tmp_path / ".context-bench" / "demo.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["export", "demo", "--canonical", "--out", "first.json"]) == 0
    assert main(["demo", "-n", "2"]) == 0
    assert main(["export", "demo", "--canonical", "--out", "second.json"]) == 0
    first, second = ((tmp_path / name).read_text() for name in ("first.json", "second.json"))
    assert first == second
    rows = json.loads(first)["rows"]
    by_system = {
        system: [row for row in rows if row["system"] == system]
        for system in ("full", "full#2", "head_tail", "bm25", "none")
    }
    assert [len(found) for found in by_system.values()] == [2, 1, 2, 2, 2]
    for system in ("head_tail", "bm25"):
        assert all(row["output_tokens"] < 0.3 * row["input_tokens"] for row in by_system[system])
    assert all(row["output_tokens"] == row["input_tokens"] for row in by_system["full"])
