"""Evaluators of replayed traffic, one file each."""
