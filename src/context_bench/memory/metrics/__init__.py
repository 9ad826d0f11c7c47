"""Metrics of memories."""
