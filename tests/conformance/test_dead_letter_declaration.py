"""Rules 2.2.1 to 2.2.5: which queue has a dead-letter exchange, and who may declare it."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.deaths import arrival, dead_letter, dead_letter_to, reject
from tests.conformance.fixtures import Connect, Refuse, Unique
from tests.conformance.operator_policies import PolicySet, only
from tests.conformance.reply_texts import invalid_argument, refused
from tests.conformance.topology import bound_queue, drain, fill, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
ODD_NAMES = ["", "missing", " ", "ä☃", "a'b\"c", "line\nend", "x" * 255, "x" * 256]


def test_2_2_1_by_arguments(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    letters = bound_queue(channel, unique, exchange, "dead")
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange, "dead"))
    letter = dead_letter(channel, queue, letters)
    assert (letter.body, letter.exchange, letter.routing_key) == (b"one", exchange, "dead")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_2_2_2_any_exchange_name_goes(channel: Channel, unique: Unique, name: str) -> None:
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(name, "nowhere"))
    reject(channel, queue)
    assert drain(channel, queue) == []


def test_2_2_3_a_routing_key_needs_an_exchange(refuse: Refuse) -> None:
    refuse(
        "x-dead-letter-routing-key",
        ": routing_key_but_no_dlx_defined",
        arguments=[("x-dead-letter-routing-key", "S", "key")],
    )


def test_2_2_3_the_exchange_of_a_policy_is_not_enough(
    channel: Channel, unique: Unique, vhost: str, policies: PolicySet
) -> None:
    queue = unique()
    policies.set(only(queue), {"dead-letter-exchange": ""})
    text = invalid_argument("x-dead-letter-routing-key", queue, vhost, ": routing_key_but_no_dlx_defined")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, arguments=[("x-dead-letter-routing-key", "S", "key")])


def test_2_2_3_a_policy_may_have_the_routing_key_alone(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    letters, queue = new_queue(channel, unique), new_queue(channel, unique, b"one")
    policies.set(only(queue), {"dead-letter-routing-key": letters})
    reject(channel, queue)
    assert drain(channel, letters) == []


def test_2_2_4_exchange_by_argument_key_by_policy(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    letters = new_queue(channel, unique)
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(""))
    policies.set(only(queue), {"dead-letter-exchange": "missing", "dead-letter-routing-key": letters})
    assert dead_letter(channel, queue, letters).body == b"one"


def test_2_2_4_both_by_argument(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    letters, others = new_queue(channel, unique), new_queue(channel, unique)
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to("", letters))
    policies.set(only(queue), {"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": others})
    assert dead_letter(channel, queue, letters).body == b"one"
    assert drain(channel, others) == []


def test_2_2_5_write_permission_on_the_default_exchange(
    connect: Connect, unique: Unique, accounts: Accounts, vhost: str
) -> None:
    channel, user = connect(**accounts.login("partial")).channel(), accounts.user("partial")
    text = refused("exchange", "amq.default", vhost, user)
    with channel.expect_channel_close(403, text, DECLARE):
        channel.queue_declare(unique("mine"), arguments=dead_letter_to(""))


def test_2_2_5_permissions_are_checked_before_the_arguments(
    connect: Connect, unique: Unique, accounts: Accounts, vhost: str
) -> None:
    channel, user = connect(**accounts.login("partial")).channel(), accounts.user("partial")
    arguments: list[Triple] = [*dead_letter_to("other"), ("x-expires", "I", 0)]
    with channel.expect_channel_close(403, refused("exchange", "other", vhost, user), DECLARE):
        channel.queue_declare(unique("mine"), arguments=arguments)


def test_2_2_5_the_exchange_of_a_policy_is_not_checked(
    channel: Channel, connect: Connect, unique: Unique, accounts: Accounts, policies: PolicySet
) -> None:
    letters, queue = new_queue(channel, unique), unique("mine")
    policies.set(only(queue), {"dead-letter-exchange": "", "dead-letter-routing-key": letters})
    declaring = connect(**accounts.login("partial")).channel()
    declaring.queue_declare(queue)
    fill(channel, queue, b"one")
    reject(declaring, queue)
    assert arrival(channel, letters).body == b"one"
