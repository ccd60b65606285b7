"""The archiver that the broker runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.iceberg.catalogs import open_catalog
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_log import event_files
from tests.integration.confirmed import publish_numbers
from tests.integration.program import run
from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

ROOT = Path(__file__).parents[2]


def archivers(broker: LeveretProcess) -> list[int]:
    """Process ids of the archivers that the broker has started."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    return [int(pid) for pid in children if is_there(int(pid))]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_there(pid: int) -> bool:
    return b"\0archive\0" in command_line(pid)


def publish(url: str, first: int, count: int) -> None:
    publish_numbers(url, "q", range(first, first + count))


def archived(url: Path) -> Counter[int]:
    if not (url / "archive.json").exists():
        return Counter()
    bodies = leveret.scan(url, columns=["body"]).read_all()["body"].to_pylist()
    return Counter(int(body) for body in bodies)


def audited(location: Path) -> Counter[tuple[str, str]]:
    """Kinds and objects of an audit log, or of that of an archive."""
    rows = leveret.scan(location, "audit", columns=["kind", "object"]).read_all()
    return Counter(zip(rows["kind"].to_pylist(), rows["object"].to_pylist(), strict=True))


def test_the_broker_runs_the_archiver_and_starts_it_again(tmp_path: Path) -> None:
    url = tmp_path / "archive"
    settings: dict[str, object] = {"archive.url": str(url), "archive.interval": "1s", "archive.broker": "one"}
    with LeveretProcess(tmp_path, settings=settings) as broker:
        publish(broker.url, 0, 100)
        wait_until(lambda: archived(url) == Counter(range(100)), "the messages are in the archive")
        (first,) = archivers(broker)
        os.kill(first, signal.SIGKILL)
        Management(broker.http_url).request("PUT", "vhosts", "v")
        publish(broker.url, 100, 100)
        wait_until(lambda: archived(url) == Counter(range(200)), "another archiver has copied the rest")
        assert "the archiver has ended with status -9; it is started again in 1 s" in broker.log_text()
        (second,) = archivers(broker)
        assert second != first
        broker.kill()
        wait_until(lambda: not is_there(second), "it has ended with the killed broker")
        broker.start()
        publish(broker.url, 200, 100)
        wait_until(lambda: archived(url) == Counter(range(300)), "the next broker's archiver has copied the rest")
        (third,) = archivers(broker)
        logged = audited(broker.data_dir)
        assert logged["queue.created", "q"] == 1
        wait_until(lambda: audited(url) == logged, "the archive has each line of the audit log once")
        assert broker.stop() == 0
        assert not is_there(third)
    assert set(leveret.scan(url, columns=["broker"]).read_all()["broker"].to_pylist()) == {"one"}


@pytest.mark.parametrize("catalog", ["archive", "sqlite"])
def test_the_archiver_keeps_tables_up(tmp_path: Path, catalog: str) -> None:
    url, name = tmp_path / "archive", "archive" if catalog == "archive" else f"sqlite:///{tmp_path}/catalog.db"
    settings: dict[str, object] = {"archive.url": str(url), "archive.interval": "1s", "archive.iceberg": name}

    def in_table() -> Counter[int]:
        try:
            table = open_catalog(name, ArchiveFiles(str(url))).load_table("leveret.messages")
        except NoSuchTableError:
            return Counter()
        return Counter(int(body) for body in table.scan(selected_fields=("body",)).to_arrow()["body"].to_pylist())

    with LeveretProcess(tmp_path, settings=settings) as broker:
        for number in range(0, 300, 100):
            publish(broker.url, number, 100)
            wait_until(lambda: in_table().total() >= 100, "messages are in the table")
            for pid in archivers(broker):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: bool(archivers(broker)), "it was started again")
        wait_until(lambda: in_table() == Counter(range(300)), "all messages are in the table, each once")
        assert broker.stop() == 0


def test_the_archive_goes_on_while_a_catalog_is_away(tmp_path: Path) -> None:
    url, catalog = tmp_path / "archive", tmp_path / "later" / "catalog.db"
    settings: dict[str, object] = {
        "archive.url": str(url),
        "archive.interval": "1s",
        "archive.iceberg": f"sqlite:///{catalog}",
    }
    with LeveretProcess(tmp_path, settings=settings) as broker:
        publish(broker.url, 0, 10)
        wait_until(lambda: archived(url) == Counter(range(10)), "the messages are in the archive")
        said = f"the Iceberg catalog sqlite:///{catalog} cannot be reached: "
        wait_until(lambda: said in broker.log_text(), "the log says it")
        publish(broker.url, 10, 10)
        wait_until(lambda: archived(url) == Counter(range(20)), "the archive goes on")
        assert broker.log_text().count(said) == 1
        catalog.parent.mkdir()
        wait_until(lambda: "they are the same as the archive again" in broker.log_text(), "the tables follow")
        table = open_catalog(f"sqlite:///{catalog}", ArchiveFiles(str(url))).load_table("leveret.messages")
        assert table.scan().to_arrow().num_rows == 20
        assert broker.stop() == 0


def test_an_archiver_that_cannot_work_is_told_in_the_log(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"archive.url": "nothing://archive"}) as broker:
        said = "nothing://archive: Protocol not known: nothing; it tries again in 60 s"
        wait_until(lambda: said in broker.log_text(), "the log says it")
        publish(broker.url, 0, 1)
        assert broker.stop() == 0


@pytest.mark.parametrize("url", ["nothing://{}@host/archive", "ftp://{}@127.0.0.1:1/archive", "memory://host/a?sig={}"])
def test_a_password_in_the_url_is_shown_nowhere(tmp_path: Path, url: str) -> None:
    words = ["pa%40ss", "pa@ss", "w0rd"]
    config = tmp_path / "leveret.yaml"
    config.write_text(f"archive.url: {url.format('me:pa%40ss/w0rd')}\n")
    with LeveretProcess(tmp_path, config=config) as broker:
        wait_until(lambda: bool(archivers(broker)), "the archiver runs")
        seen = [command_line(pid).decode() for pid in archivers(broker)]
        if not url.startswith("memory"):
            wait_until(lambda: "it tries again" in broker.log_text(), "the log says what is wrong")
        seen += [json.dumps(Management(broker.http_url).request("GET", "config", "effective")), broker.log_text()]
        assert broker.stop() == 0
    (note,) = [path.read_text() for path in broker.data_dir.glob("archived-to.json")] or [""]
    printed = run("check-config", "--print", "--config", str(config), "--data-dir", str(broker.data_dir)).stdout
    for text in (*seen, note, printed):
        assert not any(word in text for word in words), text
    assert f'archive.url: "{url.partition("://")[0]}://' in printed


def consume(url: str, first: int, count: int) -> None:
    """Publish messages, and acknowledge them one by one."""
    publish(url, first, count)
    connection = Connection(url)
    channel = connection.channel()
    for _ in range(count):
        got = channel.get("q")
        assert got is not None
        channel.ack(got.delivery_tag)
    connection.close()


def acknowledged(data_dir: Path, **options: Any) -> list[int]:
    """Numbers of the messages of events."""
    found = leveret.scan(data_dir, "events", columns=["seq", "messages"], **options).read_all().to_pylist()
    return sorted(number for row in found for number in range(row["seq"], row["seq"] + row["messages"]))


def test_events_that_a_broker_does_not_keep_any_more_are_read_from_its_archive(tmp_path: Path) -> None:
    data_dir, url = tmp_path / "data", tmp_path / "archive"
    command = [sys.executable, "-m", "leveret.analytics.program", "archive", "--data-dir", str(data_dir)]
    with ThreadedBroker(data_dir) as broker:
        consume(broker.url, 0, 20)
        wait_until(lambda: acknowledged(data_dir) == [*range(1, 21)], "the events have been written")
    first = event_files(DiskFiles(), f"{data_dir}/events")[0]
    # Each start makes another file of the event log.
    with ThreadedBroker(data_dir) as broker:
        consume(broker.url, 20, 20)
        wait_until(lambda: acknowledged(data_dir) == [*range(1, 41)], "the events have been written")
        subprocess.run([*command, "--to", str(url), "--once"], cwd=ROOT, check=True)
        broker.advance(8 * 86_400)
        consume(broker.url, 40, 20)
    kept = 60
    while event_files(DiskFiles(), f"{data_dir}/events")[0] == first:
        # Checkpoints remove it.
        assert kept < 200, "the first file is still there"
        with ThreadedBroker(data_dir) as broker:
            consume(broker.url, kept, 10)
        kept += 10
    live = acknowledged(data_dir)
    assert live == [*range(live[0], kept + 1)]
    assert live[0] > 20
    assert acknowledged(data_dir, since=0) == [*range(1, kept + 1)]
    assert acknowledged(data_dir, since=0, archive="off") == live
