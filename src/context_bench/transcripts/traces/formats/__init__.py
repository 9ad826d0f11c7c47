"""One module per log format: `matches(sample)` recognises it by content, `recordings(source)` reads it."""
