from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.base import Binding
from leveret.broker.core.exchanges.default import DefaultExchange, refuse_default
from leveret.broker.core.queues.queue import Queue
from leveret.protocol.faults import ChannelFault
from tests.support.bound import named_queue

REFUSAL = "403 ACCESS_REFUSED - operation not permitted on the default exchange"


def test_the_key_is_the_name_of_a_queue() -> None:
    queues: dict[str, Queue] = {}
    exchange = DefaultExchange("/", queues)
    queue = queues["q"] = named_queue("q")

    assert list(exchange.destinations("q", ())) == [queue]
    assert list(exchange.destinations("other", ())) == []

    del queues["q"]
    assert list(exchange.destinations("q", ())) == []


def test_takes_no_bindings() -> None:
    exchange = DefaultExchange("/", {})
    binding = Binding(exchange, named_queue("q"), "", ())

    with pytest.raises(ChannelFault) as caught:
        exchange.bind(binding)

    assert str(caught.value) == REFUSAL
    assert not exchange.bindings
    assert not exchange.unbind(binding)


def test_is_a_durable_direct_exchange_without_a_name() -> None:
    exchange = DefaultExchange("/", {})

    assert (exchange.name, exchange.type_name, exchange.durable) == ("", "direct", True)
    assert (exchange.auto_delete, exchange.internal, exchange.uses_headers) == (False, False, False)


def test_only_the_default_exchange_is_refused() -> None:
    refuse_default("amq.default")

    with pytest.raises(ChannelFault) as caught:
        refuse_default("")

    assert str(caught.value) == REFUSAL
