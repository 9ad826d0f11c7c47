"""Tables of the facts that a compressor kept, lost and made up."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.reports.table import Grid, number, share
from context_bench.wire.fidelity import Summary

#: Figures that are shares, of something in [0, 1].
_SHARES = frozenset(
    {
        *(
            "retained",
            "recoverable",
            "lost",
            "macro",
            "fabricated",
            "word_damage",
            "coverage",
            "verbatim_lines",
            "keep",
            "removal",
        ),
        *(
            "mean_keep",
            "expansion_share",
            "unchanged_share",
            "answer_in_context",
            "answer_introduced",
            "evidence_recall",
        ),
        *("utf8_ok", "json_ok"),
    }
)


def fidelity_grids(summary: Summary) -> list[Grid]:
    """Atoms by kind, role, position and script; the figures of all pairs; what was lost or has another value, the first
    of it.
    """
    grids = []
    deciles = {f"{decile * 10}-{decile * 10 + 10} %": tally for decile, tally in sorted(summary.deciles.items())}
    for name, tallies in (
        ("kind", summary.kinds),
        ("role", summary.roles),
        ("position", deciles),
        ("script", summary.scripts),
    ):
        rows: list[Sequence[str]] = []
        for label, tally in tallies.items() if tallies is deciles else sorted(tallies.items()):
            counts = [f"{count:,}" for count in (tally.total, tally.retained, tally.recoverable, tally.lost)]
            rows.append((label, *counts, share(tally.share)))
        grids.append(Grid(f"Atoms by {name}", (name, "all", "retained", "recoverable", "lost", "share"), rows))
    told = [
        (name, value) for name, value in summary.metrics.items() if not name.startswith(("retained.", "fabricated."))
    ]
    measures = [(name, share(value) if name.partition(".")[0] in _SHARES else number(value)) for name, value in told]
    grids.append(Grid(f"{summary.pairs:,} pairs", ("measure", "value"), list(measures)))
    if summary.lost:
        lost = [(one.kind, one.role, f"{one.decile * 10} %", one.atom) for one in summary.lost]
        grids.append(Grid("Lost, the first of them", ("kind", "role", "at", "atom"), list(lost), words=True))
    if summary.near_misses:
        changed = [(miss.key, miss.before, miss.after) for miss in summary.near_misses]
        grids.append(Grid("The same key with another value", ("key", "before", "after"), list(changed), words=True))
    return grids
