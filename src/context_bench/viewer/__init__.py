"""A store in a browser: the pages of its runs, live, over HTTP on loopback."""
