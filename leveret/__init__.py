"""Leveret, an AMQP 0-9-1 broker.

The stable interface; what is in other modules may change with any release:

- ``leveret.Leveret``, ``leveret.LeveretThread``: a broker inside another program.
- ``leveret.scan``: a data directory as Arrow record batches.
- ``leveret.dataset``: a data directory as an Arrow dataset, for DuckDB and Polars.
- ``leveret.LeveretCluster``: a leader and standbys inside a test.
- ``leveret.clean_broker``: a broker that tests take in turn.
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
    from leveret.analytics.dataset import dataset as dataset
    from leveret.analytics.scan import scan as scan
    from leveret.broker.embedded import Leveret as Leveret
    from leveret.broker.embedded_cluster import LeveretCluster as LeveretCluster
    from leveret.broker.embedded_thread import LeveretThread as LeveretThread
    from leveret.broker.embedded_thread import clean_broker as clean_broker

    __version__: str
else:

    def __getattr__(name: str) -> object:
        places = {
            "Leveret": "embedded",
            "LeveretCluster": "embedded_cluster",
            "LeveretThread": "embedded_thread",
            "clean_broker": "embedded_thread",
        }
        if name in places:
            return getattr(importlib.import_module(f"leveret.broker.{places[name]}"), name)
        if name == "__version__":
            return importlib.import_module("leveret.broker.version").VERSION
        if name in ("analytics", "testing"):
            return importlib.import_module(f"leveret.{name}")
        if name in ("dataset", "scan"):
            try:
                return getattr(importlib.import_module(f"leveret.analytics.{name}"), name)
            except ModuleNotFoundError as error:
                if error.name not in ("numpy", "pyarrow"):
                    raise
                text = f"leveret.{name} needs the Python package {error.name}: pip install 'leveret[arrow]'"
                raise ModuleNotFoundError(text, name=error.name) from error
        raise AttributeError(f"module 'leveret' has no attribute {name!r}")


__all__ = [
    "Leveret",
    "LeveretCluster",
    "LeveretThread",
    "__version__",
    "analytics",
    "clean_broker",
    "dataset",
    "scan",
    "testing",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
