"""Where a run's work is done: here, or on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from context_bench.core.addresses import host_of, is_loopback
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.session.options import RunOptions
    from context_bench.session.session import Surroundings


def executor_of(options: RunOptions, around: Surroundings) -> Any:
    """What `--executor` means; `None` is this process. Raises `BadInput` for what nodes cannot do, `MissingExtra` without Ray."""
    if options.executor == "local":
        if options.ray_address is not None:
            raise BadInput("--ray-address needs --executor ray")
        return None
    if options.tap_port is not None:
        raise BadInput(
            f"--tap {options.tap}: a tap inside this run cannot be asked from Ray's nodes. Start one on this machine (context-bench tap "
            "--upstream URL) and give --tap its URL; that will do if all nodes are on this machine, else use --executor local"
        )
    from context_bench.engine.executors.ray_nodes import RayNodes

    return RayNodes(options.ray_address, local_only=only_here(options, around))


def only_here(options: RunOptions, around: Surroundings) -> str:
    """What of the run listens on this machine for this machine alone; empty if nothing does."""
    asked: list[tuple[str, str | None]] = [("--proxy", proxy.url) for proxy in options.all_proxies]
    asked += [("--upstream", around.upstream), ("--controls", around.hop), ("--reader", around.reader)]
    asked += [("--judge-url", options.judge_url), ("--tap", options.tap)]
    return ", ".join(dict.fromkeys(name for name, url in asked if url and is_loopback(host_of(url if "//" in url else f"//{url}"))))
