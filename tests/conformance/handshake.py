"""Incomplete handshakes, for tests of what a client may send at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pamqp import commands

from tests.support.wire import Wire, parse_url, plain_response, raw_connect, silent_close_times, start_ok

# How long a broker waits before it drops a peer that broke the handshake, and how long a test waits for that.
PENALTY = 3.0
LIMIT = 9.0


def to_start(url: str) -> Wire:
    wire = raw_connect(url)
    wire.expect(0, commands.Connection.Start)
    return wire


def to_tune(url: str) -> Wire:
    """Log in as the URL's user and read connection.tune."""
    wire, address = to_start(url), parse_url(url)
    start_ok(wire, response=plain_response(address.user, address.password))
    wire.expect(0, commands.Connection.Tune)
    return wire


def to_tuned(url: str) -> Wire:
    wire = to_tune(url)
    tune_ok(wire)
    return wire


def tune_ok(wire: Wire, *, channel_max: int = 2047, frame_max: int = 131072, heartbeat: int = 0) -> None:
    wire.send_method(0, commands.Connection.TuneOk, channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)


def expect_penalties(url: str, step: Callable[[str], Wire], breaches: Mapping[str, Callable[[Wire], None]]) -> None:
    """Assert that each breach, on a separate connection, ends in a silent close 3 s later."""
    wires: dict[str, Wire] = {}
    try:
        for name, breach in breaches.items():
            wires[name] = step(url)
            breach(wires[name])
        times = silent_close_times(wires, LIMIT)
        wrong = {name: seconds for name, seconds in times.items() if not PENALTY - 0.2 <= seconds <= LIMIT}
        assert not wrong
    finally:
        for wire in wires.values():
            wire.abort()
