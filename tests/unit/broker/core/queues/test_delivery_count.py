"""Messages with another delivery count, and without their place on disk: all else stays as it is."""

from __future__ import annotations

import pytest

from leveret.broker.core.queues.returns import DeliveryCounter, unstored, without_count
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.storage.message import Message, StoredMessage, TimedMessage
from tests.support.messages import ENVELOPE_FIELDS
from tests.support.queue_content import envelope, headers_of

OWN = ("own", FieldValue("S", b"x"))
ENVELOPE = envelope("k", exchange="x", headers=(OWN,), expiration=500, priority=3, persistent=True, blind_keys=("b",))
MESSAGES = {
    "plain": Message(ENVELOPE, b"body"),
    "timed": TimedMessage(ENVELOPE, b"body", 77),
    "stored": StoredMessage(ENVELOPE, b"body", 0, 99),
    "stored and timed": StoredMessage(ENVELOPE, b"body", 77, 99),
}


@pytest.fixture(params=MESSAGES)
def original(request: pytest.FixtureRequest) -> Message:
    return MESSAGES[request.param]


def is_same(message: Message, original: Message, *but: str) -> bool:
    same = (message.body, message.expires_at) == (original.body, original.expires_at)
    fields = [name for name in ENVELOPE_FIELDS if name not in but]
    return same and all(getattr(message.envelope, name) == getattr(original.envelope, name) for name in fields)


def counts(delivered: int, acquired: int) -> FieldTable:
    return ("x-delivery-count", FieldValue("l", delivered)), ("x-acquired-count", FieldValue("l", acquired))


def test_a_count_is_a_header_and_changes_nothing_else(original: Message) -> None:
    counted = DeliveryCounter().with_count(original, 2)
    assert is_same(counted, original, "header", "delivery_count")
    assert counted.envelope.delivery_count == 2
    assert headers_of(counted) == (OWN, *counts(2, 0)[:1])
    assert type(counted) is type(original)
    assert getattr(counted, "arrived_at", None) == getattr(original, "arrived_at", None)


def test_all_returns_are_counted_beside_the_failed_ones(original: Message) -> None:
    counter = DeliveryCounter()
    counted = counter.with_count(original, 1, 4)
    assert dict(headers_of(counted)) == dict((OWN, *counts(1, 4)))
    # The next ones replace them.
    assert dict(headers_of(counter.with_count(counted, 2, 5))) == dict((OWN, *counts(2, 5)))
    assert dict(headers_of(counter.with_count(original, 0, 3))) == dict((OWN, *counts(0, 3)[1:]))


def test_without_its_count_a_message_is_as_it_was_published(original: Message) -> None:
    counted = DeliveryCounter().with_count(original, 2, 5)
    assert is_same(without_count(counted), original)
    assert without_count(original) is original


def test_a_message_without_its_place_on_disk_keeps_the_rest(original: Message) -> None:
    found = unstored(original)
    assert is_same(found, original)
    assert not isinstance(found, StoredMessage)
    assert isinstance(found, TimedMessage) is (original.expires_at > 0)
