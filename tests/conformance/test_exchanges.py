"""Rules 13.1 to 13.18: exchange.declare and exchange.delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import DEFAULT_EXCHANGE, inequivalent, no_exchange, refused
from tests.conformance.topology import bound_queue, drain, new_exchange, new_queue
from tests.support.wire import Channel, Connection

DECLARE = commands.Exchange.Declare
DELETE = commands.Exchange.Delete

# Argument, what to change it to when the exchange is direct and durable, as printed: received, current.
# In the order in which they are compared.
CHANGES: list[tuple[str, dict[str, Any], str, str]] = [
    ("type", {"type": "fanout"}, "'fanout'", "'direct'"),
    ("durable", {"durable": False}, "'false'", "'true'"),
    ("auto_delete", {"auto_delete": True}, "'true'", "'false'"),
    ("internal", {"internal": True}, "'true'", "'false'"),
    (
        "alternate-exchange",
        {"arguments": [("alternate-exchange", "S", "other")]},
        "the value 'other' of type 'longstr'",
        "none",
    ),
]
# On the default exchange: what, by which method.
ON_DEFAULT: list[tuple[type[Any], Callable[[Channel], Any]]] = [
    (DECLARE, lambda channel: channel.exchange_declare("", "direct", durable=True)),
    (DECLARE, lambda channel: channel.exchange_declare("", passive=True)),
    (DELETE, lambda channel: channel.exchange_delete("")),
    (commands.Exchange.Bind, lambda channel: channel.exchange_bind("", "amq.direct", "key")),
    (commands.Exchange.Bind, lambda channel: channel.exchange_bind("amq.direct", "", "key")),
    (commands.Exchange.Unbind, lambda channel: channel.exchange_unbind("", "amq.direct", "key")),
    (commands.Exchange.Unbind, lambda channel: channel.exchange_unbind("amq.direct", "", "key")),
]


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
        ("amq.topic", "topic"),
    ],
)
def test_13_1_predeclared_exchanges(channel: Channel, vhost: str, name: str, type_: str) -> None:
    channel.exchange_declare(name, type_, durable=True)
    text = inequivalent("durable", f"exchange '{name}'", vhost, "'false'", "'true'")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare(name, type_)


def test_13_1_the_trace_exchange_is_internal(channel: Channel) -> None:
    channel.exchange_declare("amq.rabbitmq.trace", "topic", durable=True, internal=True)


@pytest.mark.parametrize("type_", ["direct", "fanout", "headers", "topic"])
def test_13_2_types(channel: Channel, unique: Unique, type_: str) -> None:
    name = new_exchange(channel, unique, type_)
    channel.exchange_declare(name, type_)


@pytest.mark.departs("4.0")
def test_13_3_the_type_is_checked_first(connect: Connect, accounts: Accounts) -> None:
    channel = connect(**accounts.login("nobody")).channel()
    text = "PRECONDITION_FAILED - unknown exchange type 'zzz'"
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare("", "zzz")


def test_13_3_default_exchange_before_permission(connect: Connect, accounts: Accounts) -> None:
    channel = connect(**accounts.login("nobody")).channel()
    with channel.expect_channel_close(403, DEFAULT_EXCHANGE, DECLARE):
        channel.exchange_declare("")


def test_13_3_permission_before_equivalence(
    channel: Channel, connect: Connect, accounts: Accounts, unique: Unique, vhost: str
) -> None:
    name = new_exchange(channel, unique)
    other = connect(**accounts.login("nobody")).channel()
    with other.expect_channel_close(403, refused("exchange", name, vhost, accounts.user("nobody")), DECLARE):
        other.exchange_declare(name, "fanout")


def test_13_3_permission_before_reserved_prefix(connect: Connect, accounts: Accounts, vhost: str) -> None:
    channel = connect(**accounts.login("nobody")).channel()
    text = refused("exchange", "amq.conformance", vhost, accounts.user("nobody"))
    with channel.expect_channel_close(403, text, DECLARE):
        channel.exchange_declare("amq.conformance")


def test_13_3_reserved_prefix_before_alternate_exchange(channel: Channel) -> None:
    text = "ACCESS_REFUSED - exchange name 'amq.conformance' contains reserved prefix 'amq.*'"
    with channel.expect_channel_close(403, text, DECLARE):
        channel.exchange_declare("amq.conformance", arguments=[("alternate-exchange", "I", 1)])


def test_13_4_line_ends_are_removed_from_names(channel: Channel, unique: Unique, vhost: str) -> None:
    name = unique("x")
    broken = name[:5] + "\r\n" + name[5:] + "\n"
    channel.exchange_declare("\r" + name)
    channel.exchange_declare(broken, passive=True)
    channel.exchange_delete(broken)
    with channel.expect_channel_close(404, no_exchange(name, vhost), DECLARE):
        channel.exchange_declare(broken, passive=True)


def test_13_4_line_ends_stay_in_publish(channel: Channel, unique: Unique, vhost: str) -> None:
    name = new_exchange(channel, unique)
    with channel.expect_channel_close(404, no_exchange(name + "\n", vhost), commands.Basic.Publish):
        channel.publish(name + "\n", "key")


@pytest.mark.parametrize("suffix", ["ä☃", " ", "'quoted' \"twice\"", "%s/{}~", "\0\t", "AMQ.", "length"])
def test_13_4_any_name_goes(channel: Channel, unique: Unique, vhost: str, suffix: str) -> None:
    name = unique("x") + suffix
    if suffix == "length":
        name = name.ljust(255, "n")
    channel.exchange_declare(name, auto_delete=True)
    channel.exchange_declare(name, passive=True)
    bound_queue(channel, unique, name, "key")
    channel.exchange_delete(name)
    with channel.expect_channel_close(404, no_exchange(name, vhost), DECLARE):
        channel.exchange_declare(name, passive=True)


def test_13_5_equal_redeclaration(channel: Channel, unique: Unique) -> None:
    name = unique("x")
    options: dict[str, Any] = {"durable": True, "auto_delete": True, "internal": True}
    arguments = [("alternate-exchange", "S", "other")]
    channel.exchange_declare(name, "topic", arguments=arguments, **options)
    channel.exchange_declare(name, "topic", arguments=arguments, **options)


def test_13_5_unknown_arguments_are_not_compared(channel: Channel, unique: Unique) -> None:
    name = new_exchange(channel, unique, arguments=[("x-one", "I", 1), ("foo", "S", "bar")])
    channel.exchange_declare(name)
    channel.exchange_declare(name, arguments=[("x-one", "S", "2"), ("x-two", "V", None)])


@pytest.mark.parametrize("first", range(len(CHANGES)), ids=[row[0] for row in CHANGES])
def test_13_6_the_first_difference_is_named(channel: Channel, unique: Unique, vhost: str, first: int) -> None:
    name = new_exchange(channel, unique, durable=True)
    argument, _, received, current = CHANGES[first]
    changed: dict[str, Any] = {"durable": True}
    for _, change, _, _ in CHANGES[first:]:
        changed |= change
    text = inequivalent(argument, f"exchange '{name}'", vhost, received, current)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare(name, **changed)


@pytest.mark.parametrize(
    ("given", "received", "current"),
    [([], "none", "the value 'one' of type 'longstr'"), ([("alternate-exchange", "S", "two")], "'two'", "'one'")],
)
def test_13_6_another_alternate_exchange(
    channel: Channel, unique: Unique, vhost: str, given: list[Any], received: str, current: str
) -> None:
    name = new_exchange(channel, unique, arguments=[("alternate-exchange", "S", "one")])
    text = inequivalent("alternate-exchange", f"exchange '{name}'", vhost, received, current)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare(name, arguments=given)


@pytest.mark.parametrize("name", ["amq.zzz", "amq."])
def test_13_7_reserved_prefix(channel: Channel, name: str) -> None:
    text = f"ACCESS_REFUSED - exchange name '{name}' contains reserved prefix 'amq.*'"
    with channel.expect_channel_close(403, text, DECLARE):
        channel.exchange_declare(name)


def test_13_8_passive_compares_nothing(channel: Channel, unique: Unique) -> None:
    name = new_exchange(channel, unique, "topic", durable=True)
    channel.exchange_declare(name, "zzz", passive=True, internal=True, arguments=[("alternate-exchange", "I", 1)])
    channel.exchange_declare("amq.direct", "", passive=True)


def test_13_8_passive_of_a_missing_exchange(channel: Channel, unique: Unique, vhost: str) -> None:
    name = unique("x")
    with channel.expect_channel_close(404, no_exchange(name, vhost), DECLARE):
        channel.exchange_declare(name, passive=True)


@pytest.mark.parametrize(("method", "operation"), ON_DEFAULT)
def test_13_9_default_exchange_is_refused(
    channel: Channel, method: type[Any], operation: Callable[[Channel], Any]
) -> None:
    with channel.expect_channel_close(403, DEFAULT_EXCHANGE, method):
        operation(channel)


@pytest.mark.parametrize(
    ("letter", "value", "type_name"),
    [("I", 5, "signedint"), ("l", 5, "long"), ("t", 1, "bool"), ("V", None, "void"), ("F", [], "table")],
)
def test_13_10_alternate_exchange_must_be_a_string(
    channel: Channel, unique: Unique, vhost: str, letter: str, value: Any, type_name: str
) -> None:
    name = unique("x")
    text = (
        f"PRECONDITION_FAILED - invalid type '{type_name}' for arg 'alternate-exchange'"
        f" in exchange '{name}' in vhost '{vhost}'"
    )
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare(name, arguments=[("alternate-exchange", letter, value)])


@pytest.mark.parametrize("if_unused", [False, True])
def test_13_11_delete_of_a_missing_exchange(channel: Channel, unique: Unique, if_unused: bool) -> None:
    channel.exchange_delete(unique("x"), if_unused=if_unused)


@pytest.mark.parametrize("name", ["amq.direct", "amq.rabbitmq.trace", "amq.missing"])
def test_13_11_delete_of_a_system_exchange(channel: Channel, vhost: str, name: str) -> None:
    text = f"ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '{vhost}' not allowed"
    with channel.expect_channel_close(403, text, DELETE):
        channel.exchange_delete(name)


@pytest.mark.parametrize("to_queue", [True, False])
def test_13_11_a_source_is_in_use(channel: Channel, unique: Unique, vhost: str, to_queue: bool) -> None:
    name = new_exchange(channel, unique)
    if to_queue:
        bound_queue(channel, unique, name, "key")
    else:
        channel.exchange_bind(new_exchange(channel, unique), name, "key")
    text = f"PRECONDITION_FAILED - exchange '{name}' in vhost '{vhost}' in use"
    with channel.expect_channel_close(406, text, DELETE):
        channel.exchange_delete(name, if_unused=True)


def test_13_11_a_destination_is_not_in_use(channel: Channel, unique: Unique, vhost: str) -> None:
    name, source = new_exchange(channel, unique), new_exchange(channel, unique)
    channel.exchange_bind(name, source, "key")
    channel.exchange_delete(name, if_unused=True)
    with channel.expect_channel_close(404, no_exchange(name, vhost), DECLARE):
        channel.exchange_declare(name, passive=True)


def test_13_12_bindings_go_with_either_end(channel: Channel, unique: Unique) -> None:
    outer = new_exchange(channel, unique, "fanout")
    inner = new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, inner, "")
    channel.exchange_bind(inner, outer)
    channel.exchange_delete(inner)
    channel.exchange_declare(inner, "fanout")
    channel.publish(outer, "", b"no longer bound to inner")
    channel.publish(inner, "", b"nor to the queue")
    channel.exchange_delete(outer, if_unused=True)
    assert drain(channel, queue) == []


def test_13_14_internal_exchange(connection: Connection, unique: Unique, vhost: str) -> None:
    channel = connection.channel()
    outer = new_exchange(channel, unique)
    inner = new_exchange(channel, unique, internal=True)
    queue = bound_queue(channel, unique, inner, "key")
    channel.exchange_bind(inner, outer, "key")
    channel.publish(outer, "key", b"through outer")
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{inner}' in vhost '{vhost}'"
    with channel.expect_channel_close(403, text, commands.Basic.Publish):
        channel.publish(inner, "key", b"directly")
    channel = connection.channel()
    assert drain(channel, queue) == [b"through outer"]
    channel.exchange_delete(inner)


def test_13_18_nowait(connection: Connection, unique: Unique, vhost: str) -> None:
    channel = connection.channel()
    name, other, queue = unique("x"), unique("x"), new_queue(channel, unique)
    channel.exchange_declare(name, "direct", nowait=True)
    channel.exchange_declare(other, "direct", nowait=True)
    channel.exchange_bind(other, name, "key", nowait=True)
    channel.queue_bind(queue, other, "key", nowait=True)
    channel.publish(name, "key", b"routed")
    assert drain(channel, queue) == [b"routed"]
    channel.exchange_unbind(other, name, "key", nowait=True)
    channel.exchange_delete(name, if_unused=True, nowait=True)
    with channel.expect_channel_close(404, no_exchange(name, vhost), DECLARE):
        channel.exchange_declare(name, passive=True)


def test_13_18_nowait_hides_no_error(channel: Channel, unique: Unique, vhost: str) -> None:
    name = new_exchange(channel, unique)
    text = inequivalent("type", f"exchange '{name}'", vhost, "'fanout'", "'direct'")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.exchange_declare(name, "fanout", nowait=True)


@pytest.mark.departs("4.0")
@pytest.mark.parametrize("kind", ["zzz", "x-none", "Direct", "direct "])
def test_13_2_unknown_exchange_type(channel: Channel, unique: Unique, kind: str) -> None:
    # 3.10.8 closes the connection with 503: a client's typing error takes all its channels down.
    text = f"PRECONDITION_FAILED - unknown exchange type '{kind}'"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), kind)


def test_13_2_federation_is_refused_as_ever(channel: Channel, unique: Unique) -> None:
    # RabbitMQ's federation knows this answer only, and takes a fanout exchange then.
    text = "COMMAND_INVALID - unknown exchange type 'x-federation-upstream'"
    with channel.expect_connection_close(503, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), "x-federation-upstream")


@pytest.mark.departs("4.0")
@pytest.mark.parametrize("kind", ["", "classic"])
def test_13_2_invalid_exchange_type(channel: Channel, unique: Unique, kind: str) -> None:
    text = f"PRECONDITION_FAILED - invalid exchange type '{kind}'"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(unique("x"), kind)
