from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

import context_bench.datasets as datasets
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.lazy import registry
from context_bench.datasets import catalogue_names, datasets_known, describe, examples_from, load


@pytest.fixture
def registered():
    """Registers loaders for one test and forgets them afterwards."""
    names = []

    def register(name, loader):
        names.append(name)
        registry.register("dataset", name, loader)

    yield register
    for name in names:
        registry._objects["dataset"].pop(name)


def test_an_unknown_name_is_told_the_nearest_and_all_that_are_known():
    with pytest.raises(
        UnknownName, match=r"Unknown dataset 'hotpot_qa'. Did you mean hotpotqa\?\nKnown: hotpotqa, "
    ) as said:
        load("hotpot_qa")
    assert all(name in str(said.value) for name in datasets_known())
    with pytest.raises(BadInput, match=r"'hotpotqa' does not accept a :config suffix \(got 'distractor'\)"):
        load("hotpotqa:distractor")
    with pytest.raises(BadInput, match="n is -1"):
        load("bundled:pydocs-qa", n=-1)


def test_a_registered_loader_is_used_with_what_it_takes(registered):
    registered(
        "acme",
        lambda n=None, config="plain", seed=0: (
            {"context": f"{config} {i}", "answer": [str(seed), "x"]} for i in range(9)
        ),
    )
    loaded = load("acme:fancy", n=2, seed=5)
    found = list(loaded.examples())
    assert [e["context"] for e in found] == ["fancy 0", "fancy 1"]
    assert found == list(loaded.examples())
    assert found[0]["dataset"] == "acme:fancy"
    assert (found[0]["id"], found[0]["answer"], found[0]["answers"]) == (0, "5", ["5", "x"])
    assert (loaded.base, loaded.evaluators) == ("acme", ["answer"])
    assert "acme" in datasets_known()
    assert "acme" not in catalogue_names()


def test_a_loader_that_takes_nothing_and_never_ends(registered):
    registered("endless", lambda: ({"context": f"c{i}"} for i in itertools.count()))
    assert len(list(load("endless", n=3).examples())) == 3
    with pytest.raises(BadInput, match="does not accept a :config suffix"):
        load("endless:x", n=1)


def test_a_registered_name_comes_before_the_catalogue(registered):
    registered("gsm8k", lambda n=None: [{"context": "mine"}])
    assert next(load("gsm8k").examples())["context"] == "mine"
    assert describe("gsm8k")["about"] == "Registered by the user."


@pytest.mark.parametrize(
    ("loader", "words"),
    [(lambda: 3, "gave a int"), (lambda: ["text"], "example 0 of the dataset is str"), ("no", "expected a function")],
)
def test_loaders_that_give_something_else(registered, loader, words):
    registered("odd", loader)
    with pytest.raises(BadInput, match=words):
        load("odd")


def test_a_described_set_over_local_files(tmp_path):
    (tmp_path / "part-1.jsonl").write_text('{"t": "one", "q": "?"}\n')
    (tmp_path / "part-2.jsonl").write_text('{"t": "two", "q": "?"}\n')
    file = tmp_path / "mine.toml"
    file.write_text(
        'about = "x"\nsource = "files:part-*.jsonl"\nlicence = "mine"\nevaluators = []\n[fields]\ncontext = '
        '"t"\nquestion = "q"\n'
        '[sample]\nrow = { t = "a", q = "b" }\nexample = { context = "a", question = "b" }\n'
    )
    loaded = load(str(file))
    assert [(e["id"], e["context"]) for e in loaded.examples()] == [(0, "one"), (1, "two")]
    assert [f["path"] for f in loaded.manifest()["files"]] == ["part-1.jsonl", "part-2.jsonl"]
    (tmp_path / "part-1.jsonl").unlink()
    (tmp_path / "part-2.jsonl").unlink()
    with pytest.raises(BadInput, match=r"no file matches 'files:part-\*.jsonl'"):
        load(str(file))


def test_describe_shows_a_set_without_reading_it():
    known = describe("mmlu:anatomy")
    assert known["source"] == "hf:cais/mmlu"
    assert known["has_context"] is False
    assert {"id", "context", "choices", "correct_letter"} <= set(known["fields"])
    assert len(known["configs"]) == 58
    assert describe("bundled:pydocs-qa")["size"] >= 72
    with pytest.raises(UnknownName):
        describe("nothing")


def test_examples_of_any_iterable():
    rows = ({"context": "c", **({"id": "x"} if i == 1 else {})} for i in itertools.count())
    assert [e["id"] for e in examples_from(rows, 3)] == [0, "x", 2]
    with pytest.raises(BadInput, match="example 1 of the dataset is NoneType"):
        list(examples_from([{"context": "c"}, None]))


def test_catalogue_sets_are_functions():
    assert {"hotpotqa", "gsm8k", "mmlu", "load_jsonl"} <= set(dir(datasets))
    assert datasets.hotpotqa.__name__ == "hotpotqa"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        datasets.nonsense  # noqa: B018


def test_bundled_sets_are_found_by_their_own_names():
    from context_bench.datasets import loading, pydocs, synthetic
    from context_bench.memory import datasets as memory
    from context_bench.memory.family import FAMILY

    prefix = FAMILY.datasets and FAMILY.datasets.prefix
    assert (loading.PYDOCS, loading.LONG_CONTEXT, prefix) == (pydocs.NAME, synthetic.NAME, memory.FILES)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, context_bench.datasets; print([m for m in ('pyarrow', 'huggingface_hub', 'pydantic', "
        "'numpy') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
