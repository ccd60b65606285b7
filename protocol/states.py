"""State machines of connections and channels.

A missing transition is an error of the peer, which ends the connection or the handshake.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    """State of a connection."""

    AWAIT_HEADER = auto()
    AWAIT_START_OK = auto()
    AWAIT_TUNE_OK = auto()
    AWAIT_OPEN = auto()
    RUNNING = auto()
    #: The server has sent connection.close and waits for close-ok.
    CLOSING = auto()
    #: The client has sent connection.close; the server has sent close-ok and waits for the client to close the socket.
    CLOSED = auto()
    #: The handshake failed: the socket stays open for a while, and nothing is sent.
    SILENT = auto()
    GONE = auto()


class ConnectionInput(Enum):
    """Event that changes the state of a connection."""

    HEADER = auto()
    START_OK = auto()
    TUNE_OK = auto()
    OPEN = auto()
    CLOSE = auto()
    CLOSE_OK = auto()
    FAULT = auto()
    REFUSED = auto()
    LOST = auto()


_S, _I = ConnectionState, ConnectionInput

#: Spec: AMQP 0-9-1 section 2.2.4, connection class; SILENT is how RabbitMQ answers a failed handshake.
CONNECTION_TRANSITIONS: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (_S.AWAIT_HEADER, _I.HEADER): _S.AWAIT_START_OK,
    (_S.AWAIT_START_OK, _I.START_OK): _S.AWAIT_TUNE_OK,
    (_S.AWAIT_START_OK, _I.REFUSED): _S.SILENT,
    (_S.AWAIT_START_OK, _I.FAULT): _S.CLOSING,
    (_S.AWAIT_TUNE_OK, _I.TUNE_OK): _S.AWAIT_OPEN,
    (_S.AWAIT_TUNE_OK, _I.REFUSED): _S.SILENT,
    (_S.AWAIT_OPEN, _I.OPEN): _S.RUNNING,
    (_S.AWAIT_OPEN, _I.REFUSED): _S.SILENT,
    (_S.AWAIT_OPEN, _I.FAULT): _S.CLOSING,
    (_S.RUNNING, _I.CLOSE): _S.CLOSED,
    (_S.RUNNING, _I.FAULT): _S.CLOSING,
    (_S.CLOSING, _I.CLOSE): _S.CLOSING,
    (_S.CLOSING, _I.CLOSE_OK): _S.GONE,
    (_S.CLOSED, _I.CLOSE): _S.CLOSED,
    (_S.CLOSED, _I.CLOSE_OK): _S.GONE,
    **{(state, _I.LOST): _S.GONE for state in _S},
}


def next_connection_state(state: ConnectionState, event: ConnectionInput) -> ConnectionState | None:
    """Return the state after an event; None if the event is not allowed in this state."""
    return CONNECTION_TRANSITIONS.get((state, event))


class ChannelState(Enum):
    """State of a channel. Closed channels are not kept."""

    OPEN = auto()
    #: The server has sent channel.close; only close-ok frees the number.
    CLOSING = auto()
