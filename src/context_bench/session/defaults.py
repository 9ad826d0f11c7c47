"""Defaults that several commands name in their help; apart from `session.options` so that `--help` need not load pydantic."""

DEFAULT_MODEL = "claude-haiku-4-5-20251001"
DEFAULT_STORE = "./.context-bench/store.db"
DEFAULT_CONTROLS = ["full", "full#2", "none", "head_tail", "random_drop"]
