from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.directories import DirectoryBuilder
from tests.support.documentation import ROOT, block

# Starting Spark takes a while where there is little processor to be had.
pytestmark = pytest.mark.spark

#: A Python on the path that is not the one of the program, and has none of its libraries.
_BARE = '#!/bin/sh\necho "$0: No module named pyarrow" >&2\nexit 1\n'


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(_BARE)
    path.chmod(0o755)
    return path


def run(program: str, directory: Path, bare: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program outside of the checkout, as a user does who has installed the package."""
    # The suite's own session has set some of Spark's variables. The folder makes Java start fast, and Spark patient.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK")) or name == "SPARK_CONF_DIR"
    }
    path = f"{bare.parent}:{kept['PATH']}"
    given = {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=directory, env=given, capture_output=True, text=True, timeout=600, check=False)


def test_the_documented_program_works_as_printed(tmp_path: Path, bare: Path) -> None:
    """Its workers run its Python, not the first one on the path. The sample data has its queue."""
    program = block("python", "register(spark)\nwaiting")
    assert '.option("queue", "orders")' in program
    assert '"orders"' in block("python", "x-overflow")
    builder = DirectoryBuilder(tmp_path / "leveret-data")
    builder.publish(builder.store(builder.queue("orders")), [b"x"] * 7)
    builder.tick()
    builder.close()
    done = run(program, tmp_path, bare)
    assert done.returncode == 0, done.stderr
    assert [cell.strip() for cell in done.stdout.splitlines()[3].split("|")] == ["", "orders", "k", "7", ""]


def test_a_python_that_cannot_read_the_data_is_refused_at_once(tmp_path: Path, bare: Path) -> None:
    program = (
        "from pyspark.sql import SparkSession\nfrom leveret.analytics import register\n"
        "register(SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate())"
    )
    done = run(program, tmp_path, bare, PYSPARK_PYTHON=str(bare))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"leveret.analytics.errors.AnalyticsError: Spark's workers run {bare}, as PYSPARK_PYTHON says, and "
        f"that fails ({bare}: No module named pyarrow); set PYSPARK_PYTHON to {sys.executable} before Spark starts, or "
        "leave it out"
    )
