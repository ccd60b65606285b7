"""The event log records the fate of dead letters and refused messages, so that losses can be counted from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pika
import pytest
from pika.exceptions import NackError

from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.snapshots.reader import open_reader
from leveret.storage.snapshots.snapshot import Request
from tests.integration.threaded_broker import ThreadedBroker

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
