"""Plug-ins by name: where they are found, and a value that its parameter cannot mean is refused when one is made, not
in the numbers.
"""

from __future__ import annotations

import sys
import types
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.plugins import build
from context_bench.evaluators import BUILTINS
from context_bench.memory.systems.adapting import make_memory
from context_bench.systems.control import compressor_of, system_of


class Told:
    """Parameters of every sort that is looked at, and some that are not."""

    def __init__(
        self,
        seconds: float = 1.0,
        *,
        times: int = 1,
        loud: bool = False,
        most: int | None = None,
        word: str = "",
        free: Any = None,
        bare=None,
    ) -> None:
        self.seconds, self.times, self.loud, self.most, self.word, self.free, self.bare = (
            seconds,
            times,
            loud,
            most,
            word,
            free,
            bare,
        )


def evaluated(seconds=1.0, most=None):
    return Told(seconds, most=most)


# As a module without `from __future__ import annotations` has them.
evaluated.__annotations__ = {"seconds": float, "most": Optional[int]}  # noqa: UP045


@pytest.fixture(autouse=True)
def module(monkeypatch):
    made = types.ModuleType("plugins_here")
    made.Told, made.evaluated = Told, evaluated
    monkeypatch.setitem(sys.modules, "plugins_here", made)


def told(options):
    return build("evaluator", f"py:plugins_here:Told:{options}", {})


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("seconds=x", "a number"),
        ("seconds=", "a number"),
        ("seconds=true", "a number"),
        ("seconds=null", "a number"),
        ('seconds="3"', "a number"),
        ("times=x", "a whole number"),
        ("times=0.5", "a whole number"),
        ("times=true", "a whole number"),
        ("loud=yes", "true or false"),
        ("loud=False", "true or false"),
        ("loud=1", "true or false"),
        ("most=x", "a whole number or null"),
    ],
)
def test_a_value_of_another_type_is_refused(option, expected):
    name, _, value = option.partition("=")
    with pytest.raises(BadInput) as refused:
        told(option)
    assert str(refused.value).startswith(f"evaluator 'py:plugins_here:Told:{option}': {name} is ")
    assert str(refused.value).endswith(f"; expected {expected}")
    assert value.strip('"') in str(refused.value)


def test_what_fits_is_taken():
    made = told("seconds=3,times=2,loud=true,most=null,word=3,free=x,bare=true")
    assert (made.seconds, made.times, made.loud, made.most, made.word, made.free, made.bare) == (
        3,
        2,
        True,
        None,
        3,
        "x",
        True,
    )
    assert told("seconds=0.5,most=4").most == 4


def test_annotations_may_be_types():
    assert build("evaluator", "py:plugins_here:evaluated:seconds=2,most=3", {}).most == 3
    with pytest.raises(BadInput, match=r"seconds is 'x'; expected a number"):
        build("evaluator", "py:plugins_here:evaluated:seconds=x", {})
    with pytest.raises(BadInput, match=r"most is 'x'; expected a whole number or null"):
        build("evaluator", "py:plugins_here:evaluated:most=x", {})


def test_an_option_that_there_is_not_is_still_named():
    with pytest.raises(
        BadInput, match=r"^py:plugins_here:Told has no option loader; did you mean loud\? It has seconds, times, "
    ):
        told("loader=true")
    with pytest.raises(BadInput, match=r"^py:plugins_here:evaluated has no option far\. It has seconds, most\.$"):
        build("evaluator", "py:plugins_here:evaluated:far=1", {})


@pytest.mark.parametrize("make", [compressor_of, system_of])
def test_a_misspelt_option_of_a_built_in_one_is_named_with_the_nearest(make):
    with pytest.raises(
        BadInput, match=r"^bm25 has no option kep; did you mean keep\? It has keep, budget, k1, b, model\.$"
    ):
        make("bm25:kep=0.2")


def test_what_takes_any_option_is_asked_itself():
    def anything(**options):
        return types.SimpleNamespace(**options)

    sys.modules["plugins_here"].anything = anything
    assert build("evaluator", "py:plugins_here:anything:whatever=1", {}).whatever == 1


OWN = """
import helper_of_mine

class Mine:
    name = "mine"

    def process(self, example):
        return {**example, "response": helper_of_mine.WORD}

    score = add = search = compute = process
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a module of the user's that imports another; nothing of it stays."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "mine_own.py").write_text(OWN)
    (tmp_path / "helper_of_mine.py").write_text("WORD = 'yes'\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("spec", ["py:mine_own:Mine", "py:./mine_own.py:Mine", "py:mine_own.py:Mine"])
@pytest.mark.parametrize("make", [partial(build, "metric", builtins={}), system_of, compressor_of, make_memory])
def test_a_module_in_the_working_folder_is_found(folder, make, spec):
    assert make(text=spec).name == "mine" if isinstance(make, partial) else make(spec) is not None


def test_a_file_elsewhere_is_found_by_its_path_with_options(folder, monkeypatch):
    (folder / "deep").mkdir()
    (folder / "deep" / "json.py").write_text(
        "class Json:\n    def __init__(self, n=1):\n        self.name, self.n = 'json', n\n"
    )
    monkeypatch.chdir("/")
    made = build("evaluator", f"py:{folder}/deep/json.py:Json:n=3", {})
    assert made.n == 3
    assert build("evaluator", f"py:{folder}/deep/json.py:Json", {}).__class__ is made.__class__
    import json

    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("py:nothing_of_mine:Mine", r"cannot import 'nothing_of_mine': .*in the working folder"),
        ("py:./gone.py:Mine", r"cannot import 'gone.py': there is no such file"),
        ("py:./broken_one.py:Mine", r"cannot import './broken_one.py': SyntaxError: .*broken_one.py, line 2"),
        ("py:broken_two:Mine", r"cannot import 'broken_two': broken_two.py:1: ZeroDivisionError"),
        (
            "py:./broken_three.py:Mine",
            r"cannot import './broken_three.py': it imports 'nowhere_at_all', which is not installed",
        ),
        ("py:./mine_own.py:Mne", r"mine_own.py' has no 'Mne'.*Mine"),
        ("py:./mine_own.py", r"is not a Python plug-in; expected .*py:./file.py:Name"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(folder, spec, said):
    (folder / "broken_one.py").write_text("class Mine:\n    def (\n")
    (folder / "broken_two.py").write_text("1 / 0\n")
    (folder / "broken_three.py").write_text("import nowhere_at_all\n")
    with pytest.raises(BadInput, match=said):
        build("system", spec, {})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("code_execution:timeout=x", "timeout is 'x'; expected a number"),
        ("code_execution:memory=much", "memory is 'much'; expected a whole number"),
        ("code_execution:timeout=0", "timeout is 0; expected a number above 0"),
        ("code_execution:timeout=-1", "timeout is -1; expected a number above 0"),
        ("code_execution:timeout=NaN", "timeout is nan; expected a number above 0"),
        ("code_execution:timeout=Infinity", "timeout is inf; expected a number above 0"),
        ("code_execution:memory=0", "memory is 0; expected a number above 0"),
        ("code_execution:at_once=-2", "at_once is -2; expected a number above 0"),
        ("llm_judge:strict=yes,base_url=http://127.0.0.1:9", "strict is 'yes'; expected true or false"),
        ("memory_judge:timeout=soon,base_url=http://127.0.0.1:9", "timeout is 'soon'; expected a number"),
    ],
)
def test_evaluators_by_name(spec, said):
    with pytest.raises(BadInput, match=said):
        build("evaluator", spec, BUILTINS)


def test_a_limit_that_makes_sense_is_kept():
    made = build("evaluator", "code_execution:timeout=2,memory=64,at_once=1", BUILTINS)
    assert (made.timeout, made.memory) == (2, 64)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "class Made:\n    def __init__(self):\n        raise RuntimeError('no disk')",
            "could not be made: RuntimeError: no disk",
        ),
        ("def Made(example):\n    return example", "Made is a function, called without arguments to make one"),
        ("class Made:\n    pass", "which is not an evaluator: Made has no score"),
    ],
)
def test_what_cannot_be_made_is_a_sentence(source: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(source)
    with pytest.raises(BadInput, match=told):
        build("evaluator", f"py:{tmp_path / 'odd.py'}:Made", {}, lambda found: hasattr(found, "score"))
