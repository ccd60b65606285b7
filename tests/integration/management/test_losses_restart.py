"""What was lost is remembered over a stop and over a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.conformance.http_api import HttpApi
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

END = {"stopped": LeveretProcess.stop, "killed": LeveretProcess.kill}


@pytest.fixture(params=["stopped", "killed"])
def end(request: pytest.FixtureRequest) -> Callable[[LeveretProcess], object]:
    return END[request.param]


def api_of(process: LeveretProcess) -> HttpApi:
    return HttpApi(Management(process.http_url))


def rows(process: LeveretProcess, query: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    """All rows by kind and name, without rates, which begin at 0, and since when they are counted."""
    found: list[dict[str, Any]] = api_of(process).get(f"losses?{query}")
    for row in found:
        del row["lost_details"], row["since"]
    return {(row["kind"], row["name"]): row for row in found}


def lose(channel: BlockingChannel, durable: bool = True) -> None:
    """Lose messages for each reason, and dead letters too."""
    limits: dict[str, dict[str, Any]] = {
        "dropping": {"x-max-length": 2},
        "refusing": {"x-max-length": 2, "x-overflow": "reject-publish"},
        "lettering": {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dropping"},
        "astray": {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere"},
        "rejected": {},
        "purged": {},
    }
    for name, arguments in limits.items():
        channel.queue_declare(name, durable=durable, arguments=arguments)
        for _ in range(5):
            channel.basic_publish("", name, b"0123456789", pika.BasicProperties(delivery_mode=2))
    for _ in range(3):
        method, _, _ = channel.basic_get("rejected")
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
    channel.queue_purge("purged")
    # The events of dead-lettered messages are written after a sync: the second confirm is later than that.
    channel.queue_declare("sync", durable=durable)
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish("", "sync", b"", pika.BasicProperties(delivery_mode=2))


@contextmanager
def connected(process: LeveretProcess) -> Iterator[BlockingChannel]:
    """A channel; the broker may end meanwhile."""
    connection = pika.BlockingConnection(pika.URLParameters(process.url))
    yield connection.channel()
    with suppress(AMQPError):
        connection.close()


def test_losses_are_there_after_a_restart(
    leveret_process: Callable[..., LeveretProcess], end: Callable[[LeveretProcess], object]
) -> None:
    process = leveret_process()
    with connected(process) as channel:
        lose(channel)
        before = rows(process)
        assert before["queue", "dropping"]["lost"] > 3
        assert before["queue", "rejected"]["dropped"]["rejected"] == 3
        assert before["queue", "astray"]["dead_letters_lost"]["maxlen"] == 3
        end(process)
    ended = time.time()
    process.start()
    assert rows(process) == before
    page = api_of(process).get("losses?page=1")
    assert max(each["since"] for each in (page["totals"], *page["items"])) <= ended * 1000
    assert {name: row["window"]["lost"] for name, row in rows(process, "age=3600").items()} == {
        name: row["lost"] for name, row in before.items()
    }
    # Both runs count, and a second restart does not count anything twice.
    with connected(process) as channel:
        for _ in range(4):
            channel.basic_publish("", "dropping", b"x")
        channel.queue_declare("dropping", passive=True)
        lost = rows(process)["queue", "dropping"]["lost"]
        assert lost == before["queue", "dropping"]["lost"] + 4
        end(process)
    process.start()
    assert rows(process)["queue", "dropping"]["lost"] == lost
    statistics = api_of(process).get("queues/%2F/dropping").get("message_stats", {})
    assert statistics.get("drop_maxlen", 0) == statistics.get("publish", 0) == 0


def test_losses_of_what_ends_with_the_process(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    with connected(process) as channel:
        lose(channel, durable=False)
        for _ in range(3):
            channel.basic_publish("amq.fanout", "nowhere", b"x")
        channel.queue_delete("refusing")
        before = rows(process)
        assert before["exchange", "amq.fanout"]["lost"] == 3
        assert before["queue", "refusing"]["state"] == "deleted"
        assert process.stop() == 0
    process.start()
    after = rows(process)
    assert {row["state"] for (kind, _), row in after.items() if kind == "queue"} == {"deleted"}
    assert {name: row["lost"] for name, row in after.items()} == {name: row["lost"] for name, row in before.items()}


def test_those_of_exchanges_survive_a_crash_once_they_were_written(
    leveret_process: Callable[..., LeveretProcess],
) -> None:
    process = leveret_process()
    with connected(process) as channel:
        channel.basic_publish("amq.fanout", "nowhere", b"x")
        channel.queue_declare("sync", durable=True)
        wait_until(lambda: "amq.fanout" in (process.data_dir / "losses.json").read_text(), "the file is written")
        process.kill()
    process.start()
    assert rows(process)["exchange", "amq.fanout"]["lost"] == 1


@pytest.mark.parametrize("octets", [b"", b"{}", b"null", b'{"crc": 1, "format": 1}', b"\xff\x00"])
def test_a_damaged_file_keeps_nobody_from_starting(
    leveret_process: Callable[..., LeveretProcess], octets: bytes
) -> None:
    process = leveret_process()
    process.stop()
    began = int(time.time())
    (process.data_dir / "losses.json").write_bytes(octets)
    process.start()
    assert "losses are counted from now on" in process.log_text()
    totals = api_of(process).get("losses?page=1")["totals"]
    assert totals["lost"] == 0
    assert totals["since"] >= began * 1000


def test_delayed_messages(
    leveret_process: Callable[..., LeveretProcess], end: Callable[[LeveretProcess], object]
) -> None:
    """Those that were refused, and those that were due and found no queue, also in the last seconds before a crash."""
    process = leveret_process()
    policy = {"pattern": "^late$", "definition": {"max-delayed": 1}, "apply-to": "exchanges"}
    api_of(process).check("PUT", "policies/%2F/late", policy, 201)
    with Connection(process.url) as connection:
        channel = connection.channel()
        inner = [("x-delayed-type", "S", "direct")]
        channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=inner)
        channel.confirm_select()

        def publish(delay: int) -> None:
            channel.publish("late", "", b"x", {"delivery_mode": 2, "headers": [("x-delay", "I", delay)]})

        publish(1)
        wait_until(lambda: ("exchange", "late") in rows(process), "the first loss")
        for _ in range(3):
            publish(3_600_000)
        assert channel.wait_for_confirms(4) == [True, True, False, False]
    before = rows(process)["exchange", "late"]
    assert (before["lost"], before["refused_told"], before["unroutable"]["dropped"]) == (1, 2, 1)
    end(process)
    process.start()
    assert rows(process)["exchange", "late"] == before
