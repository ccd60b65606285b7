"""Resource alarms: which connections are blocked and notified, what still works, and the watermark that raises one."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.topology import drain
from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import HEARTBEAT, Channel, Connection, Method

#: How long to listen for what must not come, in seconds.
_SILENCE = 0.3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    """A broker of the test's own, with no alarm set."""
    with ThreadedBroker(tmp_path) as started:
        yield started


@pytest.fixture
def connection(broker: ThreadedBroker) -> Iterator[Connection]:
    """A connection whose client supports connection.blocked."""
    with Connection(broker.url) as opened:
        yield opened


@pytest.fixture
def publisher(connection: Connection) -> Channel:
    """A channel of `connection`, in confirm mode, and a queue `q` to publish to."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_select()
    return channel


@pytest.fixture
def observer(broker: ThreadedBroker) -> Iterator[Channel]:
    """A channel of another connection."""
    with Connection(broker.url) as opened:
        yield opened.channel()


def _expect_blocked(channel: Channel, body: bytes = b"m", reason: str = "low on memory") -> None:
    """Publish to `q`, and assert that connection.blocked is what comes next."""
    channel.publish("", "q", body)
    assert channel.connection.wire.expect(0, commands.Connection.Blocked).reason == reason


def _expect_unblocked(channel: Channel) -> None:
    channel.connection.wire.expect(0, commands.Connection.Unblocked)


def _expect_silence(connection: Connection) -> None:
    with pytest.raises(TimeoutError):
        connection.wire.read_frame(_SILENCE)


# --- who is blocked -----------------------------------------------------------------------------------------------


def test_11_50_blocked_at_the_first_publish_and_not_before(
    broker: ThreadedBroker, publisher: Channel, observer: Channel
) -> None:
    broker.set_alarms("memory")
    # Nothing has come to the idle connection: the answer to its request is the first.
    publisher.send(commands.Queue.Declare, queue="q", passive=True)
    publisher.connection.wire.expect(1, commands.Queue.DeclareOk)
    _expect_blocked(publisher)
    _expect_silence(publisher.connection)
    assert drain(observer, "q") == []
    broker.clear_alarms("memory")


def test_11_50_a_client_without_the_capability_is_blocked_in_silence(
    broker: ThreadedBroker, publisher: Channel
) -> None:
    with Connection(broker.url, capabilities={}) as plain:
        channel = plain.channel()
        broker.set_alarms("memory")
        channel.publish("", "q", b"m")
        channel.send(commands.Basic.Get, queue="q", no_ack=True)
        _expect_silence(plain)
        broker.clear_alarms("memory")
        # Nor does it get connection.unblocked.
        plain.wire.expect(1, commands.Basic.GetOk)
        assert plain.wire.read_frame().type != HEARTBEAT
        assert plain.wire.read_frame().payload == b"m"


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        (["memory"], "low on memory"),
        (["disk"], "low on disk"),
        (["memory", "disk"], "low on disk & memory"),
        (["disk", "memory"], "low on disk & memory"),
    ],
)
def test_11_51_the_reason_names_what_is_low(
    broker: ThreadedBroker, publisher: Channel, resources: list[str], reason: str
) -> None:
    broker.set_alarms(*resources)
    _expect_blocked(publisher, reason=reason)
    broker.clear_alarms(*resources)


def test_11_51_a_second_alarm_says_nothing_and_outlasts_the_first(
    broker: ThreadedBroker, publisher: Channel, observer: Channel
) -> None:
    broker.set_alarms("memory")
    _expect_blocked(publisher)
    broker.set_alarms("disk")
    broker.clear_alarms("memory")
    _expect_silence(publisher.connection)
    assert drain(observer, "q") == []
    broker.clear_alarms("disk")
    _expect_unblocked(publisher)
    publisher.connection.wire.expect(1, commands.Basic.Ack)
    assert drain(observer, "q") == [b"m"]


# --- while it is blocked ------------------------------------------------------------------------------------------


def test_11_52_nothing_is_answered_while_blocked(broker: ThreadedBroker, publisher: Channel, observer: Channel) -> None:
    wire = publisher.connection.wire
    broker.set_alarms("memory")
    _expect_blocked(publisher, b"1")
    publisher.publish("", "q", b"2")
    publisher.send(commands.Queue.Declare, queue="later")
    publisher.publish("", "q", b"3")
    wire.send_method(2, commands.Channel.Open)
    wire.send_method(0, commands.Connection.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0)
    _expect_silence(publisher.connection)
    assert drain(observer, "q") == []

    broker.clear_alarms("memory")
    _expect_unblocked(publisher)
    answers: list[Method] = []
    while not answers or answers[-1].kind is not commands.Connection.CloseOk:
        answers.append(wire.read_method()[1])
    kinds = [answer.kind for answer in answers if answer.kind is not commands.Basic.Ack]
    assert kinds == [commands.Queue.DeclareOk, commands.Channel.OpenOk, commands.Connection.CloseOk]
    assert drain(observer, "q") == [b"1", b"2", b"3"]


def test_11_52_what_comes_before_the_publish_counts(broker: ThreadedBroker, publisher: Channel) -> None:
    with Connection(broker.url) as opened:
        channel = opened.channel()
        channel.publish("", "q", b"m")
        assert channel.get("q") is not None
        broker.set_alarms("memory")
        channel.ack(1)
        channel.send(commands.Queue.Declare, queue="before")
        channel.publish("", "q", b"held")
        channel.send(commands.Queue.Declare, queue="after")
        opened.wire.expect(1, commands.Queue.DeclareOk)
        opened.wire.expect(0, commands.Connection.Blocked)
        _expect_silence(opened)
        publisher.queue_declare("before", passive=True)
        with publisher.expect_channel_close(404, "NOT_FOUND - no queue 'after' in vhost '/'"):
            publisher.queue_declare("after", passive=True)
        broker.clear_alarms("memory")
    with Connection(broker.url) as later:
        # The ack had counted too: nothing was requeued when the connection closed.
        assert drain(later.channel(), "q") == [b"held"]


def test_11_52_consumers_and_others_are_served(broker: ThreadedBroker, publisher: Channel, observer: Channel) -> None:
    for body in (b"1", b"2"):
        publisher.publish("", "q", body)
    publisher.wait_for_confirms(2)
    broker.set_alarms("memory")
    _expect_blocked(publisher, b"3")
    observer.queue_declare("other", exclusive=True)
    observer.queue_bind("other", "amq.direct", "key")
    observer.consume("q")
    for delivery in observer.deliveries(2):
        observer.ack(delivery.delivery_tag)
    observer.sync("q")
    broker.clear_alarms("memory")
    assert observer.next_delivery().body == b"3"


def test_11_52_a_blocked_connection_gets_deliveries(
    broker: ThreadedBroker, publisher: Channel, observer: Channel
) -> None:
    publisher.publish("", "q", b"1")
    publisher.wait_for_confirms(1)
    taken = observer.get("q")
    assert taken is not None
    consumer = publisher.connection.channel()
    consumer.consume("q", no_ack=True)
    broker.set_alarms("memory")
    _expect_blocked(publisher, b"2")
    observer.nack(taken.delivery_tag, requeue=True)
    assert (delivery := consumer.next_delivery()).redelivered
    assert delivery.body == b"1"
    broker.clear_alarms("memory")
    assert consumer.next_delivery().body == b"2"


def test_11_53_each_alarm_blocks_anew(broker: ThreadedBroker, publisher: Channel, observer: Channel) -> None:
    for number, resource in enumerate(("memory", "disk", "memory")):
        broker.set_alarms(resource)
        _expect_blocked(publisher, b"%d" % number, f"low on {resource}")
        broker.clear_alarms(resource)
        _expect_unblocked(publisher)
        publisher.connection.wire.expect(1, commands.Basic.Ack)
    assert drain(observer, "q") == [b"0", b"1", b"2"]


def test_11_53_an_alarm_that_nobody_met_is_never_mentioned(broker: ThreadedBroker, publisher: Channel) -> None:
    broker.set_alarms("memory")
    broker.clear_alarms("memory")
    publisher.publish("", "q", b"m")
    publisher.connection.wire.expect(1, commands.Basic.Ack)


def test_11_53_all_blocked_connections_go_on(broker: ThreadedBroker, publisher: Channel, observer: Channel) -> None:
    others = [Connection(broker.url).channel() for _ in range(5)]
    broker.set_alarms("memory")
    for number, channel in enumerate(others):
        _expect_blocked(channel, b"%d" % number)
    broker.clear_alarms("memory")
    for channel in others:
        _expect_unblocked(channel)
        channel.connection.close()
    assert sorted(drain(observer, "q")) == [b"0", b"1", b"2", b"3", b"4"]


def test_11_54_new_connections_and_channels_during_an_alarm(
    broker: ThreadedBroker, publisher: Channel, observer: Channel
) -> None:
    broker.set_alarms("memory")
    with Connection(broker.url) as late:
        channel = late.channel()
        late.channel()
        channel.queue_declare("late", exclusive=True)
        _expect_blocked(channel)
        _expect_silence(late)
        broker.clear_alarms("memory")
        _expect_unblocked(channel)
    assert drain(observer, "q") == [b"m"]


def test_a_connection_that_goes_away_while_blocked(
    broker: ThreadedBroker, publisher: Channel, observer: Channel
) -> None:
    publisher.queue_declare("own", exclusive=True)
    broker.set_alarms("memory")
    _expect_blocked(publisher)
    publisher.connection.abort()
    broker.clear_alarms("memory")
    # What it sent counts, and then it is gone with all that it held.
    wait_until(lambda: drain(observer, "q") == [b"m"], "the publish")
    wait_until(lambda: broker.call(lambda: len(broker.app.broker.connections)) == 1, "the end of the connection")
    with observer.expect_channel_close(404, "NOT_FOUND - no queue 'own' in vhost '/'"):
        observer.queue_declare("own", passive=True)


def test_11_41_heartbeats_while_blocked(broker: ThreadedBroker) -> None:
    """The broker sends its own, and does not miss the client's; afterwards it does."""
    with Connection(broker.url, heartbeat=1) as silent:
        channel = silent.channel()
        channel.queue_declare("q")
        broker.set_alarms("memory")
        _expect_blocked(channel)
        started = time.monotonic()
        # A client that is not blocked would be dropped after 2 to 3 seconds.
        while time.monotonic() - started < 3.5:
            assert silent.wire.read_frame(15).type == HEARTBEAT
        broker.clear_alarms("memory")
        with silent.expect_drop():
            pass
        assert silent.heartbeats > 0


# --- the watermark ------------------------------------------------------------------------------------------------


def _health(process: LeveretProcess) -> tuple[int, Any]:
    try:
        return 200, Management(process.http_url).request("GET", "health", "checks", "alarms")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_broker_above_its_watermark(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": 1})
    status, answer = _health(process)
    assert (status, answer["status"]) == (503, "failed")
    connection = Connection(process.url)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.publish("", "q", b"m")
    assert connection.wire.expect(0, commands.Connection.Blocked).reason == "low on memory"
    assert process.stop() == 0
    text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    connection.wire.expect_close(320, text)
    connection.abort()
    assert "memory alarm set (limit 1 bytes)" in process.log_text()


def test_a_broker_below_its_watermark(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": "1GB"})
    assert _health(process) == (200, {"status": "ok"})
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.publish("", "q", b"m")
        assert channel.get("q", no_ack=True) is not None
        assert connection.blocked is None
