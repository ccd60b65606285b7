"""Commands about messages that wait in a delayed exchange."""

from __future__ import annotations

import json

import pytest

from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.wire import Channel

LONG = 3_600_000


@pytest.fixture
def exchange(channel: Channel) -> str:
    """A delayed exchange with three messages, and a queue `q` bound to it."""
    channel.exchange_declare("d", "x-delayed-message", arguments=[("x-delayed-type", "S", "fanout")])
    channel.queue_declare("q")
    channel.queue_bind("q", "d")
    for number in range(3):
        headers = [("x-delay", "I", LONG * (number + 1))]
        channel.publish("d", f"k{number}", b"body %d" % number, {"headers": headers})
    channel.sync()
    return "d"


def test_listing(ctl: Leveretctl, vhost: str, exchange: str) -> None:
    rows = json.loads(ctl.output("list_delayed_messages", "-p", vhost, exchange, "--formatter", "json"))
    assert [(row["id"], row["delay"], row["routing_key"], row["payload_bytes"]) for row in rows] == [
        (1, LONG, "k0", 6), (2, 2 * LONG, "k1", 6), (3, 3 * LONG, "k2", 6),
    ]  # fmt: skip
    text = ctl.output("list_delayed_messages", "-p", vhost, exchange, "--limit", "1")
    banner, columns, row = text.splitlines()
    assert banner == f"Listing delayed messages of exchange 'd' in vhost '{vhost}' ..."
    assert columns.split("\t") == ["id", "due", "delay", "exchange", "routing_key", "payload_bytes"]
    assert row.startswith("1\t20")


def test_showing(ctl: Leveretctl, vhost: str, exchange: str) -> None:
    lines = ctl.output("show_delayed_message", "-p", vhost, exchange, "2", "-q").splitlines()
    assert lines[0] == "id: 2"
    assert lines[-1] == "payload (string): body 1"
    assert f"properties.headers: {{'x-delay': {-2 * LONG}}}" in lines


def test_cancelling_and_delivering(ctl: Leveretctl, vhost: str, exchange: str, channel: Channel) -> None:
    assert ctl("cancel_delayed_message", "-p", vhost, exchange, "1") == CommandResult(
        0,
        f"Cancelling message 1 of exchange 'd' in vhost '{vhost}' ...\nMessage 1 of exchange 'd' is cancelled\n",
        "",
    )
    assert ctl("deliver_delayed_message", "-p", vhost, exchange, "2", "-q").out == (
        "Message 2 of exchange 'd' is delivered\n"
    )
    channel.consume("q", no_ack=True)
    assert channel.next_delivery().body == b"body 1"
    assert ctl("cancel_delayed_message", "-p", vhost, exchange, "1", "-q") == CommandResult(
        69, "", f"Error:\nno message 1 waits in exchange 'd' in vhost '{vhost}'\n"
    )


def test_what_is_refused(ctl: Leveretctl, vhost: str, exchange: str) -> None:
    refused = ctl("show_delayed_message", "-p", vhost, exchange, "one", "-q")
    assert "<id> is the number of a message" in refused.err
    wrong_type = ctl("list_delayed_messages", "-p", vhost, "amq.topic", "-q")
    assert "has type 'topic', not 'x-delayed-message'" in wrong_type.err
    assert "--limit must be 1 or more" in ctl("list_delayed_messages", "-p", vhost, exchange, "--limit", "0").err
