"""Cost of a backlog: fills a queue without consumers, restarts the node, uses the queue, and drains it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from tests.bench.backlog_nodes import BacklogNode, QueueFigures
from tests.bench.consumer import Consumer
from tests.bench.frames import Route
from tests.bench.in_flight import BenchError, InFlight
from tests.bench.publisher import Published, Publisher
from tests.bench.scenarios import Scenario
from tests.bench.worker import Worker
from tests.support.wire import Connection

_QUEUE: Final = "backlog"
_ROUTES: Final = [Route("", _QUEUE, _QUEUE, "consumer")]
_CONFIRM_WINDOW: Final = 1_000
#: Number of publishes between two readings of the clock.
_STEP: Final = 1_000
#: Seconds that a broker may take to enqueue everything that was published.
_PATIENCE: Final = 120.0


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    mode: str
    messages: int
    body: int
    seconds: float


@dataclass(frozen=True)
class BacklogRun:
    """Results of a run. Rates are messages per second, memory and disk are bytes."""

    fill_rate: float
    filled: QueueFigures
    filled_rss: int
    disk: int
    restart_seconds: float
    restart_rss: int
    first_seconds: float
    publish_rate: float
    deliver_rate: float
    used_rss: list[int]
    left: int
    drain_rate: float
    drained_rss: int


def run(node: BacklogNode, plan: Plan) -> BacklogRun:
    """Run the benchmark on a node without queues."""
    scenario = Scenario(
        plan.mode,
        "",
        plan.body,
        plan.messages,
        kind="consume",
        durable=True,
        persistent=True,
        prefetch=_CONFIRM_WINDOW,
        ack_every=50,
        confirm_window=_CONFIRM_WINDOW,
    )
    with Connection(node.url) as connection:
        arguments = [("x-queue-mode", "S", plan.mode)]
        connection.channel().queue_declare(_QUEUE, durable=True, arguments=arguments)
    filled = _fill(node.url, scenario)
    figures, rss, disk = node.figures(_QUEUE), node.account.rss_bytes(), node.disk_bytes()
    restarted = node.restart()
    restart_rss = node.account.rss_bytes()
    first = _first_delivery(node.url)
    used = _use(node, scenario, plan.seconds)
    with Connection(node.url) as connection:
        connection.channel().queue_delete(_QUEUE)
    return BacklogRun(
        plan.messages / (filled.ended - filled.began),
        figures,
        rss,
        disk,
        restarted,
        restart_rss,
        first,
        used.publish_rate,
        used.deliver_rate,
        used.rss,
        used.left,
        used.drain_rate,
        used.drained_rss,
    )


def _fill(url: str, scenario: Scenario) -> Published:
    flight = InFlight(0)
    publisher = Worker(Publisher, url, scenario, _ROUTES, flight, 1)
    try:
        publisher.result()
        filled: Published = publisher.call("fill", scenario.messages, {_QUEUE: scenario.messages}, _PATIENCE)
    finally:
        publisher.close()
    return filled


def _first_delivery(url: str) -> float:
    """Take one message; return how many seconds that took, the connection included."""
    began = time.monotonic()
    with Connection(url, timeout=_PATIENCE) as connection:
        channel = connection.channel()
        channel.qos(1)
        channel.consume(_QUEUE, "first", no_ack=False)
        delivery = channel.next_delivery()
        took = time.monotonic() - began
        # Nothing more may come after the ack, and return as delivered before.
        channel.cancel("first")
        channel.ack(delivery.delivery_tag)
        channel.sync(_QUEUE)
    return took


@dataclass(frozen=True)
class _Used:
    publish_rate: float
    deliver_rate: float
    rss: list[int]
    left: int
    drain_rate: float
    drained_rss: int


def _use(node: BacklogNode, scenario: Scenario, seconds: float) -> _Used:
    """Publish and consume for a while, then consume the remaining messages."""
    flight = InFlight(1)
    workers = [
        publisher := Worker(Publisher, node.url, scenario, _ROUTES, flight, 1),
        consumer := Worker(Consumer, node.url, scenario, _ROUTES, flight, 0),
    ]
    try:
        for worker in workers:
            worker.result()
        flight.begin()
        began = time.monotonic()
        consumer.begin("consume", True, False)
        published, rss = 0, [node.account.rss_bytes()]
        while (now := time.monotonic()) < began + seconds:
            publisher.call("publish", _STEP, False)
            published += _STEP
            if now >= began + len(rss):
                rss.append(node.account.rss_bytes())
        took, delivered = time.monotonic() - began, flight.delivered
        expected = scenario.messages - 1 + published
        flight.wait_for(expected)
        flight.finish()
        consumed = consumer.result()
        if consumed.count != expected:
            raise BenchError(f"{consumed.count} messages came, {expected} expected")
        drained_rss = node.account.rss_bytes()
        consumer.call("check_empty")
    finally:
        for worker in workers:
            worker.close()
    left = expected - delivered
    drained_in = max(consumed.last_at - began - took, 1e-3)
    return _Used(published / took, delivered / took, rss, left, left / drained_in, drained_rss)
