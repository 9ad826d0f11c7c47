"""kill -9 in the instruction after an acknowledgement: the honest store keeps all of it, the one that commits later
does not.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from context_bench.memory.ops import run_suites
from context_bench.memory.systems.bm25_memory import BM25
from mutants import AcksBeforeCommit, Honest, spec_of


async def crash(make, **options):
    (found,) = await run_suites(make, ["crash"], **options)
    return found, {probe.name: probe for probe in found.probes if probe.kind == "test"}


async def test_the_honest_store_loses_nothing():
    found, probes = await crash(spec_of(Honest))
    assert found.outcome == "pass", found.failed
    assert probes["killed after an acknowledgement"].numbers["kills"] == 12
    assert probes["killed after an acknowledgement"].numbers["acknowledged"] >= 12


async def test_the_one_that_commits_later_is_caught():
    found, probes = await crash(spec_of(AcksBeforeCommit), scale=0.5)
    assert found.outcome == "fail"
    assert probes["killed after an acknowledgement"].numbers["missing"] > 0
    controls = [probe for probe in found.probes if probe.kind == "positive control"]
    assert all(probe.outcome == "pass" for probe in controls)  # closed properly it loses nothing


async def test_a_memory_given_as_an_object_has_no_child(tmp_path):
    _, probes = await crash(lambda: BM25(tmp_path / "s.db"))
    assert [probe.outcome for probe in probes.values()] == ["not applicable"]


async def test_a_child_that_cannot_start_is_an_error_and_no_pass(tmp_path):
    found, probes = await crash(lambda: BM25(tmp_path / "s.db"), spec="py:no_such_module_here:Thing", scale=0.3)
    assert found.outcome == "error"
    assert "no_such_module_here" in json.dumps(found.as_dict())
    assert probes["killed after an acknowledgement"].outcome == "error"


@pytest.mark.parametrize("after", [1, 4])
def test_the_child_ends_right_after_the_acknowledgement(tmp_path, after):
    items = [{"id": f"i{number}", "text": f"thing number {number}"} for number in range(6)]
    order = {"spec": f"bm25:path={tmp_path}/s.db", "namespace": "n", "items": items, "die_after": after, "delay": 0}
    done = subprocess.run(
        [sys.executable, "-m", "context_bench.memory.ops.crash"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in said if "id" in each] == [f"i{number}" for number in range(after)]
    assert said[-1] == {"status": -signal.SIGKILL}
    with pytest.raises(ProcessLookupError):
        os.kill(said[0]["pid"], 0)
    assert BM25(tmp_path / "s.db").namespace("n").stats()["items"] == after  # nothing after it was begun
