"""Probes: questions about the part of a session that a compressor took away."""
