"""Packages whose names load when they are first used: each name is there, is listed, and what is not there is said to
be not.
"""

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

import context_bench
from context_bench.core import lazy
from context_bench.core.lazy import DeclaredNames, registry, version_of
from context_bench.engine.manifest import PACKAGE

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


@pytest.mark.parametrize("package", [PACKAGE, "sqlalchemy", "huggingface-hub", "genai-prices", "tree-sitter"])
def test_the_version_of_a_package_is_the_one_that_its_description_tells(package):
    assert version_of(package) == version(package)


def test_a_package_that_is_not_there_has_no_version():
    assert version_of("no-such-package-anywhere") is None


def test_a_description_without_such_a_line_is_read_as_a_whole(tmp_path, monkeypatch):
    info = tmp_path / "folded-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: folded\nVersion:\n 2.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert version_of("folded") == version("folded")


def test_offers_of_all_kinds_are_looked_for_in_one_pass(tmp_path, monkeypatch):
    info = tmp_path / "offering-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[context_bench.reporters]\nloud = offering:Loud\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_objects", {kind: {} for kind in registry._objects})  # others' tests registered some
    looked, scan = [], os.scandir
    monkeypatch.setattr(lazy.os, "scandir", lambda folder: looked.append(folder) or scan(folder))
    assert registry.names("reporter") == ["loud"]
    first = len(looked)
    assert first
    assert not any(registry.names(kind) for kind in ("dataset", "metric", "family", "system"))
    assert len(looked) == first


def test_an_archive_may_offer_anything(tmp_path, monkeypatch):
    (tmp_path / "packed.zip").write_bytes(b"PK")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    assert lazy._groups(tuple(sys.path)) is None
