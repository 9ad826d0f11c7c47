"""`--executor`: what is refused before anything is started, and what is told to be on this machine only."""

from __future__ import annotations

import sys

import pytest

from context_bench.core.errors import BadInput, MissingExtra
from context_bench.session.options import RunOptions
from context_bench.session.run_session import RunEnvironment, executor_of, only_here


def test_an_address_without_ray_is_a_mistake() -> None:
    assert executor_of(RunOptions(), RunEnvironment()) is None
    with pytest.raises(BadInput, match="--executor ray"):
        executor_of(RunOptions(ray_address="auto"), RunEnvironment())


def test_a_tap_inside_the_run_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadInput, match=r"context-bench tap .* --tap its URL"):
        executor_of(RunOptions(executor="ray", tap="0", upstream="http://model.example"), RunEnvironment())


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"'\.\[ray\]'"):
        executor_of(RunOptions(executor="ray"), RunEnvironment())


def test_what_listens_here_alone_is_named_by_its_flag() -> None:
    options = RunOptions(
        proxy=["http://127.0.0.1:8787", "http://[::1]:1", "http://model.example"], judge_url="http://localhost:9/v1"
    )
    assert only_here(options, RunEnvironment(hop="http://127.0.0.1:3")) == "--proxy, --controls, --judge-url"
    assert only_here(RunOptions(proxy=["http://10.0.0.7:8787"]), RunEnvironment(upstream="https://api.example")) == ""
