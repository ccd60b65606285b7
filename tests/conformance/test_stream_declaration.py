"""Rules 21.1 to 21.18: declaring streams."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Refuse, Unique
from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.reply_texts import inequivalent, invalid_argument, locked
from tests.conformance.streams import STREAM, new_stream
from tests.conformance.topology import new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
SEGMENT = "x-stream-max-segment-size-bytes"


def test_21_3_arguments(channel: Channel, unique: Unique) -> None:
    arguments: tuple[Triple, ...] = (
        ("x-max-length-bytes", "l", 5_000_000),
        ("x-max-age", "S", "01h"),
        (SEGMENT, "l", 1_000_000),
        ("x-initial-cluster-size", "I", 100),
        ("x-queue-leader-locator", "S", "least-leaders"),
        ("x-foo", "S", "anything"),
        ("x-stream-filter-size-bytes", "I", 16),
    )
    queue = new_stream(channel, unique, *arguments)
    channel.queue_declare(queue, durable=True, arguments=[STREAM, *reversed(arguments[:5])])


@pytest.mark.parametrize("unit", "YMDhms")
def test_21_7_units(channel: Channel, unique: Unique, unit: str) -> None:
    new_stream(channel, unique, ("x-max-age", "S", f"99999999999{unit}"))


@pytest.mark.parametrize(
    "argument",
    [
        ("x-max-length", "I", 5),
        ("x-message-ttl", "S", "wrong"),
        ("x-expires", "I", 0),
        ("x-dead-letter-exchange", "S", ""),
        ("x-dead-letter-strategy", "S", "at-most-once"),
        ("x-overflow", "S", "drop-head"),
        ("x-max-priority", "I", 5),
        ("x-queue-mode", "S", "default"),
        ("x-queue-version", "I", 1),
        ("x-single-active-consumer", "t", 0),
        ("x-delivery-limit", "I", 5),
        ("x-max-in-memory-length", "I", 5),
        ("x-max-in-memory-bytes", "I", 5),
        ("x-quorum-initial-group-size", "I", 1),
        ("x-queue-master-locator", "S", "client-local"),
    ],
    ids=lambda argument: str(argument[0]),
)
def test_21_4_arguments_of_other_queue_types(refuse: Refuse, argument: Triple) -> None:
    if argument[2] == "wrong" or argument[0] == "x-expires":
        # A value that is wrong in itself is another matter.
        argument = (argument[0], "I", 1000)
    refuse(str(argument[0]), " of queue type rabbit_stream_queue", arguments=[STREAM, argument], durable=True)


def test_21_4_the_first_in_the_table(refuse: Refuse) -> None:
    arguments: list[Triple] = [STREAM, ("x-overflow", "S", "drop-head"), ("x-max-length", "I", 1)]
    refuse("x-overflow", " of queue type rabbit_stream_queue", arguments=arguments, durable=True)


def test_21_6_the_order_of_checks(connect: Connect, unique: Unique, vhost: str) -> None:
    wrong: list[Triple] = [STREAM, (SEGMENT, "l", 3_000_000_001), ("x-max-length", "I", 1), ("x-max-age", "S", "1x")]
    queue = unique()
    texts = (
        invalid_argument("x-max-age", queue, vhost, ": invalid_max_age"),
        invalid_argument("x-max-length", queue, vhost, " of queue type rabbit_stream_queue"),
        f"PRECONDITION_FAILED - invalid property 'non-durable' for queue '{queue}' in vhost '{vhost}'",
    )
    for text, count in zip(texts, (4, 3, 2), strict=True):
        channel = connect().channel()
        with channel.expect_channel_close(406, text, DECLARE):
            channel.queue_declare(queue, arguments=wrong[:count])
    channel = connect().channel()
    with channel.expect_channel_close(406, f"PRECONDITION_FAILED - Exceeded max value for {SEGMENT}", DECLARE):
        channel.queue_declare(queue, arguments=wrong[:2], durable=True)


@pytest.mark.parametrize("value", [("I", 15), ("I", 256), ("S", "16"), ("t", 1), ("I", -1)], ids=str)
@pytest.mark.departs("3.13")
def test_21_18_filter_size(channel: Channel, unique: Unique, value: tuple[str, object]) -> None:
    text = "PRECONDITION_FAILED - Invalid value for x-stream-filter-size-bytes"
    with channel.expect_channel_close(406, text, DECLARE):
        new_stream(channel, unique, ("x-stream-filter-size-bytes", *value))


def test_21_18_filter_sizes(channel: Channel, unique: Unique) -> None:
    for size in (16, 255):
        new_stream(channel, unique, ("x-stream-filter-size-bytes", "I", size))


@pytest.mark.parametrize("value", ["1h30m", "1.5h", "10", "1w", "1d", "1H", "0s", "00h"])
def test_21_7_max_age(refuse: Refuse, value: str) -> None:
    refuse("x-max-age", ": invalid_max_age", arguments=[STREAM, ("x-max-age", "S", value)], durable=True)


@pytest.mark.parametrize("value", ["", "h", "abc", "-1h", " 1h"])
@pytest.mark.departs("4.3.5")
def test_21_8_max_age_without_a_digit(refuse: Refuse, value: str) -> None:
    # 3.10.8 closes the connection with 541.
    refuse("x-max-age", ": invalid_max_age", arguments=[STREAM, ("x-max-age", "S", value)], durable=True)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (("x-max-age", "I", 5), "{unacceptable_type,signedint}"),
        (("x-max-age", "x", b"1h"), "{unacceptable_type,binary}"),
        (("x-max-length-bytes", "I", -1), "{value_negative,-1}"),
        (("x-max-length-bytes", "S", "5"), '"expected integer, got longstr"'),
        ((SEGMENT, "I", -1), "{value_negative,-1}"),
        ((SEGMENT, "S", "5"), '"expected integer, got longstr"'),
        (("x-initial-cluster-size", "I", 0), "{value_zero,0}"),
        (("x-queue-leader-locator", "S", "none"), "invalid_queue_locator_arg"),
        (("x-queue-leader-locator", "t", 1), "{unacceptable_type,bool}"),
    ],
    ids=str,
)
def test_21_7_to_21_11_invalid_values(refuse: Refuse, argument: Triple, reason: str) -> None:
    refuse(str(argument[0]), f": {reason}", arguments=[STREAM, argument], durable=True)


@pytest.mark.parametrize(
    ("before", "after", "named", "received", "current"),
    [
        ((("x-max-age", "S", "60m"),), (("x-max-age", "S", "1h"),), "x-max-age", "'1h'", "'60m'"),
        ((("x-max-age", "S", "1h"),), (("x-max-age", "S", "1x"),), "x-max-age", "'1x'", "'1h'"),
        ((), ((SEGMENT, "l", 500_000_000),), SEGMENT, "the value '500000000' of type 'long'", "none"),
        (
            (("x-max-age", "S", "1h"), ("x-max-length-bytes", "I", 1)),
            (("x-max-age", "S", "2h"), ("x-max-length-bytes", "I", 2)),
            "x-max-length-bytes",
            "'2'",
            "'1'",
        ),
    ],
    ids=str,
)
def test_21_12_and_21_13_equivalence(
    channel: Channel,
    unique: Unique,
    vhost: str,
    before: tuple[Triple, ...],
    after: tuple[Triple, ...],
    named: str,
    received: str,
    current: str,
) -> None:
    queue = new_stream(channel, unique, *before)
    text = inequivalent(named, f"queue '{queue}'", vhost, received, current)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, durable=True, arguments=[STREAM, *after])


def test_21_13_only_what_streams_have_is_compared(channel: Channel, unique: Unique) -> None:
    queue = new_stream(channel, unique, ("x-max-length-bytes", "l", 1000))
    arguments: list[Triple] = [STREAM, ("x-max-length-bytes", "b", 100), ("x-max-length", "S", "wrong")]
    arguments[1] = ("x-max-length-bytes", "s", 1000)
    channel.queue_declare(queue, durable=True, arguments=arguments)


def test_21_14_flags(connect: Connect, unique: Unique, vhost: str) -> None:
    queue = new_stream(connect().channel(), unique)
    channel = connect().channel()
    with channel.expect_channel_close(405, locked(queue, vhost), DECLARE):
        channel.queue_declare(queue, exclusive=True, auto_delete=True, arguments=[STREAM])
    for options, named in (({}, "durable"), ({"durable": True, "auto_delete": True}, "auto_delete")):
        received, current = ("'false'", "'true'") if named == "durable" else ("'true'", "'false'")
        channel = connect().channel()
        text = inequivalent(named, f"queue '{queue}'", vhost, received, current)
        with channel.expect_channel_close(406, text, DECLARE):
            channel.queue_declare(queue, arguments=[STREAM], **options)


def test_21_15_the_type(connect: Connect, unique: Unique, vhost: str) -> None:
    channel = connect().channel()
    stream = new_stream(channel, unique)
    value = "the value 'stream' of type 'longstr'"
    text = inequivalent("x-queue-type", f"queue '{stream}'", vhost, "none", value)
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(stream, durable=True)
    channel = connect().channel()
    queue = new_queue(channel, unique, durable=True)
    text = inequivalent("x-queue-type", f"queue '{queue}'", vhost, value, "none")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, durable=True, arguments=[STREAM])


def test_21_16_passive(connect: Connect, unique: Unique, vhost: str) -> None:
    channel = connect().channel()
    stream = new_stream(channel, unique)
    channel.queue_declare(stream, passive=True, exclusive=True, arguments=[("x-max-age", "I", 1)])
    queue = unique()
    text = invalid_argument("x-queue-type", queue, vhost, ": \"unsupported queue type 'Stream'\"")
    with channel.expect_channel_close(406, text, DECLARE):
        channel.queue_declare(queue, durable=True, arguments=[("x-queue-type", "S", "Stream")])


def test_21_17_http(api: HttpApi, own_vhost: str) -> None:
    body = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    below = path("queues", own_vhost, "s")
    api.check("PUT", below, body, 201)
    api.check("PUT", below, body, 204)
    text = f"invalid property 'non-durable' for queue 't' in vhost '{own_vhost}'"
    api.check("PUT", path("queues", own_vhost, "t"), {"arguments": body["arguments"]}, 400, bad_request(text))
    api.check("DELETE", below, None, 204)
