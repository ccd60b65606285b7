"""Spark data source over a data directory: `register(spark)`, then `spark.read.format("leveret").load(directory)`."""

from __future__ import annotations

from leveret.storage.analytics.session import Session as Session
from leveret.storage.analytics.session import register as register

__all__ = ["Session", "register"]
