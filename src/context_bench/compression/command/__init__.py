"""`context-bench compress …`."""
