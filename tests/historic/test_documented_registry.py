"""The registry as documented: kinds, names, what is missing; and that a registered dataset is a name of the command
line.
"""

import json

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.registry import Registry, get_metric, load_dataset, register_dataset, register_metric, registry


def test_what_is_put_in_comes_out():
    own = Registry()
    thing = object()
    own.register("reporter", "plain", thing)
    own.register("metric", "one", 1)
    own.register("metric", "two", 2)
    assert own.get("reporter", "plain") is thing
    assert sorted(own.list("metric")) == ["one", "two"]
    assert own.list("dataset") == []


def test_what_is_not_there_is_a_key_error_that_lists_what_is():
    own = Registry()
    own.register("dataset", "tides", list)
    with pytest.raises(KeyError, match=r"No dataset registered with name 'tied'.*tides"):
        own.get("dataset", "tied")
    with pytest.raises(KeyError, match="No metric registered"):
        own.get("metric", "any")


def test_the_helpers_use_the_one_registry():
    register_dataset("historic-numbers", lambda n=None, start=0: list(range(start, start + (n or 4))))
    assert load_dataset("historic-numbers") == [0, 1, 2, 3]
    assert load_dataset("historic-numbers", n=2, start=5) == [5, 6]
    register_metric("historic-metric", int)
    assert get_metric("historic-metric") is int
    assert "historic-metric" in registry.list("metric")


def test_a_registered_dataset_is_a_name_of_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    register_dataset(
        "historic-tides", lambda n=None: [{"id": i, "context": f"Tide {i}", "answer": "ebb"} for i in range(n or 5)]
    )
    server = ModelServer(Echo())
    run_sync(server.start())
    try:
        assert (
            main(["--proxy", server.url, "--dataset", "historic-tides", "-n", "3", "--output", "json", "--quiet"]) == 0
        )
    finally:
        run_sync(server.stop())
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["dataset"], row["example_id"]) for row in rows] == [("historic-tides", i) for i in range(3)]
