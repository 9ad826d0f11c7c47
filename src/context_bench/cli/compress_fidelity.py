"""`context-bench compress fidelity`: what was kept of recorded texts, lost and made up. No model and no network are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.cli.flags import own, takes
from context_bench.cli.options import Common
from context_bench.cli.publishing import publish
from context_bench.core.errors import BadInput
from context_bench.core.numbers import real

if TYPE_CHECKING:
    from context_bench.core.fidelity import Fidelity


_FIDELITY = (
    *("retained", "recoverable", "lost", "macro", "fabricated", "near_misses", "word_damage", "coverage", "density", "verbatim_lines"),
    *("order", "utf8_ok", "replacement_chars", "json_ok", "keep", "removal", "fold", "mean_keep", "keep_error", "expansion_share"),
    *("unchanged_share", "answer_in_context", "answer_introduced", "evidence_recall"),
)
_LESS = ("lost", "fabricated", "near_misses", "word_damage", "replacement_chars", "keep", "mean_keep", "keep_error", "expansion_share")


@takes(
    Common,
    output=own("table, json, markdown."),
    out=own("Write to this file instead of stdout."),
    examples=own("How many lost atoms to show.", default=20),
    model=own("Count tokens as this model does.", note=""),
)
def fidelity(
    original: Annotated[Path, typer.Argument(help="JSON lines of pairs; or the original text, if a second file is given.")],
    compressed: Annotated[Path | None, typer.Argument(help="What was made of it.")] = None,
    *,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
    examples: int,
    model: str | None,
) -> int:
    """What was kept, lost and made up: atoms by kind, role, position and script; fragments; lines; words; size.

    A line of the JSONL has `original` and `compressed` (texts or message lists), and may have `id`, `requested_keep`, `answers`,
    `evidence`, and `retrievable` (marker in the compressed text → the text that asking for it brings back).
    """
    from context_bench.core.fidelity import summarise
    from context_bench.reports.fidelity import fidelity_grids

    summary = summarise(_measured(original, compressed, model), examples=examples)
    document = {
        "schema": "context-bench/compress-fidelity/1",
        "pairs": summary.pairs,
        "metrics": summary.metrics,
        "known": list(_FIDELITY),
        "less_is_better": list(_LESS),
        **{name: _tallies(getattr(summary, name)) for name in ("kinds", "roles", "deciles", "scripts")},
        "lost": [asdict(one) for one in summary.lost],
        "near_misses": [asdict(one) for one in summary.near_misses],
        "invented": [{"kind": kind, "atom": atom} for kind, atom in summary.invented],
    }
    publish(document, lambda: fidelity_grids(summary), output, out, minimum, maximum)
    return 0


def _measured(original: Path, compressed: Path | None, model: str | None) -> Iterable[Fidelity]:
    from context_bench.cli import pairs
    from context_bench.core.fidelity import fidelity as measure
    from context_bench.core.tokens import counter_for

    counter = counter_for(model)
    if compressed is not None:
        yield measure(_text(original), _text(compressed), counter=counter)
        return
    for pair in pairs.read(original):
        where = f"{original}, pair {pair.id}"
        answers = pair.more.get("answers", pair.more.get("answer", []))
        found = measure(
            pairs.text_or_messages(pair.before, where),
            pairs.text_or_messages(pair.after, where),
            retrievable=pairs.texts_by_name(pair.more.get("retrievable")),
            answers=[answers] if isinstance(answers, str) else [str(answer) for answer in answers],
            evidence=[str(sentence) for sentence in pair.more.get("evidence") or []],
            requested_keep=real(pair.more.get("requested_keep")),
            counter=counter,
        )
        found.id = pair.id
        yield found


def _text(path: Path) -> str:
    if not path.is_file():
        raise BadInput(f"no file {path}")
    return path.read_bytes().decode("utf-8", "replace")


def _tallies(tallies: Mapping[Any, Any]) -> dict[str, dict[str, int]]:
    return {
        str(key): {"total": tally.total, "retained": tally.retained, "recoverable": tally.recoverable, "lost": tally.lost}
        for key, tally in sorted(tallies.items())
    }
