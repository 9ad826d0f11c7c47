"""Compressors as systems of a run."""
