"""Starts Spark for the jobs."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.java.class_archive import FAST_LAUNCHER, SparkCache, driver_settings, is_local, unpacked_spark


class JavaStderr(io.TextIOBase):
    """Replacement for sys.stderr that writes to Java's System.err."""

    def __init__(self, jvm: Any) -> None:
        super().__init__()
        self._stream = jvm.java.lang.System.err

    def write(self, text: str) -> int:
        """Write a text to Java's stderr; to Python's stderr if the JVM has ended."""
        try:
            self._stream.print(text)
            self._stream.flush()
        except (Py4JError, OSError):
            assert sys.__stderr__ is not None
            sys.__stderr__.write(text)
        return len(text)


#: Suffixes of files from which workers can import packages: PySpark's list, and wheels, which are zip files too.
_PACKED: Final = (*SparkContext.PACKAGE_EXTENSIONS, ".whl")


def start_spark(
    master: str, py_files: str | None = None, archives: str | None = None, cache: SparkCache | None = None
) -> SparkSession:
    """Start a session, with Java if none is running.

    Args:
        master: The master; "" for that of spark-submit.
        archives: Environments for the workers, as for spark-submit.
        cache: What makes a local Spark start fast; None to start it without.
    Raises:
        AnalyticsError: It does not start; the text has the reason.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The error is reported in one line by main(), so PySpark must not log it as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Local workers use the Python of this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local-cluster"):
        os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    SparkContext.PACKAGE_EXTENSIONS = _PACKED
    builder = SparkSession.builder.appName("leveret-analytics")
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Not INT96, which has no statistics, and is read as a time without a zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "4" if master.startswith("local") else "64",
        "spark.sql.adaptive.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if is_local(master):
        settings |= _prepare_java(cache)
    if archives:
        settings["spark.archives"] = archives
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        for path in filter(None, (py_files or "").split(",")):
            spark.sparkContext.addPyFile(path)
        return spark
    except Py4JError as error:
        # If the master does not answer, Spark logs the reason and stops the context.
        if "stopped SparkContext" in str(error):
            raise AnalyticsError(f"Spark does not start: no master answers at {master}") from error
        raise AnalyticsError(f"Spark does not start: {' '.join(str(error).splitlines()[:2])}") from error
    except (PySparkException, OSError, RuntimeError) as error:
        raise AnalyticsError(f"Spark does not start: {str(error).splitlines()[0]}") from error


def _prepare_java(cache: SparkCache | None) -> dict[str, str]:
    """Prepare the environment for a local Spark, unless Java is running; return the settings of the session."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", FAST_LAUNCHER)
    if cache is None:
        return driver_settings()
    home = unpacked_spark(cache)
    if home is not None:
        os.environ["SPARK_HOME"] = home
    return driver_settings(cache.options)
