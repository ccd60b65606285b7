"""The archive of classes, made by Java and used by jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.directories import DirectoryBuilder

ROOT = Path(__file__).parents[2]
#: Starts Spark as a job does, and says which archives its Java has mapped.
LOOK = """
from pathlib import Path
from pyspark import SparkContext
from leveret.analytics.java.spark_start import open_cache
from leveret.analytics.java.spark_start import start_spark
spark = start_spark("local[1]", cache=open_cache())
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text().splitlines()
print(sorted({line.rpartition("/")[2] for line in maps if line.endswith(".jsa")}))
"""
#: The process that a job starts, but not at the lowest priority: it would wait for all tests beside this one.
MAKE = """
import os
from leveret.analytics.java import archive_maker
os.nice = lambda increment: 0
archive_maker.main()
"""


@pytest.mark.spark
def test_jobs_use_the_archive_and_say_nothing_of_it(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.publish(builder.store(builder.queue("q")), [b"m"] * 3)
    builder.tick()
    builder.close()
    chosen = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LAUNCHER_OPTS")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    options = ("--data-dir", builder.path, "--format", "json", "--as-of", "2024-01-01T00:00:00Z")
    job = ("-m", "leveret.analytics.command", "backlog", *options)
    first = run(*job)
    places = [*(tmp_path / "cache" / "leveret").iterdir()]
    assert [each.name for place in places for each in place.iterdir()] == ["home"], "one job may be the only one"
    run("-c", MAKE)
    (archive,) = places[0].glob("*.jsa")
    made = archive.stat()
    run("-m", "leveret.analytics.java.archive_maker")
    assert [each.stat() for each in places[0].glob("*.jsa")] == [made], "there is one already"
    assert archive.name in run("-c", LOOK).stdout
    archived = run(*job)
    assert archived.stdout == first.stdout
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes()[:100_000])
    # So that the job starts no process to make another one.
    (archive.parent / f"{archive.stem.rpartition('-')[0]}.failed").touch()
    damaged = run(*job)
    assert damaged.stdout == first.stdout
    for done in (archived, damaged):
        assert len(done.stderr.splitlines()) == len(first.stderr.splitlines()), done.stderr
