"""`context-bench memory …`."""
