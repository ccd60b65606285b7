"""Jobs on a cluster whose workers have Spark, but nothing of the project; by the documented commands."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.command import JOBS, error_summary, main
from leveret.broker.version import VERSION
from leveret.storage.event_format import EventKind
from tests.spark.archive_jobs import PAGE, results
from tests.spark.cluster import PYTHON, cluster, driver_environment, worker_environment
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.support.documentation import block

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
#: Have pip build the wheel with what is installed (0 is how the variable says that builds are not isolated).
_OFFLINE = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
_WHEEL = f"leveret-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), home) as url:
        yield url


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    builder = DirectoryBuilder(tmp_path_factory.mktemp("data"))
    for name in ("a", "b"):
        builder.publish(builder.store(builder.queue(name)), [b"%03d" % number for number in range(200)])
    builder.tick()
    builder.close()
    return builder.path


_PROGRAMS = {".venv/bin/": f"{os.path.dirname(sys.executable)}/"}


def commands() -> list[str]:
    """Those of the documentation."""
    return block("sh", "spark-submit").splitlines()


def run(command: str, home: Path, given: dict[str, str]) -> str:
    """Run a command with some of its words replaced; what it prints."""
    for text, replacement in given.items():
        command = command.replace(text, replacement)
    done = subprocess.run(
        shlex.split(command),
        cwd=ROOT,
        env=driver_environment(home, {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", **_OFFLINE}),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_workers_know_nothing_of_the_project(home: Path) -> None:
    command = [PYTHON, "-c", "import pyspark, pyarrow, numpy; import leveret"]
    done = subprocess.run(command, cwd="/", env=worker_environment(home), capture_output=True, text=True, check=False)
    assert "No module named 'leveret'" in done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    """Made by the documented command."""
    built = tmp_path_factory.mktemp("wheel")
    pack, *_ = commands()
    assert run(pack, home, {"--wheel-dir dist": f"--wheel-dir {built}", **_PROGRAMS}) == ""
    return built / _WHEEL


def test_the_documented_commands(master: str, home: Path, directory: str, wheel: Path) -> None:
    given = {"/mnt/leveret": directory, "spark://master:7077": master, f"dist/{_WHEEL}": str(wheel), **_PROGRAMS}
    _, program, submit = commands()
    lines: list[dict[str, Any]] = [json.loads(line) for line in run(submit, home, given).splitlines()]
    assert [(row["queue"], row["messages"], row["body_bytes"]) for row in lines] == [("a", 200, 600), ("b", 200, 600)]
    rows = [line.split()[:4] for line in run(program, home, given).splitlines()]
    assert ["/", "a", "k", "200"] in rows
    assert ["/", "b", "k", "200"] in rows
    assert list((Path(directory) / "snap").iterdir()) == []


def test_an_archive_is_read_without_the_data_directory(
    master: str, home: Path, directory: str, wheel: Path, tmp_path: Path
) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("a"))
    for number in range(40):
        builder.publish(store, [b"%03d" % number] * 10)
        builder.tick()
        builder.settle(store, 5, EventKind.MAXLEN)
        if number % 10 == 9:
            builder.tick()
            archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    builder.close()
    shutil.rmtree(tmp_path / "data")
    given = {"spark://master:7077": master, f"dist/{_WHEEL}": str(wheel), **_PROGRAMS}
    given["--data-dir archive"] = f"--data-dir {tmp_path / 'archive'}"
    command = f"{block('sh', 'overflow --data-dir archive').strip()} --format json"
    (row,) = [json.loads(line) for line in run(command, home, given).splitlines()]
    assert (row["queue"], row["reason"], row["messages"]) == ("a", "maxlen", 200)
    query = "select count(*) as n, count(distinct seq) as keys, min(broker) as broker from messages"
    command = command.replace(" overflow ", f' sql --query "{query}" ')
    assert json.loads(run(command, home, given)) == {"n": 400, "keys": 400, "broker": "one"}


@pytest.fixture
def archived(tmp_path: Path) -> tuple[str, str]:
    """An archive of two brokers, whose directories are gone, and the time of its end."""
    url, death = str(tmp_path / "archive"), {"queue": "work", "reason": "rejected", "count": 1}
    builders = {name: DirectoryBuilder(tmp_path / name) for name in ("one", "two")}
    for name, builder in builders.items():
        stores = {queue: builder.store(builder.queue(queue)) for queue in ("a", "b")}
        for queue, store in stores.items():
            for number in range(30):
                builder.publish(store, [b"%s %03d" % (queue.encode(), number)] * 2, headers={"n": number})
                builder.wait(7)
            builder.settle(store, 20)
            builder.settle(store, 11 if queue == "a" else 3, EventKind.MAXLEN)
            builder.publish(store, [b"dead"], headers={"x-death": [death]})
            builder.tick()
            archive(builder, ArchiveFiles(url), broker=name)
        builder.settle(stores["b"], 1, EventKind.EXPIRED)
        builder.tick()
        archive(builder, ArchiveFiles(url), broker=name)
        builder.close()
        shutil.rmtree(builder.path)
    return url, str(max(builder.clock.time for builder in builders.values()) / 1e6 + 3600)


def test_every_job_that_takes_an_archive_runs_on_the_cluster(
    master: str, home: Path, wheel: Path, archived: tuple[str, str], tmp_path: Path, spark: SparkSession
) -> None:
    """All in one session; with the results that they have on this machine."""
    package = shutil.copyfile(wheel, tmp_path / "leveret.zip")
    program = f"{sys.executable} -m tests.spark.archive_jobs {master} {package} {' '.join(archived)}"
    there: dict[str, list[str]] = json.loads(run(program, home, {}))
    here = results(spark, *archived)
    (page,), _ = there.pop(PAGE), here.pop(PAGE)
    assert there == here
    assert all(there.values()), "each job has rows"
    assert there.keys() == JOBS.keys() - {"backlog", "export"}
    for text in ("messages have come", "two: a", "An archive does not say what waits"):
        assert text in page


def test_a_program_sends_the_wheel_itself(master: str, home: Path, directory: str, wheel: Path, tmp_path: Path) -> None:
    sending = block("python", "addPyFile")
    program = tmp_path / "program.py"
    program.write_text(
        "import shutil\n\nimport leveret.analytics\nfrom pyspark.sql import SparkSession\n\n"
        f"spark = SparkSession.builder.master({master!r}).config('spark.ui.enabled', 'false').getOrCreate()\n"
        + sending.replace(f"dist/{_WHEEL}", str(wheel)).replace("leveret.zip", str(tmp_path / "leveret.zip"))
        + f"print('waiting:', spark.read.format('leveret').load({directory!r}).count())\nspark.stop()\n"
    )
    assert "waiting: 400\n" in run(f"{sys.executable} {program}", home, {})


def test_what_workers_lack_is_said() -> None:
    text = "An exception was thrown from the Python worker:\nTraceback\nModuleNotFoundError: No module named 'leveret'"
    said = error_summary(Exception(text))
    assert said.startswith("the workers lack the Python package leveret; send leveret to them with --py-files")


def test_a_master_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["backlog", "--data-dir", "/tmp", "--master", "host:7077"])
    assert raised.value.code == 2
    assert "'host:7077' is not local[*], spark://HOST:PORT" in capsys.readouterr().err
