"""Packages whose names load when they are first used: each name is there, is listed, and what is not there is said to
be not.
"""

import subprocess
import sys
from importlib import import_module

import pytest

import context_bench
from context_bench.core.lazy import DeclaredNames

PLACES = [
    "datasets",
    "engine",
    "evaluators",
    "transcripts",
    "memory",
    "memory.systems",
    "core.probing",
    "core.verdict",
    "core.violations",
    "datasets.tasks",
    "datasets.recall_lab",
    "replay",
    "systems.memories",
    "compression",
    "agents",
    "metrics",
    "reports",
    "systems",
    "tap",
]
PACKAGES = ["context_bench", *(f"context_bench.{place}" for place in PLACES)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_loads_and_is_listed(package):
    module = import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    assert dir(module) == sorted(set(dir(module)))


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_not_there_is_an_attribute_error_that_names_what_is(package):
    module = import_module(package)
    with pytest.raises(
        AttributeError, match=rf"module '{package}' has no attribute 'nonsense'; it has: .*{module.__all__[-1]}"
    ):
        module.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="nonsense"):
        exec(f"from {package} import nonsense")


def test_loading_waits_for_the_first_use():
    code = (
        "import sys, context_bench.metrics as m; home = 'context_bench.metrics.latency'; print(home in "
        "sys.modules); m.Latency"
    )
    code += "; print(home in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_name_is_the_one_that_its_home_has_now(monkeypatch):
    home = import_module("context_bench.metrics.latency")
    monkeypatch.setattr(home, "Latency", int)
    assert context_bench.metrics.Latency is int


def test_a_file_of_a_package_brings_its_names_by_declaring_them(tmp_path):
    (tmp_path / "shouting.py").write_text(
        '"""Loud."""\n\nSYSTEMS = {"shout": "Shout", "loud": "Shout"}\nraise ImportError("only its text is read")\n'
    )
    (tmp_path / "helpers.py").write_text("LIMIT = 3\n")
    names = DeclaredNames("package", str(tmp_path), "SYSTEMS")
    assert dict(names) == {"shout": "package.shouting:Shout", "loud": "package.shouting:Shout"}
    assert dict(names.with_more({"other": "elsewhere:Other"})) == {**names, "other": "elsewhere:Other"}
