"""`context-bench watch`: see live what a proxy does to your own traffic. No dataset, no key of ours.

`WatchRun` is one watch, from its options to its report and exit code.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput, LimitCrossed, PreflightFailed, StoreUnusable
from context_bench.llm.redact import environment_notes
from context_bench.session import interrupts
from context_bench.session.flags import read_options, takes
from context_bench.traffic.command.limit_guard import LimitedWatch, LimitGuard, WatchedLimits, checked_limits, taken_up

if TYPE_CHECKING:
    import asyncio

    from context_bench.core.records import Forwarded
    from context_bench.engine import Store, WatchLog
    from context_bench.traffic.sections.watch_board import Board
    from context_bench.traffic.watch.beside import ProviderCount, Shadow
    from context_bench.traffic.watch.session_context import FrontSteering
    from context_bench.traffic.watch.watcher import Watch
    from context_bench.wire.turns import Turn


@takes(LimitedWatch, " ".join(LimitedWatch.flags))
def command(context: typer.Context, **given: Any) -> int:
    """Tap your own traffic before and behind a proxy: tokens, money, time and wire violations, live. `-- CMD` starts a
    client.
    """
    options = read_options(given, None, LimitedWatch)
    if options.output not in ("table", "json"):
        raise BadInput(f"watch: --output {options.output!r} is not known; expected table or json")
    if options.show is not None:
        from context_bench.traffic.sections import print_report

        return print_report(options.store, options.show, options.output, options.out)
    from context_bench.session.run_session import checked_name

    if not options.upstream:
        raise BadInput("watch: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    for flag in ("front", "back", "shadow_back"):
        listening_port(getattr(options, flag) or 0, f"--{flag.replace('_', '-')}")
    if options.shadow is not None and options.max_cost is None:
        raise BadInput(
            "watch: --shadow sends requests of its own, which somebody pays for; cap them with --max-cost USD"
        )
    if options.shadow is None and (options.shadow_back is not None or options.max_cost is not None):
        raise BadInput(
            "watch: --shadow-back and --max-cost are about mirrored requests; name the second proxy with --shadow URL"
        )
    _check_steering(options)
    labels(options)
    checked_name("--name", options.name, "watch")
    limits = checked_limits("watch", options)
    if limits and options.via is None:
        raise BadInput("watch: --limit is about what a proxy does; name the one in between with --proxy URL")
    if "needles" in limits and not options.needles:
        raise BadInput("watch: --limit needles=… is about planted facts; have them planted with --needles")
    return WatchRun(options, list(context.args), limits).run()


def _check_steering(options: LimitedWatch) -> None:
    """Options that steer requests, or count what was not sent, are about a proxy in between."""
    asked = (("--holdout", options.holdout), ("--needles", options.needles), ("--count-tokens", options.count_tokens))
    given = [name for name, value in asked if value]
    if given and options.via is None:
        raise BadInput(
            f"watch: {' and '.join(given)} compare with a proxy, and there is none; name it with --proxy URL"
        )


def labels(options: LimitedWatch) -> dict[str, Any]:
    """Title and tags, as lists of runs show them. Raises `BadInput` for what is too long or no text."""
    from context_bench.session.run_parts import remark

    if (given := remark(options.title, options.tag)) is None:
        return {}
    found = {"title": given.text, "tags": list(given.tags)}
    return {name: value for name, value in found.items() if value}


_SHADOW_PATIENCE = 30.0
#: Turns of earlier watches whose replies a conversation may go on from.
_REMEMBERED = 5_000
#: Seconds after which a turn that is still under way is counted in the store.
_COUNTED_AFTER = 0.05


@dataclass
class WatchRun:
    """One watch from its options to its exit code."""

    options: LimitedWatch
    client: list[str]
    limits: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=environment_notes)

    def run(self) -> int:
        """Watch until the client ends or somebody interrupts; returns the exit code."""
        return interrupts.looped(self._run())

    async def _run(self) -> int:
        from context_bench.engine import open_store, open_watch, watch_key
        from context_bench.llm.prices import rules_date
        from context_bench.llm.spend import SpendLog
        from context_bench.session.run_parts import started_upstream
        from context_bench.traffic.sections import publish_watch
        from context_bench.traffic.sections.watch_board import Board
        from context_bench.wire.turns import Figures

        prices, spend = self._prices(), SpendLog.of(self.options.spend)
        with open_store(self.options.store) as kept:
            async with started_upstream(self.options.upstream) as url:
                settings = self._settings(prices, rules_date())
                if self.options.holdout is not None or self.options.needles:
                    settings["key"] = watch_key(kept)
                steering = self._steering(kept, settings.get("key"))
                await self._look()
                board, about = Board(), {"of": "watch", "via": self.options.via, "upstream": self.options.upstream}
                guard = await taken_up(kept, self.limits, about, self.options, self.notes)
                log = open_watch(kept, settings, name=self.options.name)
                if guard is not None:
                    guard.begin(log.name)
                try:
                    code = await self._watch(url, prices, log, board, settings, steering, guard)
                except Exception:
                    log.take_back()
                    raise
            if spend is not None:
                settings["spend"], said = spend.since(board.sums.get("main", Figures()).cost)
                self.notes.append(said)
            try:
                log.end({**settings, "notes": self.notes})
                if guard is not None:
                    guard.log.write(guard.state(), release=True)
            except StoreUnusable as full:  # what is kept can be read all the same
                self.notes.append(f"The end of this watch could not be written: {full}")
                code = code or 1
            publish_watch(kept, log.name, settings, self.notes, self.options.output, self.options.out)
        return code

    async def _look(self) -> None:
        """The proxies must be there before a client is started; without one there is time to start them, so it is only
        said.
        """
        from context_bench.session.output_files import say
        from context_bench.session.preflight import require_proxy

        named = [
            ("--proxy", self.options.via, self.options.back),
            ("--shadow", self.options.shadow, self.options.shadow_back),
        ]
        for flag, url, back in ((flag, url, back) for flag, url, back in named if url is not None):
            try:
                await require_proxy(flag, url, f"http://127.0.0.1:{back}" if back else None)
            except PreflightFailed as absent:
                if self.client:
                    raise
                say(str(absent))

    def _prices(self) -> Any:
        from context_bench.session.options import RunOptions
        from context_bench.session.run_parts import prices

        return prices(RunOptions(price=self.options.price or [], price_model=self.options.price_model))

    def _settings(self, prices: Any, rules: str) -> dict[str, Any]:
        from context_bench.llm.relay import check_upstream

        for flag, url in (("--proxy", self.options.via), ("--shadow", self.options.shadow)):
            if url is not None:
                check_upstream(url, flag)
        return {
            "via": self.options.via,
            "back": f"http://127.0.0.1:{self.options.back}" if self.options.via and self.options.back else None,
            "upstream": self.options.upstream,
            "record": self.options.record,
            "prices": prices.source,
            "prices_of": prices.date,
            "price": self.options.price or None,
            "price_model": self.options.price_model,
            "cache_rules_of": rules,
            "shadow": self.options.shadow,
            "sample": self.options.sample if self.options.shadow else None,
            "seed": self.options.seed if self.options.shadow else None,
            "client": self.client[0] if self.client else None,
            "holdout": self.options.holdout,
            "needles": self.options.needles or None,
            **labels(self.options),
            **({"provider_count": {"changed": 0}} if self.options.count_tokens else {}),
        }

    async def _watch(
        self,
        url: str,
        prices: Any,
        log: Any,
        board: Board,
        settings: dict[str, Any],
        steering: FrontSteering | None,
        guard: LimitGuard | None,
    ) -> int:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        from context_bench.tap.control_api import record_file
        from context_bench.traffic.watch.beside import ProviderCount
        from context_bench.traffic.watch.watcher import Watch

        loop, interrupted = asyncio.get_running_loop(), asyncio.Event()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # how a watch without a client ends
            loop.add_signal_handler(each, interrupted.set)
        shadows: list[Shadow] = []
        beside: list[Shadow | ProviderCount] = []
        limits: WatchedLimits | None = None

        async def keep(turns: list[Turn]) -> None:
            mine = sum(turn.kind == "turn" and turn.arm != "shadow" for turn in turns)
            await loop.run_in_executor(store_thread, log.write, turns, watch.under_way - mine)

        def seen(turn: Turn) -> None:
            board.add(turn)
            show(turn)
            if (unreached := board.unreached(settings.get("back"))) is not None and not board.sums["main"].calls:
                show.warn(unreached)
            for one in shadows:
                one.seen(turn)
            if limits is not None:
                limits.see(turn)

        def mirror(mirrored: Any) -> None:
            for one in beside:
                one.offer(mirrored)

        async with contextlib.AsyncExitStack() as stack:
            store_thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="context-bench-store"))
            sink = stack.enter_context(record_file(self.options.records)) if self.options.records is not None else None
            watch = Watch(
                url,
                via=self.options.via,
                front=self.options.front,
                back=self.options.back,
                record=self.options.record,
                prices=prices,
                counter_model=self.options.model,
                keep=keep,
                seen=seen,
                sink=_prompts_only(sink),
                mirror=mirror if self.options.shadow or self.options.count_tokens else None,
                moved=(counted := asyncio.Event()).set,
                steering=steering,
            )
            counting = asyncio.create_task(
                _count(watch, log, counted, lambda count: loop.run_in_executor(store_thread, log.under_way, count))
            )
            stack.callback(counting.cancel)
            show = _Shown(board, quiet=self.options.quiet, shared=bool(self.client))
            if guard is not None:  # it ends after the watch, whose last turns come while it ends
                write = guard.log.write
                limits = WatchedLimits(
                    guard, lambda state: loop.run_in_executor(store_thread, partial(write, state)), show.alarm
                )
                await stack.enter_async_context(limits)
            await stack.enter_async_context(watch)
            settings["back"] = watch.back_url
            self._head(board, watch)
            if self.options.shadow is not None:
                shadows.append(await self._mirroring(stack, watch, url, prices))
            beside += shadows
            if self.options.count_tokens:  # what it found is in the settings, which each record of the watch renews
                keep_count = partial(settings.__setitem__, "provider_count")
                beside.append(await stack.enter_async_context(ProviderCount(url, keep_count)))
            show.begin(stack)
            code = await self._until_over(watch, [interrupted, watch.failed, *([limits.crossed] if limits else [])])
            for one in beside:
                await watch.drain()
                await one.idle(_SHADOW_PATIENCE)
        for one in beside:
            settings |= {"provider_count": one.as_dict()} if isinstance(one, ProviderCount) else {}
        for one in shadows:
            self.notes += one.sentences()
        if guard is not None and limits is not None:
            self.notes += [*limits.notes, *guard.sentences()]
            settings["limits"] = guard.certificate.as_dict()
            code = LimitCrossed.exit_code if guard.crossed else code
        if log.dropped:
            self.notes.append(f"{log.dropped} records could not be stored and were dropped.")
            code = code or 1
        if watch.fault is not None:
            self.notes.append(f"Records were lost: {watch.lost:,} could not be kept ({watch.fault})")
            code = code or 1
        return code

    def _steering(self, kept: Store, key: str | None) -> FrontSteering | None:
        from context_bench.engine import newest_turns
        from context_bench.traffic.watch.session_context import Conversations, FrontSteering
        from context_bench.wire.needles import Needles

        if key is None:
            return None
        secret, share = bytes.fromhex(key), self.options.holdout
        drawn = None if share is None else Conversations(secret, share)
        if drawn is not None:
            drawn.remember((turn.reply, turn.unit) for turn in newest_turns(kept, _REMEMBERED))
        return FrontSteering(drawn, Needles(secret) if self.options.needles else None)

    def _head(self, board: Board, watch: Watch) -> None:
        board.head.append(f"point your client at {watch.url} ({watch.url}/v1 for OpenAI's); Ctrl-C ends it")
        if watch.back_url is not None:
            board.head.append(
                f"it goes to {self.options.via}, whose own upstream must be {watch.back_url}; then to "
                f"{self.options.upstream}"
            )
        else:
            board.head.append(f"it goes to {self.options.upstream}, nothing in between: a baseline")

    async def _mirroring(self, stack: contextlib.AsyncExitStack, watch: Watch, url: str, prices: Any) -> Shadow:
        from context_bench.llm.spend import SpendLimit
        from context_bench.traffic.watch.beside import Shadow

        assert self.options.shadow is not None
        assert self.options.max_cost is not None
        arm = watch.new_arm(
            url,
            via=self.options.shadow,
            back=self.options.shadow_back,
            record=self.options.record,
            counter_model=self.options.model,
        )
        await watch.add_arm(arm)
        mirrored = Shadow(
            arm,
            share=self.options.sample,
            spend=SpendLimit(self.options.max_cost),
            prices=prices,
            seed=self.options.seed,
        )
        return await stack.enter_async_context(mirrored)

    async def _until_over(self, watch: Watch, events: list[asyncio.Event]) -> int:
        """Wait for the client's end or one of the events; with a client, only the last kind of them ends it: an alarm
        of a limit.
        """
        import asyncio

        from context_bench.traffic.client import run_client

        waits = [asyncio.ensure_future(event.wait()) for event in (events[2:] if self.client else events)]
        client = run_client("watch", self.client, watch.url, quiet=self.options.quiet) if self.client else None
        running = [asyncio.ensure_future(client)] if client is not None else []
        await asyncio.wait([*running, *waits], return_when=asyncio.FIRST_COMPLETED)
        for one in (*waits, *running):
            one.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        if ended and isinstance(ended[0], Exception):
            raise ended[0]
        return ended[0] if ended and isinstance(ended[0], int) else 0


async def _count(watch: Watch, log: WatchLog, moved: asyncio.Event, write: Callable[[int], Awaitable[None]]) -> None:
    """Have it written down how many turns are under way: who kills the watch leaves no time for it.

    What lasts a moment only is not: with every batch of records the count is written, too.
    """
    import asyncio

    while True:
        await moved.wait()
        await asyncio.sleep(_COUNTED_AFTER)
        moved.clear()
        if (now := watch.under_way) != log.counted:
            try:
                await write(now)
            except StoreUnusable:  # the next record cannot be kept either, and says so
                continue


def _prompts_only(sink: Callable[[Forwarded], None] | None) -> Callable[[Forwarded], None] | None:
    """Records of requests to models: what `replay` reads."""
    if sink is None:
        return None
    from context_bench.traffic.watch.measure import PROMPTS

    return lambda record: sink(record) if record.wire in PROMPTS else None


class _Shown:
    """The display on stderr while it runs: the board in place on a terminal, else a plain line per record.

    A client that shares the terminal has it to itself: then nothing is drawn before it ends.
    """

    def __init__(self, board: Board, *, quiet: bool, shared: bool) -> None:
        self._board, self._terminal = board, sys.stderr.isatty()
        self._silent = quiet or (shared and self._terminal)
        self._begun = self._warned = False

    def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Show it from now on."""
        from context_bench.reports.visible_text import visible

        self._begun = True
        if self._silent:
            return
        if not self._terminal:
            for text in self._board.head:
                print(visible(text, 400), file=sys.stderr, flush=True)
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False, emoji=False)
        stack.enter_context(
            Live(self._board, console=console, refresh_per_second=4, transient=True, redirect_stdout=False)
        )

    def __call__(self, turn: Turn) -> None:
        """A record is kept."""
        if self._silent or self._terminal or not self._begun:
            return
        from context_bench.traffic.sections.watch_board import line

        print(line(turn), file=sys.stderr, flush=True)

    def alarm(self, text: str) -> None:
        """Say at once that a limit is crossed."""
        from context_bench.reports.visible_text import visible

        self._board.head.append(text)
        if not (self._silent or self._terminal):
            print(visible(text, 1000), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Say once, while it runs, what is wrong."""
        if self._warned:
            return
        self._warned = True
        self._board.head.append(f"Mind: {text}")
        if not (self._silent or self._terminal):
            print(f"Mind: {text}", file=sys.stderr, flush=True)
