"""A proxy of FastMCP over standard input and output, in front of the server whose command line is given."""

import sys

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport

try:
    from fastmcp.server import create_proxy
except ImportError:
    create_proxy = FastMCP.as_proxy

create_proxy(Client(StdioTransport(command=sys.argv[1], args=sys.argv[2:]))).run(show_banner=False)
