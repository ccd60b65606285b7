from __future__ import annotations

import pytest

from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.faults import AmqpFault, ChannelFault
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queues import declare

ME, OTHER = object(), object()


def test_arguments_are_checked_for_new_queues_only(vhost: VirtualHost) -> None:
    """An existing queue is compared, whatever the declaration's values are (1.2.7)."""
    negative: FieldTable = (("x-max-length", FieldValue("I", -1)),)
    with pytest.raises(ChannelFault, match="value_negative"):
        declare(vhost, "q", arguments=negative)
    assert vhost.queues == {}
    declare(vhost, "q", arguments=(("x-max-length", FieldValue("I", 10)),))
    with pytest.raises(ChannelFault, match="received '-1' but current is '10'"):
        declare(vhost, "q", arguments=negative)


def test_deleting_an_old_queue_again_spares_the_new_one_of_its_name(vhost: VirtualHost) -> None:
    old = declare(vhost, "q")
    vhost.delete_queue(old)
    new = declare(vhost, "q")
    assert vhost.delete_queue(old) == 0
    assert vhost.queues == {"q": new}


def test_an_exclusive_auto_delete_queue_may_go_either_way(vhost: VirtualHost) -> None:
    queue = declare(vhost, "q", owner=ME, auto_delete=True)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.remove_consumer(consumer)
    assert vhost.queues == {}
    vhost.delete_queues_of(ME)


def test_the_queue_limit_is_checked_before_the_arguments(vhost: VirtualHost) -> None:
    vhost.max_queues = 0
    with pytest.raises(AmqpFault, match="queue limit"):
        declare(vhost, "q", arguments=(("x-max-length", FieldValue("S", b"many")),))


def test_a_queue_delivers_in_the_turn_of_its_vhost(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost, "q")
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    queue.publish([message("a")], 1)
    loop.run()
    assert consumer.received == ["a"]
