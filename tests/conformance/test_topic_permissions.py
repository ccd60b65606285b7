"""Rules 18.9 to 18.10: topic permissions, and permissions that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import refused
from tests.conformance.topology import bound_queue, drain, new_exchange, new_queue
from tests.support.management import Management
from tests.support.wire import Channel

PUBLISH = commands.Basic.Publish

# What needs read permission on the key, by which method: (channel, queue, exchange, key).
READING: list[tuple[type[Any], Callable[[Channel, str, str, str], Any]]] = [
    (commands.Queue.Bind, lambda channel, queue, _, key: channel.queue_bind(queue, "amq.topic", key)),
    (commands.Queue.Unbind, lambda channel, queue, _, key: channel.queue_unbind(queue, "amq.topic", key)),
    (commands.Exchange.Bind, lambda channel, _, exchange, key: channel.exchange_bind(exchange, "amq.topic", key)),
    (commands.Exchange.Unbind, lambda channel, _, exchange, key: channel.exchange_unbind(exchange, "amq.topic", key)),
]


@pytest.fixture
def user(accounts: Accounts) -> str:
    """The name of the user with topic permissions."""
    return accounts.user("topic")


@pytest.fixture
def restricted(connect: Connect, accounts: Accounts) -> Channel:
    """A channel of that user."""
    return connect(**accounts.login("topic")).channel()


def topic_refused(key: str, vhost: str, user: str) -> str:
    return (
        f"ACCESS_REFUSED - access to topic '{key}' in exchange 'amq.topic' in vhost '{vhost}' refused for user '{user}'"
    )


def test_18_9_publish_needs_write_on_the_key(
    restricted: Channel, channel: Channel, unique: Unique, vhost: str, user: str
) -> None:
    key = unique()
    queue = bound_queue(channel, unique, "amq.topic", f"*.{key}", f"*.*.*.{key}")
    restricted.publish("amq.topic", f"w.{key}", b"allowed")
    with restricted.expect_channel_close(403, topic_refused(f"z.{key}", vhost, user), PUBLISH):
        restricted.publish("amq.topic", f"z.{key}", b"refused")
    channel.sync(queue)
    assert b"refused" not in drain(channel, queue)


@pytest.mark.parametrize("key", ["r.x", "", "W.x"])
def test_18_9_keys_that_may_not_be_written(restricted: Channel, vhost: str, user: str, key: str) -> None:
    with restricted.expect_channel_close(403, topic_refused(key, vhost, user), PUBLISH):
        restricted.publish("amq.topic", key)


def test_18_9_the_key_is_checked_before_the_properties(restricted: Channel, vhost: str, user: str) -> None:
    with restricted.expect_channel_close(403, topic_refused("z.x", vhost, user), PUBLISH):
        restricted.publish("amq.topic", "z.x", properties={"user_id": "bob"})


@pytest.mark.parametrize(("method", "operation"), READING)
def test_18_9_bindings_need_read_on_the_key(
    restricted: Channel,
    unique: Unique,
    vhost: str,
    user: str,
    method: type[Any],
    operation: Callable[[Channel, str, str, str], Any],
) -> None:
    queue, exchange = new_queue(restricted, unique), new_exchange(restricted, unique)
    for key in (f"r.{queue}", f"{user}.{queue}"):
        operation(restricted, queue, exchange, key)
    with restricted.expect_channel_close(403, topic_refused(f"w.{queue}", vhost, user), method):
        operation(restricted, queue, exchange, f"w.{queue}")


def test_18_9_other_exchanges_are_not_restricted(restricted: Channel, unique: Unique) -> None:
    key = unique("key")
    for exchange in ("amq.direct", new_exchange(restricted, unique, "topic")):
        queue = bound_queue(restricted, unique, exchange, key)
        restricted.publish(exchange, key, b"allowed")
        assert drain(restricted, queue) == [b"allowed"]


def test_18_9_other_users_are_not_restricted(channel: Channel, unique: Unique) -> None:
    key = f"z.{unique('key')}"
    queue = bound_queue(channel, unique, "amq.topic", key)
    channel.publish("amq.topic", key, b"allowed")
    assert drain(channel, queue) == [b"allowed"]


def test_18_9_cc_is_not_checked(restricted: Channel, channel: Channel, unique: Unique) -> None:
    key = unique("key")
    queue = bound_queue(channel, unique, "amq.topic", f"z.{key}")
    headers = [("CC", "A", [("S", f"z.{key}")])]
    restricted.publish("amq.topic", f"w.{key}", b"copied", {"headers": headers})
    restricted.sync(queue)
    assert drain(channel, queue) == [b"copied"]


def test_18_9_the_exchange_comes_first(connect: Connect, accounts: Accounts, vhost: str) -> None:
    channel = connect(**accounts.login("reader")).channel()
    text = refused("exchange", "amq.topic", vhost, accounts.user("reader"))
    with channel.expect_channel_close(403, text, PUBLISH):
        channel.publish("amq.topic", "w.x")


@pytest.fixture
def changing(management: Management, accounts: Accounts, unique: Unique, vhost: str) -> Iterator[str]:
    """The name (and password) of a user of this test alone, with all permissions."""
    name = accounts.prefix + unique("user")
    management.request("PUT", "users", name, body={"password": name, "tags": ""})
    permit(management, vhost, name, ".*")
    yield name
    management.request("DELETE", "users", name)


def permit(management: Management, vhost: str, user: str, pattern: str) -> None:
    """Give a user this pattern for all three permissions."""
    body = {"configure": pattern, "write": pattern, "read": pattern}
    management.request("PUT", "permissions", vhost, user, body=body)


def test_18_10_a_revoked_permission(
    connect: Connect, management: Management, unique: Unique, vhost: str, changing: str
) -> None:
    connection = connect(user=changing, password=changing)
    queue = new_queue(connection.channel(), unique, b"one")
    permit(management, vhost, changing, "^$")
    # Each with a channel of its own, for a channel may remember for a while what was allowed.
    channel = connection.channel()
    with channel.expect_channel_close(403, refused("queue", queue, vhost, changing), commands.Basic.Get):
        channel.get(queue)
    channel = connection.channel()
    with channel.expect_channel_close(403, refused("exchange", "amq.default", vhost, changing), PUBLISH):
        channel.publish("", queue)


def test_18_10_a_granted_permission(
    connect: Connect, management: Management, unique: Unique, vhost: str, changing: str
) -> None:
    connection = connect(user=changing, password=changing)
    permit(management, vhost, changing, "^$")
    channel, queue = connection.channel(), unique()
    with channel.expect_channel_close(403, refused("queue", queue, vhost, changing), commands.Queue.Declare):
        channel.queue_declare(queue)
    permit(management, vhost, changing, ".*")
    channel = connection.channel()
    channel.queue_declare(queue)
