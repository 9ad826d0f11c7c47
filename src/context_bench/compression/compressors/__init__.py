"""Compressors, a file for each subject. A new one is found by the constant that its file declares.

A file declares `COMPRESSORS = {"public_name": "Class"}`; such a compressor needs no model and is a control that every
run can be compared with. Most take `keep` (a share of the tokens, 0 to 1, default 0.5) or `budget` (tokens), as in
`head_tail:keep=0.3` or `bm25:budget=300`. `ADAPTED` is for compressors that ask a model, a provider or a package,
`SCHEMES` for specs such as `cli:COMMAND`. Two names are aliases: `passthrough` is `full`, and `tail_only` is `none` (of
a session only the tail is left).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import DeclaredNames, lazy

if TYPE_CHECKING:
    from context_bench.compression.compressors.specs import (
        compressor_for as compressor_for,
        compressor_of as compressor_of,
    )

#: Public name → place, for compressors that need no model.
COMPRESSORS = DeclaredNames(__name__, __path__[0], "COMPRESSORS")
#: The same for those that need a model behind `relay`, a provider's own endpoint, or a package in its own environment.
ADAPTED = DeclaredNames(__name__, __path__[0], "ADAPTED")
#: Text before a colon that may stand instead of a name → the function that makes a compressor of the rest.
SCHEMES = DeclaredNames(__name__, __path__[0], "SCHEMES")

__all__ = ["ADAPTED", "COMPRESSORS", "SCHEMES", "compressor_for", "compressor_of"]

__getattr__, __dir__ = lazy(__name__, [".specs:compressor_for", ".specs:compressor_of"])
