from __future__ import annotations

import numpy as np
import pytest

from context_bench.stats.bootstrap import ratio_interval


def test_blocks_of_many_clusters_give_the_width_that_the_clusters_give() -> None:
    """From 2,048 clusters on, blocks are drawn: the interval must be the one that theory has for the clusters
    themselves.
    """
    rng = np.random.default_rng(3)
    bottom = rng.uniform(50, 150, 20_000)
    top = bottom * rng.beta(2, 5, 20_000)

    found = ratio_interval(top, bottom)

    assert found is not None
    ratio = top.sum() / bottom.sum()
    half = 1.96 * np.sqrt(((top - ratio * bottom) ** 2).sum()) / bottom.sum()
    assert found[0] == pytest.approx(ratio - half, abs=0.08 * half)
    assert found[1] == pytest.approx(ratio + half, abs=0.08 * half)
    assert found == ratio_interval(top, bottom)  # and the same again
