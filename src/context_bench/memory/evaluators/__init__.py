"""Evaluators of memories."""
