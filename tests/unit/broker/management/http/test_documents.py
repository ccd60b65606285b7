"""Documents of queues and channels in states that real clients cannot reach."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from pamqp import commands

from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.documents.clients import channel_document, connection_document
from leveret.broker.management.http.documents.memory import MemoryBreakdown
from leveret.broker.management.http.documents.messages import message_text
from leveret.broker.management.http.documents.queues import effective_arguments, queue_document
from leveret.broker.management.http.statistics import Rates
from leveret.policies.policy import Policy
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.open(channels=1)


def declared(broker: MemoryBroker, client: MemoryClient, **arguments: Any) -> Queue:
    """Declare the queue q. Names of arguments are given without x- and with _ instead of -."""
    table = [
        (f"x-{name.replace('_', '-')}", "l", value) if isinstance(value, int) else ("x-overflow", "S", value.encode())
        for name, value in arguments.items()
    ]
    client.call(1, commands.Queue.Declare, queue="q", arguments=table)
    return broker.vhost.queues["q"]


def rates(broker: MemoryBroker) -> Rates:
    return Rates(make_mocked_request("GET", "/api/x"), broker.broker)


def set_policy(broker: MemoryBroker, operator: bool, **definition: Any) -> None:
    keys = {name.replace("_", "-"): value for name, value in definition.items()}
    broker.vhost.policies.set(Policy("p", ".*", keys, apply_to="queues"), operator)


def test_smaller_limit_is_effective(broker: MemoryBroker, client: MemoryClient) -> None:
    queue = declared(broker, client, max_length=100, overflow="reject-publish")
    set_policy(broker, False, max_length=200, max_length_bytes=1000, overflow="drop-head")
    set_policy(broker, True, max_length=50)
    assert effective_arguments(queue) == {
        "x-max-length": 50,
        "x-max-length-bytes": 1000,
        "x-overflow": "reject-publish",
    }


def test_settings_that_are_not_set_are_left_out(broker: MemoryBroker, client: MemoryClient) -> None:
    assert effective_arguments(declared(broker, client)) == {}
    set_policy(broker, False, delivery_limit=3, message_ttl=5)
    # Classic queues ignore the whole policy.
    assert effective_arguments(broker.vhost.queues["q"]) == {}


def test_drops_and_refusals(broker: MemoryBroker, client: MemoryClient) -> None:
    queue = declared(broker, client, max_length=1)
    client.send(*(publish(1, "q", b"x") for _ in range(3)))
    client.call(1, commands.Queue.Purge, queue="q")
    set_policy(broker, False, overflow="reject-publish")
    client.send(*(publish(1, "q", b"x") for _ in range(3)))
    document = queue_document(queue, "n", rates(broker))
    assert document["dropped"] == {"maxlen": 2, "expired": 0, "rejected": 0, "delivery_limit": 0, "purged": 1}
    assert document["refused"] == 2
    stats = document["message_stats"]
    assert (stats["drop"], stats["refuse"], stats["publish"]) == (3, 2, 4)


def test_documents_are_json(broker: MemoryBroker, client: MemoryClient) -> None:
    queue = declared(broker, client, max_priority=3)
    client.send(publish(1, "q", b"x", priority=2))
    document = queue_document(queue, "n", rates(broker))
    assert document["backing_queue_status"]["priority_lengths"] == {"0": 0, "1": 0, "2": 1, "3": 0}
    assert json.loads(json.dumps(document)) == document


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
