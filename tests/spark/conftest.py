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
# Jobs keep something there, which is not to be in that of the user.
os.environ["XDG_CACHE_HOME"] = str(ROOT / "build" / "cache")


def spark_home(directory: Path) -> Path:
    """Spark without its `pyspark.zip`: that has no byte code, so that each Python process compiled all that it imports.

    Without it they import the installed package, which takes half the time. Spark gives some of them 10 s to start.
    """
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "python":
            (directory / each.name).symlink_to(each)
    return directory


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark with byte code; for SPARK_HOME."""
    return spark_home(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def spark(home: Path) -> Iterator[SparkSession]:
    """A session that has the data source; its workers find the project's packages."""
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with pytest.MonkeyPatch.context() as patch:
        # For Spark only, which hands it on to its workers.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        session = _start()
    looks_after = register(session)
    yield session
    looks_after.close()
    session.stop()


def _start() -> SparkSession:
    session: SparkSession = (
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
    return session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests the time that Spark takes to start where many others do so too; a limit of their own counts first."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
