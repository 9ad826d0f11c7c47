"""`context-bench copy`: runs, watches and remembered replies from one store to another, with all that belongs to them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.files import say
from context_bench.session.flags import own, takes
from context_bench.session.options import StoredOptions


@takes(
    StoredOptions,
    to=own("The other store: a path, or postgresql://USER@HOST:PORT/DATABASE.", unit="URL", default=""),
    store=own("The store to copy from."),
    name=own("Another name for the copy of a single run or watch.", unit="NAME", names="--as"),
)
def command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Names or ids, or `last`. [default: all of the store]", metavar="[RUN]...")
    ] = None,
    *,
    to: str,
    store: str,
    watches: list[str] | None,
    replies: bool,
    name: str | None,
) -> int:
    """Copy runs with answers, scores, calls, bodies, set-ups and plan: the copy gives the same reports and can be resumed there.

    Without names everything is copied: runs, watches of live traffic, and what judges are remembered to have said. What is there already
    is left alone; a copy that was broken off goes on. Both stores may be files or on servers.
    """
    from context_bench.engine import copy_replies, copy_run, copy_watch, open_store
    from context_bench.session.runs import found_in, opened_store

    if not to:
        raise BadInput("--to is missing: the store to copy to")
    named = [*(runs or []), *(watches or [])]
    if name is not None and len(named) != 1:
        raise BadInput("--as goes with exactly one run or one watch")
    with opened_store(store) as source, open_store(to) as target:
        if named or replies:
            chosen, seen = [found_in(source, run).id for run in runs or []], list(watches or [])
        else:
            chosen, seen = _everything(source)
        for run in chosen:
            _tell_run(copy_run(source, target, run, name=name), target.name)
        for watch in seen:
            _tell_watch(copy_watch(source, target, watch, name=name), target.name)
        if replies or not named:
            say(f"copied {copy_replies(source, target):,} remembered replies to {target.name}")
    return 0


def _everything(source: Any) -> tuple[list[str], list[str]]:
    """Ids of all runs and names of all watches, oldest first; broken-off copies are neither."""
    from context_bench.engine import list_runs, list_watches

    runs = [run.id for run in reversed(list_runs(source)) if run.status != "copying"]
    watches = [watch.name for watch in reversed(list_watches(source)) if watch.status != "copying"]
    if not runs and not watches:
        raise BadInput(f"no run and no watch in {source.name}")
    return runs, watches


def _tell_run(copied: Any, where: str) -> None:
    if copied.there:
        say(f"{copied.name} is in {where} already")
    else:
        say(f"copied {copied.name} to {where}: {copied.rows:,} answers, {copied.calls:,} calls, {copied.bodies:,} bodies")


def _tell_watch(copied: Any, where: str) -> None:
    if copied.there:
        say(f"watch {copied.name} is in {where} already")
    else:
        say(f"copied watch {copied.name} to {where}: {copied.records:,} records")
