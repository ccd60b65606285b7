"""What a broker answers when a peer is wrong.

    AmqpFault
    ├── ChannelFault      closes the channel, the connection goes on
    ├── ConnectionFault   closes the connection, after connection.close
    └── WireFault         drops the TCP connection without a word, as RabbitMQ does

A fault carries its reply code, so that nobody maps exceptions to codes by hand.
"""

from __future__ import annotations

from enum import IntEnum

from leveret.protocol.constants import REPLY_TEXT_LIMIT


class ReplyCode(IntEnum):
    """Reply codes with the names that stand before the dash in a reply text.

    Spec: AMQP 0-9-1 section 1.2, and RabbitMQ's use of it.
    """

    REPLY_SUCCESS = 200
    NO_ROUTE = 312
    CONNECTION_FORCED = 320
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


class AmqpFault(Exception):
    """A peer did something that ends its channel or its connection.

    Args:
        code: What the peer is told.
        explanation: What was wrong; empty leaves the bare name of the code.
        method: class-id << 16 | method-id of the offending method; None takes the method in hand,
            0 says that no method is to blame.
    """

    def __init__(self, code: ReplyCode, explanation: str = "", method: int | None = None) -> None:
        super().__init__(code, explanation, method)
        self.code = code
        self.explanation = explanation
        self.method = method

    @property
    def text(self) -> str:
        """The whole reply text: name of the code, dash, explanation."""
        return f"{self.code.name} - {self.explanation}" if self.explanation else self.code.name

    def __str__(self) -> str:
        return f"{int(self.code)} {self.text}"


class ChannelFault(AmqpFault):
    """A fault that closes the channel (channel.close)."""


class ConnectionFault(AmqpFault):
    """A fault that closes the connection (connection.close).

    Args:
        discards_input: No more input can be understood: what follows is thrown away, and the TCP connection
            closes 3 s later.
    """

    def __init__(
        self, code: ReplyCode, explanation: str = "", method: int | None = None, *, discards_input: bool = False
    ) -> None:
        super().__init__(code, explanation, method)
        self.discards_input = discards_input


class WireFault(Exception):
    """The peer sent what RabbitMQ answers by dropping the TCP connection without a frame."""


def access_refused(explanation: str) -> ChannelFault:
    """A channel 403."""
    return ChannelFault(ReplyCode.ACCESS_REFUSED, explanation)


def not_found(explanation: str) -> ChannelFault:
    """A channel 404."""
    return ChannelFault(ReplyCode.NOT_FOUND, explanation)


def resource_locked(explanation: str) -> ChannelFault:
    """A channel 405."""
    return ChannelFault(ReplyCode.RESOURCE_LOCKED, explanation)


def precondition_failed(explanation: str) -> ChannelFault:
    """A channel 406."""
    return ChannelFault(ReplyCode.PRECONDITION_FAILED, explanation)


def frame_error(explanation: str, method: int = 0, *, discards_input: bool = False) -> ConnectionFault:
    """A connection 501."""
    return ConnectionFault(ReplyCode.FRAME_ERROR, explanation, method, discards_input=discards_input)


def unexpected_frame(explanation: str, method: int = 0) -> ConnectionFault:
    """A connection 505."""
    return ConnectionFault(ReplyCode.UNEXPECTED_FRAME, explanation, method)


def not_implemented(explanation: str) -> ConnectionFault:
    """A connection 540."""
    return ConnectionFault(ReplyCode.NOT_IMPLEMENTED, explanation)


def encode_reply_text(text: str) -> bytes:
    """A reply text that fits a short string: longer text keeps its first 252 bytes and gets "..."."""
    encoded = text.encode("utf-8", "surrogateescape")
    return encoded if len(encoded) <= REPLY_TEXT_LIMIT else encoded[: REPLY_TEXT_LIMIT - 3] + b"..."
