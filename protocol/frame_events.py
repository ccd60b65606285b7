"""Events that the frame reader produces from the bytes of one connection."""

from __future__ import annotations

from typing import Any, TypeAlias

from leveret.protocol.faults import AmqpFault, WireFault
from leveret.protocol.methods import Method


class MethodReceived:
    """A received method other than basic.publish.

    Args:
        method: Entry of the method catalogue.
        arguments: As decode_arguments returns them.
    """

    __slots__ = ("arguments", "channel", "method")

    def __init__(self, channel: int, method: Method, arguments: tuple[Any, ...]) -> None:
        self.channel = channel
        self.method = method
        self.arguments = arguments


class Publish:
    """Arguments of a basic.publish. All publishes of a connection with the same payload share one object.

    Args:
        exchange: Name of the exchange; bytes that are not UTF-8 are kept as surrogates.
        routing_key: Routing key, decoded in the same way.
        route: Exchange and routing key as the two encoded short strings.

    Attributes:
        memo: Cache for the handler of the event, for example of the route's exchange.
    """

    __slots__ = ("exchange", "immediate", "mandatory", "memo", "route", "routing_key")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, immediate: bool, route: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.route = route
        self.memo: object | None = None


class PublishRun:
    """Consecutive messages of one channel with equal publish arguments and equal content headers.

    Args:
        header: Common content-header payload. Equal headers in a row are one object.
        bodies: Bodies in order, at least one. A body above the size limit is dropped: b"".
    """

    __slots__ = ("bodies", "channel", "header", "publish")

    def __init__(self, channel: int, publish: Publish, header: bytes, bodies: list[bytes]) -> None:
        self.channel = channel
        self.publish = publish
        self.header = header
        self.bodies = bodies


class VariedRun:
    """Consecutive messages of one channel with equal publish arguments and different content headers.

    Args:
        headers: Content-header payloads in order, at least two.
        bodies: Body of each message; none is empty.
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
        tags: Delivery tags in order, at least one.
    """

    __slots__ = ("channel", "tags")

    def __init__(self, channel: int, tags: list[int]) -> None:
        self.channel = channel
        self.tags = tags


Event: TypeAlias = MethodReceived | PublishRun | VariedRun | AckRun | AmqpFault | WireFault
