"""Documents of queues and channels in states that real clients cannot reach."""

from __future__ import annotations

import base64
import json

import pytest
from aiohttp.test_utils import make_mocked_request
from pamqp import commands

from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.documents.clients import channel_document, connection_document
from leveret.broker.management.http.documents.messages import message_text
from leveret.broker.management.http.documents.overview import MemoryBreakdown
from leveret.broker.management.http.statistics import Rates
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.open(channels=1)


def declared(broker: MemoryBroker, client: MemoryClient) -> Queue:
    client.call(1, commands.Queue.Declare, queue="q")
    return broker.vhost.queues["q"]


def rates(broker: MemoryBroker) -> Rates:
    return Rates(make_mocked_request("GET", "/api/x"), broker.broker)


def test_channel_in_transaction_mode(broker: MemoryBroker, client: MemoryClient) -> None:
    declared(broker, client)
    client.send(publish(1, "q", b"x"))
    client.call(1, commands.Basic.Get, queue="q")
    client.call(1, commands.Tx.Select)
    client.send(publish(1, "q", b"x"), publish(1, "q", b"x"))
    client.send(method(1, commands.Basic.Ack, delivery_tag=1))
    [channel] = client.connection.channels
    document = channel_document(channel, "n", rates(broker))
    assert (document["transactional"], document["confirm"]) == (True, False)
    assert (document["messages_uncommitted"], document["acks_uncommitted"]) == (2, 1)


def test_states_of_a_connection(broker: MemoryBroker, client: MemoryClient) -> None:
    def state() -> str:
        alarmed = broker.broker.alarms.any
        found: str = connection_document(client.connection, "n", rates(broker), alarmed)["state"]
        return found

    declared(broker, client)
    assert state() == "running"
    broker.broker.alarms.set("memory")
    assert state() == "blocking"
    client.send(publish(1, "q", b"x"))
    assert state() == "blocked"
    broker.broker.alarms.clear("memory")
    assert state() == "running"


def test_memory_adds_up(broker: MemoryBroker, client: MemoryClient) -> None:
    queue = declared(broker, client)
    client.send(publish(1, "q", bytes(100_000)))
    breakdown = MemoryBreakdown(broker.broker)
    breakdown.add(queue)
    document = breakdown.document()
    parts = [value for key, value in document.items() if key not in ("strategy", "total")]
    assert document["binary"] == 100_000
    assert sum(parts) == document["total"]["rss"]
    shares = breakdown.shares()
    assert shares["total"] == 100
    assert all(0 <= share <= 100 for share in shares.values())


@pytest.mark.parametrize(
    ("body", "truncate", "is_text"),
    [
        # Three bytes each, so that windows end within characters.
        ("€".encode() * 200_000 + b"x", None, True),
        ("\n€".encode() * 200_000, 400_000, True),
        ("€".encode() * 200_000, 599_999, False),
        (b"x" * 600_000 + b"\xff", None, False),
        (b"x" * 600_000 + b"\xff", 600_000, True),
        ("€".encode()[:2], None, False),
        (b"", None, True),
    ],
)
def test_a_long_body_becomes_json_in_short_pieces(body: bytes, truncate: int | None, is_text: bool) -> None:
    pieces = list(message_text({"redelivered": False}, body, False, truncate))
    assert max(map(len, pieces)) <= 1 << 17
    shown = body[:truncate]
    payload, encoding = (shown.decode(), "string") if is_text else (base64.b64encode(shown).decode(), "base64")
    assert json.loads("".join(pieces)) == {"redelivered": False, "payload": payload, "payload_encoding": encoding}
