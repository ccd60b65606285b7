"""The tables as Structured Streaming sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from leveret.storage.analytics.event_stream import EventStream
from leveret.storage.analytics.message_stream import MessageStream
from leveret.storage.analytics.options import Options
from leveret.storage.analytics.table_reading import read_partition


class LeveretStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes to a table, each row once, also over restarts from a checkpoint.

    Args:
        options: What is asked for.
        columns: Names of the columns, in order.
    Raises:
        OptionError: The table does not grow, or an option has no meaning for a stream.
    """

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options.for_stream()
        self._columns = list(columns)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins."""
        return self._stream.first()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a batch may have."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        return self._stream.advance(start, limit.max_rows if isinstance(limit, ReadMaxRows) else 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query is to end with what is there now."""
        self._stream.end_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What a batch reads."""
        return list(self._stream.partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of a partition."""
        return read_partition(partition, self._options.table, self._columns, self._options.fail_fast)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done for good."""
        self._stream.commit(end)

    def stop(self) -> None:
        """The query has ended."""
        self._stream.stop()

    @cached_property
    def _stream(self) -> MessageStream | EventStream:
        return MessageStream(self._options) if self._options.table == "messages" else EventStream(self._options)
