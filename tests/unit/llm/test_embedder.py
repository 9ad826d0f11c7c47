"""The real embedder: what is alike is near, and batching changes nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from context_bench.llm.embedder import DIMENSIONS, Embedder


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


def test_unit_vectors_where_like_is_near_like(embedder: Embedder) -> None:
    texts = [
        "A cat sat on the mat.",
        "The feline rested on a rug.",
        "Stock prices fell sharply.",
        "",
        "lone \ud800",
        "w " * 3000,
    ]
    vectors = np.array(embedder.embed(texts))
    assert vectors.shape == (6, DIMENSIONS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    near, far = float(vectors[0] @ vectors[1]), float(vectors[0] @ vectors[2])
    assert near == pytest.approx(0.55, abs=0.03)
    assert far == pytest.approx(0.07, abs=0.03)


def test_order_and_batches_do_not_matter(embedder: Embedder) -> None:
    texts = [f"{'long ' * (i % 5)}sentence number {i}" for i in range(13)]
    whole, alone = np.array(embedder.embed(texts, batch=4)), np.array([embedder.embed([text])[0] for text in texts])
    # int8 activations are quantised per batch, so neighbours shift the last digits a little
    assert (whole * alone).sum(axis=1) == pytest.approx(1, abs=0.02)
    assert embedder.embed([]) == []


def test_tokens_as_the_model_reads_them(embedder: Embedder) -> None:
    assert [embedder.tokens(text) for text in ("hello", "", "w " * 3000)] == [3, 2, 256]


@pytest.mark.parametrize(
    ("module", "action"),
    [("xllamacpp", "import context_bench.llm.embedded"), ("onnxruntime", "embedder.Embedder().embed(['a'])")],
)
def test_without_the_extra_it_says_how_to_get_it(module: str, action: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None\nfrom context_bench.llm import embedder\n{action}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "MissingExtra" in done.stderr
    assert "pip install '.[local]'" in done.stderr
