"""Deliveries that are not acknowledged: consumers with a timeout of their own, and the option for all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.ack_timeout import ConsumerTimeout
from leveret.policies.policy import Policy
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.methods import Method

TIMEOUT = 10.0
#: Within this factor of the timeout it has certainly passed.
LATE = 1.11


def opened(
    broker: MemoryBroker, *arguments: tuple[str, str, object], messages: int = 3, **options: Any
) -> MemoryClient:
    """Return a client with two channels and a queue with messages."""
    client = broker.open(channels=2, **options)
    client.call(1, commands.Queue.Declare, queue="q", arguments=list(arguments))
    client.send(*(publish(2, "q", bytes((number,))) for number in range(messages)))
    return client


def consume(client: MemoryClient, tag: str, timeout_ms: int | None = None, channel: int = 1) -> None:
    arguments = [] if timeout_ms is None else [("x-consumer-timeout", "I", timeout_ms)]
    client.call(channel, commands.Basic.Consume, queue="q", consumer_tag=tag, arguments=arguments)


def qos(client: MemoryClient, count: int) -> None:
    client.call(1, commands.Basic.Qos, prefetch_count=count)


def happened(client: MemoryClient) -> list[tuple[Any, ...]]:
    """What the broker has said about consumers and channels."""

    def read(came: Method) -> tuple[Any, ...] | None:
        if came.kind is commands.Basic.Cancel:
            return "cancelled", came.consumer_tag, came.nowait
        if came.kind is commands.Channel.Close:
            return "closed", came.reply_code, came.reply_text
        return None

    return [found for found in map(read, client.methods()) if found is not None]


def closed(timeout_ms: int) -> tuple[str, int, str]:
    text = (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {timeout_ms} ms."
        " This timeout value can be configured, see consumers doc guide to learn more"
    )
    return "closed", 406, text


def queue_of(broker: MemoryBroker) -> Queue:
    return broker.vhost.queues["q"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [("consumer", "classic"), ("argument", "quorum"), ("policy", "classic"), ("operator policy", "quorum")],
)
def test_the_consumer_is_cancelled_and_its_messages_return(broker: MemoryBroker, kind: str, source: str) -> None:
    arguments: list[tuple[str, str, object]] = [("x-queue-type", "S", kind)]
    if source == "argument":
        arguments.append(("x-consumer-timeout", "I", 10_000))
    client = broker.open(channels=2)
    client.call(1, commands.Queue.Declare, queue="q", durable=True, arguments=arguments)
    client.send(*(publish(2, "q", bytes((number,))) for number in range(3)))
    if "policy" in source:
        definition = {"consumer-timeout": 10_000}
        broker.vhost.policies.set(Policy("p", "", definition), operator=source == "operator policy")
    consume(client, "c", 10_000 if source == "consumer" else None)
    client.methods()
    broker.loop.advance(TIMEOUT * 0.99)
    assert happened(client) == []
    broker.loop.advance(TIMEOUT * (LATE - 0.99))
    assert happened(client) == [("cancelled", "c", True)]
    queue = queue_of(broker)
    assert (queue.store.ready_count, queue.unacked_count, len(queue.consumers)) == (3, 0, 0)


def test_the_others_on_the_channel_go_on(broker: MemoryBroker) -> None:
    client = opened(broker, messages=0)
    qos(client, 1)
    consume(client, "slow", 10_000)
    consume(client, "quick", 60_000)
    client.send(publish(2, "q", b"a"), publish(2, "q", b"b"))
    client.methods()
    client.send(method(1, commands.Basic.Ack, delivery_tag=2))
    broker.loop.advance(TIMEOUT * LATE)
    assert happened(client) == [("cancelled", "slow", True)]
    assert queue_of(broker).unacked_count == 1, "the other one has it"
    client.send(publish(2, "q", b"c"), method(1, commands.Basic.Ack, delivery_tag=3))
    broker.loop.advance(TIMEOUT * LATE)
    client.send(method(1, commands.Basic.Ack, delivery_tag=4))
    assert happened(client) == []
    assert queue_of(broker).unacked_count == 0


@pytest.mark.parametrize(
    "late",
    [
        [(commands.Basic.Ack, {"delivery_tag": 1}), (commands.Basic.Ack, {"delivery_tag": 2})],
        [(commands.Basic.Nack, {"delivery_tag": 2, "multiple": True, "requeue": False})],
        [(commands.Basic.Reject, {"delivery_tag": 1, "requeue": True})],
        [(commands.Basic.Ack, {"delivery_tag": 0, "multiple": True})],
        [(commands.Basic.Ack, {"delivery_tag": 3, "multiple": True})],
    ],
)
def test_late_acknowledgements_are_ignored(broker: MemoryBroker, late: list[tuple[Any, dict[str, Any]]]) -> None:
    client = opened(broker)
    consume(client, "c", 10_000)
    broker.loop.advance(TIMEOUT * LATE)
    client.methods()
    client.send(*(method(1, kind, **arguments) for kind, arguments in late))
    assert happened(client) == []
    assert queue_of(broker).store.ready_count == 3
    last = late[-1][1]["delivery_tag"] or 1
    client.send(method(1, commands.Basic.Ack, delivery_tag=last))
    text = f"PRECONDITION_FAILED - unknown delivery tag {last}"
    assert happened(client) == [("closed", 406, text)], "once is enough"


def test_late_and_timely_acknowledgements_in_one_read(broker: MemoryBroker) -> None:
    client = opened(broker, messages=0)
    qos(client, 1)
    consume(client, "late", 10_000)
    client.send(publish(2, "q", b"a"))
    broker.loop.advance(TIMEOUT * LATE)
    consume(client, "next", 60_000)
    client.methods()
    client.send(*(method(1, commands.Basic.Ack, delivery_tag=tag) for tag in (1, 2)))
    assert happened(client) == []
    assert (queue_of(broker).store.ready_count, queue_of(broker).unacked_count) == (0, 0)


def test_multiple_leaves_later_ones(broker: MemoryBroker) -> None:
    client = opened(broker, messages=2)
    consume(client, "c", 10_000)
    broker.loop.advance(TIMEOUT * LATE)
    client.send(method(1, commands.Basic.Get, queue="q"))
    client.methods()
    client.send(method(1, commands.Basic.Ack, delivery_tag=3, multiple=True))
    assert queue_of(broker).store.ready_count == 1
    client.send(method(1, commands.Basic.Ack, delivery_tag=2))
    assert happened(client) == [("closed", 406, "PRECONDITION_FAILED - unknown delivery tag 2")]


def test_clients_without_cancel_notify_lose_the_channel(broker: MemoryBroker) -> None:
    client = opened(broker, capabilities=())
    consume(client, "c", 10_000)
    client.methods()
    broker.loop.advance(TIMEOUT * LATE)
    assert happened(client) == [closed(10_000)]
    assert queue_of(broker).store.ready_count == 3


def test_messages_of_a_cancelled_consumer_close_the_channel(broker: MemoryBroker) -> None:
    client = opened(broker)
    consume(client, "c", 10_000)
    client.call(1, commands.Basic.Cancel, consumer_tag="c")
    client.methods()
    broker.loop.advance(TIMEOUT * LATE)
    assert happened(client) == [closed(10_000)]


def test_gets_follow_the_queue(broker: MemoryBroker) -> None:
    client = opened(broker, ("x-consumer-timeout", "I", 10_000))
    client.send(method(1, commands.Basic.Get, queue="q"))
    broker.loop.advance(TIMEOUT * 0.9)
    client.send(method(1, commands.Basic.Ack, delivery_tag=1), method(1, commands.Basic.Get, queue="q"))
    broker.loop.advance(TIMEOUT * 0.9)
    assert happened(client) == []
    broker.loop.advance(TIMEOUT * (LATE - 0.9))
    assert happened(client) == [closed(10_000)]


@pytest.mark.parametrize(
    ("consumer", "argument", "policy", "in_force"),
    [(30_000, 10_000, 20_000, 30_000), (None, 30_000, 10_000, 30_000), (None, None, 30_000, 30_000)],
)
def test_what_comes_first(
    broker: MemoryBroker, consumer: int | None, argument: int | None, policy: int, in_force: int
) -> None:
    everyone = ConsumerTimeout(broker.broker.timers, broker.connections.channels, 10_000)
    given = [] if argument is None else [("x-consumer-timeout", "I", argument)]
    client = opened(broker, *given)
    broker.vhost.policies.set(Policy("p", "", {"consumer-timeout": policy}), operator=False)
    consume(client, "c", consumer)
    client.methods()
    (found,) = (
        each for connection in broker.connections for each in next(iter(connection.channels)).consumers.values()
    )
    assert found.timeout_ms == in_force
    broker.loop.advance(in_force / 1000 * 0.99)
    assert happened(client) == []
    broker.loop.advance(in_force / 1000 * (LATE - 0.99))
    assert happened(client) == [("cancelled", "c", True)]
    everyone.stop()


def test_the_option_is_for_all_others(broker: MemoryBroker) -> None:
    everyone = ConsumerTimeout(broker.broker.timers, broker.connections.channels, 10_000)
    client = opened(broker, messages=0)
    qos(client, 1)
    consume(client, "own", 600_000)
    consume(client, "common")
    client.send(publish(2, "q", b"a"), publish(2, "q", b"b"))
    client.methods()
    broker.loop.advance(TIMEOUT * 2.1)
    assert happened(client) == [closed(10_000)]
    everyone.stop()


def test_a_later_policy_does_not_change_a_consumer(broker: MemoryBroker) -> None:
    client = opened(broker)
    consume(client, "c")
    broker.vhost.policies.set(Policy("p", "", {"consumer-timeout": 10_000}), operator=False)
    client.methods()
    broker.loop.advance(TIMEOUT * 3)
    assert happened(client) == []


def test_the_message_goes_to_another_consumer(broker: MemoryBroker) -> None:
    client = opened(broker, ("x-single-active-consumer", "t", 1), messages=1)
    consume(client, "stuck", 10_000)
    consume(client, "waiting", channel=2)
    client.methods()
    broker.loop.advance(TIMEOUT * LATE)
    delivered = [each for each in client.methods() if each.kind is commands.Basic.Deliver]
    assert [(each.consumer_tag, each.redelivered) for each in delivered] == [("waiting", True)]


def test_an_auto_delete_queue_goes_with_its_consumer(broker: MemoryBroker) -> None:
    client = broker.open()
    client.call(1, commands.Queue.Declare, queue="q", auto_delete=True)
    consume(client, "c", 10_000)
    client.send(publish(1, "q", b"a"))
    broker.loop.advance(TIMEOUT * LATE)
    assert ("cancelled", "c", True) in happened(client)
    assert "q" not in broker.vhost.queues


def test_shared_prefetch_is_free_again(broker: MemoryBroker) -> None:
    client = opened(broker)
    client.send(method(1, commands.Basic.Qos, prefetch_count=1, global_=True))
    consume(client, "stuck", 10_000)
    consume(client, "other", 60_000)
    client.methods()
    broker.loop.advance(TIMEOUT * LATE)
    delivered = [each for each in client.methods() if each.kind is commands.Basic.Deliver]
    assert [each.consumer_tag for each in delivered] == ["other"]


def test_closing_leaves_no_timers(broker: MemoryBroker) -> None:
    client = opened(broker, ("x-consumer-timeout", "I", 10_000))
    before = len(broker.broker.timers.pending)
    consume(client, "c")
    client.send(method(2, commands.Basic.Get, queue="q"))
    client.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
    client.call(2, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
    assert len(broker.broker.timers.pending) == before


# -- the option consumer_timeout ----------------------------------------------------------------------------


@pytest.fixture
def timeout(broker: MemoryBroker) -> Iterator[ConsumerTimeout]:
    watching = ConsumerTimeout(broker.broker.timers, broker.connections.channels, int(TIMEOUT * 1000))
    yield watching
    watching.stop()


@pytest.fixture
def client(broker: MemoryBroker, timeout: ConsumerTimeout) -> MemoryClient:
    """A client with a queue of five messages."""
    opened = broker.open(channels=2)
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.send(*(publish(2, "q", bytes((number,))) for number in range(5)))
    return opened


def get(client: MemoryClient) -> None:
    client.send(method(1, commands.Basic.Get, queue="q"))
    client.only(commands.Basic.GetOk)


@pytest.mark.parametrize("how", ["get", "consume"])
def test_a_delivery_that_is_unacknowledged_for_too_long_closes_its_channel(
    broker: MemoryBroker, client: MemoryClient, how: str
) -> None:
    if how == "get":
        get(client)
    else:
        client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
    broker.loop.advance(TIMEOUT * 0.9)
    assert happened(client) == []
    broker.loop.advance(TIMEOUT * 1.2)
    assert happened(client) == [closed(10_000)]
    client.send(method(1, commands.Channel.CloseOk))
    queue = broker.vhost.queues["q"]
    assert (queue.store.ready_count, queue.unacked_count) == (5, 0), "the messages are back"


@pytest.mark.parametrize("delay", [0.0, 1.0, 4.0, 9.9])
def test_it_takes_one_to_two_timeouts(broker: MemoryBroker, client: MemoryClient, delay: float) -> None:
    """The interval of the checks is that of the timeout, at most one minute, so closing may take one more."""
    broker.loop.advance(delay)
    get(client)
    broker.loop.advance(TIMEOUT - 0.01)
    assert happened(client) == []
    broker.loop.advance(TIMEOUT + 0.02)
    assert len(happened(client)) == 1


def test_the_oldest_delivery_counts(broker: MemoryBroker, client: MemoryClient) -> None:
    """Acknowledging later deliveries in time does not prevent the timeout."""
    get(client)
    for tag in range(2, 5):
        broker.loop.advance(TIMEOUT * 0.3)
        get(client)
        client.send(method(1, commands.Basic.Ack, delivery_tag=tag))
    assert happened(client) == []
    broker.loop.advance(TIMEOUT * 1.15)
    assert len(happened(client)) == 1


def test_a_consumer_that_acknowledges_in_time_is_not_closed(broker: MemoryBroker, client: MemoryClient) -> None:
    """There is always an unacknowledged delivery, but never an old one."""
    client.call(1, commands.Basic.Qos, prefetch_count=1)
    client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
    for tag in range(1, 40):
        client.send(publish(2, "q", b"more"))
        broker.loop.advance(TIMEOUT * 0.6)
        client.send(method(1, commands.Basic.Ack, delivery_tag=tag))
        assert happened(client) == []


def test_a_closing_channel_is_not_closed_again(broker: MemoryBroker, client: MemoryClient) -> None:
    get(client)
    client.send(method(1, commands.Basic.Ack, delivery_tag=9))
    assert len(happened(client)) == 1
    broker.loop.advance(TIMEOUT * 5)
    assert happened(client) == []


def test_a_reopened_channel_number_starts_again(broker: MemoryBroker, client: MemoryClient) -> None:
    get(client)
    broker.loop.advance(TIMEOUT * 2.1)
    assert len(happened(client)) == 1
    client.send(method(1, commands.Channel.CloseOk), method(1, commands.Channel.Open))
    client.only(commands.Channel.OpenOk)
    get(client)
    broker.loop.advance(TIMEOUT * 0.95)
    assert happened(client) == []


def test_connections_in_the_handshake_are_skipped(broker: MemoryBroker, timeout: ConsumerTimeout) -> None:
    broker.connect()
    broker.loop.advance(TIMEOUT * 0.9)
    assert len(broker.connections) == 1


def test_after_stop_no_channel_is_closed(broker: MemoryBroker, client: MemoryClient, timeout: ConsumerTimeout) -> None:
    get(client)
    timeout.stop()
    broker.loop.advance(TIMEOUT * 5)
    assert happened(client) == []
