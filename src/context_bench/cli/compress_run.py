"""`context-bench compress run` and `compress probe`: what is lost of a session when it is compressed, by asking about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.cli.flags import options_of, own, takes
from context_bench.cli.options import CompressOptions

SessionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files or folders of logs, bundled:sessions[/NAME], hf:OWNER/NAME. [default: bundled:sessions]", metavar="SESSIONS"
    ),
]


@takes(
    CompressOptions,
    "system proxy name tap upstream points window responder model controls probes types per_type max_examples "
    "drift replicates trials eligibility judge_url judge_model criteria visibility rubric output out score_field "
    "margin seed store run max_workers max_cost dry_run wire proxy_key_env proxy_version marker tap_check "
    "baseline evaluator metric imports api_key_env judge_key_env temperature max_tokens timeout example_timeout "
    "setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency retries resume reuse bodies price "
    "price_model max_failures force quiet config",
)
def run(context: typer.Context, sessions: SessionsArgument = None, **_given: Any) -> int:
    """Compress sessions with each system, ask what was lost, and compare with all, nothing, and plain truncation to the same size."""
    from context_bench.cli.compressing import compress_sessions

    return compress_sessions(options_of(context, CompressOptions))


@takes(
    CompressOptions,
    "points window probes types per_type max_examples responder model api_key_env timeout retries rpm tpm max_cost price out",
    responder=own("The model that writes probes (--probes model): a URL.", unit="URL", note=""),
    model=own("Its name."),
    api_key_env=own("Variable with its key."),
    out=own("Write the probes to this file instead of stdout."),
)
def probe(context: typer.Context, sessions: SessionsArgument = None, **given: Any) -> int:
    """Write the probes of sessions as JSON lines: question, facts of the answer, and where in the session each was found."""
    from context_bench.cli.compressing import Limits, checked_probes, probe_set
    from context_bench.cli.files import say
    from context_bench.cli.limiting import Accounts
    from context_bench.llm.spend import SpendLimit

    options = checked_probes(options_of(context, CompressOptions))
    spend = SpendLimit(options.max_cost) if options.max_cost is not None else None
    found = probe_set(options, limits=Limits.of(options, Accounts(options), spend))
    lines = [json.dumps({k: v for k, v in example.items() if k != "session"}, ensure_ascii=False) for example in found.examples()]
    text = "\n".join(lines) + "\n"
    out: Path | None = given["out"]
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, "utf-8")
    told = found.manifest()
    say(f"{told['counts']['probes']} probes at {told['counts']['points']} points of {told['counts']['sessions']} sessions: {told['types']}")
    return 0
