"""Reduction of the prompt on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass

METRICS = {"compression_ratio": "CompressionRatio"}
MEASURES = {
    "compression_ratio": {"unit": "share", "better": "higher", "place": "tokens"},
    "mean_input_tokens mean_output_tokens": {"unit": "tokens", "better": "lower", "place": "tokens"},
}


@dataclass
class CompressionRatio(OnePass):
    """`compression_ratio` = 1 − Σ forwarded / Σ sent over the rows where both are known (negative: the prompts grew).

    Also `mean_input_tokens` (sent) and `mean_output_tokens` (forwarded), over the same rows. 0.0 if nothing was sent.
    What no row knows is absent, unless there are no rows at all (then zeros).
    """

    name: ClassVar[str] = "compression_ratio"

    def _fold(self) -> Fold:
        sent = forwarded = alone = 0.0
        rows = n = n_alone = 0
        while (row := (yield)) is not None:
            rows += 1
            if row.input_tokens is not None and row.output_tokens is not None:
                sent += row.input_tokens
                forwarded += row.output_tokens
                n += 1
            elif row.input_tokens is not None:
                alone += row.input_tokens
                n_alone += 1
        if not rows:
            return {"compression_ratio": 0.0, "mean_input_tokens": 0.0, "mean_output_tokens": 0.0}
        if not n:
            return {"mean_input_tokens": alone / n_alone} if n_alone else {}
        return {
            "compression_ratio": 1 - forwarded / sent if sent else 0.0,
            "mean_input_tokens": sent / n,
            "mean_output_tokens": forwarded / n,
        }
