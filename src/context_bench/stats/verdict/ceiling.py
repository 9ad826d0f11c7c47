"""Could anybody have won? A run in which the best there can be is not told apart from the baseline says nothing of systems in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from context_bench.stats.verdict.evidence import LEVEL, Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Kinds of arms: what has exactly the evidence, and what has everything that was sent.
CEILINGS = ("oracle", "full")
_CHANCE = 0.8  # of showing the difference
_MOST = 64  # times as many examples that are thought of
_BEGINS = "This run could not tell the ceiling"


def told_apart(ceiling: Evidence) -> bool:
    """Whether the ceiling is shown to be above the baseline."""
    return ceiling.p_gain is not None and ceiling.p_gain < LEVEL and (ceiling.difference or 0.0) > 0


def is_headline(note: str) -> bool:
    """Whether a note is the one sentence of this module, which stands above everything else."""
    return note.startswith(_BEGINS)


def could_not_win(
    name: str,
    baseline: str,
    evidence: Evidence,
    differences: NDArray[Any] | Sequence[float],
    clusters: NDArray[Any] | Sequence[Any],
    *,
    what: str,
    by_cluster: bool,
) -> str:
    """The sentence. `what`: how a system is called here; `by_cluster`: `-n` counts clusters (conversations, sessions), not examples."""
    said = f"{_BEGINS} ({name}) from {baseline}: no {what} could have won."
    if not evidence.n or (evidence.difference or 0.0) <= 0:
        return f"{said} On these examples {baseline} leaves nothing to gain, so more of them would not help: harder ones would."
    times = _times_needed(differences, clusters)
    if times is None:
        return f"{said} It would take more than {_MOST:,} times as many examples: harder ones would tell more."
    return f"{said} Ask again with -n {times * (evidence.clusters if by_cluster else evidence.n):,}."


def _times_needed(differences: NDArray[Any] | Sequence[float], clusters: NDArray[Any] | Sequence[Any]) -> int | None:
    """How many times as many examples in as many times more clusters, like these, have an 80 % chance to show the difference seen.

    Asked of the very test that decides: far in the tails of [-1, 1] it wants more than the normal approximation does.
    """
    import numpy as np

    from context_bench.stats.bounded import bounded
    from context_bench.stats.clusters import codes_of
    from context_bench.stats.students import quantile, upper_tail

    values = np.asarray(differences, dtype=float)
    codes = codes_of(clusters, len(values))
    wanted = upper_tail(quantile(1 - LEVEL / 2) + quantile(_CHANCE))

    def shown(times: int) -> bool:
        apart = np.concatenate([codes + copy * (codes.max() + 1) for copy in range(times)])
        low, high = min(-1.0, float(values.min())), max(1.0, float(values.max()))
        return bool(bounded(np.tile(values, times), apart, low=low, high=high, guarded=True).p_above(0.0) <= wanted)

    reached = next((times for times in (2, 4, 8, 16, 32, _MOST) if shown(times)), None)
    if reached is None:
        return None
    below = reached // 2
    while reached - below > 1:
        middle = (reached + below) // 2
        below, reached = (below, middle) if shown(middle) else (middle, reached)
    return reached
