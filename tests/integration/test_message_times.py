"""How long messages live, as `leveret.scan` shows it: never less than their time to live or their delay."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import leveret as package
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

COUNT = 500
HOUR = timedelta(hours=1)


def publish(process: LeveretProcess, exchange: str, key: str, **properties: Any) -> None:
    with Connection(process.url) as connection:
        channel = connection.channel()
        if exchange:
            kind = [("x-delayed-type", "S", "fanout")]
            channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=kind)
            channel.queue_bind(key, exchange)
        for _ in range(COUNT):
            channel.publish(exchange, key, b"x", {"delivery_mode": 2, **properties})
            channel.sync()


def rows(process: LeveretProcess, table: str, columns: list[str], **options: Any) -> list[dict[str, Any]]:
    """The rows of a table, as soon as it has those of all messages."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        nonlocal found
        found = package.scan(process.data_dir, table, columns=columns, **options).read_all().to_pylist()
        count: int = sum(row.get("messages", 1) for row in found)
        return count == COUNT

    wait_until(are_there, "all messages are in the files")
    return found


def declare(process: LeveretProcess, queue: str, *arguments: tuple[str, str, Any]) -> None:
    with Connection(process.url) as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)


def lives(found: list[dict[str, Any]], first: str, last: str) -> list[timedelta]:
    times: list[tuple[datetime, datetime]] = [(row[first], row[last]) for row in found]
    return [end - begin for begin, end in times]


def test_time_to_live(process: LeveretProcess) -> None:
    declare(process, "hour", ("x-message-ttl", "I", 3_600_000))
    publish(process, "", "hour")
    found = rows(process, "messages", ["enqueued_at", "expires_at"], queue="hour")
    assert min(lives(found, "enqueued_at", "expires_at")) >= HOUR


def test_waits_of_expired_messages(process: LeveretProcess) -> None:
    declare(process, "short")
    publish(process, "", "short", expiration="3")
    found = rows(process, "events", ["kind", "messages", "wait_ms"], queue="short")
    assert {row["kind"] for row in found} == {"expired"}
    assert min(row["wait_ms"] for row in found) >= 3


def test_delays(process: LeveretProcess) -> None:
    declare(process, "later")
    publish(process, "delays", "later", headers=[("x-delay", "I", 3_600_000)])
    found = rows(process, "delayed", ["published_at", "due_at"])
    assert min(lives(found, "published_at", "due_at")) >= HOUR
