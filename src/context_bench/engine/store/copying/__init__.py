"""Copying from one store to another, whatever databases they are in: runs with all that their reports show and what a
resume needs, watches, and what judges are remembered to have said.

A copy is made piece by piece, each a transaction that also says how far it got, so that a killed copy goes on where it
was. Until it is whole it has a name that no run and no watch has, so nobody takes it for one. Bodies are copied as they
are packed, each once.
"""

from __future__ import annotations

from context_bench.engine.store.copying.copies import Copied, CopiedWatch, copy_replies, copy_run, copy_watch

__all__ = ["Copied", "CopiedWatch", "copy_replies", "copy_run", "copy_watch"]
