"""The tokens of a text as another package than ours counts them."""

from functools import cache


@cache
def _encode():
    """Loaded where the first text is counted: its vocabularies take a second of every process that only collects."""
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base").encode


def tokens(text: str) -> int:
    return len(_encode()(text))
