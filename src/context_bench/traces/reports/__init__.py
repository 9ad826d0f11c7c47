"""Scored traces shown: a page in the browser, a run in the terminal, tables for other programs."""
