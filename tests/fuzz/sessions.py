"""Valid sessions of many kinds, as frames: what the mutations start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pamqp import commands

from tests.support import content, tables
from tests.support.methods import MethodType
from tests.support.tables import Triple
from tests.support.transport import BODY, HEADER, HEARTBEAT, PROTOCOL_HEADER, frame, method_frame

#: What a client sends before it waits for the broker.
Step = list[bytes]

FRAME_MAX: Final = 131_072

#: A header value of every type, nested ones too.
ALL_TYPES: Final[tuple[Triple, ...]] = (
    ("t", "t", 1),
    ("b", "b", -128),
    ("B", "B", 255),
    ("s", "s", -32_768),
    ("u", "u", 65_535),
    ("I", "I", -(2**31)),
    ("i", "i", 2**32 - 1),
    ("l", "l", -(2**63)),
    ("L", "L", 2**64 - 1),
    ("f", "f", 0.5),
    ("d", "d", -1e300),
    ("D", "D", (2, 12_345)),
    ("S", "S", "text"),
    ("x", "x", b"\x00\xff"),
    ("T", "T", 1_700_000_000),
    ("A", "A", [("S", "a"), ("I", 1), ("A", [("V", None)])]),
    ("F", "F", [("inner", "F", [("deep", "S", "x")])]),
    ("V", "V", None),
)

ALL_PROPERTIES: Final[Mapping[str, Any]] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": ALL_TYPES,
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
    "cluster_id": "x",
}


def opening() -> Iterator[Step]:
    """The handshake, up to an open vhost."""
    properties: list[Triple] = [("capabilities", "F", [("consumer_cancel_notify", "t", 1)]), ("product", "S", "fuzz")]
    yield [PROTOCOL_HEADER]
    login = {"mechanism": "PLAIN", "response": b"\0guest\0guest", "locale": "en_US"}
    yield [method_frame(0, commands.Connection.StartOk, client_properties=properties, **login)]
    limits = {"channel_max": 2047, "frame_max": FRAME_MAX, "heartbeat": 0}
    yield [
        method_frame(0, commands.Connection.TuneOk, **limits),
        method_frame(0, commands.Connection.Open, virtual_host="/"),
    ]


def publish(
    channel: int, exchange: str, routing_key: str, body: bytes, *, mandatory: bool = False, **properties: Any
) -> Step:
    """A message as frames."""
    route = {"exchange": exchange, "routing_key": routing_key, "mandatory": mandatory}
    header = content.header(len(body), content.properties(**properties))
    frames = [method_frame(channel, commands.Basic.Publish, **route), frame(HEADER, channel, header)]
    return frames + [frame(BODY, channel, body[at : at + FRAME_MAX - 8]) for at in range(0, len(body), FRAME_MAX - 8)]


def open_channel(number: int, queue: str = "") -> Step:
    """Open a channel, and declare an exclusive queue unless its name is empty."""
    opened = [method_frame(number, commands.Channel.Open)]
    if queue:
        opened.append(method_frame(number, commands.Queue.Declare, queue=queue, exclusive=True))
    return opened


def close() -> Step:
    """Close the connection."""
    return [method_frame(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0)]


# -- the kinds: each takes a name for its queues and exchanges that nobody else uses ---------------------------


def handshake(name: str) -> Iterator[Step]:
    """Only the handshake; here the mutations hit it."""
    yield from opening()
    yield open_channel(1, name)
    yield close()


def amqplain(name: str) -> Iterator[Step]:
    """The other mechanism, with client properties of every type."""
    header, _, tune_and_open = opening()
    response = tables.table_body([("LOGIN", "S", "guest"), ("PASSWORD", "S", "guest")])
    login = {"mechanism": "AMQPLAIN", "response": response, "locale": "en_US"}
    yield header
    yield [method_frame(0, commands.Connection.StartOk, client_properties=ALL_TYPES, **login)]
    yield tune_and_open
    yield open_channel(1, name)


def declare(name: str) -> Iterator[Step]:
    """Exchanges, queues and bindings, with arguments of every type."""

    def on(kind: MethodType, **arguments: Any) -> bytes:
        return method_frame(1, kind, **arguments)

    exchange, other = f"{name}.x", f"{name}.y"
    limits: list[Triple] = [("x-max-length", "I", 10), ("x-overflow", "S", "drop-head"), ("x-expires", "l", 60_000)]
    yield open_channel(1, name)
    yield [
        on(
            commands.Exchange.Declare, exchange=exchange, exchange_type="headers", auto_delete=True, arguments=ALL_TYPES
        ),
        on(commands.Exchange.Declare, exchange=other, exchange_type="topic", auto_delete=True),
        on(commands.Queue.Declare, queue=f"{name}.limited", exclusive=True, arguments=limits),
        on(commands.Queue.Declare, exclusive=True),
        on(commands.Queue.Declare, queue=name, passive=True),
    ]
    match: list[Triple] = [("x-match", "S", "any"), *ALL_TYPES]
    yield [
        on(commands.Queue.Bind, queue=name, exchange=exchange, routing_key="k", arguments=match),
        on(commands.Queue.Bind, queue=name, exchange=other, routing_key="a.*.#"),
        on(commands.Exchange.Bind, destination=exchange, source=other, routing_key="#"),
        *publish(1, other, "a.b.c", b"routed", headers=ALL_TYPES),
    ]
    yield [
        on(commands.Queue.Purge, queue=name),
        on(commands.Exchange.Unbind, destination=exchange, source=other, routing_key="#"),
        on(commands.Queue.Unbind, queue=name, exchange=exchange, routing_key="k", arguments=match),
        on(commands.Queue.Delete, queue=name, if_unused=True),
        on(commands.Exchange.Delete, exchange=other),
    ]


def get(name: str) -> Iterator[Step]:
    """Publish and get, with every way to settle."""
    yield open_channel(1, name)
    yield [each for body in (b"a", b"", b"b" * 5000, b"c") for each in publish(1, "", name, body)]
    yield [method_frame(1, commands.Basic.Get, queue=name, no_ack=no_ack) for no_ack in (False, True, False, False)]
    yield [
        method_frame(1, commands.Basic.Reject, delivery_tag=1, requeue=True),
        method_frame(1, commands.Basic.Nack, delivery_tag=3, requeue=False),
        method_frame(1, commands.Basic.Ack, delivery_tag=0, multiple=True),
        method_frame(1, commands.Basic.Get, queue=name),
        method_frame(1, commands.Basic.Recover, requeue=True),
    ]


def consume(name: str) -> Iterator[Step]:
    """Consumers on two channels, prefetch, priorities, cancelling, and the queue going under them."""
    yield [*open_channel(1, name), *open_channel(2), method_frame(1, commands.Basic.Qos, prefetch_count=3)]
    priority: list[Triple] = [("x-priority", "I", 5)]
    yield [
        method_frame(1, commands.Basic.Consume, queue=name, consumer_tag="one"),
        method_frame(2, commands.Basic.Consume, queue=name, consumer_tag="two", no_ack=True, arguments=priority),
        *(each for body in range(8) for each in publish(2, "", name, bytes((body,)))),
    ]
    yield [method_frame(2, commands.Basic.Cancel, consumer_tag="two")]
    yield [each for body in range(8) for each in publish(2, "", name, bytes((body,)))]
    yield [
        method_frame(1, commands.Basic.Ack, delivery_tag=1),
        method_frame(1, commands.Basic.Nack, delivery_tag=3, multiple=True, requeue=True),
        method_frame(1, commands.Basic.RecoverAsync, requeue=True),
        method_frame(1, commands.Basic.Qos, prefetch_count=2, global_=True),
    ]
    yield [method_frame(2, commands.Queue.Delete, queue=name)]


def confirm(name: str) -> Iterator[Step]:
    """Confirms and returns."""
    yield [*open_channel(1, name), method_frame(1, commands.Confirm.Select)]
    yield [
        *(each for _ in range(10) for each in publish(1, "", name, b"same")),
        *publish(1, "", "nowhere", b"returned", mandatory=True, message_id="m"),
        *publish(1, "amq.topic", "nowhere", b"lost"),
    ]
    yield close()


def transaction(name: str) -> Iterator[Step]:
    """Commit and rollback of publishes and acknowledgements."""
    yield [*open_channel(1, name), method_frame(1, commands.Tx.Select)]
    yield [*publish(1, "", name, b"one"), *publish(1, "", name, b"two"), method_frame(1, commands.Tx.Commit)]
    yield [
        method_frame(1, commands.Basic.Get, queue=name),
        method_frame(1, commands.Basic.Ack, delivery_tag=1),
        *publish(1, "", name, b"three"),
        method_frame(1, commands.Tx.Rollback),
        method_frame(1, commands.Basic.Nack, delivery_tag=1, requeue=True),
        method_frame(1, commands.Tx.Commit),
    ]


def headers(name: str) -> Iterator[Step]:
    """All properties, and headers of all types, over every exchange type that looks at them."""
    yield open_channel(1, name)
    extra: list[Triple] = [("CC", "A", [("S", name)]), ("BCC", "A", [("S", "b")]), *ALL_TYPES]
    yield [
        method_frame(1, commands.Queue.Bind, queue=name, exchange="amq.headers", arguments=[("S", "S", "text")]),
        *publish(1, "", name, b"all", **ALL_PROPERTIES),
        *publish(1, "amq.headers", "", b"matched", **ALL_PROPERTIES),
        *publish(1, "", "nowhere", b"carbon copy", headers=extra),
        *publish(1, "", name, b"empty", headers=()),
    ]
    yield [method_frame(1, commands.Basic.Get, queue=name, no_ack=True)] * 4


def large(name: str) -> Iterator[Step]:
    """Bodies of several frames, those of two channels mixed, heartbeats in between."""
    yield [*open_channel(1, name), *open_channel(2)]
    first = publish(1, "", name, b"1" * 300_000)
    second = publish(2, "", name, b"2" * 270_000)
    beat = frame(HEARTBEAT, 0, b"")
    yield [each for pair in zip(first, second, [beat] * len(first), strict=False) for each in pair] + first[
        len(second) :
    ]
    yield [method_frame(1, commands.Basic.Consume, queue=name, consumer_tag="c")]


def runs(name: str) -> Iterator[Step]:
    """Long runs of equal publishes and of single acks: the short cuts of the reader."""
    yield [*open_channel(1, name), method_frame(1, commands.Confirm.Select), *open_channel(2)]
    yield [method_frame(2, commands.Basic.Consume, queue=name, consumer_tag="c")]
    yield publish(1, "", name, b"0123456789abcdef", content_type="x") * 60
    yield [method_frame(2, commands.Basic.Ack, delivery_tag=tag) for tag in range(1, 61)]


def channels(name: str) -> Iterator[Step]:
    """Channels that come and go, by either side; direct replies."""
    polite = {"reply_code": 200, "reply_text": "", "class_id": 0, "method_id": 0}
    yield [each for number in (1, 2, 3, 65_535) for each in open_channel(number)]
    yield [
        method_frame(65_535, commands.Channel.Close, **polite),
        method_frame(2, commands.Channel.Flow, active=True),
        method_frame(3, commands.Queue.Declare, queue=name, exclusive=True),
        method_frame(1, commands.Basic.Consume, queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True),
        *publish(1, "", name, b"request", reply_to="amq.rabbitmq.reply-to"),
    ]
    yield [method_frame(2, commands.Channel.Close, **polite)]
    yield [*open_channel(2), method_frame(0, commands.Connection.UpdateSecret, new_secret=b"s", reason="")]


def chosen(name: str) -> Iterator[Step]:
    """Exchanges that choose or remember, limits that count what consumers hold, consumers with timeouts."""
    types: list[tuple[str, list[Triple]]] = [
        ("x-consistent-hash", [("hash-header", "S", "h")]),
        ("x-consistent-hash", [("hash-property", "S", "timestamp")]),
        ("x-modulus-hash", []),
        ("x-random", []),
        ("x-recent-history", [("x-recent-history-length", "I", 3)]),
    ]
    total: list[Triple] = [
        ("x-max-length", "I", 4),
        ("x-length-counts", "S", "all"),
        ("x-consumer-timeout", "l", 60_000),
    ]
    yield [
        *open_channel(1),
        method_frame(1, commands.Queue.Declare, queue=name, exclusive=True, arguments=total),
        method_frame(1, commands.Queue.Declare, queue=f"{name}.other", exclusive=True),
    ]
    for number, (kind, arguments) in enumerate(types):
        exchange = f"{name}.{number}"
        declared = {"exchange": exchange, "exchange_type": kind, "auto_delete": True, "arguments": arguments}
        yield [
            method_frame(1, commands.Exchange.Declare, **declared),
            method_frame(1, commands.Queue.Bind, queue=name, exchange=exchange, routing_key="1"),
            *(publish(1, exchange, "k", b"x") * 3),
            *publish(1, exchange, "k", b"y", headers=[("h", "I", 1), *ALL_TYPES], timestamp=5),
            method_frame(1, commands.Queue.Bind, queue=f"{name}.other", exchange=exchange, routing_key="2"),
        ]
    timeout: list[Triple] = [("x-consumer-timeout", "I", 50_000)]
    yield [
        method_frame(1, commands.Basic.Consume, queue=name, consumer_tag="one", arguments=timeout),
        *(publish(1, f"{name}.3", "k", b"z") * 9),
        method_frame(1, commands.Basic.Nack, delivery_tag=2, multiple=True, requeue=True),
        method_frame(1, commands.Queue.Unbind, queue=name, exchange=f"{name}.0", routing_key="1"),
    ]


def _after_opening(kind: Callable[[str], Iterator[Step]]) -> Callable[[str], Iterator[Step]]:
    def session(name: str) -> Iterator[Step]:
        yield [each for step in opening() for each in step]
        yield from kind(name)

    return session


#: Sessions by kind. Of those in the second row the first step is the handshake.
SESSIONS: Final[Mapping[str, Callable[[str], Iterator[Step]]]] = {
    kind.__name__: kind for kind in (handshake, amqplain)
} | {
    kind.__name__: _after_opening(kind)
    for kind in (declare, get, consume, confirm, transaction, headers, large, runs, channels, chosen)
}

#: Steps at the start of a session that are left as they are, so that the mutations hit something else.
SPARED: Final[Mapping[str, int]] = {kind: 0 if kind in ("handshake", "amqplain") else 1 for kind in SESSIONS}
