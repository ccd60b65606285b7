"""Protocol errors of a peer, and the replies to them.

    AmqpFault
    ├── ChannelFault      closes the channel; the connection stays open
    ├── ConnectionFault   closes the connection, after connection.close
    └── WireFault         drops the TCP connection without a reply, as RabbitMQ does

A fault carries its reply code, so that handlers need no mapping from exceptions to codes.
"""

from __future__ import annotations

from enum import IntEnum

from leveret.protocol.constants import REPLY_TEXT_LIMIT


class ReplyCode(IntEnum):
    """Reply codes. Their names begin the reply texts.

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
    """A protocol error that closes the channel or the connection.

    Args:
        explanation: The reply text behind the name of the code; empty for the name alone.
        method: class-id << 16 | method-id of the offending method; None for the method being handled,
            0 for no method.
    """

    def __init__(self, code: ReplyCode, explanation: str = "", method: int | None = None) -> None:
        super().__init__(code, explanation, method)
        self.code = code
        self.explanation = explanation
        self.method = method

    @property
    def text(self) -> str:
        """Whole reply text: name of the code, dash, explanation."""
        return f"{self.code.name} - {self.explanation}" if self.explanation else self.code.name

    def __str__(self) -> str:
        return f"{int(self.code)} {self.text}"


class ChannelFault(AmqpFault):
    """A fault that closes the channel (channel.close)."""


class ConnectionFault(AmqpFault):
    """A fault that closes the connection (connection.close).

    Args:
        discards_input: Input behind the error cannot be parsed: it is discarded, and the TCP connection closes
            3 s later.
    """

    def __init__(
        self, code: ReplyCode, explanation: str = "", method: int | None = None, *, discards_input: bool = False
    ) -> None:
        super().__init__(code, explanation, method)
        self.discards_input = discards_input


class WireFault(Exception):
    """A protocol error that drops the TCP connection without a close frame, as RabbitMQ does."""


def access_refused(explanation: str) -> ChannelFault:
    """Return a fault that closes the channel with 403."""
    return ChannelFault(ReplyCode.ACCESS_REFUSED, explanation)


def not_found(explanation: str) -> ChannelFault:
    """Return a fault that closes the channel with 404."""
    return ChannelFault(ReplyCode.NOT_FOUND, explanation)


def resource_locked(explanation: str) -> ChannelFault:
    """Return a fault that closes the channel with 405."""
    return ChannelFault(ReplyCode.RESOURCE_LOCKED, explanation)


def precondition_failed(explanation: str) -> ChannelFault:
    """Return a fault that closes the channel with 406."""
    return ChannelFault(ReplyCode.PRECONDITION_FAILED, explanation)


def frame_error(explanation: str, method: int = 0, *, discards_input: bool = False) -> ConnectionFault:
    """Return a fault that closes the connection with 501."""
    return ConnectionFault(ReplyCode.FRAME_ERROR, explanation, method, discards_input=discards_input)


def unexpected_frame(explanation: str, method: int = 0) -> ConnectionFault:
    """Return a fault that closes the connection with 505."""
    return ConnectionFault(ReplyCode.UNEXPECTED_FRAME, explanation, method)


def not_implemented(explanation: str) -> ConnectionFault:
    """Return a fault that closes the connection with 540."""
    return ConnectionFault(ReplyCode.NOT_IMPLEMENTED, explanation)


def encode_reply_text(text: str) -> bytes:
    """Encode a reply text as a short string: longer text is truncated to 252 bytes and "..."."""
    encoded = text.encode("utf-8", "surrogateescape")
    return encoded if len(encoded) <= REPLY_TEXT_LIMIT else encoded[: REPLY_TEXT_LIMIT - 3] + b"..."
