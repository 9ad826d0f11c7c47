"""Classes that moved keep the path under which runs recorded them, for stored answers are found by it."""

import tomllib
from importlib import import_module
from pathlib import Path

import context_bench
from context_bench.compression.compressors.trivial_baselines import Full
from context_bench.core.protocols import fingerprint, recorded_name

ROWS = tomllib.loads((Path(context_bench.__file__).parent / "core" / "recorded_names.toml").read_text("utf-8"))


def test_every_class_of_the_table_is_there():
    for place in ROWS:
        module, _, name = place.rpartition(".")
        assert isinstance(getattr(import_module(module), name), type), place
    assert len(set(ROWS.values())) == len(ROWS)


def test_a_class_that_moved_is_recorded_under_its_first_path():
    assert fingerprint(Full())["class"] == "context_bench.systems.compressors.full.Full"


def test_a_class_of_the_users_is_recorded_under_its_own_path():
    class Mine:
        """A plug-in."""

    assert recorded_name(Mine) == f"{__name__}.{Mine.__qualname__}"
