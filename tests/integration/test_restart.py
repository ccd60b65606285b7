"""Restarts that need a broker of their own; what is there again after an end is in tests/crash/rows."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from leveret.storage.directory.directory_format import pack_format
from tests.conformance.bounded import refill
from tests.conformance.leases import Gaps, alive_in_time
from tests.conformance.topology import counts, drain, exists, got
from tests.integration.program import run, running
from tests.integration.restarts import PERSISTENT, Restarts, restart
from tests.integration.waiting import PATIENCE, wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

__all__ = ["restart"]


def test_4_2_3_the_lease_begins_again(restart: Restarts) -> None:
    def is_shown(queue: str) -> bool:
        # To ask by AMQP would renew its lease.
        return queue in {each["name"] for each in restart.management.request("GET", "queues", "/")}

    def attempt(lease: int, gaps: Gaps) -> bool:
        channel = restart.channel()
        queue = restart.queue(channel, ("x-expires", "I", lease))
        refill(channel, queue, b"m", **PERSISTENT)
        restart.end()
        # Had the lease gone on meanwhile, it would be over.
        time.sleep(lease / 1000)
        gaps.start()
        channel = gaps.ask(restart.begin)
        was_there = gaps.ask(lambda: exists(restart.connect, queue) and counts(channel, queue)[0] == 1)
        wait_until(lambda: not is_shown(queue), "the queue expires", timeout=2 * PATIENCE)
        restart()
        assert not exists(restart.connect, queue)
        return was_there

    assert alive_in_time(attempt)


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_the_segment_size_may_change_between_starts(tmp_path: Path, mode: str) -> None:
    # 400 kB a turn: several small segments, a part of a large one.
    expected: list[bytes] = []
    for turn, size in enumerate((65_536, 1 << 20, 100_000, 16 << 20)):
        with (
            LeveretProcess(tmp_path, settings={"storage.segment_size": size}) as started,
            Connection(started.url) as connection,
        ):
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=[("x-queue-mode", "S", mode)])
            assert counts(channel, "q")[0] == len(expected)
            more = [b"%d-%d:" % (turn, number) + bytes(4000) for number in range(100)]
            refill(channel, "q", *more, **PERSISTENT)
            expected += more
            for _ in range(30):
                assert got(channel, "q", no_ack=True).body == expected.pop(0)
            if turn == 1:
                started.kill()
    with LeveretProcess(tmp_path) as started, Connection(started.url) as connection:
        assert drain(connection.channel(), "q") == expected


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as started, Connection(started.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
        refused = run("--host", "127.0.0.1", *ports, "--data-dir", str(started.data_dir))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("leveret: ")
        assert refused.stderr.count("\n") == 1
        assert str(started.data_dir) in refused.stderr
        assert "another broker" in refused.stderr
        # The first one has not noticed.
        refill(channel, "q", b"m", **PERSISTENT)
        assert drain(channel, "q") == [b"m"]


def test_remembered_values_are_no_messages_in_the_log(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as started:
        with Connection(started.url) as connection:
            channel = connection.channel()
            for queue in ("qa", "qb"):
                channel.queue_declare(queue, durable=True)
            remembering = [("x-cache-size", "I", 100), ("x-cache-persistence", "S", "disk")]
            channel.exchange_declare("x", "x-message-deduplication", durable=True, arguments=remembering)
            channel.queue_bind("qa", "x")
            delayed = [("x-delayed-type", "S", "fanout")]
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delayed)
            channel.confirm_select()
            for value in ("a", "b", "c"):
                headers = [("x-deduplication-header", "S", value)]
                channel.publish("x", "", value.encode(), {"headers": headers, "delivery_mode": 2})
            channel.publish("later", "", b"four", {"headers": [("x-delay", "I", 3_600_000)], "delivery_mode": 2})
            assert channel.wait_for_confirms(4) == [True] * 4
        started.restart()
        expected = "2 durable queues and 1 delayed exchanges with 4 messages (7 bytes of bodies), 3 remembered values\n"
        assert f"recovered {expected}" in started.log_text()


def test_a_newer_data_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    data = tmp_path / "data"
    before = (data / "FORMAT").read_bytes()
    (data / "FORMAT").write_bytes(pack_format(bytes(16), 1, version=1000))
    refused = run("--port", "0", "--data-dir", str(data))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"leveret: cannot use the data directory {data}: {data} was written by a newer version (format 1000); use that"
        " version or another directory\n"
    )
    (data / "FORMAT").write_bytes(before)
    with closing(sqlite3.connect(data / "definitions.sqlite")) as database:
        database.execute("pragma user_version = 1000")
    refused = run("--port", "0", "--data-dir", str(data))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"leveret: {data / 'definitions.sqlite'} was written by a newer version of Leveret (schema 1000, this"
        " version supports 1); use that version or another data directory\n"
    )
