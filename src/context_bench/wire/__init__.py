"""Requests and replies on the wires of the providers: reading, comparing, prompt caches."""
