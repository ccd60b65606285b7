"""Options common to all jobs, and access to the tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.archive.archived_columns import ARCHIVED_TABLES, BROKER
from leveret.storage.analytics.archive.sources import is_archive
from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.data_files import absolute_location
from leveret.storage.analytics.session import register
from leveret.storage.analytics.times import parse_time
from leveret.storage.analytics.whole_spans import span_start

#: Results of a job: data frames by name, the main one first.
Results: TypeAlias = dict[str, DataFrame]


#: Lengths of the time spans in seconds, by name.
_GRAINS: Final = {"minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job.

    Attributes:
        data_dir: Path or URI of the data directory, or of an archive.
        as_of: Time in the past to show, in ISO 8601 or seconds since 1970; None for the latest state.
        vhost: Virtual host, with wildcards `*` and `?`; None for all.
        queue: Name of the queue, with wildcards `*` and `?`; None for all.
        output: Directory to write to; None for none.
        values: Options of a single job, such as `query` or `max_length`.
        snapshot: Result of Session.snapshot(), shared by all tables; None for a separate snapshot per table.
        grain: Time span by which results are grouped: `minute`, `hour` or `day`.
    """

    data_dir: str
    as_of: str | None = None
    vhost: str | None = None
    queue: str | None = None
    output: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None
    grain: str = "minute"

    @property
    def location(self) -> str:
        """Absolute path or URI of the data directory."""
        return absolute_location(self.data_dir)

    @property
    def is_archive(self) -> bool:
        """Whether it is an archive."""
        return is_archive(self.location)

    @property
    def queue_key(self) -> tuple[str, ...]:
        """Names of the columns that tell queues apart; in an archive, brokers have queues of the same name."""
        return (BROKER, "vhost", "queue") if self.is_archive else ("vhost", "queue")

    @property
    def source_options(self) -> dict[str, str]:
        """Options of the data source that select the same data."""
        named = {"asOf": self.as_of, "vhost": self.vhost, "queue": self.queue, "snapshot": self.snapshot}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def moment(self) -> int:
        """Time up to which ages are calculated, in microseconds since 1970: now, or `as_of`.

        Waiting messages also age while nothing happens or the broker is stopped.
        """
        now = time.time_ns() // 1000
        return now if self.as_of is None else min(now, parse_time(self.as_of))

    def span(self, at: str) -> Column:
        """Return the start of a time's span in UTC, as column `minute` whatever the grain is.

        Args:
            at: Name of the column with the time.
        """
        return f.timestamp_micros(span_start(f.unix_micros(at), _GRAINS[self.grain] * 1_000_000)).alias("minute")

    def age(self, since: str) -> Column:
        """Return the seconds from the time in a column until `moment`.

        Args:
            since: Name of the column.
        """
        return f.greatest(f.lit(0.0), (f.lit(self.moment) - f.unix_micros(since)) / 1_000_000)

    def with_snapshot(self, spark: SparkSession) -> JobOptions:
        """Return these options with a snapshot, so that all tables show the same moment; archives have none."""
        if self.snapshot is not None or self.is_archive:
            return self
        return replace(self, snapshot=register(spark).snapshot(self.location, **self.source_options))

    def table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return a table as a data frame.

        Args:
            spark: The session.
            table: Name of the table.
            columns: Names of the columns to read; empty for all. That of the broker is added if it is an archive.
            options: Further options of the data source.
        """
        register(spark)
        source_options = self.source_options
        if table == "delayed":
            source_options = {name: value for name, value in source_options.items() if name != "queue"}
        reader = spark.read.format("leveret").options(table=table, **source_options, **options)
        if columns:
            types = TABLES[table]
            if self.is_archive:
                types, columns = ARCHIVED_TABLES[table], (BROKER, *columns)
            reader = reader.schema(", ".join(f"`{name}` {types[name]}" for name in columns))
        return reader.load(self.location)
