"""Rules 5.1 to 5.13: publisher confirms."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.bounded import bounded, in_one_write, outcomes
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import no_exchange, refused
from tests.conformance.topology import bodies, drain, got, new_exchange, new_queue, numbered
from tests.support import content, methods
from tests.support.wire import BODY, HEADER, METHOD, Channel, Confirm, frame

PUBLISH = commands.Basic.Publish
PERSISTENT = {"delivery_mode": 2}
# One queue takes all, the other refuses all; as the test publishes them.
PATTERNS = ["a", "r", "ar", "ra", "aarrar", "rrraaa", "aaaarrrr", "arararar", "raaaaaar", "arrrrrra" * 10, "aar" * 100]


def confirms(channel: Channel, count: int) -> list[Confirm]:
    """Wait until this many publishes of a fresh confirm channel are settled; return the confirms as they came.

    Asserts that each publish is settled once: one that covers others names itself the last of them.
    """
    outstanding = set(range(1, count + 1))
    seen: list[Confirm] = []

    def complete() -> bool:
        while channel.confirms:
            confirm = channel.confirms.popleft()
            seen.append(confirm)
            assert confirm.delivery_tag in outstanding, f"{confirm} of what is settled"
            first = 1 if confirm.multiple else confirm.delivery_tag
            outstanding.difference_update(range(first, confirm.delivery_tag + 1))
        return not outstanding

    channel.wait_until(complete, f"{count} confirms")
    return seen


def verdicts(settled: list[Confirm]) -> dict[int, bool]:
    """Return for each tag whether it was acked, reading `multiple` as all tags that are still outstanding."""
    found: dict[int, bool] = {}
    for confirm in settled:
        for tag in range(1 if confirm.multiple else confirm.delivery_tag, confirm.delivery_tag + 1):
            found.setdefault(tag, confirm.ack)
    return found


def publish_pattern(channel: Channel, pattern: str, accepting: str, refusing: str) -> None:
    """Publish one message a letter in one write: `a` to the queue that accepts, `r` to the one that refuses."""
    out = []
    for letter in pattern:
        key = accepting if letter == "a" else refusing
        publish = methods.payload(PUBLISH, exchange="", routing_key=key)
        out += [(METHOD, publish), (HEADER, content.header(1)), (BODY, b"x")]
    channel.connection.wire.send_bytes(b"".join(frame(kind, channel.number, payload) for kind, payload in out))


def test_5_1_a_second_select_does_not_start_over(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 1, None, "reject-publish")
    for number, ack in enumerate([True, False, False], 1):
        channel.confirm_select()
        channel.publish("", queue, b"x")
        channel.wait_until(lambda: bool(channel.confirms), "confirm")
        confirm = channel.confirms.popleft()
        assert (confirm.ack, confirm.delivery_tag) == (ack, number)


@pytest.mark.parametrize("fault", ["exchange", "permission", "expiration"])
def test_5_3_a_publish_that_closes_the_channel_gets_no_confirm(
    connect: Connect, unique: Unique, vhost: str, accounts: Accounts, fault: str
) -> None:
    channel = connect(**accounts.login("default-exchange")).channel()
    missing, user = unique("x"), accounts.user("default-exchange")
    exchange, code, text = {
        "exchange": (missing, 404, no_exchange(missing, vhost)),
        "permission": ("amq.direct", 403, refused("exchange", "amq.direct", vhost, user)),
        "expiration": ("", 406, "PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
    }[fault]
    # Without permission on it, a missing exchange is not even looked for.
    if fault == "exchange":
        channel = connect().channel()
    channel.confirm_select()
    channel.publish("", unique("unroutable"))
    assert channel.wait_for_confirms(1) == [True]
    with channel.expect_channel_close(code, text, PUBLISH):
        channel.publish(exchange, "key", properties={"expiration": "x"} if fault == "expiration" else None)
    assert not channel.confirms


def test_5_3_counting_starts_over_with_a_new_channel(channel: Channel, unique: Unique, vhost: str) -> None:
    queue, missing = new_queue(channel, unique), unique("x")
    publisher = channel.connection.channel()
    publisher.confirm_select()
    in_one_write(publisher, queue, *numbered(10))
    with publisher.expect_channel_close(404, no_exchange(missing, vhost), PUBLISH):
        publisher.publish(missing, "key")
    assert drain(channel, queue) == numbered(10)
    again = channel.connection.channel(publisher.number)
    again.confirm_select()
    again.publish("", queue, b"x")
    assert confirms(again, 1) == [Confirm(True, 1, False)]


@pytest.mark.parametrize("mode", [1, 2])
def test_5_4_a_return_comes_before_its_ack(channel: Channel, unique: Unique, mode: int) -> None:
    channel.confirm_select()
    properties = {"delivery_mode": mode, "headers": [("k", "S", "v")]}
    for number in range(1, 4):
        key = unique("missing")
        channel.publish("amq.direct", key, b"body", properties, mandatory=True)
        channel.wait_until(lambda: bool(channel.confirms), "confirm")
        assert channel.confirms.popleft() == Confirm(True, number, False)
        returned = channel.returns.popleft()
        assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
        assert (returned.exchange, returned.routing_key, returned.body) == ("amq.direct", key, b"body")
        assert returned.properties == properties


def test_5_4_unroutable_among_routed(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    publish_pattern(channel, "ar" * 20, queue, unique("missing"))
    assert all(verdicts(confirms(channel, 40)).values())
    assert len(drain(channel, queue)) == 20


@pytest.mark.parametrize("properties", [{}, {"delivery_mode": 1}, PERSISTENT], ids=str)
@pytest.mark.parametrize("durable", [False, True])
def test_5_5_a_message_that_waits_for_its_consumer(
    channel: Channel, connect: Connect, unique: Unique, properties: dict[str, int], durable: bool
) -> None:
    # No ack of a consumer is needed for the publisher's.
    queue = new_queue(channel, unique, durable=durable)
    consumer = connect().channel()
    consumer.qos(1)
    consumer.consume(queue)
    channel.confirm_select()
    for body in numbered(3):
        channel.publish("", queue, body, properties)
    assert channel.wait_for_confirms(3) == [True] * 3
    assert consumer.next_delivery().body == b"1"


@pytest.mark.parametrize("expiration", ["0", "1"])
def test_5_7_expired_messages(channel: Channel, unique: Unique, expiration: str) -> None:
    queue = new_queue(channel, unique, durable=True)
    properties = {**PERSISTENT, "expiration": expiration}
    assert outcomes(channel, queue, *numbered(100), properties=properties) == [True] * 100


@pytest.mark.parametrize("way", ["purge", "get", "consume", "delete"])
def test_5_7_messages_that_are_gone_again(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, durable=True)
    if way == "consume":
        channel.consume(queue, no_ack=True)
    channel.confirm_select()
    in_one_write(channel, queue, *numbered(100), properties=PERSISTENT)
    if way == "purge":
        channel.send(commands.Queue.Purge, queue=queue)
    elif way == "delete":
        channel.send(commands.Queue.Delete, queue=queue)
    elif way == "get":
        for _ in range(100):
            channel.send(commands.Basic.Get, queue=queue, no_ack=True)
    assert all(verdicts(confirms(channel, 100)).values())


def test_5_8_and_5_11_each_is_settled_once_whatever_the_order(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, durable=True)
    channel.confirm_select()
    for number in range(100):
        channel.publish("", queue, b"x", PERSISTENT if number % 2 else {})
    assert verdicts(confirms(channel, 100)) == dict.fromkeys(range(1, 101), True)


@pytest.mark.parametrize("mode", [1, 2])
def test_5_9_a_lone_ack_is_not_multiple(channel: Channel, unique: Unique, mode: int) -> None:
    queue = new_queue(channel, unique, durable=True)
    channel.confirm_select()
    for number in range(1, 6):
        channel.publish("", queue, b"x", {"delivery_mode": mode})
        channel.wait_until(lambda: bool(channel.confirms), "confirm")
        assert channel.confirms.popleft() == Confirm(True, number, False)


def test_5_10_a_lone_nack_is_multiple(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 2, None, "reject-publish")
    channel.confirm_select()
    for number in range(1, 6):
        channel.publish("", queue, b"x")
        channel.wait_until(lambda: bool(channel.confirms), "confirm")
        accepted = number <= 2
        assert channel.confirms.popleft() == Confirm(accepted, number, not accepted)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern[:8])
def test_5_10_acks_and_nacks_cover_only_their_own(channel: Channel, unique: Unique, pattern: str) -> None:
    accepting, refusing = new_queue(channel, unique), bounded(channel, unique, 0, None, "reject-publish")
    channel.confirm_select()
    publish_pattern(channel, pattern, accepting, refusing)
    expected = {number: letter == "a" for number, letter in enumerate(pattern, 1)}
    assert verdicts(confirms(channel, len(pattern))) == expected
    channel.sync(accepting, refusing)
    assert not channel.confirms


def test_5_10_a_run_of_nacks_is_coalesced(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 0, None, "reject-publish")
    channel.confirm_select()
    in_one_write(channel, queue, *numbered(300))
    settled = confirms(channel, 300)
    assert not any(verdicts(settled).values())
    assert len(settled) < 300
    assert any(confirm.multiple for confirm in settled)


def test_5_13_drop_head_never_nacks(channel: Channel, unique: Unique) -> None:
    queues = [bounded(channel, unique, length) for length in (0, 1, 2)]
    exchange = new_exchange(channel, unique, "fanout")
    for queue in queues:
        channel.queue_bind(queue, exchange)
    assert outcomes(channel, "", *numbered(100), exchange=exchange) == [True] * 100
    assert [len(drain(channel, queue)) for queue in queues] == [0, 1, 2]


@pytest.mark.parametrize("nowait", [False, True])
def test_5_2_not_on_a_transactional_channel(channel: Channel, nowait: bool) -> None:
    channel.tx_select()
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    with channel.expect_channel_close(406, text, commands.Confirm.Select):
        channel.confirm_select(nowait=nowait)


def test_5_2_no_transactions_on_a_confirm_channel(channel: Channel) -> None:
    channel.confirm_select()
    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    with channel.expect_channel_close(406, text, commands.Tx.Select):
        channel.tx_select()


def test_5_1_counting_starts_with_select(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue)
    channel.publish("", queue)
    channel.sync(queue)
    assert not channel.confirms
    channel.confirm_select()
    channel.publish("", queue)
    channel.wait_until(lambda: bool(channel.confirms), "confirm")
    assert channel.confirms.popleft() == Confirm(True, 1, False)


def test_5_1_each_channel_counts_for_itself(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    other = channel.connection.channel()
    for each in (channel, other):
        each.confirm_select()
        each.publish("", queue)
    assert channel.wait_for_confirms(1) == other.wait_for_confirms(1) == [True]


def test_5_9_confirms_are_coalesced(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.confirm_select()
    in_one_write(channel, queue, *numbered(200))
    channel.wait_until(lambda: bool(channel.confirms) and channel.confirms[-1].delivery_tag == 200, "the last confirm")
    assert len(channel.confirms) < 200
    assert any(confirm.multiple for confirm in channel.confirms)
    assert drain(channel, queue) == numbered(200)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_5_5_ack(channel: Channel, unique: Unique, durable: bool, mode: int) -> None:
    queue = new_queue(channel, unique, durable=durable)
    channel.confirm_select()
    for body in numbered(3):
        channel.publish("", queue, body, {"delivery_mode": mode})
    assert channel.wait_for_confirms(3) == [True] * 3
    assert drain(channel, queue) == numbered(3)


def test_5_5_to_many_queues(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queues = [new_queue(channel, unique, durable=durable) for durable in (True, False, True)]
    for queue in queues:
        channel.queue_bind(queue, exchange)
    channel.confirm_select()
    for body in numbered(20):
        channel.publish(exchange, "", body, PERSISTENT)
    assert channel.wait_for_confirms(20) == [True] * 20
    assert [drain(channel, queue) for queue in queues] == [numbered(20)] * 3


@pytest.mark.parametrize("no_ack", [True, False])
def test_5_5_consumed_at_once(channel: Channel, connect: Connect, unique: Unique, no_ack: bool) -> None:
    queue = new_queue(channel, unique, durable=True)
    consumer = connect().channel()
    consumer.consume(queue, no_ack=no_ack)
    channel.confirm_select()
    for body in numbered(10):
        channel.publish("", queue, body, PERSISTENT)
    deliveries = consumer.deliveries(10)
    assert bodies(deliveries) == numbered(10)
    if not no_ack:
        consumer.ack(deliveries[-1].delivery_tag, multiple=True)
    assert channel.wait_for_confirms(10) == [True] * 10


def test_5_5_confirms_without_the_capability(connect: Connect, unique: Unique) -> None:
    channel = connect(capabilities={}).channel()
    queue = new_queue(channel, unique)
    channel.confirm_select()
    channel.publish("", queue)
    assert channel.wait_for_confirms(1) == [True]
    assert got(channel, queue).delivery_tag == 1
