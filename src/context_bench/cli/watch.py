"""`context-bench watch`: see live what a proxy does to your own traffic. No dataset, no key of ours."""

from __future__ import annotations

from typing import Any

import typer

from context_bench.cli.flags import takes
from context_bench.cli.options import WatchOptions
from context_bench.core.errors import BadInput
from context_bench.core.urls import listening_port


@takes(WatchOptions, " ".join(WatchOptions.flags))
def command(context: typer.Context, **given: Any) -> int:
    """Tap your own traffic before and behind a proxy: tokens, money, time and wire violations, live. `-- CMD` starts a client."""
    from context_bench.cli import watching

    options = WatchOptions(**given)
    if options.output not in ("table", "json"):
        raise BadInput(f"watch: --output {options.output!r} is not known; expected table or json")
    if options.show is not None:
        return watching.print_report(options.store, options.show, options.output, options.out)
    if not options.upstream:
        raise BadInput("watch: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    for flag, port in (("--front", options.front), ("--back", options.back), ("--shadow-back", options.shadow_back or 0)):
        listening_port(port, flag)
    if not 0 <= options.sample <= 1:
        raise BadInput(f"watch: --sample {options.sample} is not a share; expected 0 to 1")
    if options.shadow is not None and options.max_cost is None:
        raise BadInput("watch: --shadow sends requests of its own, which somebody pays for; cap them with --max-cost USD")
    if options.shadow is None and (options.shadow_back is not None or options.max_cost is not None):
        raise BadInput("watch: --shadow-back and --max-cost are about mirrored requests; name the second proxy with --shadow URL")
    return watching.Watching(options, list(context.args)).run()
