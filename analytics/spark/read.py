"""`leveret.analytics.read`: a table as a Spark data frame, of which only some columns or rows are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Unpack

from pyspark.sql import DataFrame, SparkSession

from leveret.analytics.archive.layout import find_sources
from leveret.analytics.columns import VALUE, ddl_of, types_of
from leveret.analytics.options import ReadOptions, locations_in, parse_options, refuse_unknown, takes_options
from leveret.analytics.spark.session import register
from leveret.analytics.tables.table_query import make_query, python_options


@takes_options(ReadOptions)
def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Return a table of a data directory as a data frame; no setting of the session is changed.

    Spark tells data sources neither the columns nor the limit of a query. Here only `columns` are decoded, and with
    `limit` one task reads files, one after the other, until it has enough rows.

    Args:
        spark: The session; the data source is registered in it.
        path: The data directory, or the URI of a copy; or an archive, or a list of one archive and of data directories;
            see leveret.scan().
        table: `messages`, `delayed`, `events`, `audit`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all.
        options: See ReadOptions.
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
    """
    refuse_unknown("read", options, ReadOptions)
    locations = locations_in(path)
    given = python_options(locations[0], table, options)
    parsed = parse_options(given)
    _ = parsed.batch_limits
    sources = find_sources(locations)
    types = types_of(table, sources is not None, parsed.bodies is not None)
    query = make_query(parsed, sources, columns, register(spark).directory)
    if query.bodies is not None:
        types[VALUE] = query.bodies.ddl
        # What was inferred once is the same for all columns.
        is_inferred = (
            query.bodies.form == "json" and not given.get("bodyschema") and query.options.bodies == parsed.bodies
        )
        given |= {"bodyschema": query.bodies.ddl} if is_inferred else {}
    reader = spark.read.format("leveret").schema(ddl_of({name: types[name] for name in query.columns}))
    if len(locations) == 1:
        return reader.options(**given).load()
    del given["path"]
    return reader.options(**given).load(locations)
