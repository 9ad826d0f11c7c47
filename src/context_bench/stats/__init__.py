"""Statistics over plain arrays: intervals, paired tests, corrections, power, curves, agreement. Pure; each part loads when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy
from context_bench.stats.bounded import Bounded, bounded  # here, or the name would be the module

if TYPE_CHECKING:
    from context_bench.stats.agreement import (
        Corrected,
        WeightedRating,
        alpha_ordinal,
        kendall_tau,
        prediction_powered,
        rogan_gladen,
        spearman,
        weighted_kappa,
        weighted_rating,
    )
    from context_bench.stats.bootstrap import (
        RESAMPLES,
        BootstrapInterval,
        Ratios,
        bca_difference,
        cluster_sums,
        ratio_interval,
        ratio_intervals,
        ratios,
        resampled_sums,
    )
    from context_bench.stats.clusters import MIN_CLUSTERS, ROUGH_BELOW, Design, codes_of, design
    from context_bench.stats.corrections import benjamini_hochberg, holm
    from context_bench.stats.curves import Retention, aurq, bd_rate, fold_at, retention
    from context_bench.stats.equivalence import Equivalence, NonInferiority, noninferiority, tost
    from context_bench.stats.means import (
        MeanSE,
        PairedDifference,
        bootstrap_mean,
        mean_se,
        median_interval,
        paired_difference,
        quantile_interval,
    )
    from context_bench.stats.pareto import FrontShares, front_shares, hypervolume, pareto_front, pareto_ranks
    from context_bench.stats.power import (
        VarianceParts,
        mde,
        n_mcnemar,
        n_noninferiority,
        n_paired,
        n_without_change,
        power_paired,
        smallest_margin,
        variance_parts,
    )
    from context_bench.stats.proportions import (
        Interval,
        McNemar,
        mcnemar,
        tango,
        tango_score,
        tango_test,
        wilson,
    )
    from context_bench.stats.ranks import Friedman, Pairwise, Wilcoxon, friedman, wilcoxon

__all__ = [
    "MIN_CLUSTERS",
    "RESAMPLES",
    "ROUGH_BELOW",
    "BootstrapInterval",
    "Bounded",
    "Corrected",
    "Design",
    "Equivalence",
    "Friedman",
    "FrontShares",
    "Interval",
    "McNemar",
    "MeanSE",
    "NonInferiority",
    "PairedDifference",
    "Pairwise",
    "Ratios",
    "Retention",
    "VarianceParts",
    "WeightedRating",
    "Wilcoxon",
    "alpha_ordinal",
    "aurq",
    "bca_difference",
    "bd_rate",
    "benjamini_hochberg",
    "bootstrap_mean",
    "bounded",
    "cluster_sums",
    "codes_of",
    "design",
    "fold_at",
    "friedman",
    "front_shares",
    "holm",
    "hypervolume",
    "kendall_tau",
    "mcnemar",
    "mde",
    "mean_se",
    "median_interval",
    "n_mcnemar",
    "n_noninferiority",
    "n_paired",
    "n_without_change",
    "noninferiority",
    "paired_difference",
    "pareto_front",
    "pareto_ranks",
    "power_paired",
    "prediction_powered",
    "quantile_interval",
    "ratio_interval",
    "ratio_intervals",
    "ratios",
    "resampled_sums",
    "retention",
    "rogan_gladen",
    "smallest_margin",
    "spearman",
    "tango",
    "tango_score",
    "tango_test",
    "tost",
    "variance_parts",
    "weighted_kappa",
    "weighted_rating",
    "wilcoxon",
    "wilson",
]

_HOMES = {
    "agreement": (
        "Corrected",
        "WeightedRating",
        "alpha_ordinal",
        "kendall_tau",
        "prediction_powered",
        "rogan_gladen",
        "spearman",
        "weighted_kappa",
        "weighted_rating",
    ),
    "bootstrap": (
        "RESAMPLES",
        "BootstrapInterval",
        "Ratios",
        "bca_difference",
        "cluster_sums",
        "ratio_interval",
        "ratio_intervals",
        "ratios",
        "resampled_sums",
    ),
    "clusters": ("MIN_CLUSTERS", "ROUGH_BELOW", "Design", "codes_of", "design"),
    "corrections": ("benjamini_hochberg", "holm"),
    "curves": ("Retention", "aurq", "bd_rate", "fold_at", "retention"),
    "equivalence": ("Equivalence", "NonInferiority", "noninferiority", "tost"),
    "means": ("MeanSE", "PairedDifference", "bootstrap_mean", "mean_se", "median_interval", "paired_difference", "quantile_interval"),
    "pareto": ("FrontShares", "front_shares", "hypervolume", "pareto_front", "pareto_ranks"),
    "power": (
        "VarianceParts",
        "mde",
        "n_mcnemar",
        "n_noninferiority",
        "n_paired",
        "n_without_change",
        "power_paired",
        "smallest_margin",
        "variance_parts",
    ),
    "proportions": ("Interval", "McNemar", "mcnemar", "tango", "tango_score", "tango_test", "wilson"),
    "ranks": ("Friedman", "Pairwise", "Wilcoxon", "friedman", "wilcoxon"),
}

__getattr__, __dir__ = lazy(__name__, [f".{home}:{name}" for home, names in _HOMES.items() for name in names])
