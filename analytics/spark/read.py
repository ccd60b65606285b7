"""`leveret.analytics.read`: a table as a Spark data frame, of which only some columns or rows are read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from leveret.analytics.archive.layout import find_sources
from leveret.analytics.bodies.value_types import schema_text
from leveret.analytics.columns import VALUE, ddl_of, types_of
from leveret.analytics.options import BodySchema, Names, Time, locations_in, named_options, parse_options
from leveret.analytics.spark.session import register
from leveret.analytics.tables.table_query import make_query


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    vhost: Names | None = None,
    queue: Names | None = None,
    as_of: Time | None = None,
    since: Time | None = None,
    until: Time | None = None,
    first_seq: int | None = None,
    last_seq: int | None = None,
    starting_offsets: Time | None = None,
    ending_offsets: Time | None = None,
    mode: str | None = None,
    snapshot: str | None = None,
    bodies: str | None = None,
    body_schema: BodySchema | None = None,
    body_message: str | None = None,
    body_sample: int | None = None,
    archive: Time | None = None,
) -> DataFrame:
    """Return a table of a data directory as a data frame; no setting of the session is changed.

    Spark tells data sources neither the columns nor the limit of a query. Here only `columns` are decoded, and with
    `limit` one task reads files, one after the other, until it has enough rows.

    Args:
        spark: The session; the data source is registered in it.
        path: The data directory, or the URI of a copy; or an archive, or a list of one archive and of data directories;
            see leveret.scan().
        table: `messages`, `delayed`, `events`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all.
        limit: Read at most this many rows, from the first queue on.
        vhost: Virtual host: its name, a pattern with `*`, `?` and `[…]`, or a list of these; None for all.
        queue: Name of the queue, a pattern, or a list of these; None for all. A name must exist.
        as_of: Show the last moment up to this time, as far as the files still have it.
        since: Only messages and events of this time or later.
        until: Only messages and events of this time or earlier.
        first_seq: Only messages with this number or a higher one.
        last_seq: Only messages with this number or a lower one.
        starting_offsets: Only messages of a stream from an offset or a time on; see leveret.scan().
        ending_offsets: Only messages of a stream before an offset or a time.
        mode: `permissive` skips damaged records and counts them, `failfast` makes them an error.
        snapshot: Result of Session.snapshot(), for data frames that show the same moment.
        bodies: `json`, `avro` or `protobuf`: adds the columns `value` and `value_error`; see leveret.scan().
        body_schema: The schema of bodies; None to infer that of JSON.
        body_message: For Protobuf, the full name of the message.
        body_sample: For JSON, from how many messages at most the type is inferred; 1000 by default.
        archive: `auto`, `all`, a time or `off`: which events that the broker does not keep any more are read from its
            archive; see leveret.scan().
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
    """
    locations = locations_in(path)
    given = named_options(
        locations[0],
        table,
        limit=limit,
        vhost=vhost,
        queue=queue,
        as_of=as_of,
        since=since,
        until=until,
        first_seq=first_seq,
        last_seq=last_seq,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        mode=mode,
        snapshot=snapshot,
        bodies=bodies,
        body_schema=schema_text(body_schema),
        body_message=body_message,
        body_sample=body_sample,
        archive=archive,
    )
    options = parse_options(given)
    _ = options.batch_limits
    sources = find_sources(locations)
    types = types_of(table, sources is not None, options.bodies is not None)
    query = make_query(options, sources, columns, register(spark).directory)
    if query.bodies is not None:
        types[VALUE] = query.bodies.ddl
        # What was inferred once is the same for all columns.
        given |= {"bodyschema": query.bodies.ddl} if query.bodies.form == "json" else {}
    reader = spark.read.format("leveret").schema(ddl_of({name: types[name] for name in query.columns}))
    if len(locations) == 1:
        return reader.options(**given).load()
    del given["path"]
    return reader.options(**given).load(locations)
