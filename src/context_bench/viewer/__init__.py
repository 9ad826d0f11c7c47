"""A store in a browser: the pages of its runs, live, over HTTP on loopback.

```python
async with Viewer("store.db", result_of=result_of) as viewer:
    print(viewer.url)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.viewer.server import Viewer

__all__ = ["Viewer"]

__getattr__, __dir__ = lazy(__name__, [".server:Viewer"])
