"""The tables of a data directory, for Arrow and Spark.

Spark: `register(spark)`, then `spark.read.format("leveret").load(directory)`; or `read()`. These two need pyspark, and
are imported when they are first used: what reads the tables as Arrow batches (`scan.py`) does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if __name__ != "leveret.analytics":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.analytics instead")

if TYPE_CHECKING:
    from leveret.analytics.spark.session import Session as Session
    from leveret.analytics.spark.session import read as read
    from leveret.analytics.spark.session import register as register
else:

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(importlib.import_module("leveret.analytics.spark.session"), name)
        raise AttributeError(f"module 'leveret.analytics' has no attribute {name!r}")


__all__ = ["Session", "read", "register"]
