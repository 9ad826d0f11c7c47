"""The log of our own HTTP servers: a fault is one line, and what a client sent that is no HTTP is none."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError


class _OneLine(logging.Logger):
    """The library behind the servers logs whole tracebacks, of every malformed request too."""

    def exception(self, msg: object, *args: object, exc_info: object = True, **more: object) -> None:
        """Log a fault of ours in one line; the traceback is there at level DEBUG."""
        traceback = exc_info if isinstance(exc_info, BaseException) else None
        if isinstance(traceback, HttpProcessingError):
            self.debug(msg, *args)
            return
        told = "" if traceback is None else f": {type(traceback).__name__}: {' '.join(str(traceback).split())[:300]}"
        self.error(f"{msg}{told.replace('%', '%%')}", *args)
        self.debug("where it happened", exc_info=traceback)


#: What every server of ours is given as its logger.
SERVER_LOG: logging.Logger = _OneLine("context_bench.server")
SERVER_LOG.parent = logging.getLogger("context_bench")
