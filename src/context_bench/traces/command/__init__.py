"""`context-bench trace …`."""
