"""`context-bench agent`."""
