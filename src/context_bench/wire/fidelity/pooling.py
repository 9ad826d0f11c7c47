"""Many pairs together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from context_bench.wire.fidelity.findings import Fidelity, LostAtom, NearMiss, Tally

FEW = 5  # a kind with fewer atoms does not count in the macro mean
IDLE = 0.01  # a removal below this is none


@dataclass(slots=True)
class Summary:
    """Many pairs together: tallies pooled over all atoms, shares of pairs, and `metrics`, the flat form that a gate reads."""

    pairs: int = 0
    kinds: dict[str, Tally] = field(default_factory=dict)
    roles: dict[str, Tally] = field(default_factory=dict)
    deciles: dict[int, Tally] = field(default_factory=dict)
    scripts: dict[str, Tally] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    lost: list[LostAtom] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    invented: list[tuple[str, str]] = field(default_factory=list)


def summarise(found: Iterable[Fidelity], *, examples: int = 20) -> Summary:
    """Pool pairs. `lost`, `near_misses` and `invented` hold at most `examples` each. Metrics that nothing tells of are left out.

    `retained`, `recoverable`, `lost`: shares of all atoms (also `retained.KIND`); `macro`: mean over kinds with at least five atoms;
    `word_damage` (also `.SCRIPT`): share of words; `coverage`, `density`, `verbatim_lines`, `order`: means over pairs; `keep`, `removal`,
    `fold`: of all tokens, `mean_keep`: mean over pairs; `expansion_share`, `unchanged_share`: pairs that grew, pairs that lost < 1 %.
    """
    total = Summary()
    pool = _Pool()
    for one in found:
        total.pairs += 1
        for name in ("kinds", "roles", "deciles", "scripts"):
            for key, tally in getattr(one, name).items():
                getattr(total, name).setdefault(key, Tally()).plus(tally)
        for kept, more in ((total.lost, one.lost), (total.near_misses, one.near_misses), (total.invented, one.invented)):
            kept.extend(more[: max(0, examples - len(kept))])  # type: ignore[arg-type]
        pool.add(one)
    total.metrics = {name: value for name, value in _metrics(total, pool).items() if value is not None}
    return total


class _Pool:
    """Sums over pairs."""

    def __init__(self) -> None:
        self.means: dict[str, list[float]] = {}
        self.words: dict[str, list[int]] = {}
        self.fabricated: dict[str, list[int]] = {}
        self.before = self.after = self.replaced = 0

    def add(self, one: Fidelity) -> None:
        keep = one.keep
        told: dict[str, float | bool | None] = {
            "coverage": one.fragments.coverage,
            "density": one.fragments.density,
            "verbatim_lines": one.verbatim_lines,
            "order": one.order,
            "utf8_ok": one.utf8_ok,
            "json_ok": one.json_ok,
            "answer_in_context": one.answer_in_context,
            "answer_introduced": one.answer_introduced,
            "evidence_recall": one.evidence_recall,
            "mean_keep": keep,
            "expansion_share": None if keep is None else keep > 1,
            "unchanged_share": None if keep is None else abs(1 - keep) < IDLE,
            "keep_error": None if keep is None or one.requested_keep is None else abs(keep - one.requested_keep),
        }
        for name, value in told.items():
            if value is not None:
                self.means.setdefault(name, []).append(float(value))
        for counts, more in ((self.words, one.words), (self.fabricated, one.fabricated)):
            for key, (part, whole) in more.items():
                tally = counts.setdefault(key, [0, 0])
                tally[0] += part
                tally[1] += whole
        self.before += one.tokens_before
        self.after += one.tokens_after
        self.replaced += one.replacement_chars


def _metrics(total: Summary, pool: _Pool) -> dict[str, float | None]:
    every = Tally()
    for tally in total.kinds.values():
        every.plus(tally)
    big = [share for tally in total.kinds.values() if tally.total >= FEW and (share := tally.share) is not None]
    n = every.total
    found: dict[str, float | None] = {
        "retained": every.share,
        "recoverable": every.recoverable / n if n else None,
        "lost": every.lost / n if n else None,
        "macro": sum(big) / len(big) if big else None,
        "fabricated": _pooled(pool.fabricated.values()),
        "near_misses": float(len(total.near_misses)),
        "word_damage": _pooled(pool.words.values()),
        **{name: sum(values) / len(values) for name, values in pool.means.items()},
        "replacement_chars": float(pool.replaced),
        "keep": pool.after / pool.before if pool.before else None,
        "removal": 1 - pool.after / pool.before if pool.before else None,
        "fold": pool.before / pool.after if pool.after else None,
    }
    found |= {f"retained.{kind}": tally.share for kind, tally in sorted(total.kinds.items())}
    found |= {f"word_damage.{script}": _pooled([counts]) for script, counts in sorted(pool.words.items())}
    found |= {f"fabricated.{kind}": _pooled([counts]) for kind, counts in sorted(pool.fabricated.items())}
    return found


def _pooled(counts: Iterable[Sequence[int]]) -> float | None:
    parts = list(counts)
    whole = sum(count[1] for count in parts)
    return sum(count[0] for count in parts) / whole if whole else None
