"""Rules 11.1 to 11.7: the eight bytes before the first frame, and the handshake timeout."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.timing import AT_ONCE
from tests.support.wire import PROTOCOL_HEADER, raw_connect, silent_close_times, start_ok


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (b"AMQP\x00\x00\x09\x01", (0, 9)),
        (b"AMQP\x01\x01\x00\x09", (0, 9)),
        (b"AMQP\x01\x01\x08\x00", (8, 0)),
        (b"AMQP\x01\x01\x09\x01", (8, 0)),
    ],
    ids=["1.1 0-9-1", "1.2 0-9", "1.3 8-0", "1.3 first 0-9-1 libraries"],
)
def test_11_1_known_headers_start_the_connection(broker_url: str, header: bytes, version: tuple[int, int]) -> None:
    with raw_connect(broker_url, header=header) as wire:
        start = wire.expect(0, commands.Connection.Start)
        assert (start.version_major, start.version_minor) == version


@pytest.mark.parametrize("header", [b"AMQP\x01\x01\x00\x09", b"AMQP\x01\x01\x09\x01"])
def test_11_2_connections_proceed_whatever_the_header(broker_url: str, header: bytes) -> None:
    with raw_connect(broker_url, header=header) as wire:
        wire.expect(0, commands.Connection.Start)
        start_ok(wire)
        wire.expect(0, commands.Connection.Tune)


@pytest.mark.parametrize(
    "header",
    [
        b"XMQP\x00\x00\x09\x01",
        b"HTTP/1.1",
        b"GET / HT",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"AMQP\x00\x00\x09\x00",
        b"AMQP\x00\x00\x0a\x00",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x02\x01\x00\x00",
        b"amqp\x00\x00\x09\x01",
        b"\x00" * 8,
    ],
)
def test_11_4_other_headers_are_answered_with_ours(broker_url: str, header: bytes) -> None:
    with raw_connect(broker_url, header=header) as wire:
        assert wire.read_bytes(8) == PROTOCOL_HEADER
        wire.expect_silent_close(within=AT_ONCE)


def test_11_5_a_header_may_come_in_pieces(broker_url: str) -> None:
    with raw_connect(broker_url, header=None) as wire:
        for at in range(8):
            wire.send_bytes(PROTOCOL_HEADER[at : at + 1])
        wire.expect(0, commands.Connection.Start)


def test_11_7_the_handshake_must_end_within_10_s(broker_url: str) -> None:
    # Without data, with part of a header, after start, and after tune-ok.
    wires = {
        "nothing sent": raw_connect(broker_url, header=None),
        "half a header": raw_connect(broker_url, header=PROTOCOL_HEADER[:4]),
        "header only": raw_connect(broker_url),
        "half a wrong header": raw_connect(broker_url, header=b"GET /"),
        "not opened": raw_connect(broker_url),
    }
    wires["header only"].expect(0, commands.Connection.Start)
    last = wires["not opened"]
    last.expect(0, commands.Connection.Start)
    start_ok(last)
    tune = last.expect(0, commands.Connection.Tune)
    last.send_method(0, commands.Connection.TuneOk, channel_max=tune.channel_max, frame_max=tune.frame_max, heartbeat=0)
    try:
        times = silent_close_times(wires, within=30)
        assert all(seconds >= 9.5 for seconds in times.values()), times
    finally:
        for wire in wires.values():
            wire.abort()
