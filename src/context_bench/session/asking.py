"""How models are asked: the options that every command has that asks some, with one meaning for all of them.

Each is a flag, a name in a TOML file and a field of `cli.options.RunOptions`. What they come to is in `cli.limiting`.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


TimeoutOption = Annotated[float | None, _more(help="Seconds for one attempt. [default: 300]")]
RetriesOption = Annotated[int | None, _more(help="Further attempts after a passing failure. [default: 3]")]
ExampleTimeoutOption = Annotated[float | None, _more(help="Seconds for one example, all attempts.")]
SetupTimeoutOption = Annotated[float | None, _more(help="Seconds to get one group ready: a conversation stored, a session compressed.")]
RunTimeoutOption = Annotated[float | None, _more(help="Seconds for the whole run.")]
RpmOption = Annotated[float | None, _more(help="Requests a minute to the account, all systems together. [default: no limit]")]
TpmOption = Annotated[float | None, _more(help="Tokens a minute, prompts and replies, all systems together. [default: no limit]")]
JudgeRpmOption = Annotated[
    float | None, _more(help="Requests a minute to the judge, where its account is another. [default: --rpm, with --judge-key-env none]")
]
JudgeTpmOption = Annotated[float | None, _more(help="Tokens a minute to the judge, where its account is another.")]
FixedOption = Annotated[
    int | None,
    _more(
        "--fixed-concurrency",
        "--latency-mode",
        help="For measuring times: so many requests at once, never more; sets --max-workers.",
        metavar="N",
    ),
]
MaxCostOption = Annotated[float | None, typer.Option(help="Stop before spending more than this many US dollars (exit 5).", metavar="USD")]
PriceOption = Annotated[list[str] | None, _more(help="MODEL=INPUT,OUTPUT[,READ[,WRITE]] in USD per million tokens; repeatable.")]
PriceModelOption = Annotated[str | None, _more(help="Show money as if this model had answered.")]
