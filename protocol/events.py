"""What the frame reader makes of the bytes of one connection."""

from __future__ import annotations

from typing import Any, TypeAlias

from leveret.protocol.faults import AmqpFault, WireFault
from leveret.protocol.methods import Method


class MethodReceived:
    """A whole method other than basic.publish.

    Args:
        channel: Its channel number.
        method: Its row of the catalogue.
        arguments: As decode_arguments returns them.
    """

    __slots__ = ("arguments", "channel", "method")

    def __init__(self, channel: int, method: Method, arguments: tuple[Any, ...]) -> None:
        self.channel = channel
        self.method = method
        self.arguments = arguments


class Publish:
    """The arguments of a basic.publish; one object for all publishes of a connection with the same payload.

    Args:
        exchange: Name of the exchange; bytes that are not UTF-8 are kept as surrogates.
        routing_key: Likewise.
        mandatory: The mandatory bit.
        immediate: The immediate bit.
        route: Exchange and routing key as the two encoded short strings.

    Attributes:
        memo: Free for the handler of the event, to cache what it found out about this route.
    """

    __slots__ = ("exchange", "immediate", "mandatory", "memo", "route", "routing_key")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, immediate: bool, route: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.route = route
        self.memo: Any = None


class PublishRun:
    """Consecutive messages of one channel with equal publish arguments and equal content headers.

    Args:
        channel: Their channel number.
        publish: Their common arguments.
        header: Their common content-header payload. Equal headers in a row are one object.
        bodies: Their bodies, in order; never an empty list. A body above the size limit is dropped: b"".
    """

    __slots__ = ("bodies", "channel", "header", "publish")

    def __init__(self, channel: int, publish: Publish, header: bytes, bodies: list[bytes]) -> None:
        self.channel = channel
        self.publish = publish
        self.header = header
        self.bodies = bodies


class VariedRun:
    """Consecutive messages of one channel with equal publish arguments, each with a content header of its own.

    Args:
        channel: Their channel number.
        publish: Their common arguments.
        headers: Their content-header payloads, in order; at least two.
        bodies: Their bodies, as many; none is empty.
    """

    __slots__ = ("bodies", "channel", "headers", "publish")

    def __init__(self, channel: int, publish: Publish, headers: list[bytes], bodies: list[bytes]) -> None:
        self.channel = channel
        self.publish = publish
        self.headers = headers
        self.bodies = bodies


class AckRun:
    """Consecutive basic.ack of one channel, each with multiple=false.

    Args:
        channel: Their channel number.
        tags: Their delivery tags, in order; never empty.
    """

    __slots__ = ("channel", "tags")

    def __init__(self, channel: int, tags: list[int]) -> None:
        self.channel = channel
        self.tags = tags


Event: TypeAlias = MethodReceived | PublishRun | VariedRun | AckRun | AmqpFault | WireFault
