"""Evaluators of answers to probes."""
