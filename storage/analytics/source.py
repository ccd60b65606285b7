"""The data source `leveret`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from leveret.storage.analytics.batch_reader import LeveretReader, PushdownReader
from leveret.storage.analytics.columns import TABLES, schema_of
from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.options import parse_options
from leveret.storage.analytics.stream_reader import LeveretStreamReader


class LeveretDataSource(DataSource):
    """Tables over a data directory; see register().

    Args:
        options: As given to `spark.read.option()`.
    Raises:
        OptionError: One of them has no meaning.
    """

    #: A directory in which snapshots are noted for the session that renews them; empty for none.
    session: ClassVar[str] = ""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """What `format()` is told."""
        return "leveret"

    def schema(self) -> str:
        """All columns of the table; only those of the schema that is asked for are decoded."""
        return schema_of(self._parsed.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        kind = PushdownReader if self._parsed.pushdown else LeveretReader
        return kind(self._parsed, self._columns(schema), self.session)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        return LeveretStreamReader(self._parsed, self._columns(schema))

    def _columns(self, schema: StructType) -> list[str]:
        """Names of the columns that are asked for.

        Raises:
            AnalyticsError: There is no such column, or it has another type.
        """
        table = self._parsed.table
        known = TABLES[table]
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if known.get(field.name) != kind:
                has = f"is {known[field.name]}" if field.name in known else "does not exist"
                raise AnalyticsError(f"column {field.name} {kind} was asked for, but it {has} in table {table}")
        return [field.name for field in schema.fields]
