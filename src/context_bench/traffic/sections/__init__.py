"""Sections of reports on traffic."""
