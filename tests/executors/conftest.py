"""A real Ray cluster of two nodes on this machine, one for the whole folder: starting it is most of what these tests
cost.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def _add_node(cluster: Any) -> Any:
    """A node whose ports are given: on a busy machine one that has to find out by itself gives up after 15 s."""
    names = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port", "metrics_export_port")
    for left in (2, 1, 0):
        try:
            return cluster.add_node(**_NODE, **dict(zip(names, _free_ports(len(names)), strict=True)))
        except Exception as error:  # Ray has no class of its own for this; 30 s are built in
            if "timed out during startup" not in str(error) or not left:
                raise
    raise AssertionError("not reached")


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each, with the driver connected."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        _add_node(made)
        _add_node(made)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def add_node(cluster: Any) -> Callable[[], Any]:
    """Lets one more node join."""
    return lambda: _add_node(cluster)


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
