"""Spark over a data directory: `register(spark)`, then `spark.read.format("leveret").load(directory)`; or `read()`."""

from __future__ import annotations

from leveret.storage.analytics.session import Session as Session
from leveret.storage.analytics.session import register as register
from leveret.storage.analytics.spark_reading import read as read

__all__ = ["Session", "read", "register"]
