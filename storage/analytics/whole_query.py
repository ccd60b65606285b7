"""Runs a streaming query until all is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

#: Times that a query is started at most.
STARTS: Final = 20
#: Spark gives the Python process of a streaming source 10 s to start, which no setting changes.
_TOO_SLOW: Final = "Python worker failed to connect back"


def run_to_end(start: Callable[[], StreamingQuery]) -> None:
    """Run a query until it has read all, and start it again where the machine was too busy to start its Python process.

    Args:
        start: Starts the query; it goes on from its checkpoint, so that a further start writes nothing twice.
    Raises:
        StreamingQueryException: It failed for another reason, or each time.
    """
    for further in reversed(range(STARTS)):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if not further or _TOO_SLOW not in str(error):
                raise
        else:
            return
