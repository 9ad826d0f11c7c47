"""`context-bench run`: the main job. `session.options` declares its options; `session.run_session` does the rest."""

from __future__ import annotations

from typing import Any

import typer

from context_bench.session.flags import options_of, own, takes
from context_bench.session.options import RunOptions


@takes(
    RunOptions,
    "proxy name dataset system model max_examples output out score_field threshold judge_url judge_model "
    "max_workers cache_dir tap upstream controls baseline margin shape stream trials seed max_cost store dry_run "
    "until_decided evidence_only "
    "config api_key_env proxy_key_env judge_key_env temperature max_tokens system_prompt prompt timeout "
    "example_timeout setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency executor ray_address "
    "retries marker record wire tap_check copy_replies only_lost bodies budget keep reader evaluator metric imports "
    "run resume reuse proxy_version cache_namespace price price_model max_failures force quiet",
    judge_url=own("Adds LLMJudge at this OpenAI-compatible endpoint."),
    judge_model=own(note=None),
    tap=own("See what really reaches the provider: a port to start a tap on, or the URL of a running one.", note=""),
    baseline=own(unit="NAME", note="full, else the first"),
    margin=own(note="min(0.02, 10 % of full − none)"),
    dry_run=own("Only say what it would take: calls, tokens, money, detectable difference."),
    config=own(rare=False),
    judge_key_env=own(note="that of --api-key-env"),
    max_tokens=own("Most tokens of a reply.", note="not sent"),
    record=own("What the tap keeps: meta, hashes, redacted, full.", rare=True),
    imports=own("Module to import first (for register_* calls)."),
    run=own(rare=True),
    reuse=own("Also use rows of other runs with the same content; says how many and how old."),
    proxy_version=own("Enters the proxies' identity: a new version is never answered from old rows."),
)
def command(context: typer.Context, **_given: Any) -> int:
    """Measure proxies and other systems on datasets, against controls, with intervals and verdicts."""
    from context_bench.session.run_session import run_session

    return run_session(options_of(context, RunOptions))
