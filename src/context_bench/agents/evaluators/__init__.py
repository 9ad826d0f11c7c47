"""Evaluators of agents."""
