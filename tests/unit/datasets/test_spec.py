from __future__ import annotations

import re

import pytest

from context_bench.core.errors import BadInput, BadSpec
from context_bench.datasets import spec

GOOD = """
about = "x"
source = "hf:me/set"
licence = "MIT"
evaluators = ["answer"]
[fields]
context = "text"
answer = { pick = "options", at = "label" }
[sample]
row = { text = "t", options = ["a", "b"], label = 1 }
example = { context = "t", answer = "b" }
"""

#: Sets whose commit could not be learnt, or that are read from a branch which the hub converts anew at times.
#: Their manifests still name the commit that was read.
UNPINNED: set[str] = {"contract-nli", "meetingbank", "qmsum", "scifact", "summscreenfd"}


@pytest.mark.parametrize("name", spec.names())
def test_every_file_of_the_catalogue_passes_its_own_sample(name):
    known = spec.named(name)  # raises BadSpec where the sample's rows do not give the sample's example
    assert known.sample.example["context"]


def test_which_sets_are_not_pinned():
    assert {
        name for name in spec.names() if not re.fullmatch("[0-9a-f]{40}", spec.named(name).revision or "")
    } == UNPINNED


def test_all_faults_are_listed_at_once():
    with pytest.raises(BadSpec) as caught:
        spec.parse(
            'about = ""\nsource = "x"\nrevision = "main"\ncolour = 1\n[fields]\na = { foo = 1 }\nb = 3\n', "file f.toml"
        )
    told = str(caught.value)
    parts = [
        "file f.toml",
        "about:",
        "source: 'x' is neither",
        "revision: 'main'",
        "colour:",
        "licence:",
        "context is missing",
    ]
    for part in [*parts, "fields.a:", "fields.b:"]:
        assert part in told
    assert len(caught.value.faults) >= 9


def test_a_sample_that_does_not_fit_is_a_fault():
    with pytest.raises(BadSpec, match="sample: answer of the row is 'a', the example says 'b'"):
        spec.parse(GOOD.replace("label = 1", "label = 0"), "f")


def test_a_default_config_must_be_among_the_configs():
    with pytest.raises(BadSpec, match="config: the default None is not among configs"):
        spec.parse(GOOD.replace("licence", 'configs = ["a"]\nlicence'), "f")


def test_not_toml_and_not_there(tmp_path):
    with pytest.raises(BadSpec, match="not TOML"):
        spec.parse("= 3", "f")
    with pytest.raises(BadInput, match="cannot read dataset file"):
        spec.read(tmp_path / "none.toml")


def test_fields_without_a_value_are_left_out():
    assert spec.parse(GOOD, "f").example({"text": "t"}) == {"context": "t"}
