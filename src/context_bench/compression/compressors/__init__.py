"""Compressors, one file each; its name is the public name.

Those in `COMPRESSORS` need no model and are the controls every run can be compared with; most take `keep` (a share of the tokens, 0 to 1,
default 0.5) or `budget` (tokens), as in `head_tail:keep=0.3` or `bm25:budget=300`. Those in `ADAPTED` ask a model, a provider or a package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.compression.compressors.making import compressor_for as compressor_for
    from context_bench.compression.compressors.making import compressor_of as compressor_of

_HERE = "context_bench.compression.compressors"
#: Public name → where it is. `passthrough` is another word for `full`, `tail_only` for `none` (of a session, the tail is what is left).
COMPRESSORS: dict[str, str] = {
    "full": f"{_HERE}.full:Full",
    "passthrough": f"{_HERE}.full:Full",
    "none": f"{_HERE}.none:NoContext",
    "head_tail": f"{_HERE}.head_tail:HeadTail",
    "random_drop": f"{_HERE}.random_drop:RandomDrop",
    "bm25": f"{_HERE}.bm25:BM25",
    "tail_only": f"{_HERE}.none:NoContext",
    "window": f"{_HERE}.window:Window",
    "mask_observations": f"{_HERE}.mask_observations:MaskObservations",
    "dedupe": f"{_HERE}.dedupe:Dedupe",
    "extractive": f"{_HERE}.extractive:Extractive",
    "anchored": f"{_HERE}.anchored:Anchored",
}
#: The same of those that need something else: a model behind `relay`, a provider's own endpoint, a package in its own environment.
ADAPTED: dict[str, str] = {
    "anchored_iterative": f"{_HERE}.anchored_iterative:AnchoredIterative",
    "regenerative": f"{_HERE}.regenerative:Regenerative",
    "headroom": f"{_HERE}.headroom:Headroom",
    "langchain_clear": f"{_HERE}.langchain:ClearToolUses",
    "langchain_summary": f"{_HERE}.langchain:Summarization",
    "openai_compact": f"{_HERE}.openai_compact:OpenAICompact",
    "anthropic_clear": f"{_HERE}.anthropic_clear:AnthropicClear",
    "anthropic_compact": f"{_HERE}.anthropic_compact:AnthropicCompact",
}
#: What may stand before a colon instead of a name → what makes a compressor of the rest.
SCHEMES: dict[str, str] = {
    "cli": f"{_HERE}.command:from_spec",
    "http": f"{_HERE}.http:from_spec",
    "pairs": f"{_HERE}.pairs:RecordedPairs",
}

__all__ = ["ADAPTED", "COMPRESSORS", "SCHEMES", "compressor_for", "compressor_of"]

__getattr__, __dir__ = lazy(__name__, [".making:compressor_for", ".making:compressor_of"])
