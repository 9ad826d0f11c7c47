"""`context-bench watch`: see live what a proxy does to your own traffic. No dataset, no key of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput
from context_bench.session.defaults import DEFAULT_STORE


def command(
    context: typer.Context,
    front: Annotated[int, typer.Option(help="Port to point your client at (loopback).")] = 8080,
    via: Annotated[
        str | None, typer.Option(help="The proxy in between, which must have the back port as its upstream; without: a baseline.")
    ] = None,
    back: Annotated[int, typer.Option(help="Port to point the proxy's own upstream at.")] = 9090,
    upstream: Annotated[str, typer.Option(help="The provider behind: a URL, embedded, echo, or scripted:FILE.", metavar="URL")] = "",
    store: Annotated[str, typer.Option(help="Where records are kept.", metavar="URL")] = DEFAULT_STORE,
    record: Annotated[str, typer.Option(help="What is kept: meta (no text at all), hashes, redacted, full.")] = "meta",
    records: Annotated[Path | None, typer.Option(help="Also append what clients sent to this file, a JSON line each (mode 0600).")] = None,
    name: Annotated[str | None, typer.Option(help="Name of this watch. [default: the time]")] = None,
    show: Annotated[str | None, typer.Option(help="Only print the report of a stored watch: its name, or last.", metavar="NAME")] = None,
    output: Annotated[str, typer.Option(help="The report at the end: table or json.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    model: Annotated[str | None, typer.Option(help="Count tokens as this model does, whatever the requests name.")] = None,
    price: Annotated[
        list[str] | None, typer.Option(help="MODEL=INPUT,OUTPUT[,CACHE_READ[,CACHE_WRITE]] in USD per million tokens.")
    ] = None,
    price_model: Annotated[str | None, typer.Option(help="All money as if this model had answered.", metavar="NAME")] = None,
    shadow: Annotated[
        str | None, typer.Option(help="Mirror sampled requests to this proxy; replies are thrown away.", metavar="URL")
    ] = None,
    shadow_back: Annotated[int | None, typer.Option(help="Port for the shadow proxy's own upstream.")] = None,
    sample: Annotated[float, typer.Option(help="Share of turns to mirror, 0 to 1.")] = 0.02,
    max_cost: Annotated[float | None, typer.Option(help="Most that mirrored requests may cost, in USD.", metavar="USD")] = None,
    seed: Annotated[int, typer.Option(help="Which turns are mirrored follows from this.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr while it runs.")] = False,
) -> int:
    """Tap your own traffic before and behind a proxy: tokens, money, time and wire violations, live. `-- CMD` starts a client."""
    if output not in ("table", "json"):
        raise BadInput(f"watch: --output {output!r} is not known; expected table or json")
    from context_bench.traffic.command import watch_run as watching

    if show is not None:
        return watching.print_report(store, show, output, out)
    if not upstream:
        raise BadInput("watch: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    for flag, port in (("--front", front), ("--back", back), ("--shadow-back", shadow_back or 0)):
        listening_port(port, flag)
    if not 0 <= sample <= 1:
        raise BadInput(f"watch: --sample {sample} is not a share; expected 0 to 1")
    if shadow is not None and max_cost is None:
        raise BadInput("watch: --shadow sends requests of its own, which somebody pays for; cap them with --max-cost USD")
    if shadow is None and (shadow_back is not None or max_cost is not None):
        raise BadInput("watch: --shadow-back and --max-cost are about mirrored requests; name the second proxy with --shadow URL")
    watch = watching.Watching(
        front=front,
        via=via,
        back=back,
        upstream=upstream,
        store=store,
        record=record,
        records=records,
        name=name,
        output=output,
        out=out,
        model=model,
        price=price or [],
        price_model=price_model,
        shadow=shadow,
        shadow_back=shadow_back,
        sample=sample,
        max_cost=max_cost,
        seed=seed,
        quiet=quiet,
        client=list(context.args),
    )
    return watch.run()
