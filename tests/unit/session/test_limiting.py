"""What `--rpm`, `--tpm` and `--fixed-concurrency` make of a run's limits, from the options to the stored manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_bench.cli.app import run_line
from context_bench.core.errors import BadSpec
from context_bench.engine import open_store, rows, run_of
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter
from context_bench.runner import detail_of
from context_bench.session.flags import read_options
from context_bench.session.options import RunOptions
from context_bench.session.run_parts import Accounts


def test_one_limiter_for_each_endpoint_one_pace_for_the_account() -> None:
    accounts = Accounts(RunOptions(max_workers=8, rpm=60))
    one, two = accounts.of("http://a"), accounts.of("http://b")
    assert isinstance(one, AdaptiveLimiter)
    assert one is accounts.of("http://a")
    assert one is not two
    assert one.pace is two.pace is accounts.of_judge("http://j").pace
    assert Accounts(RunOptions(max_workers=8, rpm=60, judge_key_env="OTHER")).of_judge("http://j").pace.rpm is None


def test_one_at_a_time_needs_no_limiter_unless_it_is_paced() -> None:
    assert Accounts(RunOptions()).of("http://a") is None
    assert Accounts(RunOptions()).of_judge("http://a") is None
    assert Accounts(RunOptions(tpm=1000)).of("http://a").pace.tpm == 1000


def test_a_fixed_load_is_of_all_endpoints_together_but_not_of_the_judge() -> None:
    options = RunOptions(fixed_concurrency=4)
    accounts = Accounts(options)
    assert options.max_workers == 4
    assert isinstance(accounts.of("http://a"), FixedLimiter)
    assert accounts.of("http://a") is accounts.of("http://b")
    assert isinstance(accounts.of_judge("http://j"), AdaptiveLimiter)
    assert accounts.load() == {"mode": "fixed", "at_once": 4, "stream": False}


@pytest.mark.parametrize("flags", [{"rpm": 0}, {"tpm": -1}, {"fixed_concurrency": 0}])
def test_limits_that_are_none_are_refused(flags: dict[str, int]) -> None:
    with pytest.raises(BadSpec, match=r"expected a (whole )?number (above 0|at least 1)$"):
        read_options(flags, None, RunOptions)


def test_load_history_and_requests_under_way_are_kept_with_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, script, store = tmp_path / "d.jsonl", tmp_path / "s.json", tmp_path / "store.db"
    lines = [{"id": n, "context": f"It is {n}.", "question": f"What is {n}?", "answer": "42"} for n in range(6)]
    data.write_text("\n".join(map(json.dumps, lines)))
    script.write_text(
        json.dumps({"default": "42", "rules": [{"calls": [4], "status": 429, "headers": {"retry-after-ms": "5"}}]})
    )
    words = [
        "run",
        "--upstream",
        f"scripted:{script}",
        "--controls",
        "full",
        "--dataset",
        str(data),
        "--store",
        str(store),
        "--run",
        "r",
    ]
    assert run_line([*words, "--stream", "--fixed-concurrency", "2", "--quiet"]) == 0
    assert "asked less on the way (1 × refused for quota)" in " ".join(capsys.readouterr().out.split())
    with open_store(store) as kept:
        manifest = run_of(kept, "r").manifest
        assert manifest["load"] == {"mode": "fixed", "at_once": 2, "stream": True}
        (history,) = manifest["limits"]
        assert [reason for _, _, reason in history["all endpoints"]] == ["start", "refused for quota, 0.005 s pause"]
        assert {row.usage["in_flight"] for row in rows(kept, "r")} <= {1, 2}
        told = [
            call
            for row in rows(kept, "r")
            for call in (detail_of(kept, "r", row.system, row.example_id, 0) or {})["calls"]
        ]
        assert {call["in_flight"] for call in told} <= {1, 2}
        assert sum(call.get("status") == 429 for call in told) == 1
    assert (
        run_line([*words, "--stream", "--fixed-concurrency", "2", "--quiet"]) == 0
    )  # nothing is owed, the history stays
    with open_store(store) as kept:
        assert [len(each["all endpoints"]) for each in run_of(kept, "r").manifest["limits"]] == [2, 1]
