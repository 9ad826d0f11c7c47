"""What a row opens to, in the report and in the viewer: question, gold, answer, scores with their reasons, what was sent and forwarded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup

from context_bench.core.jsontext import load_json
from context_bench.core.records import EvalRow
from context_bench.reports.exchange_html import exchange_html
from context_bench.reports.exchanges import Difference, ShownExchange, differences
from context_bench.reports.tally import first
from context_bench.reports.text import json_ready, visible

_WHOLE = 2**40  # characters: no text is longer
_KNOWN = ("question", "answer", "context", "response", "context_after", "judges", "exchanges", "calls", "where")


def detail_html(
    row: EvalRow, told: Mapping[str, Any] | None, *, limit: int | None = None, worked_out: Sequence[Difference] | None = None
) -> Markup:
    """The fragment for one row. `told`: what `details(row)` gave (see `runner.details`). `limit`: characters kept of each text (`None`:
    all of it, long unchanged runs folded); what was cut is said, with the command that shows all. Needs the style of `detail.css`.

    `worked_out`: the differences of `told`, for a caller that tries several limits.
    """
    from context_bench.reports.html import environment

    detail = Detail.of(row, told or {}, limit, worked_out)
    return Markup(environment().get_template("detail.html.j2").render(detail=detail, exchange=exchange_html))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge said, as lines to read."""

    evaluator: str
    score: str
    reason: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything in the fragment, ready to be laid out; texts are visible and cut already, those of exchanges are not."""

    texts: list[tuple[str, str]]
    scores: list[tuple[str, str]]
    judges: list[Judged]
    errors: list[tuple[str, str]]
    exchanges: list[ShownExchange]
    calls: list[list[str]]
    context: str
    cut: bool
    command: str
    call_columns: ClassVar[tuple[str, ...]] = (
        "who",
        "model",
        "attempt",
        "status",
        "sent",
        "in",
        "out",
        "cached",
        "at once",
        "seconds",
        "first token s",
        "$",
        "error",
    )

    @classmethod
    def of(cls, row: EvalRow, told: Mapping[str, Any], limit: int | None, worked_out: Sequence[Difference] | None = None) -> Detail:
        """All of it from a row and what stands behind it."""
        most = _WHOLE if limit is None else limit
        exchanges = [each.shown(limit) for each in (differences(told) if worked_out is None else worked_out)]
        texts = list(_texts(told, most))
        known = [str(value) for value in told.values() if isinstance(value, str)]
        shows_context = limit is None or not any(each.messages for each in exchanges)
        context = visible(told["context"], most, lines=True) if shows_context and told.get("context") else ""
        return cls(
            texts=texts,
            scores=[(name, f"{value:.4f}".rstrip("0").rstrip(".")) for name, value in row.scores.items()],
            judges=[_judged(each, most) for each in told.get("judges") or []],
            errors=[(source, visible(error, most, lines=True)) for source, error in row.errors.items()],
            exchanges=exchanges,
            calls=[_call(each) for each in told.get("calls") or []],
            context=context,
            cut=any(each.hidden_words for each in exchanges) or any(len(text) > most for text in known),
            command=command_for(told.get("where") or {}),
        )


def command_for(where: Mapping[str, Any]) -> str:
    """The command that shows a row whole in a terminal; empty where it is not known which run it is of."""
    if not where:
        return ""
    parts = ["context-bench", "diff", _quoted(where.get("run")), _quoted(where.get("example_id")), "--system", _quoted(where.get("system"))]
    parts += ["--trial", str(where["trial"])] if where.get("trial") else []
    return " ".join([*parts, "--full"])


def _quoted(value: object) -> str:
    import shlex

    return shlex.quote(visible(value, 300))


def _texts(told: Mapping[str, Any], most: int) -> Iterator[tuple[str, str]]:
    for name, title in (("question", "Question"), ("answer", "Gold"), ("response", "Answer")):
        if told.get(name) not in (None, ""):
            yield title, visible(told[name], most, lines=True)
        elif name == "response":
            yield title, "(none)"
    for name, value in told.items():  # what a caller of its own adds
        if name not in _KNOWN and value not in (None, "", {}, []):
            text = value if isinstance(value, str) else json.dumps(json_ready(value), ensure_ascii=False, indent=2)
            yield visible(name, 60), visible(text, most, lines=True)


def _judged(told: Mapping[str, Any], most: int) -> Judged:
    score = told.get("score")
    shown = f"{score:.4g}" if isinstance(score, int | float) else ""
    return Judged(
        visible(told.get("evaluator") or "judge"), shown, visible(readable_reason(str(told.get("reason") or "")), most, lines=True)
    )


def readable_reason(reply: str) -> str:
    """A judge's reply to read: of a reply in JSON its reasoning by criterion, of any other the reply itself."""
    try:
        value = load_json(reply)
    except ValueError:
        return reply
    if not isinstance(value, dict):
        return reply
    results = value.get("criterionResults")
    if isinstance(results, list) and all(isinstance(each, dict) for each in results):
        return "\n".join(f"{each.get('criterionId')}: {each.get('score')}. {each.get('reasoning') or ''}".rstrip() for each in results)
    if "reasoning" in value:
        rest = ", ".join(f"{name} {each}" for name, each in value.items() if name != "reasoning")
        return f"{rest}. {value['reasoning']}" if rest else str(value["reasoning"])
    return reply


def _call(told: Mapping[str, Any]) -> list[str]:
    """The cells of a call, see `Detail.call_columns`."""
    usage = told.get("usage") or {}
    cost = first(told, "cost")
    return [
        visible(told.get("evaluator") or told.get("account") or ""),
        visible(told.get("model") or ""),
        str(told.get("attempt", "")),
        str(told.get("status", "")),
        *(
            _count(each)
            for each in (
                told.get("sent_tokens"),
                *(usage.get(name) for name in ("input_tokens", "output_tokens", "cache_read")),
                told.get("in_flight"),
            )
        ),
        _seconds(told.get("seconds")),
        _seconds(told.get("ttft")),
        "" if cost is None else f"{cost:.6f}".rstrip("0").rstrip("."),
        visible(told.get("error") or "", 400),
    ]


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _seconds(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""
