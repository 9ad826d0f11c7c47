"""A sixth family from an installed package: in the list of commands, in a run, in data by name, and in every form of
the report.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from context_bench.cli.app import run_line
from context_bench.core.families import BUILTINS, families

MODULE = '''
"""Counts the letters of answers."""

import asyncio

from context_bench.core.families import Command, Datasets, Export, Family, Sections


class Shout:
    name = "shout"

    def process(self, example):
        return {"response": example["context"].upper()}


class Letters:
    name, fields = "letters", ("letters",)

    def score(self, example, output):
        return {"letters": float(len(output["response"]) > 3)}


class Longest:
    name = "longest"

    def compute(self, rows):
        return {"longest": float(max(len(str(row.example_id)) for row in rows))}


def command(store: str) -> int:
    """Count letters."""
    from context_bench.engine import Arm, RunSettings, execute, open_store

    database = open_store(store)
    examples = [{"id": f"word-{number}", "context": "heron", "question": "?"} for number in range(3)]
    cell = {"labels": {}, "systems": ["shout"], "baseline": None, "controls": []}
    options = {"score_field": "letters"}
    manifest = {"cells": [cell], "margin": options, "options": options, "letters": {"alphabet": "latin"}}
    work = execute(database, name="counted", arms=[Arm(system=Shout())], examples=examples, evaluators=[Letters()], manifest=manifest,
                   settings=RunSettings())
    asyncio.run(work)
    database.close()
    return 0


def complete(result, about, stored):
    answers = [each.output["response"] for each in stored.answers()]
    result.families["letters"] = {"alphabet": about["alphabet"], "total": sum(map(len, answers))}
    result.summary["shout"]["letters_in_all"] = 15.0


def notes(result, about, score_field):
    return ["Letters are counted, not read."], [f"Scored by {score_field}."]


def sections(material):
    from context_bench.reports.page import Column, Figure, Section, Table

    total = Figure(material.result.families["letters"]["total"], "count")
    columns = [Column("Alphabet", False), Column("letters counted")]
    return [Section("letters", "Letters of the answers", tables=[Table("letters", columns, [["latin", total]])])]


def load(name, n, seed):
    from context_bench.datasets.examples import LoadedDataset

    return LoadedDataset(name, "letters", ["answer"], True, lambda: iter([{"id": "a", "context": "b", "dataset": name}]), dict)


def export(result, answers, systems, stream):
    stream.write("".join(sorted(each.output["response"][0] for each in answers(None))))


FAMILY = Family(
    name="letters",
    manifest_key="letters",
    commands={"letters": Command(f"{__name__}:command", "How many letters an answer has.", after="trace")},
    datasets=Datasets("letters:", lambda name: name == "alphabet", load, lambda: ["alphabet"], lambda name: {"name": name, "about": "26."}),
    systems={"shout": f"{__name__}:Shout"},
    evaluators={"letters": f"{__name__}:Letters"},
    metrics={"longest": f"{__name__}:Longest"},
    notes=notes,
    complete=complete,
    sections=Sections(build=sections, facts=lambda material: [("Alphabet", "latin")], unit="Words"),
    exports={"letters": Export(export, "counted no letters")},
)
'''  # noqa: E501


def offer(folder: Path, module: str, text: str) -> None:
    """Lay a package into `folder` as an installer would, with its family as an entry point."""
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[context_bench.families]\n{module} = {module}:FAMILY\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "counted_letters", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("counted_letters", None)


def shown(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    assert run_line(line) == 0
    return capsys.readouterr().out


def test_its_command_is_listed_after_the_one_it_names_and_has_help(package, capsys):
    listed = [
        line.split()[0] for line in shown(capsys, "--help").splitlines() if line.startswith("  ") and line.strip()
    ]
    assert listed.index("letters") == listed.index("trace") + 1
    assert "Count letters." in shown(capsys, "letters", "--help")


def test_a_run_of_it_is_in_every_form_of_the_report(package, capsys, tmp_path):
    store = str(tmp_path / "store.db")
    shown(capsys, "letters", store)
    document = json.loads(shown(capsys, "show", "counted", "--store", store, "--output", "json"))
    assert document["letters"] == {"alphabet": "latin", "total": 15}
    assert (document["notes"][0], document["summary"]["shout"]["letters_in_all"]) == (
        "Letters are counted, not read.",
        15.0,
    )
    for form in ("table", "markdown", "html"):
        text = shown(capsys, "show", "counted", "--full", "--store", store, "--output", form)
        assert "Letters of the answers" in text
        assert "letters counted" in text
        assert "Scored by letters." in text
        assert "Alphabet" in text
    assert shown(capsys, "export", "counted", "--store", store, "--format", "letters") == "HHH"


def test_its_figures_come_back_from_json(package, capsys, tmp_path):
    from context_bench.results import EvalResult

    store = str(tmp_path / "store.db")
    shown(capsys, "letters", store)
    again = EvalResult.from_json(shown(capsys, "show", "counted", "--store", store, "--output", "json"))
    assert again.families["letters"] == {"alphabet": "latin", "total": 15}
    assert again.filter(system="shout").families == {}


def test_its_plug_ins_and_data_are_found_by_name(package, capsys, tmp_path):
    from context_bench.datasets import load

    assert [example["context"] for example in load("letters:any").examples()] == ["b"]
    assert [example["context"] for example in load("alphabet").examples()] == ["b"]
    assert "alphabet" in shown(capsys, "datasets")
    line = (
        "--system",
        "shout",
        "--dataset",
        "alphabet",
        "--evaluator",
        "letters",
        "--metric",
        "longest",
        "--score-field",
        "letters",
    )
    document = json.loads(shown(capsys, "run", *line, "--store", str(tmp_path / "s.db"), "--output", "json"))
    assert document["summary"]["shout"]["longest"] == 1.0


def test_another_run_is_refused_the_export_of_a_family(package, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown(
        capsys,
        "run",
        "--system",
        "shout",
        "--dataset",
        "alphabet",
        "--run",
        "other",
        "--evaluator",
        "letters",
        "--score-field",
        "letters",
    )
    assert run_line(["export", "other", "--format", "letters"]) == 2
    assert "run other counted no letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FAMILY = 3", "expected a context_bench.core.families.Family, got int"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        (
            'from context_bench.core.families import Family\nFAMILY = Family(name="x", manifest_key="memory")',
            "is taken by 'memory'",
        ),
        (
            'from context_bench.core.families import Family\nFAMILY = Family(name="x", manifest_key="rows")',
            "is a part of every result",
        ),
    ],
)
def test_one_that_cannot_be_used_is_left_out_with_a_warning(text, reason, tmp_path, monkeypatch):
    offer(tmp_path, "no_family_at_all", text)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("no_family_at_all", None)
    importlib.invalidate_caches()
    with pytest.warns(UserWarning, match=reason):
        assert len(families()) == len(BUILTINS)
