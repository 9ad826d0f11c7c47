"""`gate` and `compare` on runs of memories: the memories are held to the limits, not the floors beside them."""

import pytest

from context_bench.cli.app import run_line

LINE = (
    "memory",
    "--dataset",
    "bundled:recall-lab",
    "-n",
    "1",
    "--reader",
    "none",
    "--qa-types",
    "single,chain",
    "--quiet",
    "--out",
    "x",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where we stand, with the run `one` in its store."""
    with pytest.MonkeyPatch.context() as patch:
        made = tmp_path_factory.mktemp("gate")
        patch.chdir(made)
        assert run_line([*LINE, "--system", "bm25", "--system", "recency", "--run", "one"]) == 0
        yield made


def test_memories_are_held_to_limits_and_floors_are_not(place, capsys):
    assert run_line(["gate", "one", "--min", "recall_at_10=0.99"]) == 4
    told = capsys.readouterr().err
    assert "bm25/recall_at_10" in told
    assert "recency/recall_at_10" in told
    assert not any(f"{floor}/" in told for floor in ("none", "random", "full_context", "oracle"))
    assert run_line(["gate", "one", "--max-failures", "0"]) == 0
    assert run_line(["gate", "one", "--min", "random/recall_at_10=0"]) == 0, "a floor that is named is checked"


def test_a_memory_is_compared_with_its_earlier_self(place, capsys):
    assert run_line([*LINE, "--system", "bm25", "--run", "two"]) == 0
    assert run_line(["compare", "one", "two", "--output", "json"]) == 0
    assert '"bm25 before"' in capsys.readouterr().out


def test_another_number_of_hits_is_another_protocol(place, capsys):
    assert run_line([*LINE, "--system", "bm25", "--k", "10,20", "--run", "wider"]) == 0
    assert run_line(["compare", "one", "wider"]) == 3
    assert "k was [1, 5, 10] and is [10, 20]" in capsys.readouterr().err
