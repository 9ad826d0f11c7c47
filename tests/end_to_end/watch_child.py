"""Run by test_watch_killed.py and benchmarks/watch_kills.py. Arguments: upstream, store, front port; a proxy and the
port behind it.
"""

from pathlib import Path

from forking import main

import context_bench.llm.servers
import context_bench.session.run_parts
import context_bench.tap.control_api
import context_bench.traffic.sections.watch_board
import context_bench.traffic.watch.watcher  # noqa: F401 - imported here so that forks need not
from context_bench.core.records import Usage
from context_bench.llm.prices import GenaiPrices
from context_bench.traffic.command.limit_guard import LimitedWatch
from context_bench.traffic.command.watch_command import WatchRun


async def run(upstream, store, front, via=None, back="0"):
    shown = {"output": "json", "out": Path("/dev/null"), "quiet": True}
    options = LimitedWatch(
        front=int(front), upstream=upstream, store=store, record="full", via=via, back=int(back), **shown
    )
    return await WatchRun(options, [])._run()


if __name__ == "__main__":
    GenaiPrices().cost(Usage(1, 1), "gpt-4o")
    main(run)
