"""One run of a command, shared by all families: bring up, check, run, report."""
