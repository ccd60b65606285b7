"""The data source in a Spark session: its registration, `read`, views, and the leases of what queries read."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Final, TypeAlias, Unpack

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.archive.layout import Sources, find_sources
from leveret.analytics.archive.manifests import broker_names
from leveret.analytics.columns import ARCHIVED_TABLES, BROKER, TABLES, VALUE, ddl_of, types_of
from leveret.analytics.data_files import absolute_location
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.option_values import BODY_OPTIONS
from leveret.analytics.options import ReadOptions, applies, locations_in, parse_options, refuse_unknown, takes_options
from leveret.analytics.sink.outcome import NOTES, Written, read_written
from leveret.analytics.spark.source import LeveretDataSource
from leveret.analytics.tables.query_snapshots import noted_snapshots, save_shared_snapshot
from leveret.analytics.tables.table_query import make_query, python_options
from leveret.analytics.tables.table_reading import damage_of
from leveret.storage.snapshots.lease import LEASE_FILE, SnapshotLease
from leveret.storage.snapshots.snapshot import NoSuchQueueError

_PROGRAM = "import numpy, pyarrow, pyspark"


def prepare_workers(spark: SparkSession) -> None:
    """Let local workers run the Python of this process; if `PYSPARK_PYTHON` names another one, check that one.

    Spark's own default is the `python3` on the path, which has other libraries than this process if that runs in a
    virtual environment. The workers of a cluster are left alone.

    Raises:
        AnalyticsError: The Python that was chosen cannot be run, or lacks libraries.
    """
    try:
        context = spark.sparkContext
        local = (context.master or "").startswith("local")
    except (PySparkException, AttributeError):
        # Spark Connect: the workers are the server's.
        return
    if not local:
        return
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None:
        context.pythonExec = sys.executable
    elif shutil.which(chosen) != sys.executable:
        _check(chosen)


def _check(python: str) -> None:
    try:
        done = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False)
        reason = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error)
    if reason:
        raise AnalyticsError(
            f"Spark's workers run {python}, as PYSPARK_PYTHON says, and that fails ({reason}); set PYSPARK_PYTHON to "
            f"{sys.executable} before Spark starts, or leave it out"
        )


#: Takes a snapshot of a data directory, with options of the data source; returns the value of their option `snapshot`.
TakeSnapshot: TypeAlias = Callable[[str, Mapping[str, str]], str]


def make_views(spark: SparkSession, take: TakeSnapshot, locations: Sequence[str], options: Mapping[str, str]) -> None:
    """Make the views; see Session.create_views().

    Args:
        locations: A data directory, or an archive, or an archive and data directories.
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
    moments = take_snapshots(lambda location: take(location, _applicable(of_live, "messages")), sources)
    # Archives have no snapshots.
    until = as_of or datetime.now(UTC).isoformat()
    given = {name: value for name, value in options.items() if name.lower() != "asof"}
    for table in TABLES:
        if table in ARCHIVED_TABLES:
            reader = spark.read.format("leveret").options(**_applicable(given, table), table=table, until=until)
            reader.load([sources.archive, *sources.live]).createOrReplaceTempView(table)
        elif moments:
            frames = {each: _live(spark, table, each, moment, of_live) for each, moment in moments.items()}
            with_brokers(frames, sources).createOrReplaceTempView(table)
        else:
            spark.catalog.dropTempView(table)


def take_snapshots(take: Callable[[str], str], sources: Sources) -> dict[str, str]:
    """Return the values of the option `snapshot` for the data directories that have the queue, by their locations."""
    found = {}
    for location in sources.live:
        # The archive or another data directory may have the queue.
        with suppress(NoSuchQueueError):
            found[location] = take(location)
    return found


def with_brokers(frames: Mapping[str, DataFrame], sources: Sources) -> DataFrame:
    """Return a table of several data directories, by their locations, as one with the names of their brokers."""
    names = broker_names(sources.archive, sources.live)
    named = [frame.select(f.lit(names[location]).alias(BROKER), "*") for location, frame in frames.items()]
    return reduce(DataFrame.unionAll, named)


def _live(spark: SparkSession, table: str, location: str, moment: str, options: Mapping[str, str]) -> DataFrame:
    reader = spark.read.format("leveret").options(**_applicable(options, table), table=table, snapshot=moment)
    return reader.load(location)


def _applicable(options: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the options that apply to a table."""
    return {name: value for name, value in options.items() if applies(name.lower(), table)}


#: Seconds between heartbeats.
_PERIOD: Final = 20.0
_SESSIONS: Final[dict[int, Session]] = {}


@dataclass(slots=True)
class _Use:
    """Use of a snapshot.

    Attributes:
        at: Monotonic time at which it was last in use.
        heartbeat: Modification time of the lease after this process renewed it.
    """

    at: float
    heartbeat: float = 0.0


class Session:
    """Renews the leases of a session's snapshots; releases those that have not been used for long.

    Tasks renew the leases as well. Streams manage their snapshots themselves.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.directory = tempfile.mkdtemp(prefix="leveret-session-")
        self._ended = threading.Event()
        #: When each snapshot was last in use, by path.
        self._uses: dict[str, _Use] = {}
        self._views: tuple[list[str], dict[str, str]] | None = None
        self._damaged: dict[str, int] = {}
        self._written = Written()
        self._thread = threading.Thread(target=self._run, name="leveret-leases", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def damaged(self) -> int:
        """Number of damaged records that the session's queries have skipped."""
        self._collect_damage()
        return sum(self._damaged.values())

    @property
    def written(self) -> Written:
        """What the session's queries have published: rows, those that were not taken, and warnings."""
        if not self._ended.is_set():
            self._written = read_written(self.directory)
        return self._written

    def snapshot(self, data_dir: str, **options: str) -> str:
        """Take one snapshot for several queries, so that all of them see the same moment.

        Args:
            data_dir: The data directory, or its URI.
            options: Options of the data source: `vhost`, `queue`, `asOf`, `mode`, `leaseSeconds`.
        Returns:
            The value for the option `snapshot` of these queries. It is valid until release(), or until the snapshot
            has not been read for an hour, or for `leaseSeconds`.
        Raises:
            DataDirectoryError: The path is not a data directory, or a newer version wrote it.
            SnapshotError: No snapshot can be taken, or the queue does not exist.
            OptionError: An option is unknown, invalid or not applicable.
        """
        return save_shared_snapshot(parse_options({**options, "path": data_dir}), self.directory)

    def create_views(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: str) -> None:
        """Make the tables temporary views, named like them, that show one moment until refresh() is called.

        With an archive, `messages` and `events` are all that have come up to that moment; the other tables are those of
        the data directories, and there are none of an archive alone. All have the column `broker`.

        Args:
            path: The data directory, or its URI; or an archive, or a list of one archive and of data directories.
            options: Options of the data source: `vhost`, `queue`, `asOf`, `mode`, `leaseSeconds`, `archive`, and those
                for bodies.
        Raises:
            DataDirectoryError, SnapshotError, OptionError: As snapshot() does.
            ArchiveError: The archive cannot be read.
        """
        locations = locations_in(path)
        make_views(self._spark, lambda location, given: self.snapshot(location, **given), locations, options)
        self._views = (locations, options)

    def refresh(self) -> None:
        """Let the views of create_views() show the present. Queries that are running go on with what they have.

        Raises:
            AnalyticsError: There are no views.
            DataDirectoryError, SnapshotError: As snapshot() does.
        """
        if self._views is None:
            raise AnalyticsError("there are no views; make them with create_views(data_dir)")
        locations, options = self._views
        self.create_views(locations, **options)

    def release(self) -> None:
        """Release all snapshots. Data frames that were made from them cannot be computed again."""
        # The counts of damaged records are in the snapshots' directories, which are removed here.
        self._collect_damage()
        for path, _ in self._snapshots():
            SnapshotLease(path).release()
        for path, directories, names in os.walk(self.directory):
            directories[:] = [name for name in directories if name != NOTES]
            for name in names:
                os.unlink(os.path.join(path, name))

    def close(self) -> None:
        """Release all snapshots, and stop renewing leases."""
        if not self._ended.is_set():
            self._written = read_written(self.directory)
            self._ended.set()
            self.release()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _collect_damage(self) -> None:
        """Read the counts of damaged records from the snapshots' directories."""
        for path in [*(path for path, _ in self._snapshots()), self.directory]:
            self._damaged[path] = max(damage_of(path), self._damaged.get(path, 0))

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            try:
                self._renew_leases()
            except OSError:
                # The directory may be unreachable temporarily; try again in the next period.
                continue

    def _renew_leases(self) -> None:
        now = time.monotonic()
        busy = self._is_busy()
        for path, seconds in self._snapshots():
            use = self._uses.setdefault(path, _Use(now))
            # Tasks renew the lease as well, also where no jobs can be seen.
            if busy or _heartbeat(path) != use.heartbeat:
                use.at = now
            if now - use.at > seconds:
                SnapshotLease(path).release()
            else:
                SnapshotLease(path).renew()
                use.heartbeat = _heartbeat(path)

    def _is_busy(self) -> bool:
        try:
            return bool(self._spark.sparkContext.statusTracker().getActiveJobsIds())
        except (PySparkException, AttributeError, ConnectionError):
            # Spark Connect and stopped sessions have no status tracker.
            return False

    def _snapshots(self) -> list[tuple[str, float]]:
        """Return the snapshots that exist: paths, and the seconds for which they are kept while they are not used."""
        found = []
        for path, seconds in noted_snapshots(self.directory):
            if os.path.isdir(path):
                found.append((path, seconds))
            else:
                self._uses.pop(path, None)
        return found


def register(spark: SparkSession) -> Session:
    """Register the data source `leveret` in a session; further calls return the same Session.

    Then use `spark.read.format("leveret").option("table", "messages").load("/var/lib/leveret")`.

    Args:
        spark: The session.
    Returns:
        The object that manages the snapshots of the session's queries: `release()` releases them, `damaged` is the
        number of damaged records that were skipped, `written` says what was published.
    Raises:
        AnalyticsError: `PYSPARK_PYTHON` names a Python that cannot read the data.
    """
    session = _SESSIONS.get(id(spark))
    if session is None or session._spark is not spark:
        prepare_workers(spark)
        session = _SESSIONS[id(spark)] = Session(spark)
        # A class made here is pickled by value, so that the process that plans queries has `session` too.
        source = type("LeveretDataSource", (LeveretDataSource,), {"session": session.directory})
        spark.dataSource.register(source)
    return session


def _heartbeat(path: str) -> float:
    try:
        return os.stat(f"{path}/{LEASE_FILE}").st_mtime
    except OSError:
        return 0.0


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
