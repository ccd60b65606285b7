"""Replaying a stream, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.operations.jobs.job_options import read_replay_options
from leveret.broker.operations.jobs.plans import DAMAGED, NO_ROUTE, REFUSED, REMOVED, SAME
from leveret.broker.operations.jobs.replaying import ReplayWork
from leveret.broker.operations.jobs.runner import new_work, open_source
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldTable, FieldValue, longstr, plain_values
from leveret.protocol.properties import HEADERS, Properties, encode_content_header, encode_headers
from leveret.storage.message import Envelope, Message
from tests.support.queue_content import contents, drain, route_of
from tests.support.queues import declare, declare_stream
from tests.support.simulated_files import flip
from tests.support.streams import StreamBroker, number


@pytest.fixture
def broker() -> StreamBroker:
    return StreamBroker()


class Replayer:
    """A user who replays the stream `s`, and may do everything at first."""

    def __init__(self, broker: StreamBroker) -> None:
        self.broker = broker
        self.accounts = Accounts(("u",))
        self.accounts.add_user("u", "u")
        self.allow()

    def allow(self, write: str = ".*", read: str = ".*") -> None:
        self.accounts.set_permissions("u", "v", "", write, read)

    def begin(self, stream: str = "s", **options: Any) -> ReplayWork:
        """Begin a replay; `begin` and `end` stand for the options `from` and `to`."""
        names = {"begin": "from", "end": "to"}
        read = read_replay_options({names.get(key, key): value for key, value in options.items()})
        principal = Principal(self.accounts, self.accounts.users["u"], self.broker.vhost)
        work = new_work(principal, open_source(principal, stream, read), read)
        assert isinstance(work, ReplayWork)
        return work

    def run(self, **options: Any) -> ReplayWork:
        work = self.begin(**options)
        while not work.is_over and not work.waits:
            work.step(256)
            self.broker.loop.run()
        return work


@pytest.fixture
def replayer(broker: StreamBroker) -> Replayer:
    return Replayer(broker)


def publish(broker: StreamBroker, body: str, headers: FieldTable = (), key: str = "k") -> None:
    header = encode_content_header(len(body), {HEADERS: encode_headers(headers)} if headers else None)
    route = b"\x01x" + bytes((len(key),)) + key.encode()
    broker.stream.publish([Message(Envelope(route, header, True), body.encode())], len(body))
    broker.loop.run()


def test_a_copy_says_where_it_comes_from(broker: StreamBroker, replayer: Replayer) -> None:
    target = declare(broker.vhost, "to")
    publish(broker, "a")
    publish(broker, "b", (("zebra", FieldValue("I", 5)), ("x-replayed-from", longstr("elsewhere"))))
    work = replayer.run(into_queue="to")
    copies = drain(target)
    assert [copy.body for copy in copies] == [b"a", b"b"]
    assert [plain_values(Properties(copy.envelope.header).headers()) for copy in copies] == [
        {"x-replayed-from": "s", "x-replayed-offset": 0},
        {"x-replayed-from": "s", "x-replayed-offset": 1, "zebra": 5},
    ]
    assert {(copy.envelope.route, copy.envelope.persistent) for copy in copies} == {(b"\x01x\x01k", True)}
    assert (work.counts.returned, work.counts.scanned, broker.stream.ready_count()) == (2, 2, 2)


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (None, None, "0123456789"),
        ("first", "next", "0123456789"),
        (3, 7, "3456"),
        ("3", "7", "3456"),
        (3, 3, ""),
        (7, 3, ""),
        (8, 100, "89"),
        (100, None, ""),
        ("last", None, "89"),
        (None, "last", "01234567"),
        # A minute passes after every two messages; the first ones arrive at 1000 s.
        ("@1060", "@1180", "2345"),
        ("@1061", "@1181", "4567"),
        ("1970-01-01T00:17:40Z", None, "23456789"),
        ("2m", None, "6789"),
        (None, "2m", "012345"),
        ("@99999999", None, ""),
        (None, "@1", ""),
    ],
)
def test_ranges(broker: StreamBroker, replayer: Replayer, begin: Any, end: Any, expected: str) -> None:
    target = declare(broker.vhost, "to")
    for first in range(0, 10, 2):
        broker.publish(str(first), str(first + 1))
        broker.advance(60)
    work = replayer.begin(begin=begin, end=end, into_queue="to")
    # What comes later is left out, whatever the end is.
    broker.publish("x")
    while not work.is_over:
        work.step(256)
    assert "".join(contents(target)) == expected


def test_a_filter_and_a_limit(broker: StreamBroker, replayer: Replayer) -> None:
    target = declare(broker.vhost, "to")
    for at in range(300):
        publish(broker, str(at), (("n", FieldValue("I", at % 3)),), key=f"k{at % 2}")
    work = replayer.run(into_queue="to", filter="header.n=1", limit=70)
    assert [int(body) for body in contents(target)] == [*range(1, 210, 3)]
    assert (work.counts.returned, work.counts.scanned) == (70, 209)
    assert work.counts.by_origin == {("queue 'to'", "key 'k0'"): 35, ("queue 'to'", "key 'k1'"): 35}


def test_a_queue_that_drops_its_head_is_not_made_to_lose_messages(broker: StreamBroker, replayer: Replayer) -> None:
    target = declare(broker.vhost, "to", arguments=(number("x-max-length", 2),))
    broker.publish("a", "b", "c")
    work = replayer.run(into_queue="to")
    assert (bool(work.waits), contents(target)) == (True, ["a", "b"])


def add_exchange(broker: StreamBroker, kind: str, *bound: str, key: str = "", arguments: FieldTable = ()) -> None:
    """Declare the exchange `x`, and bind queues; those that do not exist are declared."""
    broker.vhost.declare_exchange("x", kind, False, False, False, arguments)
    for name in bound:
        queue = broker.vhost.queues.get(name) or declare(broker.vhost, name)
        broker.vhost.topology.bind(broker.vhost.topology.exchange("x"), queue, key, ())


def test_an_exchange(broker: StreamBroker, replayer: Replayer) -> None:
    """Bound queues get the messages, with the exchange as the one that they were published to; the stream does not."""
    add_exchange(broker, "topic", "s", "a", "b", key="events.#")
    publish(broker, "1", key="events.1")
    publish(broker, "2", key="other")
    work = replayer.run(into_exchange="x")
    queues = broker.vhost.queues
    copies = drain(queues["a"])
    assert [(route_of(copy), copy.body) for copy in copies] == [(("x", "events.1"), b"1")]
    assert contents(queues["b"]) == ["1"]
    assert broker.stream.ready_count() == 2
    assert work.counts.left == {(NO_ROUTE, "exchange 'x'"): 1}
    assert work.counts.by_origin == {("exchange 'x'", "key 'events.1'"): 1, ("exchange 'x'", "key 'other'"): 1}


def test_the_keys_of_cc_count(broker: StreamBroker, replayer: Replayer) -> None:
    copied = FieldValue("A", [longstr("copied")])
    add_exchange(broker, "direct", "a", key="copied")
    publish(broker, "1", (("CC", copied),))
    replayer.run(into_exchange="x")
    assert contents(broker.vhost.queues["a"]) == ["1"]


def test_only_the_stream_is_bound(broker: StreamBroker, replayer: Replayer) -> None:
    add_exchange(broker, "fanout", "s")
    broker.publish("1")
    work = replayer.run(into_exchange="x")
    assert (work.is_over, work.counts.left, broker.stream.ready_count()) == (True, {(SAME, "exchange 'x'"): 1}, 1)


def test_a_random_exchange_is_asked_for_every_message(broker: StreamBroker, replayer: Replayer) -> None:
    add_exchange(broker, "x-random", "a", "b")
    broker.publish(*["m"] * 200)
    replayer.run(into_exchange="x")
    counts = [broker.vhost.queues[name].ready_count() for name in ("a", "b")]
    assert (sum(counts), min(counts) > 0) == (200, True)


def test_the_room_behind_a_filter_of_duplicates(broker: StreamBroker, replayer: Replayer) -> None:
    arguments = number("x-cache-size", 10), ("x-original-type", longstr("fanout"))
    declare(broker.vhost, "a", arguments=(number("x-max-length", 1), ("x-overflow", longstr("reject-publish"))))
    add_exchange(broker, "x-message-deduplication", "a", arguments=arguments)
    for value in ("1", "1", "2"):
        publish(broker, value, (("x-deduplication-header", longstr(value)),))
    work = replayer.run(into_exchange="x")
    assert (bool(work.waits), contents(broker.vhost.queues["a"])) == (True, ["1"])
    while not work.is_over:
        work.step(256)
        broker.loop.run()
    assert contents(broker.vhost.queues["a"]) == ["2"]


def test_another_stream_keeps_what_its_limits_allow(broker: StreamBroker, replayer: Replayer) -> None:
    limits = number("x-max-length-bytes", 1), number("x-stream-max-segment-size-bytes", 1000)
    target = declare_stream(broker.vhost, "copy", *limits)
    broker.publish("1", "2", "3")
    work = replayer.run(into_queue="copy")
    assert (work.is_over, work.counts.returned, target.ready_count()) == (True, 3, 3)


def test_what_was_removed_meanwhile_is_counted(broker: StreamBroker) -> None:
    broker = StreamBroker(arguments=(number("x-stream-max-segment-size-bytes", 100),))
    replayer, target = Replayer(broker), declare(broker.vhost, "to")
    for at in range(10):
        broker.publish(f"{at}" * 100)
    work = replayer.begin(into_queue="to")
    work.step(2)
    broker.stream.stream.retain(500, None)
    broker.loop.run()
    first = broker.stream.stream.offsets[0]
    assert 2 < first < 10
    while not work.is_over:
        work.step(256)
    assert work.counts.left == {(REMOVED, ""): first - 2}
    assert [text[0] for text in contents(target)] == [str(at) for at in (0, 1, *range(first, 10))]


def test_a_damaged_message_is_counted(broker: StreamBroker, replayer: Replayer) -> None:
    target = declare(broker.vhost, "to")
    broker.publish("aaaa", "bbbb", "cccc")
    broker.publish("dddd")
    for path, octets in broker.files.snapshot().items():
        if b"bbbb" in octets:
            flip(broker.files, path, octets.index(b"bbbb"), 1)
    work = replayer.run(into_queue="to")
    assert (contents(target), work.counts.left) == (["aaaa", "cccc", "dddd"], {(DAMAGED, ""): 1})


def test_a_step_ends_with_its_time_slice(broker: StreamBroker) -> None:
    clock = iter(range(0, 10**12, 1_000_000))
    broker = StreamBroker(slice_clock=lambda: next(clock))
    declare(broker.vhost, "to")
    broker.publish(*["m"] * 1000)
    work = Replayer(broker).begin(into_queue="to")
    steps = 0
    while not work.is_over:
        before = work.counts.scanned
        work.step(256)
        steps += 1
        # The clock jumps ahead by more than a slice each time that it is read.
        assert 0 < work.counts.scanned - before <= 64
    assert steps >= 1000 / 64


def test_topic_permissions_count(broker: StreamBroker, replayer: Replayer) -> None:
    add_exchange(broker, "topic", "events", key="#")
    publish(broker, "1", key="open.1")
    publish(broker, "2", key="secret.1")
    replayer.accounts.set_topic_permissions("u", "v", "x", "^open", "")
    work = replayer.run(into_exchange="x")
    assert work.counts.left == {(REFUSED, "exchange 'x'"): 1}
    assert contents(broker.vhost.queues["events"]) == ["1"]


def test_an_internal_exchange_gets_nothing(replayer: Replayer) -> None:
    replayer.broker.vhost.declare_exchange("inner", "fanout", False, False, True, ())
    with pytest.raises(ChannelFault, match="ACCESS_REFUSED"):
        replayer.begin(into_exchange="inner")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"into_queue": "a", "into_exchange": "b"}, "one of into_exchange and into_queue is needed"),
        ({"into_queue": 5}, "into_queue must be a name, is 5"),
        ({"into_queue": "to", "from": "next"}, "from cannot be next"),
        ({"into_queue": "to", "to": "first"}, "to cannot be first"),
        ({"into_queue": "to", "from": "1h30m"}, "from takes first, last, next, an offset"),
        ({"into_queue": "to", "via": "queue"}, "unknown key 'via'"),
        ({"into_queue": "to", "rate": 0}, "rate must be 0.001 to"),
        ({"into_queue": "to", "limit": 0}, "limit must be 1 or more"),
    ],
)
def test_bad_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        read_replay_options(options)
