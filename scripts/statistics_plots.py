"""The plots of docs/statistics.md: simulations and formulas with this package's own functions, drawn as SVG.

`python scripts/statistics_plots.py` writes them to docs/pictures/statistics/. The same seed gives the same files; a
test makes them again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from context_bench.stats import holm, n_noninferiority, n_without_change, paired_difference, tango, wilson
from context_bench.stats.intervals import bounded, upper_tail
from context_bench.stats.verdict import compare

FOLDER = Path(__file__).parents[1] / "docs" / "pictures" / "statistics"
COLOURS = ("#0f6cbd", "#c2410c", "#15803d", "#7c3aed")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 64, 56, 168, 52


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high`; `log` to base 10."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    percent: bool = False

    def share(self, value: float) -> float:
        """Where `value` lies between the ends, 0 to 1."""
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def told(self, value: float) -> str:
        """A tick's text."""
        return f"{100 * value:g} %" if self.percent else f"{value:,g}"


@dataclass(frozen=True)
class Line:
    """Points in order, named at their right end; `dashed` for what is only there to compare with."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def drawn(title: str, x: Axis, y: Axis, lines: Sequence[Line], note: str) -> str:
    """One plot. Names stand at the lines' ends, moved apart where they would overlap."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{escape(title)}</title><desc>{escape(note)}</desc>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="600" fill="#1a1a1a">{escape(title)}</text>',
        f'<text x="16" y="42" fill="#555555">{escape(note)}</text>',
        *_frame(x, y),
    ]
    for colour, line in zip(COLOURS, lines, strict=False):
        path = " ".join(f"{_x(x, a):.1f},{_y(y, b):.1f}" for a, b in line.points)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    parts += _names(y, lines)
    return "\n".join([*parts, "</svg>", ""])


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return TOP + (1 - axis.share(value)) * (HEIGHT - TOP - BOTTOM)


def _frame(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in y.ticks:
        at = _y(y, value)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#555555">{y.told(value)}</text>')
    for value in x.ticks:
        at = _x(x, value)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#888888"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555555">{x.told(value)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="#888888"/>')
    parts.append(
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle" '
        f'fill="#333333">{escape(x.title)}</text>'
    )
    turned = f'transform="rotate(-90 16 {middle:.0f})"'
    parts.append(f'<text x="16" y="{middle:.0f}" {turned} text-anchor="middle" fill="#333333">{escape(y.title)}</text>')
    return parts


def _names(y: Axis, lines: Sequence[Line]) -> list[str]:
    """Each line's name beside its last point, at least 15 pixels apart."""
    wanted = sorted((_y(y, line.points[-1][1]), number) for number, line in enumerate(lines))
    placed: list[tuple[float, int]] = []
    lowest = float(HEIGHT - BOTTOM)
    for at, number in reversed(wanted):  # from the bottom up: nothing falls off the plot
        lowest = min(at, lowest)
        placed.append((lowest, number))
        lowest -= 15
    return [
        f'<text x="{WIDTH - RIGHT + 8}" y="{at + 4:.1f}" fill="{COLOURS[number]}">{escape(lines[number].name)}</text>'
        for at, number in placed
    ]


def paired() -> str:
    """Half the width of the 95 % interval of a difference, from the same answers, paired and not."""
    rng, sizes = np.random.default_rng(1), (25, 50, 100, 200, 400, 800)
    both, apart = [], []
    for n in sizes:
        widths = []
        for _ in range(40):
            hard = rng.random(n)  # what makes a question hard is the same for both systems
            one = (hard < 0.7) ^ (rng.random(n) < 0.04)
            other = (hard < 0.7) ^ (rng.random(n) < 0.04)
            found = paired_difference(one, other)
            spread = math.sqrt((one.var() + other.var()) / n)
            widths.append(((found.high or 0) / 2 - (found.low or 0) / 2, 1.96 * spread))
        both.append((n, float(np.mean([width[0] for width in widths]))))
        apart.append((n, float(np.mean([width[1] for width in widths]))))
    return drawn(
        "The same answers, compared pair by pair",
        Axis("questions", 25, 800, (25, 50, 100, 200, 400, 800), log=True),
        Axis("± of the difference (95 %)", 0, 0.3, (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3), percent=True),
        [Line("paired", both), Line("two separate means", apart)],
        "Two systems, 70 % right, each wrong on its own in 4 % of questions; mean of 40 samples.",
    )


def nothing_changed() -> str:
    """What is still possible when not one of n answers changed, and how many examples rule out a margin."""
    sizes = [10, 15, 20, 30, 40, 60, 80, 100, 140, 200, 300, 400, 600, 800, 1000]
    seen = [(n, -float(bounded([0.0] * n, low=-1, high=1, guarded=True).lower_bound(0.95))) for n in sizes]
    two = n_without_change(0.02)
    return drawn(
        "Not one answer changed. What loss is still possible?",
        Axis(
            "examples, all with the same answer as the baseline", 10, 1000, (10, 20, 50, 100, 200, 500, 1000), log=True
        ),
        Axis("loss not ruled out (one-sided 95 %)", 0, 0.25, (0, 0.05, 0.1, 0.15, 0.2, 0.25), percent=True),
        [Line("still possible", seen), Line("a margin of 2 points", [(10, 0.02), (1000, 0.02)], dashed=True)],
        f"The lines cross at {two:.0f} examples: fewer can never show that 2 points were not lost.",
    )


def coverage() -> str:
    """How often a 95 % interval of a share holds the truth, exactly, by the number of examples."""
    truth, sizes = 0.95, list(range(8, 121, 2))
    ours, usual = [], []
    for n in sizes:
        probability = [math.comb(n, k) * truth**k * (1 - truth) ** (n - k) for k in range(n + 1)]
        wilsons = [wilson(k, n) for k in range(n + 1)]
        halves = [1.96 * math.sqrt(k / n * (1 - k / n) / n) for k in range(n + 1)]
        ours.append((n, sum(p for p, i in zip(probability, wilsons, strict=True) if i.low <= truth <= i.high)))
        usual.append(
            (n, sum(p for k, (p, h) in enumerate(zip(probability, halves, strict=True)) if abs(k / n - truth) <= h))
        )
    return drawn(
        "Does a “95 % interval” hold the truth 95 times in 100?",
        Axis("examples", 8, 120, (8, 20, 40, 60, 80, 100, 120)),
        Axis("intervals that hold the truth", 0.3, 1.0, (0.3, 0.5, 0.7, 0.95, 1.0), percent=True),
        [
            Line("Wilson", ours),
            Line("mean ± 1.96 SE", usual),
            Line("as promised", [(8, 0.95), (120, 0.95)], dashed=True),
        ],
        "A system that is right in 95 % of cases; exact sums over all outcomes.",
    )


def clusters() -> str:
    """How often the interval of a mean holds the truth when questions share documents."""
    rng, alike, rounds = np.random.default_rng(4), (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0), 250
    documents, each, truth = 20, 10, 0.7
    codes = np.repeat(np.arange(documents), each)
    with_them, without = [], []
    for share in alike:
        held = [0, 0]
        for _ in range(rounds):
            own = rng.random(documents * each) < truth
            whole = np.repeat(rng.random(documents) < truth, each)
            scores = np.where(rng.random(documents * each) < math.sqrt(share), whole, own).astype(float)
            found = bounded(scores, codes, low=0.0, high=1.0).interval()
            alone = wilson(float(scores.sum()), len(scores))
            held[0] += found[0] <= truth <= found[1]
            held[1] += alone.low <= truth <= alone.high
        with_them.append((share, held[0] / rounds))
        without.append((share, held[1] / rounds))
    return drawn(
        "Ten questions on each of twenty documents",
        Axis("how alike answers on one document are (correlation)", 0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        Axis("95 % intervals that hold the truth", 0.4, 1.0, (0.4, 0.6, 0.8, 0.95, 1.0), percent=True),
        [
            Line("by document (used)", with_them),
            Line("as 200 questions", without),
            Line("as promised", [(0, 0.95), (1, 0.95)], dashed=True),
        ],
        f"{rounds} samples for each point.",
    )


def verdicts() -> str:
    """Which verdict a run of 200 examples with a margin of 5 points gets, by what was truly lost."""
    rng, losses, rounds, n = np.random.default_rng(5), (0.0, 0.02, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15), 60, 200
    shares: dict[str, list[tuple[float, float]]] = {"non-inferior": [], "undecided": [], "inferior": []}
    for loss in losses:
        found = []
        for _ in range(rounds):
            full = (rng.random(n) < 0.9).astype(float)
            spoilt = rng.random(n) < loss / 0.9
            ours = np.where(spoilt, 0.0, full)
            found.append(compare(ours, full, margin=0.05, known_bad={"none": np.zeros(n)}).verdict)
        for name, points in shares.items():
            points.append((loss, found.count(name) / rounds))
    return drawn(
        "What 200 examples say, with a margin of 5 points",
        Axis("what the system truly loses", 0, 0.15, (0, 0.05, 0.1, 0.15), percent=True),
        Axis("runs with this verdict", 0, 1, (0, 0.25, 0.5, 0.75, 1), percent=True),
        [Line(name, points) for name, points in shares.items()],
        f"{rounds} simulated runs for each point. At 5 points “non-inferior” would be wrong.",
    )


def many() -> str:
    """How often at least one of k equal systems is called different, with and without correction."""
    rng, sizes, rounds, n = np.random.default_rng(6), (1, 2, 3, 5, 8, 12, 16, 20), 400, 400
    raw, corrected = [], []
    for k in sizes:
        hits = [0, 0]
        for _ in range(rounds):
            sums = rng.random((k, n)) < 0.5  # each of n changed answers goes one way or the other by chance
            z = np.abs(2 * sums.sum(axis=1) - n) / math.sqrt(n)
            ps = [2 * upper_tail(float(value)) for value in z]
            hits[0] += min(ps) < 0.05
            hits[1] += min(holm(ps)) < 0.05
        raw.append((k, hits[0] / rounds))
        corrected.append((k, hits[1] / rounds))
    return drawn(
        "Equal systems: how often is one of them “significant”?",
        Axis("systems compared with the same baseline", 1, 20, (1, 5, 10, 15, 20)),
        Axis("runs with a false finding", 0, 0.8, (0, 0.2, 0.4, 0.6, 0.8), percent=True),
        [
            Line("each at 5 %", raw),
            Line("Holm (used)", corrected),
            Line("as promised", [(1, 0.05), (20, 0.05)], dashed=True),
        ],
        f"{rounds} simulated runs for each point; no system differs.",
    )


def power() -> str:
    """Examples for a margin, by how many answers change at all."""
    margins = [0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1]
    lines = [
        Line(f"{share:.0%} of answers change", [(m, n_noninferiority(m, share)) for m in margins])
        for share in (0.3, 0.1, 0.02)
    ]
    return drawn(
        "How many examples rule a loss out?",
        Axis("margin", 0.01, 0.1, (0.01, 0.02, 0.05, 0.1), log=True, percent=True),
        Axis("examples needed", 10, 30000, (10, 100, 1000, 10000), log=True),
        lines,
        "80 % chance, equal systems, independent examples. Half the margin: four times as many.",
    )


def tango_interval() -> str:
    """The interval of a difference of pass rates, by Tango's score, and by the usual formula, with few changed
    answers.
    """
    n, changed = 100, list(range(0, 9))
    low = [(b, tango(0, b, n).low) for b in changed]
    usual = [(b, -b / n - 1.96 * math.sqrt(max(b - b * b / n, 0)) / n) for b in changed]
    return drawn(
        "100 pairs, and only losses among them",
        Axis("answers that only the baseline got right", 0, 8, (0, 2, 4, 6, 8)),
        Axis("lower end of the 95 % interval", -0.2, 0, (-0.2, -0.15, -0.1, -0.05, 0), percent=True),
        [Line("Tango (used)", low), Line("mean ± 1.96 SE", usual)],
        "With no change at all the usual interval has no width: it would prove anything.",
    )


PLOTS: dict[str, Callable[[], str]] = {
    "paired": paired,
    "nothing-changed": nothing_changed,
    "coverage": coverage,
    "tango": tango_interval,
    "clusters": clusters,
    "verdicts": verdicts,
    "many": many,
    "power": power,
}


def main(names: Sequence[str]) -> None:
    """Write the plots that are named, or all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or PLOTS:
        (FOLDER / f"{name}.svg").write_text(PLOTS[name](), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
