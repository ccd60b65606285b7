"""Rules 12.1 to 12.18: frames and methods that are wrong wherever they come."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import base, commands

from tests.conformance.fixtures import Connect, Unique
from tests.support import methods, tables
from tests.support.methods import MethodType
from tests.support.wire import BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, Connection, ConnectionClosed, frame


def name_of(value: Any) -> str | None:
    """Name a method class among the parameters of a test."""
    return value.name if isinstance(value, type) and issubclass(value, base.Frame) else None


def squeezed(text: str) -> str:
    """Drop the white space that Erlang's term printer may put after a comma."""
    head, _, term = text.partition("{")
    return head + "{" + "".join(term.split())


@pytest.mark.parametrize("channel_number", [0, 1, 7])
@pytest.mark.parametrize(
    ("class_id", "method_id"), [(60, 999), (99, 10), (0, 0), (20, 12), (110, 10), (10, 99), (85, 20)]
)
def test_12_1_unknown_methods_drop_the_connection(
    connection: Connection, channel_number: int, class_id: int, method_id: int
) -> None:
    connection.channel(1)
    with connection.expect_drop():
        connection.wire.send_raw_method(channel_number, class_id, method_id)


@pytest.mark.parametrize("kind", [0, 4, 5, 6, 7, 9, 65, 255])
def test_12_2_unknown_frame_types(connection: Connection, kind: int) -> None:
    text = f'FRAME_ERROR - type {kind}, all octets = <<"abc">>: unknown_frame'
    with connection.expect_connection_close(501, text, (0, 0)):
        connection.wire.send_frame(kind, 1, b"abc")


@pytest.mark.parametrize("channel_number", [0, 1])
@pytest.mark.parametrize(
    ("body", "printed"),
    [
        (b"", "all octets = <<>>"),
        (b"\0\1\2", "all octets = <<0,1,2>>"),
        (b"0123456789abcdef", 'all octets = <<"0123456789abcdef">>'),
        (b"0123456789abcdefg", 'first 16 octets = <<"0123456789abcdef">>'),
        (bytes(range(20)), f"first 16 octets = <<{','.join(map(str, range(16)))}>>"),
        (b"\b\t\n\v\f\r\x1b\"\\'~", 'all octets = <<"\\b\\t\\n\\v\\f\\r\\e\\"\\\\\'~">>'),
        (b"a\x7f", "all octets = <<97,127>>"),
        (b"a\x9f", "all octets = <<97,159>>"),
        (b"a\xa0\xff", tables.to_text(b'all octets = <<"a\xa0\xff">>')),
    ],
    ids=["none", "bytes", "16", "17", "20 bytes", "escapes", "delete", "C1", "Latin-1"],
)
def test_12_2_the_payload_is_printed(connection: Connection, channel_number: int, body: bytes, printed: str) -> None:
    connection.channel(1)
    with connection.expect_connection_close(501, f"FRAME_ERROR - type 4, {printed}: unknown_frame", (0, 0)):
        connection.wire.send_frame(4, channel_number, body)


def test_12_2_long_terms_may_be_wrapped(connection: Connection) -> None:
    connection.wire.send_frame(4, 1, bytes(range(140, 160)))
    with pytest.raises(ConnectionClosed) as caught:
        connection.read()
    printed = ",".join(map(str, range(140, 156)))
    expected = f"FRAME_ERROR - type 4, first 16 octets = <<{printed}>>: unknown_frame"
    assert "".join(caught.value.text.split()) == "".join(expected.split())


@pytest.mark.parametrize("end", [0, 205, 255])
@pytest.mark.parametrize(
    ("kind", "body", "printed"),
    [(METHOD, b"\0\x14\0\x0a\0", "<<0,20,0,10,0>>"), (HEARTBEAT, b"", "<<>>"), (BODY, b"hello", '<<"hello">>')],
)
def test_12_3_wrong_frame_end(connection: Connection, end: int, kind: int, body: bytes, printed: str) -> None:
    connection.wire.send_frame(kind, 1 if body else 0, body, end=end)
    with pytest.raises(ConnectionClosed) as caught:
        connection.read()
    close = caught.value
    assert (close.code, close.ids) == (501, (0, 0))
    expected = f"FRAME_ERROR - type {kind}, all octets = {printed}: {{invalid_frame_end_marker,{end}}}"
    assert squeezed(close.text) == expected


def test_12_3_no_more_input_is_read_after_a_wrong_frame_end(connect: Connect) -> None:
    connection = connect()
    wire = connection.wire
    wire.send_frame(HEARTBEAT, 0, b"", end=0)
    wire.expect(0, commands.Connection.Close)
    wire.send_method(0, commands.Connection.Close, reply_code=200)
    wire.expect_silent_close(within=9, at_least=2.5)
    connection.abort()


def test_12_4_payloads_up_to_frame_max_pass(connect: Connect, unique: Unique) -> None:
    channel = connect(frame_max=4096).channel()
    queue = unique()
    channel.queue_declare(queue)
    channel.connection.frame_max = 4096 + 8  # what the client thinks, to make one body frame of 4096 bytes
    channel.publish("", queue, b"x" * 4096)
    channel.sync(queue)
    assert channel.queue_delete(queue).message_count == 1


@pytest.mark.parametrize("size", [131073, 2**31, 2**32 - 1])
@pytest.mark.parametrize("kind", [METHOD, HEADER, BODY, HEARTBEAT, 65])
def test_12_4_too_large_frames_are_refused_at_their_header(connection: Connection, size: int, kind: int) -> None:
    text = f"FRAME_ERROR - type {kind}, all octets = <<>>: {{frame_too_large,{size},131064}}"
    with connection.expect_connection_close(501, text, (0, 0)):
        connection.wire.send_bytes(frame(kind, 1, b"", size=size)[:7])


def test_12_4_octets_with_all_bits_set_are_a_too_large_frame(connection: Connection) -> None:
    # The octets behind them are those of a content header and body after the channel.
    text = f"FRAME_ERROR - type 255, all octets = <<>>: {{frame_too_large,{2**32 - 1},131064}}"
    with connection.expect_connection_close(501, text, (0, 0)):
        header = frame(HEADER, 0, bytes((0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0)))[3:]
        connection.wire.send_bytes(b"\xff" * 8 + header + frame(BODY, 0, b"body"))


def test_12_5_second_protocol_header(connection: Connection) -> None:
    text = "FRAME_ERROR - type 65, all octets = <<>>: {frame_too_large,1342177289,131064}"
    with connection.expect_connection_close(501, text, (0, 0)):
        connection.wire.send_bytes(PROTOCOL_HEADER)


@pytest.mark.parametrize(
    ("kind", "body", "printed"),
    [
        (METHOD, b"", "<<>>"),
        (METHOD, b"\0", "<<0>>"),
        (METHOD, b"\0\x14\0", "<<0,20,0>>"),
        (HEADER, b"", "<<>>"),
        (HEADER, b"\0\x3c\0\0", "<<0,60,0,0>>"),
        (HEADER, b"\0\x3c\0\0\0\0\0\0\0\0\0", "<<0,60,0,0,0,0,0,0,0,0,0>>"),
    ],
)
def test_12_6_too_short_payloads(connection: Connection, kind: int, body: bytes, printed: str) -> None:
    connection.channel(1)
    text = f"FRAME_ERROR - type {kind}, all octets = {printed}: unknown_frame"
    with connection.expect_connection_close(501, text, (0, 0)):
        connection.wire.send_frame(kind, 1, body)


@pytest.mark.parametrize(
    ("kind", "arguments", "printed"),
    [
        (commands.Queue.Declare, b"", "<<>>"),
        (commands.Queue.Declare, b"\0\0\5abc", "<<0,0,5,97,98,99>>"),
        (commands.Queue.Declare, b"abc", "<<97,98,99>>"),
        (commands.Queue.Purge, b"\0\0\1q\0x", "<<0,0,1,113,0,120>>"),
        (commands.Basic.Ack, b"\0\0\0\0\0\0\0", "<<0,0,0,0,0,0,0>>"),
        (commands.Basic.Ack, b"\0\0\0\0\0\0\0\1\0\0", "<<0,0,0,0,0,0,0,1,0,0>>"),
        (commands.Basic.Publish, b"\0\0\1", "<<0,0,1>>"),
        (commands.Tx.Select, b"x", "<<120>>"),
        (commands.Channel.Close, b"", "<<>>"),
        (commands.Basic.Qos, b"\0", "<<0>>"),
    ],
    ids=name_of,
)
def test_12_7_truncated_or_trailing_arguments(
    connection: Connection, kind: MethodType, arguments: bytes, printed: str
) -> None:
    connection.channel(1)
    with connection.expect_connection_close(501, f"FRAME_ERROR - cannot decode {printed}", kind):
        connection.wire.send_raw_method(1, *methods.ids(kind), arguments)


@pytest.mark.parametrize("letter", ["Z", "U", "n", "C", "\0"])
def test_12_8_unknown_types_in_argument_tables(connection: Connection, letter: str) -> None:
    channel = connection.channel(1)
    with connection.expect_drop():
        channel.send(commands.Queue.Declare, queue="conformance.none", arguments=[("k", letter, b"\0\0")])


def test_12_8_cut_argument_tables(connection: Connection) -> None:
    channel = connection.channel(1)
    table = tables.longstr(b"\x01aS\0\0\0\x09abc")
    with connection.expect_drop():
        channel.send(commands.Queue.Declare, queue="conformance.none", arguments=table)


@pytest.mark.parametrize(
    ("kind", "body", "printed"),
    [
        (HEADER, b"\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0", "all octets = <<0,60,0,0,0,0,0,0,0,0,0,0,0,0>>"),
        (BODY, b"abc", 'all octets = <<"abc">>'),
        (BODY, b"", "all octets = <<>>"),
        (BODY, b"x" * 17, 'first 16 octets = <<"xxxxxxxxxxxxxxxx">>'),
    ],
)
def test_12_15_content_on_channel_0(connection: Connection, kind: int, body: bytes, printed: str) -> None:
    with connection.expect_connection_close(505, f"UNEXPECTED_FRAME - type {kind}, {printed}", (0, 0)):
        connection.wire.send_frame(kind, 0, body)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (commands.Channel.Open, {}),
        (commands.Channel.CloseOk, {}),
        (commands.Queue.Declare, {"queue": "conformance.none"}),
        (commands.Basic.Publish, {}),
        (commands.Basic.Ack, {"delivery_tag": 1}),
        (commands.Confirm.Select, {}),
        (commands.Tx.Select, {}),
        (commands.Connection.Start, {}),
        (commands.Connection.StartOk, {}),
        (commands.Connection.SecureOk, {}),
        (commands.Connection.Tune, {}),
        (commands.Connection.TuneOk, {}),
        (commands.Connection.Open, {"virtual_host": "/"}),
        (commands.Connection.OpenOk, {}),
        (commands.Connection.CloseOk, {}),
        (commands.Connection.Blocked, {}),
        (commands.Connection.Unblocked, {}),
        (commands.Connection.UpdateSecretOk, {}),
    ],
    ids=name_of,
)
def test_12_16_methods_that_do_not_belong_on_channel_0(
    connection: Connection, kind: MethodType, arguments: dict[str, Any]
) -> None:
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    with connection.expect_connection_close(504, text, kind):
        connection.wire.send_method(0, kind, **arguments)


@pytest.mark.parametrize(
    "kind",
    [
        commands.Connection.Start,
        commands.Connection.TuneOk,
        commands.Connection.Open,
        commands.Connection.Close,
        commands.Connection.CloseOk,
        commands.Connection.UpdateSecret,
        commands.Channel.OpenOk,
        commands.Channel.FlowOk,
        commands.Channel.CloseOk,
        commands.Exchange.DeclareOk,
        commands.Exchange.UnbindOk,
        commands.Queue.DeclareOk,
        commands.Queue.BindOk,
        commands.Basic.QosOk,
        commands.Basic.ConsumeOk,
        commands.Basic.CancelOk,
        commands.Basic.GetEmpty,
        commands.Basic.RecoverOk,
        commands.Confirm.SelectOk,
        commands.Tx.CommitOk,
    ],
    ids=lambda kind: kind.name,
)
def test_12_17_methods_that_clients_do_not_send(connection: Connection, kind: MethodType) -> None:
    channel = connection.channel(1)
    with connection.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", kind):
        channel.send(kind)


@pytest.mark.parametrize(
    "kind",
    [
        commands.Queue.Declare,
        commands.Basic.Ack,
        commands.Basic.Qos,
        commands.Channel.Close,
        commands.Channel.CloseOk,
        commands.Channel.Flow,
        commands.Confirm.Select,
        commands.Basic.CancelOk,
        commands.Connection.Close,
    ],
    ids=lambda kind: kind.name,
)
@pytest.mark.parametrize("number", [1, 2047, 65535])
def test_12_18_methods_on_a_channel_that_is_not_open(connection: Connection, kind: MethodType, number: int) -> None:
    with connection.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'", kind):
        connection.wire.send_method(number, kind)
