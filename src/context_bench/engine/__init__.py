"""The engine: plan what is owed, have it done, keep it, go on where it stopped. It is handed systems, evaluators and a
recorder.

store = open_store("store.db")
executed = await execute(store, name="first", arms=[Arm(system)], examples=examples, evaluators=[…], manifest={},
settings=RunSettings()) for row in rows(store, executed.run_id): …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.core.rows import canonical, differences
    from context_bench.engine.driver import Executed, execute, rescore
    from context_bench.engine.plan import Arm, RunSettings
    from context_bench.engine.progress import Progress, TerminalProgress
    from context_bench.engine.store import Store, open_store
    from context_bench.engine.store.copying import Copied, CopiedWatch, copy_replies, copy_run, copy_watch
    from context_bench.engine.store.outcomes import StoredReplies
    from context_bench.engine.store.reading import rows, same_examples
    from context_bench.engine.store.remarks import purge
    from context_bench.engine.store.row_details import export, setups
    from context_bench.engine.store.run_records import RunRecord, list_runs, run_of, set_manifest, spent
    from context_bench.engine.store.watches import (
        WatchLog,
        WatchRecord,
        list_watches,
        newest_turns,
        open_watch,
        watch_key,
        watch_of,
        watched,
    )

__all__ = [
    "Arm",
    "Copied",
    "CopiedWatch",
    "Executed",
    "Progress",
    "TerminalProgress",
    "RunRecord",
    "RunSettings",
    "Store",
    "StoredReplies",
    "WatchLog",
    "WatchRecord",
    "canonical",
    "copy_replies",
    "copy_run",
    "copy_watch",
    "differences",
    "execute",
    "export",
    "list_runs",
    "list_watches",
    "newest_turns",
    "open_store",
    "open_watch",
    "purge",
    "rescore",
    "rows",
    "run_of",
    "same_examples",
    "set_manifest",
    "setups",
    "spent",
    "watch_key",
    "watch_of",
    "watched",
]

__getattr__, __dir__ = lazy(
    __name__,
    [
        ".plan:Arm",
        ".plan:RunSettings",
        ".progress:Progress",
        ".progress:TerminalProgress",
        ".driver:Executed",
        ".driver:execute",
        ".driver:rescore",
        ".store.remarks:purge",
        ".store.copying:Copied",
        ".store.copying:CopiedWatch",
        ".store.copying:copy_replies",
        ".store.copying:copy_run",
        ".store.copying:copy_watch",
        "context_bench.core.rows:canonical",
        "context_bench.core.rows:differences",
        ".store.row_details:export",
        ".store.reading:rows",
        ".store.reading:same_examples",
        ".store.outcomes:StoredReplies",
        ".store.row_details:setups",
        ".store.run_records:RunRecord",
        ".store:Store",
        ".store.run_records:list_runs",
        ".store:open_store",
        ".store.run_records:run_of",
        ".store.run_records:set_manifest",
        ".store.run_records:spent",
        ".store.watches:WatchLog",
        ".store.watches:WatchRecord",
        ".store.watches:list_watches",
        ".store.watches:newest_turns",
        ".store.watches:open_watch",
        ".store.watches:watch_key",
        ".store.watches:watch_of",
        ".store.watches:watched",
    ],
)
