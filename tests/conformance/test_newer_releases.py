"""Rules 6.1.7, 13.2, 16.22 and 18.7: where Leveret follows a RabbitMQ newer than 3.10.8."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.bounded import QUORUM
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import new_queue
from tests.support.management import Management
from tests.support.methods import MethodType
from tests.support.tables import Triple
from tests.support.wire import Channel

_LIMITED: Triple = ("x-delivery-limit", "I", 3)
_UNLIMITED: Triple = ("x-delivery-limit", "l", -1)


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


@pytest.mark.departs("4.0")
@pytest.mark.parametrize(
    ("given", "shown"), [((), 20), ([("x-delivery-limit", "I", 3)], 3), ([_UNLIMITED], "unlimited")]
)
def test_6_1_7_the_delivery_limit_is_shown(
    channel: Channel, unique: Unique, management: Management, vhost: str, given: Sequence[Triple], shown: object
) -> None:
    queue = new_queue(channel, unique, arguments=[QUORUM, *given], durable=True)
    assert management.request("GET", "queues", vhost, queue)["delivery_limit"] == shown


@pytest.mark.departs("4.2")
@pytest.mark.parametrize("method", [commands.Queue.Bind, commands.Queue.Unbind], ids=["bind", "unbind"])
def test_16_22_direct_reply_queues_cannot_be_bound(channel: Channel, method: MethodType) -> None:
    # 3.10.8 says 404; a bound reply queue would never get a message.
    text = "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    with channel.expect_channel_close(403, text, method):
        channel.send(method, queue="amq.rabbitmq.reply-to", exchange="amq.direct", routing_key="k")


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
