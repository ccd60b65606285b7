"""Runs a streaming query to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

#: Maximum number of starts of a query.
STARTS: Final = 20
#: Spark waits 10 s for the Python process of a streaming source to start; this is not configurable.
_TOO_SLOW: Final = "Python worker failed to connect back"


def run_to_end(start: Callable[[], StreamingQuery]) -> None:
    """Run a query to its end; start it again if its Python process did not start in time.

    Args:
        start: Starts the query. It continues from its checkpoint, so a further start writes nothing twice.
    Raises:
        StreamingQueryException: The query failed for another reason, or at every start.
    """
    for further in reversed(range(STARTS)):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if not further or _TOO_SLOW not in str(error):
                raise
        else:
            return
