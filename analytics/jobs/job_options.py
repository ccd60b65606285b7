"""Options common to all jobs, and access to the tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.archive.layout import Sources, find_sources
from leveret.analytics.columns import ARCHIVED_TABLES, BROKER, TABLES, ddl_of
from leveret.analytics.data_files import absolute_location, open_files
from leveret.analytics.errors import OptionError
from leveret.analytics.option_values import parse_archive
from leveret.analytics.options import applies
from leveret.analytics.spark.session import register, take_snapshots, with_brokers
from leveret.analytics.times import parse_time, utc_time
from leveret.storage.snapshots.snapshot import NoSuchQueueError, read_directory_format


def span_start(microseconds: Column, length: int) -> Column:
    """Return the start of the span of time in which a time is; both in microseconds since 1970.

    Args:
        length: Length of the spans in microseconds; one begins in 1970.
    """
    return microseconds - f.pmod(microseconds, f.lit(length))


def whole_spans(microseconds: Column, length: int) -> Column:
    """Return how many whole spans of time lie between 1970 and a time; negative before 1970.

    Args:
        microseconds: The time, in microseconds since 1970.
        length: Length of the spans in microseconds.
    """
    return f.call_function("div", span_start(microseconds, length), f.lit(length))


#: Results of a job: data frames by name, the main one first.
Results: TypeAlias = dict[str, DataFrame]
#: Lengths of the time spans in seconds, by name.
_GRAINS: Final = {"minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True)
class JobOptions:
    """Options of a job.

    Attributes:
        data_dir: Path or URI of the data directory, or of an archive; or several: an archive, and data directories
            that it may have been copied from.
        as_of: Time in the past to show, in ISO 8601 or seconds since 1970; None for the latest state.
        vhost: Virtual host: its name, a pattern, or a list of these as names_text() makes it; None for all.
        queue: Name of the queue, or such a pattern or list; None for all.
        output: Directory to write to; None for none.
        values: Options of a single job, such as `query` or `max_length`.
        snapshots: Results of Session.snapshot() by data directory, shared by all tables; empty for a separate snapshot
            per table. A data directory that has no such queue is missing.
        until: Time of the last row of an archive, in ISO 8601, so that all tables end there; None for all rows.
        grain: Time span by which results are grouped: `minute`, `hour` or `day`.
        archive: Which events that a broker does not keep any more are read from its archive, as the option `archive` of
            the data source says it; None for its default.
    """

    data_dir: str | tuple[str, ...]
    as_of: str | None = None
    vhost: str | None = None
    queue: str | None = None
    output: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    until: str | None = None
    grain: str = "minute"
    archive: str | None = None

    @property
    def locations(self) -> list[str]:
        """Absolute paths or URIs of the archive and the data directories."""
        given = [self.data_dir] if isinstance(self.data_dir, str) else self.data_dir
        return [absolute_location(each) for each in given]

    @cached_property
    def sources(self) -> Sources | None:
        """The archive that is read, and data directories with it; None for a data directory alone.

        Raises:
            OptionError: They are several, and not one of them is an archive, or more than one.
        """
        return find_sources(self.locations)

    @property
    def live(self) -> tuple[str, ...]:
        """The data directories."""
        return tuple(self.locations) if self.sources is None else self.sources.live

    @property
    def queue_key(self) -> tuple[str, ...]:
        """Names of the columns that tell queues apart; in an archive, brokers have queues of the same name."""
        return ("vhost", "queue") if self.sources is None else (BROKER, "vhost", "queue")

    @property
    def moment(self) -> int:
        """Time up to which ages are calculated, in microseconds since 1970: now, or `as_of`.

        Waiting messages also age while nothing happens or the broker is stopped.
        """
        now = time.time_ns() // 1000
        return now if self.as_of is None else min(now, parse_time(self.as_of))

    def span(self, at: str) -> Column:
        """Return the start of a time's span in UTC, as column `minute` whatever the grain is."""
        return f.timestamp_micros(span_start(f.unix_micros(at), _GRAINS[self.grain] * 1_000_000)).alias("minute")

    def age(self, since: str) -> Column:
        """Return the seconds from the time in a column until `moment`."""
        return f.greatest(f.lit(0.0), (f.lit(self.moment) - f.unix_micros(since)) / 1_000_000)

    def named(self, **given: str | None) -> dict[str, str]:
        """Return options of the data source: the virtual host, the queue, and others that are not None."""
        named = {"vhost": self.vhost, "queue": self.queue, **given}
        return {name: value for name, value in named.items() if value is not None}

    def with_snapshot(self, spark: SparkSession) -> JobOptions:
        """Return these options with a snapshot of each data directory, so that all tables show the same moment.

        Raises:
            DataDirectoryError: A path is not a data directory, or a newer version wrote it.
            SnapshotError: No snapshot can be taken, or there is no archive and the queue does not exist.
        """
        if self.snapshots or self.until is not None:
            return self
        session = register(spark)

        def take(location: str) -> str:
            return session.snapshot(location, **self.named(asOf=self.as_of))

        if self.sources is None:
            return replace(self, snapshots={self.locations[0]: take(self.locations[0])})
        # Archives have no snapshots.
        until = utc_time(self.moment).isoformat()
        return replace(self, snapshots=take_snapshots(take, self.sources), until=until)

    def table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return a table as a data frame; `messages` and `events` of an archive are all that have come.

        Args:
            columns: Names of the columns to read; empty for all. That of the broker is added if it is an archive.
        """
        if self.sources is None:
            return self._live_table(spark, self.locations[0], table, columns, options)
        register(spark)
        until = self.until or self.as_of
        reader = spark.read.format("leveret").options(table=table, **self.named(until=until), **options)
        if columns:
            types = ARCHIVED_TABLES[table]
            reader = reader.schema(ddl_of({name: types[name] for name in (BROKER, *columns)}))
        return reader.load(self.locations)

    def live_table(self, spark: SparkSession, table: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return a table of all data directories, without what an archive has: `messages` are those that wait.

        Args:
            columns: Names of the columns to read; empty for all. That of the broker is added if there is an archive.
        Raises:
            OptionError: There is no data directory.
            DataDirectoryError: A path is not a data directory, or a newer version wrote it.
            SnapshotError: No snapshot can be taken, or none of them has the queue.
        """
        if self.sources is None:
            return self._live_table(spark, self.locations[0], table, columns, options)
        self.check_live()
        given = self.with_snapshot(spark)
        if not given.snapshots:
            raise NoSuchQueueError(f"there is no queue '{self.queue}' in {' and '.join(self.live)}")
        frames = {each: given._live_table(spark, each, table, columns, options) for each in given.snapshots}
        return with_brokers(frames, self.sources)

    def check_live(self) -> None:
        """Check that there is a data directory.

        Raises:
            OptionError: There is an archive alone.
        """
        if not self.live:
            given = f"--data-dir {self.data_dir if isinstance(self.data_dir, str) else self.data_dir[0]}"
            raise OptionError(
                f"{self.locations[0]} is an archive, which does not say what waits; name the data directories of its "
                f"brokers as well: {given} --data-dir leveret-data"
            )

    def check(self) -> None:
        """Check what can be checked without Spark.

        Raises:
            OptionError: `as_of` is no time, or there are several data directories and not one archive; or an archive is
                read anyway, or `archive` is not what the option can be.
        """
        if self.as_of is not None:
            parse_time(self.as_of)
        _ = self.sources
        if self.archive is not None:
            parse_archive(self.archive)
            if self.sources is not None:
                raise OptionError(
                    f"--archive is for a data directory alone; what {self.sources.archive} has is read from it anyway"
                )

    def check_directories(self) -> None:
        """Check that the data directories can be read.

        Raises:
            DataDirectoryError: A path is not a data directory, or a newer version wrote it.
            AnalyticsError: It cannot be opened.
        """
        for location in self.live:
            read_directory_format(*open_files(location))

    def _live_table(
        self, spark: SparkSession, location: str, table: str, columns: Sequence[str], options: Mapping[str, str]
    ) -> DataFrame:
        """Return a table of one data directory as a data frame."""
        register(spark)
        archive = self.archive if applies("archive", table) else None
        given = self.named(asOf=self.as_of, snapshot=self.snapshots.get(location), archive=archive)
        if table == "delayed":
            given.pop("queue", None)
        reader = spark.read.format("leveret").options(table=table, **given, **options)
        if columns:
            reader = reader.schema(ddl_of({name: TABLES[table][name] for name in columns}))
        return reader.load(location)
