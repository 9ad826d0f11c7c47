"""`context-bench memory`: does a memory find and answer, what does it cost, and does it forget, mix up or lose what it must not?"""

from __future__ import annotations

from typing import Any

import typer

from context_bench.cli import compare, memory_checks, memory_seed, runs
from context_bench.cli.flags import options_of, takes
from context_bench.cli.options import MemoryOptions

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure memories. Without a subcommand `run` is meant: context-bench memory --system bm25 --dataset bundled:recall-lab",
)
app.command("doctor")(memory_checks.doctor)
app.command("ops")(memory_checks.ops)
app.command("audit")(memory_checks.audit)
app.command("compare")(compare.command)
app.command("replay", help="Judge the stored answers again: no memory and no reader is called. The same as `context-bench rescore`.")(
    runs.rescore
)
app.command("cortex-eval")(memory_seed.cortex_eval)
app.command("cortex-compare")(memory_seed.cortex_compare)


@app.command("run")
@takes(
    MemoryOptions,
    "system relay dataset model api_key max_examples qa_types output out score_field k questions budget_tokens "
    "reader mode floors judge_url judge_model seed store run max_workers max_cost dry_run probes overlay baseline "
    "margin trials tap upstream evaluator metric imports api_key_env judge_key_env temperature max_tokens timeout "
    "example_timeout setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency retries resume reuse "
    "bodies price price_model max_failures force quiet config",
)
def run(context: typer.Context, **_given: Any) -> int:
    """Put conversations into memories, ask, and measure what was found, answered, forgotten and paid."""
    from context_bench.cli.remembering import remember

    return remember(options_of(context, MemoryOptions))
