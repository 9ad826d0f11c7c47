"""One module per log format: `NAME`, `matches(sample)` and `sessions(source)`."""
