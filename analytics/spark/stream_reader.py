"""The reader of `spark.readStream`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from leveret.analytics.streaming.event_stream import EventStream
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_query import TableQuery


class LeveretStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows of a table, each once, also after restarts from a checkpoint.

    Raises:
        OptionError: The table cannot be streamed, or an option does not apply to streams.
    """

    def __init__(self, query: TableQuery) -> None:
        self._query = query
        self._options = query.options.for_stream()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start offset of a new query."""
        return self._stream.first()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end offset of the next batch."""
        return self._stream.advance(start, limit.max_rows if isinstance(limit, ReadMaxRows) else 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the rows that exist now."""
        self._stream.stop_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch."""
        return [InputPartition(each) for each in self._stream.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return self._query.read_part(partition.value, self._query.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Release the resources of a batch that is stored."""
        self._stream.commit(end)

    def stop(self) -> None:
        """Release all resources at the end of the query."""
        self._stream.stop()

    @cached_property
    def _stream(self) -> MessageStream | EventStream:
        return MessageStream(self._options) if self._options.table == "messages" else EventStream(self._options)
