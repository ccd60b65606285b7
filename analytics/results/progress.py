"""Shows the progress of a job on stderr."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_PERIOD: Final = 0.5


class SparkProgress:
    """Context manager that shows how many tasks of the active stages are done.

    On a terminal it updates one line; elsewhere it writes one line at the start and one at the end.

    Args:
        spark: The session.
        title: Name of the job.
    """

    def __init__(self, spark: SparkSession, title: str) -> None:
        self._spark = spark
        self._title = title
        self._ended = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> SparkProgress:
        if not sys.stderr.isatty():
            sys.stderr.write(f"{self._title} …\n")
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            sys.stderr.write("\r\x1b[K")
        how = "failed after" if error is not None else "done in"
        sys.stderr.write(f"{self._title}: {how} {time.monotonic() - self._started:.1f} s\n")

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            try:
                text = self._state()
            except (PySparkException, AttributeError, ConnectionError):
                # Spark Connect has no status tracker.
                text = "working"
            sys.stderr.write(f"\r\x1b[K{self._title}: {text}, {time.monotonic() - self._started:.0f} s")
            sys.stderr.flush()

    def _state(self) -> str:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return f"{done} of {total} tasks" if total else "planning"
