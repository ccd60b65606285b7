"""What `leveret-analytics` says when something is wrong: one line, status 1, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

from leveret.analytics import Session, command
from leveret.storage.format import FORMAT_VERSION
from tests.spark.directories import DirectoryBuilder

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory `data`, one of a newer format `newer`, and a damaged one `damaged`."""
    path = tmp_path_factory.mktemp("faults")
    for name in ("data", "damaged"):
        builder = DirectoryBuilder(path / name)
        builder.publish(builder.store(builder.queue("orders")), [b"%04d" % number for number in range(50)])
        builder.tick()
        builder.close()
    victim = min((path / "damaged").glob("q/*/*.seg"))
    victim.write_bytes(victim.read_bytes().replace(b"0010", b"0x10"))
    (path / "newer").mkdir()
    crc = crc32(f"9 9 {'ab' * 16} 1".encode())
    fields = {"format": 9, "min_reader": 9, "store_id": "ab" * 16, "created": 1, "crc": crc}
    (path / "newer" / "FORMAT").write_text(json.dumps(fields))
    return path


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program use the session that is there, and leave it."""
    monkeypatch.setattr(command, "start_spark", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr(Session, "close", Session.release)


@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            "backlog --data-dir {}/nowhere",
            "{}/nowhere is not a data directory of Leveret: it has no file FORMAT",
        ),
        ("overflow --data-dir {}", "{} is not a data directory of Leveret: it has no file FORMAT"),
        (
            "overflow --data-dir {}/newer",
            f"was written in format 9, and this version reads up to format {FORMAT_VERSION}; upgrade",
        ),
        (
            "backlog --data-dir {}/newer",
            f"was written in format 9, and this version reads up to format {FORMAT_VERSION}; upgrade",
        ),
        ("backlog --data-dir {}/data --queue mail", "{}/data has no queue 'mail'; queues there: orders"),
        ("latency --data-dir {}/data --queue mail", "{}/data has no queue 'mail'; queues there: orders"),
        ("report --data-dir {}/data --vhost x --queue mail", "has no queue 'mail' in virtual host 'x'; queues there:"),
        (
            "backlog --data-dir {}/data --as-of 2001-01-01",
            "{}/data has no records of 2001-01-01 00:00:00 UTC or earlier",
        ),
        (
            "sql --data-dir {}/data --query select+1+as+a,2+as+a",
            "more than one column is called 'a'; name them with AS",
        ),
        ("backlog --data-dir {}/data --output {}/data/FORMAT", "{}/data/FORMAT"),
        ("report --data-dir {}/data --output {}/data/FORMAT", "{}/data/FORMAT"),
        ("export --data-dir {}/data --output {}/data/FORMAT/x", "{}/data/FORMAT/x"),
        ("sql --data-dir {}/data --query select+nothing+from+queues", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("backlog --data-dir s4://bucket/data", "cannot open s4://bucket/data"),
    ],
)
def test_errors_are_reported_in_one_line(
    directory: Path, capfd: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    given = [word.format(directory).replace("+", " ") for word in arguments.split()]
    assert command.main(given) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    *_, last = said.err.splitlines()
    assert last.startswith("leveret-analytics: ")
    assert text.format(directory) in last
