"""Facts of a session, found by rules: files it touched, errors, settings, decisions, open work. Probes ask for it,
compressors keep it.
"""
