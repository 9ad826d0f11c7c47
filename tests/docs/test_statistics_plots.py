"""The plots in docs/statistics.md are what their script makes; those that take long are looked at only for what they
say.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import statistics_plots as plots  # noqa: E402

SLOW = {"clusters", "verdicts"}  # simulations of some ten seconds
PAGE = (ROOT / "docs" / "statistics.md").read_text()


@pytest.mark.parametrize("name", sorted(plots.PLOTS.keys() - SLOW))
def test_the_same_seed_draws_the_same_plot(name):
    assert plots.PLOTS[name]() == (plots.FOLDER / f"{name}.svg").read_text()


@pytest.mark.parametrize("name", sorted(plots.PLOTS))
def test_each_plot_is_in_the_page_and_says_what_it_shows(name):
    assert re.search(rf"!\[[^\]]{{10,}}\]\(pictures/statistics/{name}\.svg\)", PAGE)
    picture = ElementTree.parse(plots.FOLDER / f"{name}.svg").getroot()
    told = {child.tag.rpartition("}")[2]: child.text for child in picture}
    assert len(told["title"]) > 10
    assert len(told["desc"]) > 10
