"""What of queues is there after a stop and after a crash, and what belongs to which of two of one name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conformance.bounded import outcomes, refill
from tests.conformance.leases import Gaps, alive_in_time
from tests.conformance.topology import counts, drain, exists, got, numbered
from tests.integration.program import run
from tests.integration.restarts import PERSISTENT, Restarts, process, restart
from tests.integration.waiting import PATIENCE, wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Channel, Connection

__all__ = ["process", "restart"]


def shown(restart: Restarts, queue: str) -> bool:
    """Whether there is a queue; to ask by AMQP would renew its lease."""
    return queue in {each["name"] for each in restart.management.request("GET", "queues", "/")}


def test_4_2_3_the_lease_begins_again(restart: Restarts) -> None:
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
        wait_until(lambda: not shown(restart, queue), "the queue expires", timeout=2 * PATIENCE)
        restart()
        assert not exists(restart.connect, queue)
        return was_there

    assert alive_in_time(attempt)


def test_an_expired_queue_leaves_nothing(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, ("x-expires", "I", 200))
    refill(channel, queue, b"m", **PERSISTENT)
    wait_until(lambda: not shown(restart, queue), "the queue expires")
    channel = restart()
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_a_queue_declared_again_is_another(restart: Restarts, mode: str) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, ("x-queue-mode", "S", mode))
    refill(channel, queue, *numbered(300), **PERSISTENT)
    held = got(channel, queue)
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True)
    refill(channel, queue, b"new", **PERSISTENT)
    channel.nack(held.delivery_tag)
    channel.sync(queue)
    channel = restart()
    assert drain(channel, queue) == [b"new"]


def test_a_deleted_queue_is_gone(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel)
    refill(channel, queue, *numbered(10), **PERSISTENT)
    channel.queue_delete(queue)
    channel = restart()
    assert not exists(restart.connect, queue)
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


def test_a_purged_queue_is_empty(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel)
    refill(channel, queue, *numbered(300), **PERSISTENT)
    got(channel, queue)
    assert channel.queue_purge(queue).message_count == 299
    channel = restart()
    # The one that was delivered was not purged.
    assert drain(channel, queue) == [b"1"]


@pytest.mark.parametrize("exclusive", [False, True])
def test_transient_queues_leave_nothing_on_the_disk(restart: Restarts, exclusive: bool) -> None:
    channel = restart.channel()
    kept = restart.queue(channel, ("x-queue-mode", "S", "lazy"), hint="kept")
    queue = restart.queue(channel, ("x-queue-mode", "S", "lazy"), durable=False, exclusive=exclusive)
    for name in (kept, queue):
        refill(channel, name, *numbered(100), **PERSISTENT)
        assert _is_on_disk(restart, name)
    channel = restart()
    assert not _is_on_disk(restart, queue)
    assert _is_on_disk(restart, kept)
    channel.queue_delete(kept)
    wait_until(lambda: not _is_on_disk(restart, kept), "the deleted queue goes")


def _is_on_disk(restart: Restarts, queue: str) -> bool:
    """Whether a queue has a directory."""
    descriptions = (restart.process.data_dir / "q").glob("*/QUEUE.json")
    return any(f'"{queue}"' in each.read_text() for each in descriptions)


def test_exclusive_queues_go(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, exclusive=True)
    refill(channel, queue, b"m", **PERSISTENT)
    channel = restart()
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


def test_auto_delete_queues_go_with_their_last_consumer(restart: Restarts) -> None:
    channel = restart.channel()
    unused, used = restart.queue(channel, auto_delete=True), restart.queue(channel, auto_delete=True)
    for queue in (unused, used):
        refill(channel, queue, b"m", **PERSISTENT)
    channel.consume(used)
    channel.next_delivery()
    channel = restart()
    assert drain(channel, unused) == [b"m"]
    # A stop cancels the consumer first; a crash does not.
    assert exists(restart.connect, used) is restart.killed
    tag = channel.consume(unused).consumer_tag
    channel.cancel(tag)
    restart()
    assert not exists(restart.connect, unused)


def test_bindings_arguments_and_types(restart: Restarts) -> None:
    channel = restart.channel()
    source, exchange = restart.new("x"), restart.new("x")
    channel.exchange_declare(source, "headers", durable=True)
    channel.exchange_declare(exchange, "fanout", durable=True)
    channel.exchange_bind(exchange, source, arguments=[("k", "I", 5), ("x-match", "S", "any")])
    queue = restart.queue(channel, ("x-max-priority", "b", 4))
    channel.queue_bind(queue, exchange)
    channel = restart()
    channel.queue_declare(queue, durable=True, arguments=[("x-max-priority", "I", 4)])
    assert outcomes(channel, "", b"yes", exchange=source, properties={"headers": [("k", "I", 5)]}) == [True]
    assert outcomes(channel, "", b"no", exchange=source, properties={"headers": [("k", "I", 6)]}) == [True]
    assert drain(channel, queue) == [b"yes"]


def test_exchange_types_of_plugins(restart: Restarts) -> None:
    channel = restart.channel()
    hashing, history = restart.new("x"), restart.new("x")
    channel.exchange_declare(hashing, "x-consistent-hash", durable=True, arguments=[("hash-header", "S", "h")])
    channel.exchange_declare(history, "x-recent-history", durable=True, arguments=[("x-recent-history-length", "I", 2)])
    queues = [restart.queue(channel) for _ in range(3)]
    for weight, queue in enumerate(queues, 1):
        channel.queue_bind(queue, hashing, str(weight))

    def spread(channel: Channel) -> list[list[bytes]]:
        for number in range(60):
            channel.publish(hashing, "", b"%d" % number, {"headers": [("h", "I", number)]})
        channel.sync(*queues)
        return [drain(channel, queue) for queue in queues]

    before = spread(channel)
    channel.publish(history, "", b"forgotten", PERSISTENT)
    channel.sync()
    channel = restart()
    assert spread(channel) == before
    # As in RabbitMQ 3.10, what it remembers is in memory.
    channel.queue_bind(queues[0], history)
    assert drain(channel, queues[0]) == []
    channel.exchange_declare(history, "x-recent-history", durable=True)


def test_names_may_be_any_text(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.new() + "/'\"\\ \0\t€\U0001f407"
    channel.queue_declare(queue, durable=True)
    channel.confirm_select()
    channel.publish("", queue, b"m", PERSISTENT)
    assert channel.wait_for_confirms(1) == [True]
    delivery = restart().get(queue)
    assert delivery is not None
    assert delivery.body == b"m"


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
