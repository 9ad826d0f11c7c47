"""Notebooks of `examples/` are executed here, cell by cell, and what they print is held to what is kept in them.

pytest tests/docs/test_notebook.py --refresh-golden     # keeps what they print now
"""

import ast
import contextlib
import io
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def executed(source, names):
    """(what a cell printed, its last value if the cell ends in an expression)."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def as_output(text):
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_is_kept_in_it(path, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    notebook, names, shown = json.loads(path.read_text("utf-8")), {"__name__": "__main__"}, []
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        printed, value = executed("".join(cell["source"]), names)
        shown += [value] if value is not None else []
        if request.config.getoption("--refresh-golden", default=False):
            cell["outputs"] = as_output(printed)
        assert cell["outputs"] == as_output(printed), "".join(cell["source"])
    if request.config.getoption("--refresh-golden", default=False):
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert len(cells) > 4
    assert not list(tmp_path.iterdir()), "a notebook leaves nothing behind"
    result, picture = shown
    page = result._repr_html_()
    for said in ("drop_routine", "first_half", "loss", "no loss ≥ 10 points"):
        assert said in page, said
    assert "<svg" in picture._repr_svg_()


def test_there_is_a_notebook_and_it_has_the_form_of_one():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text("utf-8"))
        assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
        for cell in notebook["cells"]:
            assert {"cell_type", "metadata", "source"} <= set(cell)
            assert cell["cell_type"] == "markdown" or {"execution_count", "outputs"} <= set(cell)
