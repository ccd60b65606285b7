"""The event log records the fate of dead letters and refused messages, so that losses can be counted from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

import leveret
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.snapshots.snapshot import Request
from tests.integration.threaded_broker import ThreadedBroker
from tests.support.plain_reader import open_reader

#: Columns of an event that lead to the publisher.
DETAILS = ("vhost", "queue", "exchange", "routing_key", "user_name", "message_id", "told")
Recorded = Counter[tuple[str, str, bool]]


def recorded(data_dir: Path) -> Recorded:
    """Messages by queue, kind of event, and whether they were dead-lettered."""
    found: Recorded = Counter()
    with open_reader(str(data_dir), Request(messages=False, events=True)) as reader:
        for event in reader.events():
            if event.kind != EventKind.TICK:
                name = reader.snapshot.names[event.qid].name
                found[name, EventKind(event.kind).name, bool(event.flags & DEAD_LETTERED)] += event.length
    return found


def publish(broker: ThreadedBroker, arguments: dict[str, object], count: int) -> None:
    """Publish to a queue `source` that holds 2, beside a queue `letters`, which is durable too."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("letters", durable=True)
        channel.queue_declare("source", durable=True, arguments={"x-max-length": 2, **arguments})
        for _ in range(count):
            try:
                channel.basic_publish("", "source", b"12345", pika.BasicProperties(delivery_mode=2))
            except NackError:
                pass


@pytest.mark.parametrize(
    ("overflow", "target", "expected"),
    [
        ("drop-head", "letters", {("source", "MAXLEN", True): 5}),
        ("reject-publish", "letters", {("source", "REFUSED", False): 5}),
        ("reject-publish-dlx", "letters", {("source", "REFUSED", True): 5}),
        ("drop-head", "nowhere", {("source", "MAXLEN", True): 5, ("source", "DEAD_LETTER_LOST", False): 5}),
        ("reject-publish-dlx", "nowhere", {("source", "REFUSED", True): 5, ("source", "DEAD_LETTER_LOST", False): 5}),
    ],
)
def test_of_what_a_full_queue_does(
    tmp_path: Path, overflow: str, target: str, expected: dict[tuple[str, str, bool], int]
) -> None:
    dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    with ThreadedBroker(tmp_path) as broker:
        publish(broker, {"x-overflow": overflow, **dead_letters}, 7)
    assert recorded(tmp_path) == expected


def test_without_a_dead_letter_exchange_nothing_is_dead_lettered(tmp_path: Path) -> None:
    with ThreadedBroker(tmp_path) as broker:
        publish(broker, {"x-overflow": "reject-publish-dlx"}, 7)
    assert recorded(tmp_path) == {("source", "REFUSED", False): 5}


def test_the_limit_that_was_exceeded_is_known(tmp_path: Path) -> None:
    with ThreadedBroker(tmp_path) as broker:
        publish(broker, {"x-max-length": 100, "x-max-length-bytes": 12}, 7)
    assert recorded(tmp_path) == {("source", "MAXLEN_BYTES", False): 5}


def details(data_dir: Path, **options: Any) -> dict[tuple[Any, ...], int]:
    """Messages that no queue has taken, by what is known of them; how many are in one event depends on the time."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in leveret.scan(str(data_dir), "events", **options).read_all().to_pylist():
        if row["kind"] in ("refused", "unroutable"):
            found[tuple(row[name] for name in DETAILS)] += row["messages"]
    return found


def test_who_has_published_what_no_queue_takes(tmp_path: Path) -> None:
    with ThreadedBroker(tmp_path) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        channel.exchange_declare("e", "fanout")
        channel.queue_bind("full", "e")
        for name in ("one", "two"):
            channel.basic_publish("e", "key", b"12", pika.BasicProperties(message_id=name))
        for _ in range(3):
            channel.basic_publish("", "f\u00fcr niemand", b"123")
        channel.confirm_delivery()
        with pytest.raises(NackError):
            channel.basic_publish("e", "key", b"12", pika.BasicProperties(message_id="two"))
        # Its name stays known, although no message was ever in it.
        channel.queue_delete("full")
    refused, key = ("/", "full", "e", "key", "guest"), "f\u00fcr niemand"
    expected = {
        (*refused, "one", False): 1,
        (*refused, "two", False): 1,
        (*refused, "two", True): 1,
        ("/", None, "", key, "guest", None, False): 3,
    }
    assert details(tmp_path) == expected
    assert details(tmp_path, vhost="/") == expected
    assert details(tmp_path, vhost="other") == {}
    assert set(details(tmp_path, queue="full")) == {each for each in expected if each[1] == "full"}
    columns = leveret.scan(str(tmp_path), "events", columns=["connection_name"]).read_all()
    assert any(name and name.startswith("127.0.0.1:") for name in columns["connection_name"].to_pylist())
    # Without the files of details, the rest can be read.
    for path in (tmp_path / "events").glob("de-*"):
        path.unlink()
    assert sum(details(tmp_path).values()) == 6
