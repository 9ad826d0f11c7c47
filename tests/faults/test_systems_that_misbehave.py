"""Systems under test that hang, die, fork, or take the process apart around them: one row fails, or none, and the run
is resumable.
"""

import json
import os
import signal
from pathlib import Path

import pytest

OWN_FAILURES = {
    "hangs": "TimedOut",
    "panics": "Panic",
    "stops": "RuntimeError: StopIteration",
    "closes_a_generator": "RuntimeError: GeneratorExit",
    "ends_the_program": "RuntimeError: SystemExit: 3",
    "interrupts": "RuntimeError: KeyboardInterrupt",
    "recurses": "RecursionError",
    "has_no_memory": "MemoryError",
}
HARMLESS = ["leaves_the_folder", "closes_stdout", "blocks_signals", "forks", "says_much"]


@pytest.fixture
def odd(forge, place):
    def played(kind, **options):
        (place / "elsewhere").mkdir(exist_ok=True)
        return forge.play("odd", where=str(place / "store.db"), kind=kind, folder=str(place / "elsewhere"), **options)

    return played


@pytest.mark.parametrize("kind", OWN_FAILURES)
def test_what_a_system_fails_of_is_its_rows_failure(odd, kind):
    status, said, out = odd(kind)
    assert status == 0, out
    assert (said["done"], said["failed"], said["rows"]) == (6, 1, 6)
    assert said["errors"]["4"].startswith(OWN_FAILURES[kind])
    status, said, out = odd("well")
    assert (status, said["done"], said["failed"]) == (0, 1, 0), out


@pytest.mark.parametrize("kind", ["panics", "recurses", "stops", "ends_the_program"])
def test_the_same_on_the_loop(odd, kind):
    status, said, out = odd(kind, on_loop=True, workers=3)
    assert status == 0, out
    assert (said["done"], said["failed"], list(said["errors"])) == (6, 1, ["4"])


@pytest.mark.parametrize("kind", HARMLESS)
@pytest.mark.parametrize("on_loop", [False, True])
def test_what_it_does_to_the_process_harms_no_row(odd, place, kind, on_loop):
    status, said, out = odd(kind, on_loop=on_loop)
    assert status == 0, out
    assert (said["done"], said["failed"], said["rows"]) == (6, 0, 6)
    assert said["unjudged"] == [4]  # its evaluator panics there
    assert not any((place / "elsewhere").iterdir())


@pytest.mark.parametrize("on_loop", [False, True])
def test_one_that_eats_all_memory_costs_its_own_row_at_most_the_run_and_no_stored_row(odd, on_loop):
    status, said, out = odd("leaks", on_loop=on_loop, fault={"memory": 30_000_000})
    if status == 0:
        assert (said["done"], said["failed"], said["rows"]) == (6, 1, 6)
        assert said["errors"]["4"].startswith("MemoryError")
    else:
        # On the loop it also takes the memory of libraries that can only give up, and of whoever reads the rows in
        # this process
        assert on_loop
        assert status == -signal.SIGABRT or out.rstrip().endswith("MemoryError"), out
    status, said, out = odd("well")
    assert status == 0, out
    assert (said["failed"], said["rows"]) == (0, 6)
    assert said["done"] <= 2  # the four before it were stored


def works(pid):
    """Is there such a process that is not merely waiting to be collected?"""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_program_that_it_left_running_ends_with_the_command_unless_it_has_a_session_of_its_own(forge, place):
    (place / "one.jsonl").write_text(json.dumps({"id": 1, "context": str(place), "question": "?", "answer": "fine"}))
    given = ["--dataset", str(place / "one.jsonl"), "--store", str(place / "store.db"), "--output", "json", "--quiet"]
    status, _, out = forge.play("command", argv=["run", "--system", "py:scenes:Leaves", *given])
    careless, meant = (int((place / name).read_text()) for name in ("careless", "meant"))
    try:
        assert status == 0, out
        assert f"ended a program that was left running: sleep 600 (process {careless})" in out
        assert out.count("left running") == 1
        assert not works(careless)
        assert works(meant)
    finally:
        os.kill(meant, signal.SIGKILL)


def test_one_that_ends_the_process_leaves_a_run_that_goes_on(odd):
    status, _, _ = odd("exits")
    assert status == 9
    status, said, out = odd("well")
    assert status == 0, out
    assert (said["done"], said["rows"]) == (2, 6)
