"""A local Spark, one for all tests of a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from leveret.analytics import register

ROOT = Path(__file__).parents[2]
# For all sessions, those of programs that tests start as well.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")


def spark_home(directory: Path) -> Path:
    """Spark without its `pyspark.zip`: that has no byte code, so that each Python process compiled all that it imports.

    Without it they import the installed package, which takes half the time. Spark gives some of them 10 s to start.
    """
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "python":
            (directory / each.name).symlink_to(each)
    return directory


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that has the data source; its workers find the project's packages."""
    os.environ["SPARK_HOME"] = str(spark_home(tmp_path_factory.mktemp("spark")))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("leveret-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    looks_after = register(session)
    yield session
    looks_after.close()
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests the time that Spark takes to start where many others do so too; a limit of their own counts first."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
