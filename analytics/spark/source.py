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
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from leveret.analytics.archive.layout import Sources, find_sources, locations_of
from leveret.analytics.bodies.body_format import BodyFormat, format_of_bodies, json_format
from leveret.analytics.bodies.sql_types import quoted
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.columns import VALUE, VALUE_ERROR, ddl_of, reads_values, types_of
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import Options, parse_options
from leveret.analytics.sink.published_rows import row_layout
from leveret.analytics.sink.sink_options import is_for_sink, parse_sink_options
from leveret.analytics.sink.writer import LeveretStreamWriter, LeveretWriter, Sink
from leveret.analytics.spark.readers import LeveretReader, LeveretStreamReader, PushdownReader
from leveret.analytics.tables.body_rules import with_rule
from leveret.analytics.tables.table_query import TableQuery, format_of


def ddl_of_spark(kind: DataType) -> str:
    """Return a type in Spark's DDL, as value_types.py writes it.

    Raises:
        OptionError: Bodies cannot be read into such a type.
    """
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(each.name)}: {ddl_of_spark(each.dataType)}' for each in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{ddl_of_spark(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl_of_spark(kind.keyType)}, {ddl_of_spark(kind.valueType)}>"
    return type_ddl(parse_type(kind.simpleString()))


#: What Spark adds to the options when a table is created in its catalog.
_OF_A_TABLE: Final = frozenset({"owner", "provider"})


class LeveretDataSource(DataSource):
    """Data source over a data directory, and sink that publishes to a broker; see register().

    Args:
        options: The options of `spark.read.option()`, or those of `df.write.option()`.
    Raises:
        OptionError: An option is unknown, invalid or not applicable.
    """

    #: Directory in which snapshots are recorded for the session that renews their leases; empty for none.
    session: ClassVar[str] = ""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if not is_for_sink(options):
            _ = self._parsed

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "leveret"

    def schema(self) -> str:
        """Return the schema with all columns of the table; only selected columns are decoded."""
        schema = ddl_of(types_of(self._parsed.table, self._sources is not None))
        bodies = format_of(self._options, self.session, self._sources)
        return schema if bodies is None else f"{schema}, {VALUE} {bodies.ddl}, {VALUE_ERROR} string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        query = self._query(schema)
        if self._sources is not None:
            query.options.for_archive()
        return (PushdownReader if self._parsed.pushdown else LeveretReader)(query, self.session)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of `spark.readStream`.

        Raises:
            AnalyticsError: An archive is to be read.
        """
        if self._sources is not None:
            raise AnalyticsError("an archive cannot be read as a stream; a data directory can")
        return LeveretStreamReader(self._query(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of `df.write`.

        Raises:
            AnalyticsError: An option or column is wrong, or the broker cannot be published to.
        """
        if overwrite:
            raise AnalyticsError("what was published cannot be overwritten; use mode('append')")
        sink = self._sink(schema)
        return LeveretWriter(sink, sink.check())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of `writeStream`.

        Raises:
            AnalyticsError: As writer() does.
        """
        if overwrite:
            raise AnalyticsError("what was published cannot be overwritten; use outputMode('append')")
        sink = self._sink(schema)
        return LeveretStreamWriter(sink, sink.check_once())

    def _sink(self, schema: StructType) -> Sink:
        options = parse_sink_options(self.options)
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return Sink(options, row_layout(types, options.routing_key, options.keeps_deaths), self.session)

    @cached_property
    def _parsed(self) -> Options:
        if self.options.keys() >= _OF_A_TABLE:
            raise AnalyticsError(
                "a table in Spark's catalog loses the options of a Python data source; use CREATE TEMPORARY VIEW … "
                "USING leveret OPTIONS (path '…'), or create_views() of the session"
            )
        first, *_ = locations_of(self.options)
        return parse_options({**{name: self.options[name] for name in self.options if name != "paths"}, "path": first})

    @cached_property
    def _sources(self) -> Sources | None:
        """The archive that is to be read, and data directories with it; None for a data directory alone."""
        return find_sources([self._parsed.path, *locations_of(self.options)[1:]])

    @cached_property
    def _options(self) -> Options:
        """The options, with the rule for bodies that they name."""
        return with_rule(self._parsed, self._sources)

    def _query(self, schema: StructType) -> TableQuery:
        return TableQuery(self._options, self._sources, self._columns(schema), self._bodies(schema))

    def _columns(self, schema: StructType) -> list[str]:
        """Return the names of the columns in a schema."""
        table = self._parsed.table
        known = types_of(table, self._sources is not None)
        if self._parsed.bodies is not None:
            # What `value` may be depends on the schema of the bodies; see _bodies().
            given = {each.name: each.dataType.simpleString() for each in schema.fields if each.name == VALUE}
            known = known | {VALUE_ERROR: "string"} | given
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if known.get(field.name) != kind:
                has = f"is {known[field.name]}" if field.name in known else "does not exist"
                raise AnalyticsError(f"the schema has column {field.name} {kind}, but it {has} in table {table}")
        return [field.name for field in schema.fields]

    def _bodies(self, schema: StructType) -> BodyFormat | None:
        """Return how bodies are read for the columns of a schema; None if none of them needs it."""
        options = self._options
        if options.bodies is None or not reads_values(schema.names):
            return None
        if VALUE not in schema.names:
            return format_of(options, self.session, self._sources)
        chosen = ddl_of_spark(schema[VALUE].dataType)
        if options.bodies.form == "json":
            return json_format(chosen, "" if options.bodies.rule is None else options.bodies.rule.registry)
        bodies = format_of_bodies(options.bodies)
        if chosen != bodies.ddl:
            raise AnalyticsError(f"the schema has column {VALUE} {chosen}, but by bodySchema it is {bodies.ddl}")
        return bodies
