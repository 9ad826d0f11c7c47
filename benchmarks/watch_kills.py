"""kill -9 of `watch` at the moment a client has the last byte of an answer, again and again: is every answered turn
stored?

    python benchmarks/watch_kills.py [--kills 100] [--proxy]

The harness is that of `tests/end_to_end/test_watch_killed.py`: plain, streamed and WebSocket turns, one client or nine.
With `--proxy` the watch stands around a proxy, and there are no WebSockets. Exit code 1 if a turn was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests" / "end_to_end"
sys.path.insert(0, str(TESTS))

from killing import WAYS, Provider, free_port, kill_once  # noqa: E402

from conftest import Forks  # noqa: E402
from context_bench.testing.hostile import MisbehavingProxy  # noqa: E402


async def measure(kills: int, folder: Path, *, proxied: bool) -> tuple[int, int]:
    """Turns that were answered, and those of them that were not stored."""
    chance, port, back = random.Random(11), free_port(), free_port()
    ways = WAYS[:2] if proxied else WAYS
    answered = lost = 0
    async with contextlib.AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider())
        more: list[object] = []
        if proxied:
            proxy = await stack.enter_async_context(MisbehavingProxy("nothing", f"http://127.0.0.1:{back}"))
            more = [proxy.url, back]
        watch = await Forks.of("watch_child.py", provider.url, folder / "store.db", port, *more)
        for number in range(kills):
            clients = [ways[number % len(ways)]] if number % 2 else list(ways) * 3
            has, misses = await kill_once(
                watch.start, watch.ended, provider, folder / "store.db", port, clients, chance.randint(1, 20)
            )
            answered, lost = answered + len(has), lost + len(misses)
            print(f"kill {number + 1}: {answered} answered, {lost} lost", file=sys.stderr, end="\r", flush=True)
        await watch.close()
    return answered, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--proxy", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answered, lost = asyncio.run(measure(options.kills, Path(folder), proxied=options.proxy))
    print(f"\n{options.kills} kills, {answered} turns answered, {lost} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
