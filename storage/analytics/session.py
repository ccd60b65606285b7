"""One Spark session's use of data directories: it keeps the snapshots that its queries read, and gives them up."""

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

from leveret.storage.analytics.moments import share
from leveret.storage.analytics.options import parse_options
from leveret.storage.analytics.source import LeveretDataSource
from leveret.storage.analytics.table_reading import DAMAGE_FILE, damage_of
from leveret.storage.snapshots.lease import TIMEOUT, SnapshotLease

#: Seconds between heartbeats.
_PERIOD: Final = 20.0
_SESSIONS: Final[dict[int, Session]] = {}


class Session:
    """Renews the leases of a session's snapshots while it has jobs running; removes those nobody has read for long.

    The queries' tasks renew them as well. Snapshots of streams are their own concern.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.directory = tempfile.mkdtemp(prefix="leveret-session-")
        self._ended = threading.Event()
        #: By path: when it was last known to be in use.
        self._used: dict[str, float] = {}
        self._damaged: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="leveret-leases", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def damaged(self) -> int:
        """Damaged records that its queries have skipped so far."""
        self._note_damage()
        return sum(self._damaged.values())

    def snapshot(self, data_dir: str, **options: str) -> str:
        """Take one snapshot for several queries, so that all of them see the same moment.

        Args:
            data_dir: The data directory, or its URI.
            options: Of the data source: `vhost`, `queue`, `asOf`, `mode`, `leaseSeconds`.
        Returns:
            What to say in the option `snapshot` of these queries. It holds until release(), or until nobody has read
            it for ten minutes.
        Raises:
            DataDirectoryError: It is not a data directory, or was written by a newer version.
            SnapshotError: No snapshot can be taken, or there is no such queue.
            OptionError: An option has no meaning.
        """
        return share(parse_options({**options, "path": data_dir}), self.directory)

    def release(self) -> None:
        """Give up all snapshots. Data frames that were made of them cannot be computed again."""
        # The snapshots' directories go, and with them what they say of damage.
        self._note_damage()
        for path in self._snapshots():
            SnapshotLease(path).release()
        for path, _, names in os.walk(self.directory):
            for name in names:
                os.unlink(os.path.join(path, name))

    def close(self) -> None:
        """Give up all snapshots, and stop looking after further ones."""
        if not self._ended.is_set():
            self._ended.set()
            self.release()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _note_damage(self) -> None:
        """Keep what the snapshots say of damage."""
        for path in [*self._snapshots(), self.directory]:
            self._damaged[path] = max(damage_of(path), self._damaged.get(path, 0))

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            try:
                self._look()
            except OSError:
                # A directory that cannot be reached for a while; the next look may find it again.
                continue

    def _look(self) -> None:
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
            # Spark Connect does not tell, and a session that has been stopped cannot.
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
    """Make the data source `leveret` known to a session; a second time does nothing.

    Afterwards: `spark.read.format("leveret").option("table", "messages").load("/var/lib/leveret")`.

    Args:
        spark: The session.
    Returns:
        What looks after the snapshots of its queries: `release()` gives them up, `damaged` tells what was skipped.
    """
    session = _SESSIONS.get(id(spark))
    if session is None or session._spark is not spark:
        session = _SESSIONS[id(spark)] = Session(spark)
        # A class of its own, so that it is sent by value to wherever queries are planned.
        source = type("LeveretDataSource", (LeveretDataSource,), {"session": session.directory})
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.dataSource.register(source)
    return session


def _is_fresh(path: str) -> bool:
    try:
        return time.time() - os.stat(f"{path}/LEASE").st_mtime < TIMEOUT
    except OSError:
        return False
