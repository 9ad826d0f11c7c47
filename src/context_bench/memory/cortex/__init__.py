"""Cortex's evaluation harness, kept compatible."""
