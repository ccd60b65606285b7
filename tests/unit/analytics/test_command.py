from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.analytics import command
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.arguments import exit_on_sigterm
from leveret.analytics.errors import AnalyticsError
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive

FROM_JAVA = """An error occurred while calling o41.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/data/FORMAT
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:873)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_what_java_says_becomes_a_line() -> None:
    reason = command.error_summary(Exception(FROM_JAVA))
    assert reason == "ParentNotDirectoryException: Parent path is not a directory: file:/data/FORMAT"


def test_what_an_archive_lacks_becomes_a_line() -> None:
    raised = "leveret.analytics.errors.ArchiveError: manifests of lake/manifests/0 are missing; restore"
    said = f"[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance plan partitions: Traceback\n{raised}"
    assert command.error_summary(Exception(said)) == "manifests of lake/manifests/0 are missing; restore"


def test_sigterm_ends_a_job_in_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    given_up: list[bool] = []

    def work() -> None:
        with exit_on_sigterm():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.pause()
            finally:
                given_up.append(True)

    with pytest.raises(SystemExit) as raised:
        work()
    assert (raised.value.code, given_up) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_java_duckdb_answers_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = DirectoryBuilder(tmp_path / "it's data")
    for queue in ("a", "b"):
        builder.publish(builder.store(builder.queue(queue)), [b"x"] * 7)
    builder.tick()
    builder.close()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    query = "select queue, 'it''s' as t, messages from Queues where (select count(*) from events) = 0"
    assert command.main(["sql", "--data-dir", builder.path, "--queue", "a", "--query", query]) == 1
    said = capfd.readouterr()
    reason, line = said.err.splitlines()
    assert reason == (
        "leveret-analytics: Spark needs Java: JAVA_HOME is /nowhere, which has no bin/java; install a JDK 17 or newer, "
        "and set JAVA_HOME if it is not on the path. DuckDB answers the query without Java (pip install duckdb):"
    )
    program, *arguments = shlex.split(line)
    assert program == "python"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=True)
    shown = [line.split() for line in done.stdout.splitlines() if "it's" in line]
    assert [[each for each in row if each != "│"] for row in shown] == [["a", "it's", "7"]]
    assert command.main(["sql", "--data-dir", builder.path, "--archive", "off", "--query", "select 1 from events"]) == 1
    assert "'events', archive='off')" in shlex.split(capfd.readouterr().err.splitlines()[1])[-1]
    bodies = ["--bodies", "json", "--body-schema", "id bigint", "--query", "select value_error from messages limit 1"]
    assert command.main(["sql", "--data-dir", builder.path, *bodies]) == 1
    line = capfd.readouterr().err.splitlines()[1]
    done = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True, timeout=120, check=True
    )
    assert "the body is not JSON" in done.stdout
    # Other jobs are programs of Spark.
    assert command.main(["backlog", "--data-dir", builder.path]) == 1
    assert "DuckDB" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["/dev/null/report", "/proc/report"])
def test_where_nothing_can_be_written_is_said_first(name: str) -> None:
    with pytest.raises(AnalyticsError, match=f"cannot write to {name}: "):
        command._make_output(name)


def test_a_reader_may_stop_when_it_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = os.pipe()
    os.close(read)
    with io.TextIOWrapper(os.fdopen(written, "wb"), encoding="ascii") as target:
        monkeypatch.setattr(sys, "stdout", target)
        command._print("ü" * 100_000)
        # What is left goes nowhere when the program ends.
        target.flush()


@pytest.mark.parametrize(
    ("job", "directories", "said"),
    [
        (
            "backlog",
            ["lake"],
            "is an archive, which does not say what waits; name the data directories of its brokers as well: "
            "--data-dir {lake} --data-dir leveret-data",
        ),
        ("export", ["lake"], "is an archive, which has messages in Parquet files already: read those, or export from"),
        ("export", ["lake", "data"], "is an archive, which has messages in Parquet files already"),
        ("overflow", ["data", "other"], "0 of these 2 are archives"),
        ("overflow", ["lake", "lake"], "2 of these 2 are archives"),
        (
            "overflow --archive all",
            ["lake"],
            "--archive is for a data directory alone; what {lake} has is read from it",
        ),
        ("overflow --archive x", ["data"], "option 'archive' is auto, off, all, or a time such as"),
        ("overflow --as-of inf", ["data"], "'inf' is not a time; write 2026-01-31T12:00:00Z"),
        ("capacity --hours nan", ["data"], "hours and max_length are numbers"),
        ("capacity --hours few", ["data"], "hours and max_length are numbers"),
        ("capacity --max-length -1", ["data"], "no max_length is below 0"),
        ("sql", ["data"], "the query is missing"),
        ("sql --query x --bodies avro", ["data"], "bodySchema"),
        ("export", ["data"], "name the directory to write to: --output DIR"),
        ("export --output x --as-of 1", ["data"], "--as-of does not apply to an export"),
        ("export --output x --reader ../x", ["data"], "option 'reader' takes 1 to 64 letters"),
    ],
)
def test_what_a_job_cannot_be_run_over_is_said_first(
    tmp_path: Path, job: str, directories: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ArchiveFiles(str(tmp_path / "lake")).make()
    given = [word for name in directories for word in ("--data-dir", str(tmp_path / name))]
    assert command.main([*job.split(), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said.format(lake=tmp_path / "lake") in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("backlog --hours 5", "--hours does not apply to the job backlog, only to capacity"),
        ("export --query x", "--query does not apply to the job export, only to sql"),
        ("report --fail-if x", "--fail-if does not apply to the job report"),
        ("backlog --format parquet", "--format parquet writes files; name a directory with --output DIR"),
        ("export --output x --format csv", "--format does not apply to the job export, which writes Parquet"),
    ],
)
def test_options_of_another_job_are_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        command.main([*words.split(), "--data-dir", "x"])
    assert raised.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {said}\n")


def test_without_java_duckdb_answers_a_query_over_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("a"))
    builder.publish(store, [b"x"] * 7)
    builder.tick()
    archive(builder, ArchiveFiles(str(tmp_path / "lake")))
    builder.wait(100)
    builder.publish(store, [b"x"])
    builder.tick()
    builder.close()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    both = ["--data-dir", str(tmp_path / "lake"), "--data-dir", builder.path, "--query"]
    query = "select broker, count(*) as n from messages group by 1"
    for more, count in ([], "8"), (["--as-of", str(START // 1_000_000 + 50)], "7"):
        assert command.main(["sql", *both, query, *more]) == 1
        line = capfd.readouterr().err.splitlines()[1]
        done = subprocess.run(
            [sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True, timeout=120, check=True
        )
        shown = [line.split() for line in done.stdout.splitlines() if " one " in line]
        assert [[each for each in row if each != "│"] for row in shown] == [["one", count]]
    # leveret.scan() has no such table of an archive.
    assert command.main(["sql", *both, "select * from queues"]) == 1
    assert "DuckDB" not in capfd.readouterr().err
