"""Rules 18.1 to 18.11: which permission which method needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import DEFAULT_EXCHANGE, refused
from tests.conformance.topology import drain, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel, ChannelClosed

Operation = Callable[[Channel, str, str], Any]
Login = Callable[[str], Channel]


def _refusals(configurer: str | None, writer: str | None, reader: str | None) -> dict[str, str | None]:
    """Return what each user is refused: a queue, an exchange, or nothing."""
    return {"configurer": configurer, "writer": writer, "reader": reader}


_BIND_EXCHANGE, _BIND_QUEUE = (_refusals(kind, "amq.direct", kind) for kind in ("exchange", "queue"))
_CONFIGURE_EXCHANGE, _CONFIGURE_QUEUE = (_refusals(None, kind, kind) for kind in ("exchange", "queue"))
_READ_QUEUE = _refusals("queue", "queue", None)

# Method, what to do (channel, queue, exchange), what is refused.
OPERATIONS: list[tuple[type[Any], Operation, dict[str, str | None]]] = [
    (commands.Exchange.Declare, lambda channel, _, exchange: channel.exchange_declare(exchange), _CONFIGURE_EXCHANGE),
    (commands.Exchange.Delete, lambda channel, _, exchange: channel.exchange_delete(exchange), _CONFIGURE_EXCHANGE),
    (commands.Exchange.Bind, lambda channel, _, x: channel.exchange_bind(x, "amq.direct", x), _BIND_EXCHANGE),
    (commands.Exchange.Unbind, lambda channel, _, x: channel.exchange_unbind(x, "amq.direct", x), _BIND_EXCHANGE),
    (commands.Queue.Declare, lambda channel, queue, _: channel.queue_declare(queue), _CONFIGURE_QUEUE),
    (commands.Queue.Delete, lambda channel, queue, _: channel.queue_delete(queue), _CONFIGURE_QUEUE),
    (commands.Queue.Bind, lambda channel, queue, _: channel.queue_bind(queue, "amq.direct", queue), _BIND_QUEUE),
    (commands.Queue.Unbind, lambda channel, queue, _: channel.queue_unbind(queue, "amq.direct", queue), _BIND_QUEUE),
    (commands.Queue.Purge, lambda channel, queue, _: channel.queue_purge(queue), _READ_QUEUE),
    (commands.Basic.Get, lambda channel, queue, _: channel.get(queue), _READ_QUEUE),
    (commands.Basic.Consume, lambda channel, queue, _: channel.consume(queue), _READ_QUEUE),
    (commands.Basic.Publish, lambda channel, _, x: channel.publish(x, "key"), _refusals("exchange", None, "exchange")),
]
METHODS = [row[0].name for row in OPERATIONS]


@pytest.fixture
def login(connect: Connect, accounts: Accounts) -> Login:
    """A function that opens a channel of a user of the accounts."""
    return lambda name: connect(**accounts.login(name)).channel()


def expect_refusal(
    channel: Channel, text: str, method: type[Any], operation: Operation, queue: str, exchange: str
) -> None:
    with channel.expect_channel_close(403, text, method):
        operation(channel, queue, exchange)


@pytest.mark.parametrize("name", ["configurer", "writer", "reader"])
@pytest.mark.parametrize(("method", "operation", "refusals"), OPERATIONS, ids=METHODS)
def test_18_4_to_18_6_who_may_do_what(
    channel: Channel,
    login: Login,
    accounts: Accounts,
    unique: Unique,
    vhost: str,
    method: type[Any],
    operation: Operation,
    refusals: dict[str, str | None],
    name: str,
) -> None:
    queue, exchange = new_queue(channel, unique), new_exchange(channel, unique)
    what, user = refusals[name], login(name)
    if what is None:
        operation(user, queue, exchange)
        user.sync()
        return
    kind = "queue" if what == "queue" else "exchange"
    resource = {"queue": queue, "exchange": exchange}.get(what, what)
    text = refused(kind, resource, vhost, accounts.user(name))
    expect_refusal(user, text, method, operation, queue, exchange)


@pytest.mark.parametrize(("method", "operation", "refusals"), OPERATIONS, ids=METHODS)
def test_18_6_permission_comes_before_existence(
    login: Login,
    accounts: Accounts,
    unique: Unique,
    vhost: str,
    method: type[Any],
    operation: Operation,
    refusals: dict[str, str | None],
) -> None:
    queue, exchange = unique("q"), unique("x")
    on_queue = "queue" in refusals.values()
    resource = ("queue", queue) if on_queue else ("exchange", exchange)
    text = refused(*resource, vhost, accounts.user("nobody"))
    expect_refusal(login("nobody"), text, method, operation, queue, exchange)


def test_18_1_patterns_are_searched_for(login: Login, unique: Unique) -> None:
    channel = login("partial")
    queue, exchange = new_queue(channel, unique, hint="mine"), new_exchange(channel, unique, hint="mine")
    channel.queue_bind(queue, exchange, "key")
    channel.publish(exchange, "key", b"allowed")
    assert drain(channel, queue) == [b"allowed"]


@pytest.mark.parametrize("hint", ["others", "Mine"])
def test_18_1_patterns_that_are_not_found(
    login: Login, accounts: Accounts, unique: Unique, vhost: str, hint: str
) -> None:
    channel, queue = login("partial"), unique(hint)
    text = refused("queue", queue, vhost, accounts.user("partial"))
    with channel.expect_channel_close(403, text, commands.Queue.Declare):
        channel.queue_declare(queue)


@pytest.mark.parametrize(
    ("method", "operation", "refusals"),
    [OPERATIONS[METHODS.index(name)] for name in ("Queue.Declare", "Queue.Purge", "Basic.Publish")],
)
def test_18_1_empty_patterns_match_no_name(
    login: Login,
    accounts: Accounts,
    unique: Unique,
    vhost: str,
    method: type[Any],
    operation: Operation,
    refusals: dict[str, str | None],
) -> None:
    queue, exchange = unique("q"), unique("x")
    resource = ("queue", queue) if "queue" in refusals.values() else ("exchange", exchange)
    text = refused(*resource, vhost, accounts.user("empty-patterns"))
    expect_refusal(login("empty-patterns"), text, method, operation, queue, exchange)


@pytest.mark.parametrize("name", ["default-exchange", "writer"])
def test_18_2_default_exchange_is_allowed_by_its_other_name(
    channel: Channel, login: Login, unique: Unique, name: str
) -> None:
    queue, user = new_queue(channel, unique), login(name)
    user.confirm_select()
    user.publish("", queue, b"allowed")
    assert user.wait_for_confirms(1) == [True]
    assert drain(channel, queue) == [b"allowed"]


@pytest.mark.parametrize("name", ["nobody", "empty-patterns", "partial"])
def test_18_2_the_empty_name_does_not_match(
    login: Login, accounts: Accounts, unique: Unique, vhost: str, name: str
) -> None:
    channel = login(name)
    text = refused("exchange", "amq.default", vhost, accounts.user(name))
    with channel.expect_channel_close(403, text, commands.Basic.Publish):
        channel.publish("", unique("mine"))


def test_18_3_server_named_queue(login: Login, accounts: Accounts, vhost: str) -> None:
    with pytest.raises(ChannelClosed) as refusal:
        login("nobody").queue_declare("")
    assert refusal.value.code == 403
    text = refused("queue", "NAME", vhost, accounts.user("nobody"))
    assert re.fullmatch(re.escape(text).replace("NAME", r"amq\.gen-[\w-]{22}"), refusal.value.text)


def declare_with(channel: Channel, name: str, other: str, of_queue: bool) -> None:
    """Declare a queue with a dead-letter exchange, or an exchange with an alternate one."""
    if of_queue:
        arguments: list[Triple] = [("x-dead-letter-exchange", "S", other)]
        channel.queue_declare(name, arguments=arguments)
    else:
        channel.exchange_declare(name, arguments=[("alternate-exchange", "S", other)])


@pytest.mark.parametrize("of_queue", [True, False])
@pytest.mark.parametrize(
    ("hint", "other_hint", "refused_hint"),
    [("mine", "others", "others"), ("yours", "mine", "yours"), ("yours", "others", "yours")],
)
def test_18_4_dead_letter_and_alternate_exchange(
    login: Login,
    accounts: Accounts,
    unique: Unique,
    vhost: str,
    of_queue: bool,
    hint: str,
    other_hint: str,
    refused_hint: str,
) -> None:
    channel, name, other = login("partial"), unique(hint), unique(other_hint)
    # Reading from the new thing, then writing to the exchange that it names.
    kind = "queue" if of_queue and refused_hint == hint else "exchange"
    text = refused(kind, name if refused_hint == hint else other, vhost, accounts.user("partial"))
    method = commands.Queue.Declare if of_queue else commands.Exchange.Declare
    with channel.expect_channel_close(403, text, method):
        declare_with(channel, name, other, of_queue)


@pytest.mark.parametrize("of_queue", [True, False])
def test_18_4_both_permissions_are_there(login: Login, unique: Unique, of_queue: bool) -> None:
    declare_with(login("partial"), unique("mine"), unique("mine"), of_queue)


@pytest.mark.parametrize("of_queue", [True, False])
def test_18_4_redeclaration_needs_configure_only(
    channel: Channel, login: Login, unique: Unique, of_queue: bool
) -> None:
    name, other = unique(), unique("x")
    declare_with(channel, name, other, of_queue)
    declare_with(login("configurer"), name, other, of_queue)


@pytest.mark.parametrize("unbind", [False, True])
def test_18_5_default_exchange_between_the_two_permissions(
    channel: Channel, login: Login, accounts: Accounts, unique: Unique, vhost: str, unbind: bool
) -> None:
    queue = new_queue(channel, unique)
    method = commands.Queue.Unbind if unbind else commands.Queue.Bind

    def bind(user: Channel) -> None:
        (user.queue_unbind if unbind else user.queue_bind)(queue, "", "key")

    reader, writer = login("reader"), login("writer")
    with reader.expect_channel_close(403, refused("queue", queue, vhost, accounts.user("reader")), method):
        bind(reader)
    with writer.expect_channel_close(403, DEFAULT_EXCHANGE, method):
        bind(writer)


def test_18_7_methods_without_permission(login: Login) -> None:
    channel = login("nobody")
    channel.qos(1)
    channel.qos(1, global_=True)
    channel.cancel("unknown")
    channel.ack(multiple=True)
    channel.nack(multiple=True)
    channel.recover()
    channel.flow(True)
    channel.confirm_select()
    transactional = channel.connection.channel()
    transactional.tx_select()
    transactional.tx_commit()
    transactional.tx_rollback()


def test_18_8_system_exchanges_are_not_deleted_before_permission(login: Login, vhost: str) -> None:
    channel = login("nobody")
    text = f"ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '{vhost}' not allowed"
    with channel.expect_channel_close(403, text, commands.Exchange.Delete):
        channel.exchange_delete("amq.direct")


@pytest.mark.parametrize(
    ("method", "operation", "kind"),
    [
        (commands.Queue.Declare, lambda channel, name: channel.queue_declare(name), "queue"),
        (commands.Basic.Publish, lambda channel, name: channel.publish(name, "key"), "exchange"),
        (commands.Basic.Get, lambda channel, name: channel.get(name), "queue"),
    ],
    ids=["configure", "write", "read"],
)
def test_18_11_administrators_have_no_more(
    login: Login,
    accounts: Accounts,
    unique: Unique,
    vhost: str,
    method: type[Any],
    operation: Callable[[Channel, str], object],
    kind: str,
) -> None:
    channel, name = login("administrator"), unique()
    with channel.expect_channel_close(403, refused(kind, name, vhost, accounts.user("administrator")), method):
        operation(channel, name)


@pytest.mark.departs("4.2.7")
def test_18_7_passive_declare_of_a_queue_needs_a_permission(
    channel: Channel, connect: Connect, unique: Unique, accounts: Accounts, vhost: str
) -> None:
    # 3.10.8 lets everybody see names and counts.
    queue, user = unique(), accounts.user("nobody")
    channel.queue_declare(queue)
    text = f"ACCESS_REFUSED - access to queue '{queue}' in vhost '{vhost}' refused for user '{user}'"
    refused = connect(**accounts.login("nobody")).channel()
    with refused.expect_channel_close(403, text, commands.Queue.Declare):
        refused.queue_declare(queue, passive=True)


@pytest.mark.departs("4.2.7")
def test_18_7_passive_declare_of_an_exchange_needs_a_permission(
    connect: Connect, accounts: Accounts, vhost: str
) -> None:
    user = accounts.user("nobody")
    text = f"ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '{vhost}' refused for user '{user}'"
    refused = connect(**accounts.login("nobody")).channel()
    with refused.expect_channel_close(403, text, commands.Exchange.Declare):
        refused.exchange_declare("amq.direct", passive=True)


@pytest.mark.parametrize("user", ["reader", "writer", "configurer"])
def test_18_7_any_permission_is_enough_for_passive_declare(
    channel: Channel, connect: Connect, unique: Unique, accounts: Accounts, user: str
) -> None:
    queue = unique()
    channel.queue_declare(queue)
    allowed = connect(**accounts.login(user)).channel()
    allowed.queue_declare(queue, passive=True)
    allowed.exchange_declare("amq.direct", passive=True)
