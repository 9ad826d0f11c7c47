"""The MCP server of mcp-memory-service, with a SQLite that can load extensions, which many Pythons' own cannot.

Without a model its vectors are hashes; that says nothing about how it finds, and is enough for what it keeps.
"""

import sys

import pysqlite3

sys.modules["sqlite3"] = pysqlite3

from mcp_memory_service.cli.main import main

sys.argv = ["memory", "server"]
main()
