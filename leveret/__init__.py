"""Leveret, an AMQP 0-9-1 broker.

The stable interface; what is in other modules may change with any release:

- ``leveret.Leveret``, ``leveret.LeveretThread``: a broker inside another program.
- ``leveret.testing``: fixtures of pytest, which pytest finds by itself.
- ``leveret.analytics.register``: Spark over a data directory.
- ``python -m leveret``: the broker as a program.

Nothing is imported before it is used: a worker of Spark that imports ``leveret.storage`` has none of the broker's
libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from leveret import compilation as compilation

if TYPE_CHECKING:
    from leveret import analytics as analytics
    from leveret import testing as testing
    from leveret.broker.embedded import Leveret as Leveret
    from leveret.broker.embedded import LeveretThread as LeveretThread

    __version__: str
else:

    def __getattr__(name: str) -> object:
        if name in ("Leveret", "LeveretThread"):
            return getattr(importlib.import_module("leveret.broker.embedded"), name)
        if name == "__version__":
            return importlib.import_module("leveret.broker.version").VERSION
        if name in ("analytics", "testing"):
            return importlib.import_module(f"leveret.{name}")
        raise AttributeError(f"module 'leveret' has no attribute {name!r}")


__all__ = ["Leveret", "LeveretThread", "__version__", "analytics", "testing"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
