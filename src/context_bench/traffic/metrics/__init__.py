"""Metrics of replayed traffic."""
