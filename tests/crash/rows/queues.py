"""What of queues is there after a stop and after a crash, and what belongs to which of two of one name."""

from __future__ import annotations

from tests.conformance.bounded import outcomes, refill
from tests.conformance.deaths import dead_letter_to
from tests.conformance.topology import drain, exists, got, numbered
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import PERSISTENT, Restarts
from tests.integration.waiting import wait_until
from tests.support.wire import Channel


def shown(place: Restarts, queue: str) -> bool:
    """Whether there is a queue; to ask by AMQP would renew its lease."""
    return queue in {each["name"] for each in place.management.request("GET", "queues", "/")}


@row()
def an_expired_queue_leaves_nothing(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, ("x-expires", "I", 200))
    refill(channel, queue, b"m", **PERSISTENT)
    wait_until(lambda: not shown(place, queue), "the queue expires")
    channel = yield
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


@row("default", "lazy")
def a_queue_declared_again_is_another(place: Restarts, mode: str) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, ("x-queue-mode", "S", mode))
    refill(channel, queue, *numbered(300), **PERSISTENT)
    held = got(channel, queue)
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True)
    refill(channel, queue, b"new", **PERSISTENT)
    channel.nack(held.delivery_tag)
    channel.sync(queue)
    channel = yield
    assert drain(channel, queue) == [b"new"]


@row()
def a_deleted_queue_is_gone(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel)
    refill(channel, queue, *numbered(10), **PERSISTENT)
    channel.queue_delete(queue)
    channel = yield
    assert not exists(place.connect, queue)
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


@row()
def dead_letters_stay_when_their_queue_is_deleted_at_once(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters))
    refill(channel, queue, *numbered(3), **PERSISTENT)
    for _ in range(2):
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.queue_delete(queue)
    channel = yield
    assert not exists(place.connect, queue)
    assert drain(channel, letters) == numbered(2)


@row()
def a_purged_queue_is_empty(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel)
    refill(channel, queue, *numbered(300), **PERSISTENT)
    got(channel, queue)
    assert channel.queue_purge(queue).message_count == 299
    channel = yield
    # The one that was delivered was not purged.
    assert drain(channel, queue) == [b"1"]


@row(False, True)
def transient_queues_leave_nothing_on_the_disk(place: Restarts, exclusive: bool) -> Steps:
    channel = place.channel()
    kept = place.queue(channel, ("x-queue-mode", "S", "lazy"), hint="kept")
    queue = place.queue(channel, ("x-queue-mode", "S", "lazy"), durable=False, exclusive=exclusive)
    for name in (kept, queue):
        refill(channel, name, *numbered(100), **PERSISTENT)
        assert _is_on_disk(place, name)
    channel = yield
    assert not _is_on_disk(place, queue)
    assert _is_on_disk(place, kept)
    channel.queue_delete(kept)
    wait_until(lambda: not _is_on_disk(place, kept), "the deleted queue goes")


def _is_on_disk(place: Restarts, queue: str) -> bool:
    """Whether a queue has a directory."""
    descriptions = (place.process.data_dir / "q").glob("*/QUEUE.json")
    return any(f'"{queue}"' in each.read_text() for each in descriptions)


@row()
def exclusive_queues_go(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, exclusive=True)
    refill(channel, queue, b"m", **PERSISTENT)
    channel = yield
    channel.queue_declare(queue, durable=True)
    assert channel.get(queue) is None


@row()
def auto_delete_queues_go_with_their_last_consumer(place: Restarts) -> Steps:
    channel = place.channel()
    unused, used = place.queue(channel, auto_delete=True), place.queue(channel, auto_delete=True)
    for queue in (unused, used):
        refill(channel, queue, b"m", **PERSISTENT)
    channel.consume(used)
    channel.next_delivery()
    channel = yield
    assert drain(channel, unused) == [b"m"]
    # A stop cancels the consumer first; a crash does not.
    assert exists(place.connect, used) is place.killed
    tag = channel.consume(unused).consumer_tag
    channel.cancel(tag)
    yield
    assert not exists(place.connect, unused)


@row()
def bindings_arguments_and_types(place: Restarts) -> Steps:
    channel = place.channel()
    source, exchange = place.new("x"), place.new("x")
    channel.exchange_declare(source, "headers", durable=True)
    channel.exchange_declare(exchange, "fanout", durable=True)
    channel.exchange_bind(exchange, source, arguments=[("k", "I", 5), ("x-match", "S", "any")])
    queue = place.queue(channel, ("x-max-priority", "b", 4))
    channel.queue_bind(queue, exchange)
    channel = yield
    channel.queue_declare(queue, durable=True, arguments=[("x-max-priority", "I", 4)])
    assert outcomes(channel, "", b"yes", exchange=source, properties={"headers": [("k", "I", 5)]}) == [True]
    assert outcomes(channel, "", b"no", exchange=source, properties={"headers": [("k", "I", 6)]}) == [True]
    assert drain(channel, queue) == [b"yes"]


@row()
def exchange_types_of_plugins(place: Restarts) -> Steps:
    channel = place.channel()
    hashing, history = place.new("x"), place.new("x")
    channel.exchange_declare(hashing, "x-consistent-hash", durable=True, arguments=[("hash-header", "S", "h")])
    channel.exchange_declare(history, "x-recent-history", durable=True, arguments=[("x-recent-history-length", "I", 2)])
    queues = [place.queue(channel) for _ in range(3)]
    for weight, queue in enumerate(queues, 1):
        channel.queue_bind(queue, hashing, str(weight))

    def spread(channel: Channel) -> list[list[bytes]]:
        for number in range(60):
            channel.publish(hashing, "", b"%d" % number, {"headers": [("h", "I", number)]})
        channel.sync(*queues)
        return [drain(channel, queue) for queue in queues]

    before = spread(channel)
    channel.publish(history, "", b"forgotten", PERSISTENT)
    channel.sync()
    channel = yield
    assert spread(channel) == before
    # As in RabbitMQ 3.10, what it remembers is in memory.
    channel.queue_bind(queues[0], history)
    assert drain(channel, queues[0]) == []
    channel.exchange_declare(history, "x-recent-history", durable=True)


@row()
def names_may_be_any_text(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.new() + "/'\"\\ \0\t€\U0001f407"
    channel.queue_declare(queue, durable=True)
    channel.confirm_select()
    channel.publish("", queue, b"m", PERSISTENT)
    assert channel.wait_for_confirms(1) == [True]
    channel = yield
    assert drain(channel, queue) == [b"m"]
