"""`leveret.scan` of an archive, alone or together with live data directories."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from leveret.analytics.archive.layout import find_sources
from leveret.analytics.bodies.value_types import schema_text
from leveret.analytics.options import BodySchema, Names, Time, locations_in, named_options, parse_options
from leveret.analytics.tables.query_snapshots import held_reader
from leveret.analytics.tables.table_query import make_query


def scan(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    vhost: Names | None = None,
    queue: Names | None = None,
    as_of: Time | None = None,
    since: Time | None = None,
    until: Time | None = None,
    first_seq: int | None = None,
    last_seq: int | None = None,
    starting_offsets: Time | None = None,
    ending_offsets: Time | None = None,
    limit: int | None = None,
    mode: str = "permissive",
    bodies: str | None = None,
    body_schema: BodySchema | None = None,
    body_message: str | None = None,
    body_sample: int | None = None,
    archive: Time | None = None,
) -> pa.RecordBatchReader:
    """Read a table of a data directory or archive as it is now. The broker may be running; nothing is consumed.

    A snapshot is taken at once. The files are read, one after the other, when the batches are asked for. The snapshot
    is removed when the last batch has been read, when the reader is closed, or when it is freed.

    Args:
        path: The data directory, or the URI of a copy; or an archive, or a list of one archive and of data directories
            that it may have been copied from, whose newest rows are added. An archive has the tables `messages` and
            `events`.
        table: `messages`, `delayed`, `events`, `segments` or `queues`.
        columns: Names of the columns, in order; None for all. Only these are decoded: name them if you do not need the
            bodies.
        vhost: Virtual host: its name, a pattern with `*`, `?` and `[…]`, or a list of these; None for all.
        queue: Name of the queue, a pattern, or a list of these; None for all. A name must exist.
        as_of: Show the last moment up to this time, as far as the files still have it.
        since: Only messages and events of this time or later.
        until: Only messages and events of this time or earlier.
        first_seq: Only messages with this number or a higher one.
        last_seq: Only messages with this number or a lower one.
        starting_offsets: Only messages of a stream from an offset or a time on: `earliest`, a number, ISO 8601 or a
            datetime, or `@` and seconds since 1970.
        ending_offsets: Only messages before an offset or a time; `latest` for all.
        limit: Read at most this many rows.
        mode: `permissive` skips damaged records and logs a warning, `failfast` makes them an error.
        bodies: `json`, `avro` or `protobuf`: adds the columns `value`, what the body says, and `value_error`, what is
            wrong with it.
        body_schema: For JSON the type of `value`, in Spark's DDL or as an Arrow schema or type; None to infer it. For
            Avro the path of a schema, or its text. For Protobuf the path of a file with a descriptor set.
        body_message: For Protobuf, the full name of the message.
        body_sample: For JSON, from how many messages at most the type is inferred; 1000 by default.
        archive: Which events that a broker does not keep any more are read from its archive: `auto` (the default) for
            those that `since`, `until` or `as_of` asks for, `all`, those since a time, or `off` for none.
    Raises:
        OptionError: An argument is wrong, or does not apply to the table.
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or there is no such queue.
        AnalyticsError: Neither PyArrow nor fsspec can open the URI.
        ArchiveError: The archive cannot be read.
        DamagedRecordError: With `failfast`, data of that moment is damaged or gone. What is damaged inside of a file
            is found while reading: then the reader raises `pyarrow.ArrowInvalid`, which names file and byte.
    """
    locations = locations_in(path)
    given = named_options(
        locations[0],
        table,
        vhost=vhost,
        queue=queue,
        as_of=as_of,
        since=since,
        until=until,
        first_seq=first_seq,
        last_seq=last_seq,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        limit=limit,
        mode=mode,
        bodies=bodies,
        body_schema=schema_text(body_schema),
        body_message=body_message,
        body_sample=body_sample,
        archive=archive,
    )
    options = parse_options(given)
    query = make_query(options, find_sources(locations), columns)
    plan = query.plan()
    return held_reader(query.schema, query.read(plan.parts), plan.leases)
