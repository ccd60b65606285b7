"""Rules 14.1 to 14.20: queue.declare without arguments, and who may use a queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import inequivalent, locked, no_queue, refused
from tests.conformance.topology import counts, drain, exists, fill, new_queue
from tests.support.wire import Channel, ChannelClosed

DECLARE = commands.Queue.Declare

# What another connection may not do with an exclusive queue, by which method (4.9).
USES: list[tuple[type[Any], Callable[[Channel, str], Any]]] = [
    (DECLARE, lambda channel, queue: channel.queue_declare(queue)),
    (DECLARE, lambda channel, queue: channel.queue_declare(queue, exclusive=True)),
    (DECLARE, lambda channel, queue: channel.queue_declare(queue, passive=True)),
    (commands.Basic.Consume, lambda channel, queue: channel.consume(queue)),
    (commands.Basic.Get, lambda channel, queue: channel.get(queue)),
    (commands.Queue.Purge, lambda channel, queue: channel.queue_purge(queue)),
    (commands.Queue.Delete, lambda channel, queue: channel.queue_delete(queue)),
    (commands.Queue.Bind, lambda channel, queue: channel.queue_bind(queue, "amq.fanout", queue)),
    (commands.Queue.Unbind, lambda channel, queue: channel.queue_unbind(queue, "amq.direct", queue)),
]


def reserved(name: str) -> str:
    return f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"


def test_14_1_a_new_queue_is_empty(channel: Channel, unique: Unique) -> None:
    name = unique()
    declared = channel.queue_declare(name)
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 0)


def test_14_1_counts_ready_messages_and_consumers(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2", b"3")
    channel.get(queue)
    assert counts(channel, queue) == (2, 0)
    channel.qos(1)
    channel.consume(queue)
    channel.consume(queue)
    channel.deliveries(2)
    declared = channel.queue_declare(queue)
    assert (declared.message_count, declared.consumer_count) == (0, 2)


def test_14_2_server_named(channel: Channel) -> None:
    names = {channel.queue_declare("", exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name)


@pytest.mark.parametrize("name", ["amq.conformance", "amq.", "amq.gen-conformance", "amq.rabbitmq.other"])
def test_14_3_reserved_prefix(channel: Channel, name: str) -> None:
    with channel.expect_channel_close(403, reserved(name), DECLARE):
        channel.queue_declare(name)


def test_14_3_server_named_queues_are_not_redeclared(channel: Channel) -> None:
    name = channel.queue_declare("", exclusive=True).queue
    channel.queue_declare(name, passive=True)
    with channel.expect_channel_close(403, reserved(name), DECLARE):
        channel.queue_declare(name, exclusive=True)


@pytest.mark.parametrize("prefix", ["amq", "AMQ.", "amqp."])
def test_14_3_other_prefixes_are_legal(channel: Channel, unique: Unique, prefix: str) -> None:
    name = prefix if prefix == "amq" else prefix + unique()
    channel.queue_declare(name, exclusive=True)
    channel.queue_delete(name)


def test_14_4_passive_compares_nothing(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, durable=True)
    arguments = [("x-max-length", "S", "many"), ("x-queue-type", "S", "zz")]
    channel.queue_declare(queue, passive=True, exclusive=True, auto_delete=True, arguments=arguments)


@pytest.mark.parametrize("nowait", [False, True])
def test_14_4_passive_of_a_missing_queue(channel: Channel, unique: Unique, vhost: str, nowait: bool) -> None:
    name = unique()
    with channel.expect_channel_close(404, no_queue(name, vhost), DECLARE):
        channel.queue_declare(name, passive=True, nowait=nowait)


def test_14_4_passive_with_an_empty_name(channel: Channel, unique: Unique, vhost: str) -> None:
    new_queue(channel, unique)
    with channel.expect_channel_close(404, no_queue("", vhost), DECLARE):
        channel.queue_declare("", passive=True)


def test_14_5_reserved_prefix_before_permission(connect: Connect, accounts: Accounts) -> None:
    channel = connect(**accounts.login("nobody")).channel()
    with channel.expect_channel_close(403, reserved("amq.conformance"), DECLARE):
        channel.queue_declare("amq.conformance")


def test_14_5_permission_before_exclusivity(
    channel: Channel, connect: Connect, accounts: Accounts, unique: Unique, vhost: str
) -> None:
    queue = new_queue(channel, unique, exclusive=True)
    other = connect(**accounts.login("nobody")).channel()
    with other.expect_channel_close(403, refused("queue", queue, vhost, accounts.user("nobody")), DECLARE):
        other.queue_declare(queue)


def test_14_5_an_existing_queue_is_compared_not_validated(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique)
    text = inequivalent("durable", f"queue '{queue}'", vhost, "'true'", "'false'")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, durable=True, arguments=[("x-message-ttl", "I", -1)])


@pytest.mark.parametrize("first", [True, False])
def test_14_6_exclusivity_must_match(channel: Channel, unique: Unique, vhost: str, first: bool) -> None:
    queue = new_queue(channel, unique, exclusive=first)
    with channel.expect_channel_close(405, locked(queue, vhost), DECLARE):
        channel.queue_declare(queue, exclusive=not first, durable=True)


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_14_7_durability_of_exclusive_queues_is_moot(
    channel: Channel, unique: Unique, first: bool, second: bool
) -> None:
    queue = new_queue(channel, unique, exclusive=True, durable=first)
    channel.queue_declare(queue, exclusive=True, durable=second)


@pytest.mark.parametrize("argument", ["durable", "auto_delete"])
@pytest.mark.parametrize("current", [False, True])
def test_14_8_another_property(channel: Channel, unique: Unique, vhost: str, argument: str, current: bool) -> None:
    queue = unique()
    channel.queue_declare(queue, **{argument: current})
    printed = [f"'{str(value).lower()}'" for value in (not current, current)]
    text = inequivalent(argument, f"queue '{queue}'", vhost, printed[0], printed[1])
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, **{argument: not current})


def test_14_8_durable_is_compared_before_auto_delete(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = new_queue(channel, unique)
    text = inequivalent("durable", f"queue '{queue}'", vhost, "'true'", "'false'")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, durable=True, auto_delete=True)


@pytest.mark.parametrize("nowait", [False, True])
def test_14_8_equal_redeclaration(channel: Channel, unique: Unique, nowait: bool) -> None:
    queue = new_queue(channel, unique, durable=True, auto_delete=True)
    channel.queue_declare(queue, durable=True, auto_delete=True, nowait=nowait)
    assert counts(channel, queue) == (0, 0)


@pytest.mark.parametrize(("method", "use"), USES)
def test_14_9_an_exclusive_queue_is_locked_for_others(
    channel: Channel,
    connect: Connect,
    unique: Unique,
    vhost: str,
    method: type[Any],
    use: Callable[[Channel, str], Any],
) -> None:
    queue = new_queue(channel, unique, b"kept", exclusive=True)
    channel.queue_bind(queue, "amq.direct", queue)
    other = connect().channel()
    with other.expect_channel_close(405, locked(queue, vhost), method):
        use(other, queue)
    channel.publish("amq.direct", queue, b"still bound")
    assert drain(channel, queue) == [b"kept", b"still bound"]


def test_14_9_others_may_unbind_what_is_not_bound(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, exclusive=True)
    channel.queue_bind(queue, "amq.direct", "k")
    other = connect().channel()
    other.queue_unbind(queue, "amq.fanout", "k")
    other.queue_unbind(queue, "amq.direct", "another")
    channel.publish("amq.direct", "k", b"still bound")
    assert drain(channel, queue) == [b"still bound"]


def test_14_9_others_may_publish_to_it(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, exclusive=True)
    channel.queue_bind(queue, "amq.direct", queue)
    other = connect().channel()
    other.confirm_select()
    other.publish("", queue, b"default")
    other.publish("amq.direct", queue, b"bound")
    assert other.wait_for_confirms(2) == [True, True]
    assert drain(channel, queue) == [b"default", b"bound"]


def test_14_18_queue_limit_of_the_vhost(connect: Connect, accounts: Accounts) -> None:
    name = accounts.vhost("max-queues")
    connection = connect(vhost=name)
    channel = connection.channel()
    queues = [channel.queue_declare("", exclusive=True).queue, "second"]
    channel.queue_declare("second", exclusive=True)
    channel.queue_declare("second", exclusive=True)
    text = f"PRECONDITION_FAILED - cannot declare queue 'third': queue limit in vhost '{name}' (2) is reached"
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare("third", arguments=[("x-message-ttl", "I", -1)])
    channel = connection.channel()
    with pytest.raises(ChannelClosed) as refusal:
        channel.queue_declare("")
    assert re.fullmatch(
        r"PRECONDITION_FAILED - cannot declare queue 'amq\.gen-[\w-]{22}': queue limit in vhost"
        rf" '{re.escape(name)}' \(2\) is reached",
        refusal.value.text,
    )
    channel = connection.channel()
    for queue in queues:
        channel.queue_delete(queue)
    channel.queue_declare("third", exclusive=True)


def test_14_19_an_exclusive_queue_outlives_its_channel(connect: Connect, unique: Unique) -> None:
    connection = connect()
    first = connection.channel()
    queue = new_queue(first, unique, b"kept", exclusive=True)
    first.close()
    second = connection.channel()
    second.queue_declare(queue, exclusive=True)
    assert drain(second, queue) == [b"kept"]
    connection.close()
    assert not exists(connect, queue)


def test_14_19_an_exclusive_queue_goes_with_tcp(connect: Connect, unique: Unique, poll: Poll) -> None:
    connection = connect()
    queue = new_queue(connection.channel(), unique, exclusive=True)
    connection.abort()
    poll(lambda: not _locked_or_there(connect, queue))


def _locked_or_there(connect: Connect, queue: str) -> bool:
    try:
        connect().channel().queue_declare(queue, passive=True)
    except ChannelClosed as closed:
        return closed.code == 405
    return True


@pytest.mark.parametrize("end", ["cancel", "channel", "connection", "TCP"])
def test_14_20_auto_delete_with_the_last_consumer(connect: Connect, unique: Unique, poll: Poll, end: str) -> None:
    connection, keeper = connect(), connect().channel()
    channel = connection.channel()
    queue = new_queue(channel, unique, b"unacked", auto_delete=True)
    keeper.consume(queue, "first")
    channel.consume(queue, "second")
    keeper.cancel("first")
    assert counts(keeper, queue)[1] == 1
    if end == "cancel":
        channel.cancel("second")
    elif end == "channel":
        channel.close()
    elif end == "connection":
        connection.close()
    else:
        connection.abort()
    poll(lambda: not exists(connect, queue))


def test_14_20_a_queue_without_consumers_stays(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"one", auto_delete=True)
    channel.get(queue, no_ack=True)
    channel.close()
    channel = channel.connection.channel()
    assert counts(channel, queue) == (0, 0)
    fill(channel, queue, b"two")
    assert drain(channel, queue) == [b"two"]
