"""The Python that Spark's local workers run: this process's, unless another one was chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.analytics.errors import AnalyticsError

_PROGRAM = "import numpy, pyarrow, pyspark"


def prepare_workers(spark: SparkSession) -> None:
    """Let local workers run the Python of this process; if `PYSPARK_PYTHON` names another one, check that one.

    Spark's own default is the `python3` on the path, which has other libraries than this process if that runs in a
    virtual environment. The workers of a cluster are left alone.

    Args:
        spark: The session, before it has run a query.
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
