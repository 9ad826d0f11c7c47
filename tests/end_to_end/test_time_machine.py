"""The time machine of `benchmarks`: its list of pairs is sound, and a program between its taps is flagged for what it
does and for nothing else.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from context_bench.wire.violations import KINDS, REPLY_KINDS
from context_bench.wire.violations.linter import RULES

_HERE = Path(__file__).parents[2] / "benchmarks" / "time_machine"
_SHIM = """
import json, sys, urllib.request
sys.path.insert(0, {shims!r})
from front import serve

def handle(path, body, back):
    {change}
    request = urllib.request.Request(back + path, json.dumps(body).encode(), {{"content-type": "application/json"}})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)

serve(handle)
"""


@pytest.fixture
def driving(monkeypatch):
    monkeypatch.syspath_prepend(str(_HERE))
    return importlib.import_module("driving")


def _pairs():
    return tomllib.loads((_HERE / "pairs.toml").read_text("utf-8"))["pair"]


def test_every_pair_names_what_it_needs(driving):
    from probes import PROBES

    pairs = _pairs()
    known = {*KINDS, *REPLY_KINDS, *(rule.kind for rule in RULES)}
    assert len({pair["id"] for pair in pairs}) == len(pairs) == 36
    for pair in pairs:
        assert pair["way"] in ("proxy", "agent", "memory", "mcp"), pair["id"]
        assert "python" in pair or "npm" in pair or "alone" in pair, pair["id"]
        assert "shim" not in pair or (_HERE / "shims" / pair["shim"]).is_file(), pair["id"]
        assert "probe" not in pair or pair["probe"] in PROBES, pair["id"]
        if pair["way"] in ("proxy", "agent"):
            assert set(pair["expect"]) <= known, pair["id"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [("pass", set()), ('body.pop("tool_choice")', {"tool_choice_changed"}), ('body["tools"] = []', {"tool_removed"})],
)
def test_a_program_between_the_taps_is_flagged_for_what_it_does(driving, tmp_path, monkeypatch, change, expected):
    shim = tmp_path / "shim.py"
    shim.write_text(_SHIM.format(change=change, shims=str(_HERE / "shims")))
    from installing import Environment

    here = Environment(Path(sys.prefix), "python", {}, None)
    pair = {"id": "x", "way": "proxy", "shim": str(shim), "probe": "no tool may be called"}
    found = asyncio.run(driving.flags_of(pair, here))
    assert expected <= set(found.kinds)
    assert bool(found.kinds.keys() - {"json_reserialised"}) == bool(expected)
