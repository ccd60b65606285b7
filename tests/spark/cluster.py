"""A standalone Spark cluster on this machine: a master and two workers, whose Python does not know the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

#: The interpreter below the virtual environment, which does not look into the files of type .pth that lead to us.
PYTHON: Final = os.path.realpath(sys.executable)
_PATIENCE: Final = 600.0
_CONF: Final = Path(__file__).parent / "conf"


def worker_environment(home: Path) -> dict[str, str]:
    """What workers are started with: they find Spark and Arrow, but none of the project's packages.

    Args:
        home: Where Spark is.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return environment | {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(_CONF),
    }


@contextmanager
def cluster(directory: Path, home: Path, workers: int = 2) -> Iterator[str]:
    """Start one; its URL.

    Args:
        directory: For logs and the workers' files; nothing of the project may be in it.
        home: Where Spark is.
        workers: How many, each with one core.
    """
    with ExitStack() as stack:
        log = stack.enter_context(_daemon(directory, home, "master.Master", "--port", "0", "--webui-port", "0"))
        url = _await(log, r"Starting Spark master at (spark://\S+)")
        options = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        logs = [
            stack.enter_context(
                _daemon(directory, home, "worker.Worker", *options, "--work-dir", str(directory / f"w{number}"), url)
            )
            for number in range(workers)
        ]
        for each in logs:
            _await(each, r"(Successfully registered with master)")
        yield url


@contextmanager
def _daemon(directory: Path, home: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A process of the cluster; the path of its log."""
    log = directory / f"{name}-{len(list(directory.iterdir()))}.log"
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with log.open("wb") as target:
        process = subprocess.Popen(command, cwd=directory, env=worker_environment(home), stdout=target, stderr=target)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=_PATIENCE)


def _await(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text("utf-8"))
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"no '{pattern}' in {log.read_text('utf-8')}")


def driver_environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """What a program is started with that uses the cluster: its workers are to run the interpreter that is there.

    The driver's side finds Spark and Arrow by the path too, and the project only where it was installed.
    """
    return worker_environment(home) | {"PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}
