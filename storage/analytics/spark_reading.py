"""`leveret.analytics.read`: a table as a Spark data frame, of which only some columns or rows are read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.named_options import Time, chosen_columns, named_options
from leveret.storage.analytics.options import parse_options
from leveret.storage.analytics.session import register


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    vhost: str | None = None,
    queue: str | None = None,
    as_of: Time | None = None,
    since: Time | None = None,
    until: Time | None = None,
    first_seq: int | None = None,
    last_seq: int | None = None,
    starting_offsets: Time | None = None,
    ending_offsets: Time | None = None,
    mode: str | None = None,
    snapshot: str | None = None,
) -> DataFrame:
    """Return a table of a data directory as a data frame; no setting of the session is changed.

    Spark tells data sources neither the columns nor the limit of a query. Here only `columns` are decoded, and with
    `limit` one task reads files, one after the other, until it has enough rows.

    Args:
        spark: The session; the data source is registered in it.
        path: The data directory, or the URI of a copy.
        table: `messages`, `delayed`, `events`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all.
        limit: Read at most this many rows, from the first queue on.
        vhost: Virtual host: its name, or a pattern with `*`, `?` and `[…]`; None for all.
        queue: Name of the queue, or a pattern; None for all. A name must exist.
        as_of: Show the last moment up to this time, as far as the files still have it.
        since: Only messages and events of this time or later.
        until: Only messages and events of this time or earlier.
        first_seq: Only messages with this number or a higher one.
        last_seq: Only messages with this number or a lower one.
        starting_offsets: Only messages of a stream from an offset or a time on; see leveret.scan().
        ending_offsets: Only messages of a stream before an offset or a time.
        mode: `permissive` skips damaged records and counts them, `failfast` makes them an error.
        snapshot: Result of Session.snapshot(), for data frames that show the same moment.
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
    """
    given = named_options(
        path,
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
    )
    _ = parse_options(given).batch_limits
    schema = ", ".join(f"`{name}` {TABLES[table][name]}" for name in chosen_columns(table, columns))
    register(spark)
    return spark.read.format("leveret").options(**given).schema(schema).load()
