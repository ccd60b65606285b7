"""Scenarios of the benchmark, and the sizes that scale them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal


@dataclass(frozen=True)
class Scenario:
    """One kind of load: a publisher and `queues` queues, which have consumers if the kind has any; or many clients."""

    name: str
    about: str
    body: int
    messages: int
    kind: Literal["flow", "publish", "consume", "round-trip"] = "flow"
    queues: int = 1
    exchange: Literal["", "direct", "fanout", "topic", "headers"] = ""
    bindings: int = 0
    consumers: int = 1
    arguments: Mapping[str, int | str] = field(default_factory=dict)
    durable: bool = False
    dead_letter: bool = False
    prefill: int = 0
    persistent: bool = False
    properties: tuple[Mapping[str, Any], ...] = ({},)
    connections: int = 1
    prefetch: int = 0
    ack_every: int = 0
    confirm_window: int = 0
    tls: bool = False

    @property
    def copies(self) -> int:
        """Deliveries that one publish makes."""
        return self.queues if self.exchange == "fanout" else 1

    @property
    def refuses(self) -> bool:
        """Whether publishes into the full queue are refused: nacked, if there are confirms."""
        return str(self.arguments.get("x-overflow", "")).startswith("reject-publish")

    def left(self, publishes: int) -> int:
        """Return how many of `publishes` messages the queue of a `publish` holds at the end."""
        if "x-message-ttl" in self.arguments:
            return 0
        return min(publishes, int(self.arguments.get("x-max-length", publishes)))


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    factor: float
    window: int
    latency_seconds: float


# As many clients do: no two messages in a row have equal headers, so that nothing can be made once for a run of them.
_DISTINCT: Final = tuple({"message_id": f"{number:08}"} for number in range(1_000))

# What Celery sends: a table of headers that differs from task to task, and properties of its own.
_TASKS: Final = tuple(
    {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": [
            ("lang", "S", "py"),
            ("task", "S", "shop.tasks.send_invoice"),
            ("id", "S", f"0f5d1c1e-55a3-4a3e-9a0e-{number:012}"),
            ("shadow", "V", None),
            ("eta", "V", None),
            ("expires", "V", None),
            ("group", "V", None),
            ("group_index", "V", None),
            ("retries", "I", 0),
            ("timelimit", "A", [("V", None), ("V", None)]),
            ("root_id", "S", f"0f5d1c1e-55a3-4a3e-9a0e-{number:012}"),
            ("parent_id", "V", None),
            ("argsrepr", "S", f"({number:06},)"),
            ("kwargsrepr", "S", "{}"),
            ("origin", "S", "gen4711@worker-1"),
            ("ignore_result", "t", False),
            ("stamps", "F", []),
        ],
        "priority": 0,
        "correlation_id": f"0f5d1c1e-55a3-4a3e-9a0e-{number:012}",
        "reply_to": "6a2a3f4c-7f0e-3a55-8a3c-1c9d0a3bb1a7",
    }
    for number in range(1_000)
)

# For a headers exchange: the value of one header tells which binding a message matches.
_KINDS: Final = tuple({"headers": [("kind", "S", f"{number:04}"), ("version", "I", 1)]} for number in range(100))

_LAZY: Final = {"x-queue-mode": "lazy"}
_DURABLE_QUEUE: Final[Mapping[str, Any]] = {"durable": True, "prefetch": 200, "ack_every": 1}
_SAFE: Final[Mapping[str, Any]] = {**_DURABLE_QUEUE, "persistent": True, "confirm_window": 100}
_ROUNDS: Final = "16 B, 100 clients that wait for confirm and delivery and ack"
_CONFIRMED_ROUNDS: Final[Mapping[str, Any]] = {"queues": 100, "ack_every": 1, "confirm_window": 1}
_PERSISTENT: Final = "1 kB persistent, durable, 100 confirms in flight, an ack each"

_SMALL: Final = Scenario("16B-auto-ack", "16 B, automatic acks", 16, 500_000)
_TASK: Final = Scenario("task", "200 B, headers as Celery sends them, automatic acks", 200, 100_000, properties=_TASKS)
_PING_PONG: Final = Scenario(
    "ping-pong-100", "16 B, 100 clients that wait for their own message", 16, 100_000, "round-trip", queues=100
)

SCENARIOS: Final = (
    _SMALL,
    replace(_SMALL, name="16B-tls", about=f"{_SMALL.about}, TLS", tls=True),
    Scenario("1kB-auto-ack", "1 kB, automatic acks", 1024, 300_000),
    Scenario("1kB-ack-50", "1 kB, prefetch 200, one ack for 50", 1024, 300_000, prefetch=200, ack_every=50),
    Scenario("1kB-ack-each", "1 kB, prefetch 200, an ack each", 1024, 200_000, prefetch=200, ack_every=1),
    Scenario("1kB-confirms", "1 kB, confirms, 100 in flight", 1024, 200_000, confirm_window=100),
    Scenario("16B-distinct", "16 B, each its own message-id", 16, 300_000, properties=_DISTINCT),
    Scenario("1kB-distinct", "1 kB, each its own message-id", 1024, 200_000, properties=_DISTINCT),
    _TASK,
    replace(_TASK, name="task-tls", about=f"{_TASK.about}, TLS", tls=True),
    Scenario(
        "task-ack-each",
        "200 B, headers as Celery sends them, prefetch 20, an ack each",
        200,
        60_000,
        properties=_TASKS,
        prefetch=20,
        ack_every=1,
    ),
    Scenario(
        "task-durable",
        "200 B, headers as Celery sends them, persistent, 100 confirms in flight, prefetch 20, an ack each",
        200,
        40_000,
        properties=_TASKS,
        **{**_SAFE, "prefetch": 20},
    ),
    Scenario("ping-pong-1", "16 B, a client that waits for its own message", 16, 20_000, "round-trip"),
    _PING_PONG,
    replace(_PING_PONG, name="ping-pong-100-tls", about=f"{_PING_PONG.about}, TLS", tls=True),
    Scenario(
        "ping-pong-1000", "16 B, 1,000 clients that wait for their own message", 16, 100_000, "round-trip", queues=1_000
    ),
    Scenario("confirm-ack-100", f"{_ROUNDS}, transient", 16, 60_000, "round-trip", **_CONFIRMED_ROUNDS),
    Scenario(
        "confirm-ack-100-durable",
        f"{_ROUNDS}, persistent",
        16,
        30_000,
        "round-trip",
        durable=True,
        persistent=True,
        **_CONFIRMED_ROUNDS,
    ),
    Scenario("shared-2", "100 B, a queue with 2 consumers, automatic acks", 100, 300_000, consumers=2),
    Scenario("shared-10", "100 B, a queue with 10 consumers, automatic acks", 100, 300_000, consumers=10),
    Scenario("fanout-10", "100 B, fanout to 10 queues", 100, 100_000, queues=10, exchange="fanout"),
    Scenario("fanout-100", "100 B, fanout to 100 queues", 100, 10_000, queues=100, exchange="fanout", connections=4),
    Scenario(
        "topic-1000",
        "100 B, topic exchange with 1,000 bindings to 10 queues",
        100,
        200_000,
        queues=10,
        exchange="topic",
        bindings=1_000,
    ),
    Scenario(
        "headers-100",
        "100 B, headers exchange with 100 bindings to 10 queues",
        100,
        100_000,
        queues=10,
        exchange="headers",
        bindings=100,
        properties=_KINDS,
    ),
    Scenario("direct-100", "100 B, in turn to 100 queues", 100, 300_000, queues=100, exchange="direct", connections=4),
    Scenario("publish-only", "100 B, into a queue without consumer", 100, 500_000, kind="publish"),
    Scenario(
        "drop-head",
        "100 B, into a full drop-head queue",
        100,
        300_000,
        kind="publish",
        arguments={"x-max-length": 1_000},
        prefill=1_000,
    ),
    Scenario(
        "reject-publish",
        "100 B, into a full reject-publish queue, confirms",
        100,
        200_000,
        kind="publish",
        arguments={"x-max-length": 1_000, "x-overflow": "reject-publish"},
        prefill=1_000,
        confirm_window=100,
    ),
    Scenario(
        "drop-head-dlx",
        "100 B, into a full drop-head queue with a DLX",
        100,
        300_000,
        kind="publish",
        arguments={"x-max-length": 1_000},
        prefill=1_000,
        dead_letter=True,
    ),
    Scenario(
        "priorities-10",
        "100 B, ten priorities in turn",
        100,
        300_000,
        arguments={"x-max-priority": 10},
        properties=tuple({"priority": number} for number in range(10)),
    ),
    Scenario("ttl", "100 B, expiring after 50 ms", 100, 300_000, kind="publish", arguments={"x-message-ttl": 50}),
    Scenario("consume-only", "100 B, out of a full queue", 100, 500_000, kind="consume"),
    Scenario(
        "transient-durable", "1 kB transient, durable queue, prefetch 200, an ack each", 1024, 200_000, **_DURABLE_QUEUE
    ),
    Scenario("persistent", _PERSISTENT, 1024, 100_000, **_SAFE),
    Scenario("persistent-lazy", f"{_PERSISTENT}, lazy queue", 1024, 100_000, arguments=_LAZY, **_SAFE),
    Scenario(
        "persistent-100",
        f"{_PERSISTENT}, in turn to 100 queues",
        1024,
        100_000,
        queues=100,
        exchange="direct",
        connections=4,
        **_SAFE,
    ),
)

SIZES: Final = {
    "tiny": Size(factor=1 / 250, window=300, latency_seconds=0.05),
    "normal": Size(factor=1, window=20_000, latency_seconds=2.0),
    "large": Size(factor=5, window=20_000, latency_seconds=10.0),
}

# Publishes a second in the latency phase: far from what a broker can do, so that it shows the way and not the queueing.
LATENCY_RATE: Final = 1_000
