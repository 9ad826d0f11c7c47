"""Live traffic through a tap before and behind a proxy, paired turn by turn."""
