"""What all jobs are told, and how they get at the tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.data_files import absolute
from leveret.storage.analytics.options import parse_time
from leveret.storage.analytics.session import register

#: What a job makes: data frames by name, the one that it is about first.
Results: TypeAlias = dict[str, DataFrame]


#: Time spans to count by, in seconds.
_GRAINS: Final = {"minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job is told.

    Attributes:
        data_dir: The data directory, or its URI.
        as_of: A moment in the past, as in ISO 8601; None for the latest.
        vhost: Virtual host, `*` and `?` standing for anything; None for all.
        queue: Name of the queue, likewise.
        output: A directory to write to; None if there is none.
        values: What is said to one job alone, such as `query` or `max_length`.
        snapshot: As of Session.snapshot(), for tables of one moment; None for a moment for each table.
        grain: How long the time spans are that are counted by: `minute`, `hour` or `day`.
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
        """The data directory as a path that works from other directories too."""
        return absolute(self.data_dir)

    @property
    def source_options(self) -> dict[str, str]:
        """The same for the data source."""
        named = {"asOf": self.as_of, "vhost": self.vhost, "queue": self.queue, "snapshot": self.snapshot}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def moment(self) -> int:
        """The current time for the job: ages are counted up to then, in microseconds since 1970.

        What waits grows older also while nothing happens, or no broker runs.
        """
        now = time.time_ns() // 1000
        return now if self.as_of is None else min(now, parse_time(self.as_of))

    def span(self, at: str) -> Column:
        """The beginning of the time span that a time is in, in UTC; called `minute`, as that is the rule.

        Args:
            at: Name of the column.
        """
        seconds = _GRAINS[self.grain]
        return f.timestamp_seconds(f.floor(f.unix_micros(at) / (seconds * 1_000_000)) * seconds).alias("minute")

    def age(self, since: str) -> Column:
        """Seconds from the time in a column to the moment.

        Args:
            since: Name of the column.
        """
        return f.greatest(f.lit(0.0), (f.lit(self.moment) - f.unix_micros(since)) / 1_000_000)

    def at_one_moment(self, spark: SparkSession) -> JobOptions:
        """The same with a snapshot, so that all tables show the same moment."""
        if self.snapshot is not None:
            return self
        return replace(self, snapshot=register(spark).snapshot(self.location, **self.source_options))

    def table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """One of the tables, of which only some columns are read.

        Args:
            spark: The session.
            table: Its name.
            columns: Names of the columns; all if there are none.
            options: Further options of the data source.
        """
        register(spark)
        reader = spark.read.format("leveret").options(table=table, **self.source_options, **options)
        if columns:
            reader = reader.schema(", ".join(f"`{name}` {TABLES[table][name]}" for name in columns))
        return reader.load(self.location)
