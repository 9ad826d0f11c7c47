"""Recorded sessions sent again."""
