"""`context-bench watch`, `replay` and `doctor`."""
