from __future__ import annotations

import pytest

from leveret.broker.core.queues.declaration import QueueDeclaration
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.faults import AmqpFault, ChannelFault, ReplyCode
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queues import declare

ME, OTHER = object(), object()


def fault_of(code: ReplyCode) -> pytest.RaisesExc[ChannelFault]:
    return pytest.raises(ChannelFault, check=lambda fault: fault.code is code)


def test_a_new_queue_can_be_found_and_routed_to(vhost: VirtualHost) -> None:
    before = vhost.topology.generation
    queue = declare(vhost, "q")
    assert vhost.queue("q", ME) is queue
    assert vhost.topology.queues["q"] is queue
    assert vhost.topology.generation > before
    assert (queue.vhost_name, queue.name, queue.durable, queue.owner) == ("v", "q", True, None)


def test_an_equal_declaration_finds_the_same_queue(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q")
    generation = vhost.topology.generation
    assert declare(vhost, "q") is queue
    assert vhost.topology.generation == generation


def test_a_missing_queue_is_not_found(vhost: VirtualHost) -> None:
    with pytest.raises(ChannelFault) as caught:
        vhost.queue("q", ME)
    assert caught.value.text == "NOT_FOUND - no queue 'q' in vhost 'v'"


def test_arguments_are_checked_for_new_queues_only(vhost: VirtualHost) -> None:
    """An existing queue is compared, whatever the declaration's values are (1.2.7)."""
    negative: FieldTable = (("x-max-length", FieldValue("I", -1)),)
    with pytest.raises(ChannelFault, match="value_negative"):
        declare(vhost, "q", arguments=negative)
    assert vhost.queues == {}
    declare(vhost, "q", arguments=(("x-max-length", FieldValue("I", 10)),))
    with pytest.raises(ChannelFault, match="received '-1' but current is '10'"):
        declare(vhost, "q", arguments=negative)


def test_an_exclusive_queue_is_its_owners(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", owner=ME)
    assert not queue.durable, "it cannot outlive its connection"
    assert vhost.queue("q", ME) is queue
    assert declare(vhost, "q", owner=ME) is queue
    with fault_of(ReplyCode.RESOURCE_LOCKED):
        vhost.queue("q", OTHER)
    with fault_of(ReplyCode.RESOURCE_LOCKED):
        declare(vhost, "q", owner=OTHER)
    with fault_of(ReplyCode.RESOURCE_LOCKED):
        declare(vhost, "q")


def test_exclusive_queues_end_with_their_owner(vhost: VirtualHost) -> None:
    mine = [declare(vhost, name, owner=ME) for name in ("a", "b")]
    theirs, shared = declare(vhost, "c", owner=OTHER), declare(vhost, "d")
    vhost.delete_queue(mine[0])
    vhost.delete_queues_of(ME)
    vhost.delete_queues_of(ME)
    vhost.delete_queues_of(object())
    assert vhost.queues == {"c": theirs, "d": shared}
    assert all(queue.deleted for queue in mine)
    declare(vhost, "a", owner=OTHER)
    vhost.delete_queues_of(OTHER)
    assert list(vhost.queues) == ["d"]


def test_a_deleted_queue_takes_its_bindings_along(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q")
    exchange = vhost.topology.declare_exchange("x", "fanout", True, True, False, ())
    vhost.topology.bind(exchange, queue, "", ())
    queue.publish([message("a"), message("b")], 2)
    assert vhost.delete_queue(queue) == 2
    assert queue.deleted
    assert "q" not in vhost.queues
    assert "q" not in vhost.topology.queues
    assert "x" not in vhost.topology.exchanges, "an auto-delete exchange goes with its last binding"
    assert vhost.delete_queue(queue) == 0


def test_deleting_an_old_queue_again_spares_the_new_one_of_its_name(vhost: VirtualHost) -> None:
    old = declare(vhost, "q")
    vhost.delete_queue(old)
    new = declare(vhost, "q")
    assert vhost.delete_queue(old) == 0
    assert vhost.queues == {"q": new}


def test_an_auto_delete_queue_goes_with_its_last_consumer(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", auto_delete=True)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.remove_consumer(consumer)
    assert vhost.queues == {}
    assert queue.deleted


def test_an_exclusive_auto_delete_queue_may_go_either_way(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", owner=ME, auto_delete=True)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.remove_consumer(consumer)
    assert vhost.queues == {}
    vhost.delete_queues_of(ME)


def test_the_queue_limit_stops_new_queues_only(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q")
    vhost.max_queues = 1
    assert declare(vhost, "q") is queue
    with pytest.raises(ChannelFault) as caught:
        declare(vhost, "r")
    assert caught.value.text == (
        "PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost 'v' (1) is reached"
    )
    vhost.delete_queue(queue)
    declare(vhost, "r")
    vhost.max_queues = None
    declare(vhost, "s")


def test_the_queue_limit_is_checked_before_the_arguments(vhost: VirtualHost) -> None:
    vhost.max_queues = 0
    with pytest.raises(AmqpFault, match="queue limit"):
        declare(vhost, "q", arguments=(("x-max-length", FieldValue("S", b"many")),))


def test_the_dead_letter_exchange_is_asked_about_for_new_queues_only(vhost: VirtualHost) -> None:
    asked: list[str] = []
    arguments: FieldTable = (("x-dead-letter-exchange", FieldValue("S", b"dlx")),)
    declaration = QueueDeclaration("q", True, False, None, arguments)
    vhost.declare_queue(declaration, asked.append)
    vhost.declare_queue(declaration, asked.append)
    assert asked == ["dlx"]


def test_a_queue_delivers_in_the_turn_of_its_vhost(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost, "q")
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.publish([message("a")], 1)
    loop.run()
    assert consumer.received == ["a"]
