"""Registers the data source in a Spark session; renews and releases the snapshots that its queries read."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.storage.analytics.options import parse_options
from leveret.storage.analytics.query_snapshots import save_shared_snapshot
from leveret.storage.analytics.source import LeveretDataSource
from leveret.storage.analytics.table_reading import DAMAGE_FILE, damage_of
from leveret.storage.snapshots.lease import TIMEOUT, SnapshotLease

#: Seconds between heartbeats.
_PERIOD: Final = 20.0
_SESSIONS: Final[dict[int, Session]] = {}


class Session:
    """Renews the leases of a session's snapshots while it runs jobs; releases those that are unused.

    Tasks renew the leases as well. Streams manage their snapshots themselves.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.directory = tempfile.mkdtemp(prefix="leveret-session-")
        self._ended = threading.Event()
        #: Monotonic time at which a snapshot was last in use, by path.
        self._used: dict[str, float] = {}
        self._damaged: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="leveret-leases", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def damaged(self) -> int:
        """Number of damaged records that the session's queries have skipped."""
        self._collect_damage()
        return sum(self._damaged.values())

    def snapshot(self, data_dir: str, **options: str) -> str:
        """Take one snapshot for several queries, so that all of them see the same moment.

        Args:
            data_dir: The data directory, or its URI.
            options: Options of the data source: `vhost`, `queue`, `asOf`, `mode`, `leaseSeconds`.
        Returns:
            The value for the option `snapshot` of these queries. It is valid until release(), or until the snapshot
            has not been read for ten minutes.
        Raises:
            DataDirectoryError: The path is not a data directory, or a newer version wrote it.
            SnapshotError: No snapshot can be taken, or the queue does not exist.
            OptionError: An option is unknown, invalid or not applicable.
        """
        return save_shared_snapshot(parse_options({**options, "path": data_dir}), self.directory)

    def release(self) -> None:
        """Release all snapshots. Data frames that were made from them cannot be computed again."""
        # The counts of damaged records are in the snapshots' directories, which are removed here.
        self._collect_damage()
        for path in self._snapshots():
            SnapshotLease(path).release()
        for path, _, names in os.walk(self.directory):
            for name in names:
                os.unlink(os.path.join(path, name))

    def close(self) -> None:
        """Release all snapshots, and stop renewing leases."""
        if not self._ended.is_set():
            self._ended.set()
            self.release()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _collect_damage(self) -> None:
        """Read the counts of damaged records from the snapshots' directories."""
        for path in [*self._snapshots(), self.directory]:
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
        for path in self._snapshots():
            if busy:
                SnapshotLease(path).renew()
                self._used[path] = now
            elif now - self._used.setdefault(path, now) > TIMEOUT and not _is_fresh(path):
                SnapshotLease(path).release()

    def _is_busy(self) -> bool:
        try:
            return bool(self._spark.sparkContext.statusTracker().getActiveJobsIds())
        except (PySparkException, AttributeError, ConnectionError):
            # Spark Connect and stopped sessions have no status tracker.
            return False

    def _snapshots(self) -> list[str]:
        found: list[str] = []
        for entry in os.scandir(self.directory):
            if not entry.is_file() or entry.name == DAMAGE_FILE:
                continue
            with open(entry.path, encoding="utf-8") as file:
                path = file.read()
            if path and os.path.isdir(path):
                found.append(path)
        return found


def register(spark: SparkSession) -> Session:
    """Register the data source `leveret` in a session; further calls return the same Session.

    Then use `spark.read.format("leveret").option("table", "messages").load("/var/lib/leveret")`.

    Args:
        spark: The session.
    Returns:
        The object that manages the snapshots of the session's queries: `release()` releases them, `damaged` is the
        number of damaged records that were skipped.
    """
    session = _SESSIONS.get(id(spark))
    if session is None or session._spark is not spark:
        session = _SESSIONS[id(spark)] = Session(spark)
        # A class made here is pickled by value, so that the process that plans queries has `session` too.
        source = type("LeveretDataSource", (LeveretDataSource,), {"session": session.directory})
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.dataSource.register(source)
    return session


def _is_fresh(path: str) -> bool:
    try:
        return time.time() - os.stat(f"{path}/LEASE").st_mtime < TIMEOUT
    except OSError:
        return False
