"""What is said where an optional package is missing: which extra, and the command that brings it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from context_bench import __version__
from context_bench.core import errors
from context_bench.core.errors import MissingExtra, install_line, need
from context_bench.datasets.readers import parquet_rows
from context_bench.evaluators import IFEvalChecker, MathEquivalence
from context_bench.stats.lift import bd_rate

ELSEWHERE = {
    "a wheel": ({"url": "file:///w/x.whl", "archive_info": {}}, "context-bench-tool[plots] @ file:///w/x.whl"),
    "a repository": (
        {"url": "https://git.example/x", "vcs_info": {"vcs": "git", "commit_id": "1"}},
        "context-bench-tool[plots] @ git+https://git.example/x",
    ),
    "a password": (
        {"url": "https://me:geheim@host.example/x.whl", "archive_info": {}},
        "context-bench-tool[plots] @ https://host.example/x.whl",
    ),
    "an index": ({}, "context-bench-tool[plots]"),  # once the name is registered
}


#: what is there → the words that install with it, and what is said after them
INSTALLERS = {
    "pip, uv": ("pip install", ""),
    "pip": ("pip install", ""),
    "uv, ensurepip": (f"uv pip install --python {sys.executable}", ""),
    "ensurepip": (f"{sys.executable} -m ensurepip && {sys.executable} -m pip install", ""),
    "": (f"{sys.executable} -m pip install", ", once this Python has pip (neither pip nor uv was found)"),
}


def only(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what installs packages, only this is there."""
    monkeypatch.setattr(errors, "find_spec", lambda name: object() if name in there.split(", ") else None)
    monkeypatch.setattr(errors, "uv_program", lambda: "/bin/uv" if "uv" in there.split(", ") else None)


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("there", INSTALLERS)
def test_the_command_names_where_this_installation_came_from(
    place: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, wanted = ELSEWHERE[place]
    monkeypatch.setattr(errors, "REGISTERED", True)
    monkeypatch.setattr(errors, "_origin", lambda: noted)
    only(there, monkeypatch)
    installer, after = INSTALLERS[there]
    assert install_line("plots") == f"{installer} '{wanted}'{after}"


def test_uv_is_found_beside_python_where_it_says_and_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(place: str) -> Path:
        made = tmp_path / place / ("uv.exe" if sys.platform == "win32" else "uv")
        made.parent.mkdir()
        made.touch(0o755)
        return made

    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "uv").touch(0o644)  # no program
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "python"))
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "empty"), str(tmp_path / "plain")]))
    assert errors.uv_program() is None
    on_path = program("path")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "plain"), str(on_path.parent)]))
    assert errors.uv_program() == str(on_path)
    named = program("named")
    monkeypatch.setenv("UV", str(named))
    assert errors.uv_program() == str(named)
    beside = program("env")
    assert errors.uv_program() == str(beside)


@pytest.mark.parametrize("noted", ["", "no json", "[]", None])
def test_an_odd_note_of_the_installer_is_no_fault(noted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return noted

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    monkeypatch.setattr(errors, "REGISTERED", True)
    assert install_line("plots").endswith("'context-bench-tool[plots]'")


def test_a_name_that_anybody_could_register_is_in_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_origin", dict)
    line = install_line("plots")
    assert f"'context_bench_tool-{__version__}-py3-none-any.whl[plots]' in the folder of that wheel" in line
    assert "context-bench-tool" not in line


def test_what_runs_under_uvx_is_called_anew_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_origin", lambda: {"url": "file:///w/x.whl", "archive_info": {}})
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/ckPKriYTeNRmcBfB")
    assert install_line("plots") == "uvx --from 'context-bench-tool[plots] @ file:///w/x.whl' context-bench …"


@pytest.mark.parametrize("there", INSTALLERS)
def test_this_checkout_says_so(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(there, monkeypatch)
    installer, after = INSTALLERS[there]
    assert install_line("plots") == f"{installer} '.[plots]' in a checkout of context-bench{after}"


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("punkt", "tasks", IFEvalChecker),
        ("math_verify", "tasks", MathEquivalence),
        ("pyarrow.parquet", "parquet", lambda: list(parquet_rows(Path("rows.parquet")))),
        ("scipy.interpolate", "stats", lambda: bd_rate([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4])),
    ],
)
def test_what_needs_an_extra_says_so_before_it_begins(
    package: str, extra: str, use: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs the optional extra '{extra}': pip install"):
        use()  # type: ignore[operator]


def test_what_is_there_is_not_asked_for() -> None:
    need(["json", "numpy"], "this", "nothing")
    with pytest.raises(MissingExtra):
        need(["json", "no_such_package_anywhere"], "this", "nothing")
