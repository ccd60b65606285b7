"""The documented path from a broker to the report works as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.analytics import Session, command
from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.snapshot import Request
from tests.integration.program import running
from tests.support.documentation import block
from tests.support.plain_reader import open_reader

pytestmark = pytest.mark.spark

#: How many messages the script fetches in the end.
GETS = 3000


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program use the session that is there, and leave it: to start Spark for each line takes a minute."""
    monkeypatch.setattr(command, "start_spark", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr(Session, "close", Session.release)


@pytest.mark.usefixtures("shared_spark")
def test_from_a_broker_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, "--data-dir", str(tmp_path / "leveret-data")) as program:
        source = block("python", "x-overflow")
        assert source.count("127.0.0.1:5672") == 1
        Path("overflow.py").write_text(source.replace("127.0.0.1:5672", program.addresses["amqp"]))
        script, *jobs = block("sh", "leveret-analytics report").splitlines()
        assert script == ".venv/bin/python overflow.py"
        subprocess.run([sys.executable, "overflow.py"], check=True, timeout=1200)
        wait_for_tick(tmp_path / "leveret-data")
        said = [run(line, capfd) for line in jobs]
        run(block("sh", "--fail-if").strip(), capfd)
    page = Path("report/report.html").read_text("utf-8")
    for text in (
        r"messages wait in 3 of 3 queues",
        r"<li>mail: 2\d,\d{3} messages were refused \(queue full\), 8\d % of the messages sent to it.</li>",
        r"<li>orders: 2\d,\d{3} messages were dropped \(queue too long\), 70 % of the messages sent to it.</li>",
        r"<li>audit: \d\d,\d{3} more messages arrived than left; consumers do not keep up.</li>",
    ):
        assert re.search(text, page), text
    assert "Plotly.newPlot(" in page
    overflow, backlog = said[1:]
    assert {tuple(line.split()[1:4:2]) for line in overflow.splitlines()[2:]} <= {
        ("orders", "maxlen"),
        ("mail", "refused"),
    }
    assert backlog.count('"messages": 10000') == backlog.count('"messages": 5000') == 1


def wait_for_tick(data_dir: Path) -> None:
    """Return once readers see the last thing that the script did."""
    deadline = time.monotonic() + 300
    seen = 0
    while seen < GETS:
        assert time.monotonic() < deadline, f"{seen} of {GETS} messages fetched"
        time.sleep(0.1)
        with open_reader(str(data_dir), Request(messages=False, events=True)) as reader:
            seen = sum(event.length for event in reader.events() if event.kind == EventKind.AUTO_ACK)


def run(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a line as the shell does; what it prints."""
    program, *arguments = shlex.split(line)
    assert program == ".venv/bin/leveret-analytics"
    assert os.path.exists("leveret-data")
    capfd.readouterr()
    assert command.main(arguments) == 0
    return capfd.readouterr().out
