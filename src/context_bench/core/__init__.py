"""Records, protocols and pure functions that every room uses. No I/O."""
