"""The filter of one exchange: what it forgets unasked, what is counted, and how a route leads through it."""

from __future__ import annotations

import pytest

from leveret.broker.core.deduplication.filter import DuplicateFilter
from leveret.broker.core.exchanges.types import DeduplicatingExchange
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.vhosts.routing import Route, route
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import read_policy
from leveret.protocol.field_table import FieldValue
from leveret.storage.message import Message
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, envelope
from tests.support.queues import ManualTimers, declare, new_vhost
from tests.support.stepping_clock import SteppingClock


def declare_filter(vhost: VirtualHost, name: str = "d", size: int = 10_000, ttl: int | None = None) -> DuplicateFilter:
    """Declare an exchange that drops duplicates."""
    given = [("x-cache-size", FieldValue("l", size))]
    if ttl is not None:
        given.append(("x-cache-ttl", FieldValue("l", ttl)))
    vhost.declare_exchange(name, DeduplicatingExchange.type_name, True, False, False, tuple(given))
    exchange = vhost.topology.exchanges[name]
    assert isinstance(exchange, DeduplicatingExchange)
    assert exchange.duplicates is not None
    return exchange.duplicates


def message(value: int, body: bytes = b"1") -> Message:
    return Message(envelope("k", exchange="d", headers=(("x-deduplication-header", FieldValue("I", value)),)), body)


def set_policy(vhost: VirtualHost, **definition: int) -> None:
    keys = {f"x-cache-{name}": value for name, value in definition.items()}
    document = {"pattern": "^d$", "definition": keys, "apply-to": "exchanges", "priority": 0}
    vhost.policies.set(read_policy("p", document, False), False)


def bind(vhost: VirtualHost, source: str, destination: ClassicQueue | str) -> None:
    exchanges = vhost.topology.exchanges
    end = exchanges[destination] if isinstance(destination, str) else destination
    vhost.topology.bind(exchanges[source], end, "", ())


def routed(vhost: VirtualHost, exchange: str = "d") -> Route:
    start = vhost.topology.exchanges[exchange]
    return route(vhost.topology, start, ["k"], (), b"", start.counters)


def test_what_has_expired_is_removed_without_messages(loop: ManualLoop, vhost: VirtualHost) -> None:
    duplicates = declare_filter(vhost, ttl=5000)
    for value in range(3000):
        assert duplicates.select([message(value)])
    assert duplicates.info().entries == 3000
    loop.advance(4.9)
    assert duplicates.info().entries == 3000
    assert not duplicates.select([message(0)])
    loop.advance(1.2)
    assert len(duplicates._values) == 0
    assert loop.pending_timers == 0


def test_a_smaller_size_is_reached_in_slices(loop: ManualLoop) -> None:
    vhost = new_vhost(loop, clock=SteppingClock())
    duplicates = declare_filter(vhost)
    for value in range(10_000):
        duplicates.select([message(value)])
    set_policy(vhost, size=10)
    assert duplicates.info().entries == 10_000
    loop.advance(1)
    assert duplicates.info().entries == 10
    assert not duplicates.select([message(9_999)])
    assert duplicates.select([message(9_989)])
    vhost.policies.clear("p", False)
    assert duplicates.size == 10_000


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_step_of_the_system_clock_changes_nothing(loop: ManualLoop, vhost: VirtualHost, step: float) -> None:
    duplicates = declare_filter(vhost, ttl=5000)
    duplicates.select([message(1)])
    timers = vhost.timers
    assert isinstance(timers, ManualTimers)
    timers.set_by = step
    loop.advance(4.9)
    assert not duplicates.select([message(1)])
    loop.advance(0.2)
    assert duplicates.select([message(1)])


def test_a_deleted_exchange_leaves_nothing_behind(loop: ManualLoop, vhost: VirtualHost) -> None:
    declare_filter(vhost, ttl=5000).select([message(1)])
    vhost.topology.delete_exchange("d", if_unused=False)
    assert loop.pending_timers == 0


def test_counts(vhost: VirtualHost) -> None:
    declare_filter(vhost)
    queues = [declare(vhost, name) for name in ("a", "b")]
    for queue in queues:
        bind(vhost, "d", queue)
    found = routed(vhost)
    counters = vhost.topology.exchanges["d"].counters
    assert found.cacheable
    (target,) = found.queues
    for messages in ([message(1)], [message(1, b"2"), message(1, b"3")]):
        # As a publisher's channel counts it.
        counters.publish_out += len(messages)
        assert target.publish(messages, len(messages)) == len(messages)
    varied = [message(1), message(2), message(2), message(3)]
    counters.publish_out += len(varied)
    target.publish_varied(varied, len(varied), 1)
    assert (counters.publish_out, counters.deduplicated) == (6, 4)
    assert contents(queues[0]) == contents(queues[1]) == ["1", "1", "1"]


def test_what_is_reached_otherwise_is_not_behind_the_filter(vhost: VirtualHost) -> None:
    declare_filter(vhost)
    direct, behind = declare(vhost, "direct"), declare(vhost, "behind")
    bind(vhost, "amq.fanout", "d")
    bind(vhost, "d", direct)
    bind(vhost, "d", behind)
    bind(vhost, "amq.fanout", direct)
    # A way back does not lead around for ever.
    bind(vhost, "d", "amq.fanout")
    found = routed(vhost, "amq.fanout")
    for target in found.queues:
        target.publish([message(1)], 1)
        target.publish([message(1)], 1)
    assert (contents(direct), contents(behind)) == (["1", "1"], ["1"])


def test_a_cycle_of_dead_letters_ends(vhost: VirtualHost, loop: ManualLoop) -> None:
    """A message without the header is not a duplicate, so only the rule against cycles stops it."""
    declare_filter(vhost)
    queue = declare(vhost, arguments=arguments(dead_letter_exchange="d", message_ttl=10))
    bind(vhost, "d", queue)
    queue.publish([Message(envelope("q"), b"1")], 1)
    loop.advance(1)
    assert queue.store.ready_count == 0
    assert queue.counters.dead_letters_lost["expired"] == 1
