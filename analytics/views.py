"""Makes the tables temporary views that show one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.archive.archived_columns import ARCHIVED_TABLES, BROKER
from leveret.analytics.archive.broker_names import broker_names
from leveret.analytics.archive.sources import Sources, find_sources
from leveret.analytics.bodies.body_options import BODY_OPTIONS
from leveret.analytics.columns import TABLES
from leveret.analytics.data_files import absolute_location
from leveret.analytics.options import applies
from leveret.storage.snapshots.snapshot import NoSuchQueueError

#: Takes a snapshot of a data directory, with options of the data source; returns the value of their option `snapshot`.
TakeSnapshot: TypeAlias = Callable[[str, Mapping[str, str]], str]


def make_views(spark: SparkSession, take: TakeSnapshot, locations: Sequence[str], options: Mapping[str, str]) -> None:
    """Make the views; see Session.create_views().

    Args:
        spark: The session.
        take: Takes the snapshots.
        locations: A data directory, or an archive, or an archive and data directories.
        options: Options of the data source.
    Raises:
        DataDirectoryError: A path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or there is no archive and the queue does not exist.
        ArchiveError: The archive cannot be read.
        OptionError: An option is unknown, invalid or not applicable.
    """
    sources = find_sources([absolute_location(each) for each in locations])
    if sources is not None:
        _make_archived(spark, take, sources, options)
        return
    (location,) = locations
    moment = take(location, _applicable(options, "messages"))
    for table in TABLES:
        _live(spark, table, location, moment, options).createOrReplaceTempView(table)


def _make_archived(spark: SparkSession, take: TakeSnapshot, sources: Sources, options: Mapping[str, str]) -> None:
    """Make `messages` and `events` views of what has come, and the other tables those of the data directories."""
    as_of = next((value for name, value in options.items() if name.lower() == "asof"), None)
    # Data directories may have bodies of different types.
    of_live = {name: value for name, value in options.items() if name.lower() not in BODY_OPTIONS}
    moments: dict[str, str] = {}
    for location in sources.live:
        try:
            moments[location] = take(location, _applicable(of_live, "messages"))
        except NoSuchQueueError:
            # The archive or another data directory may have the queue.
            continue
    # Archives have no snapshots.
    until = as_of or datetime.now(UTC).isoformat()
    given = {name: value for name, value in options.items() if name.lower() != "asof"}
    names = broker_names(sources.archive, sources.live)
    for table in TABLES:
        if table in ARCHIVED_TABLES:
            reader = spark.read.format("leveret").options(**_applicable(given, table), table=table, until=until)
            reader.load([sources.archive, *sources.live]).createOrReplaceTempView(table)
        elif moments:
            frames = [
                _live(spark, table, location, moment, of_live).select(f.lit(names[location]).alias(BROKER), "*")
                for location, moment in moments.items()
            ]
            reduce(DataFrame.unionAll, frames).createOrReplaceTempView(table)
        else:
            spark.catalog.dropTempView(table)


def _live(spark: SparkSession, table: str, location: str, moment: str, options: Mapping[str, str]) -> DataFrame:
    reader = spark.read.format("leveret").options(**_applicable(options, table), table=table, snapshot=moment)
    return reader.load(location)


def _applicable(options: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the options that apply to a table."""
    return {name: value for name, value in options.items() if applies(name.lower(), table)}
