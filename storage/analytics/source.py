"""The data source `leveret`."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cached_property
from typing import ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from leveret.storage.analytics.batch_reader import LeveretReader, PushdownReader
from leveret.storage.analytics.columns import TABLES, schema_of
from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.options import Options, parse_options
from leveret.storage.analytics.stream_reader import LeveretStreamReader

_READ_ONLY: Final = (
    "the format leveret only reads; write to another one. Messages are published over AMQP, in foreachBatch() or "
    "foreachPartition()"
)
#: What Spark adds to the options when a table is created in its catalog.
_OF_A_TABLE: Final = frozenset({"owner", "provider"})


class LeveretDataSource(DataSource):
    """Data source over a data directory; see register().

    Args:
        options: The options of `spark.read.option()`.
    Raises:
        OptionError: An option is unknown, invalid or not applicable.
    """

    #: Directory in which snapshots are recorded for the session that renews their leases; empty for none.
    session: ClassVar[str] = ""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # A stream that is to be written has options of Spark's; it is refused in streamWriter().
        if "checkpointlocation" not in {name.lower() for name in options}:
            _ = self._parsed

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "leveret"

    def schema(self) -> str:
        """Return the schema with all columns of the table; only selected columns are decoded."""
        return schema_of(self._parsed.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        kind = PushdownReader if self._parsed.pushdown else LeveretReader
        return kind(self._parsed, self._columns(schema), self.session)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of `spark.readStream`."""
        return LeveretStreamReader(self._parsed, self._columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse `df.write`.

        Raises:
            AnalyticsError: Always.
        """
        raise AnalyticsError(_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Refuse `df.writeStream`.

        Raises:
            AnalyticsError: Always.
        """
        raise AnalyticsError(_READ_ONLY)

    @cached_property
    def _parsed(self) -> Options:
        if self.options.keys() >= _OF_A_TABLE:
            raise AnalyticsError(
                "a table in Spark's catalog loses the options of a Python data source; use CREATE TEMPORARY VIEW … "
                "USING leveret OPTIONS (path '…'), or create_views() of the session"
            )
        return parse_options(self.options)

    def _columns(self, schema: StructType) -> list[str]:
        """Return the names of the columns in a schema.

        Raises:
            AnalyticsError: A column does not exist or has another type.
        """
        table = self._parsed.table
        known = TABLES[table]
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if known.get(field.name) != kind:
                has = f"is {known[field.name]}" if field.name in known else "does not exist"
                raise AnalyticsError(f"the schema has column {field.name} {kind}, but it {has} in table {table}")
        return [field.name for field in schema.fields]
