"""A broker that is killed while messages are deleted by their keys: only these are gone, and the rest can follow."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pika
import pytest

import leveret
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, LeveretctlProgram
from tests.support.management import Management

_COUNT = 30_000
_PATIENCE = 180.0


def _fill(process: LeveretProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(_COUNT):
            if number == _COUNT - 1:
                channel.confirm_delivery()
            channel.basic_publish("", "q", b"%05d" % number, pika.BasicProperties(delivery_mode=2))


def _contents(process: LeveretProcess) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        left = channel.queue_declare("q", passive=True).method.message_count
        found: list[bytes] = []
        for _, _, body in channel.consume("q", auto_ack=True) if left else ():
            found.append(body)
            if len(found) == left:
                break
        return found


def _write_keys(process: LeveretProcess, path: Path) -> None:
    """Write the keys of all messages but every third one."""
    names = ["queue_id", "store_priority", "seq"]
    deadline = time.monotonic() + _PATIENCE
    while (rows := leveret.scan(process.data_dir, columns=[*names, "body"]).read_all()).num_rows < _COUNT:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    chosen = [row for row in rows.to_pylist() if int(row["body"]) % 3]
    path.write_text("\n".join([",".join(names), *[",".join(str(row[name]) for name in names) for row in chosen]]))


@pytest.mark.parametrize("deleted_before", [1, 12_000])
def test_a_second_run_deletes_the_rest(tmp_path: Path, deleted_before: int) -> None:
    keys = tmp_path / "keys.csv"
    with LeveretProcess(tmp_path) as process:
        _fill(process)
        _write_keys(process, keys)
        first: list[CommandResult] = []

        def delete() -> CommandResult:
            return LeveretctlProgram(process.http_url)("delete_messages", "q", "--keys", str(keys), "-q")

        deleting = threading.Thread(target=lambda: first.append(delete()))
        deleting.start()
        api, deadline = Management(process.http_url), time.monotonic() + _PATIENCE
        while _COUNT - api.request("GET", "queues", "/", "q")["messages"] < deleted_before:
            assert time.monotonic() < deadline
        process.kill()
        deleting.join(_PATIENCE)
        # It may just have finished.
        assert first[0].status in (0, 69)
        if first[0].status and deleted_before > 5_000:
            assert "run the command again" in first[0].err
        process.start()
        again = delete()
        assert again.status == 0, again.err
        assert _contents(process) == [b"%05d" % number for number in range(0, _COUNT, 3)]
