from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from leveret.broker.core.topology import Topology
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldTable
from tests.support.bound import add_exchange, add_queues, named_queue, table


@pytest.fixture
def topology() -> Topology:
    return Topology("v")


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ChannelFault) as caught:
        action()
    return str(caught.value)


def alternate(kind: str, value: object) -> FieldTable:
    return table(("alternate-exchange", kind, value))


# -- exchanges --------------------------------------------------------------------------------------------


def test_the_predeclared_exchanges(topology: Topology) -> None:
    shown = {(x.name, x.type_name, x.durable, x.auto_delete, x.internal) for x in topology.exchanges.values()}

    assert shown == {
        ("", "direct", True, False, False),
        ("amq.direct", "direct", True, False, False),
        ("amq.fanout", "fanout", True, False, False),
        ("amq.headers", "headers", True, False, False),
        ("amq.match", "headers", True, False, False),
        ("amq.topic", "topic", True, False, False),
        ("amq.rabbitmq.trace", "topic", True, False, True),
    }


# -- deletion ---------------------------------------------------------------------------------------------


def test_bindings_go_with_either_end(topology: Topology) -> None:
    first, middle, last = (add_exchange(topology, name) for name in ("x1", "x2", "x3"))
    topology.bind(first, middle, "", ())
    topology.bind(middle, last, "", ())
    topology.bind(middle, middle, "", ())

    topology.delete_exchange("x2", False)

    assert not first.bindings
    assert topology.bindings_of(middle) == ()
    assert topology.bindings_of(last) == ()
    assert topology.exchange("x3") is last


# -- bindings ---------------------------------------------------------------------------------------------


def test_refused_arguments_leave_no_binding(topology: Topology) -> None:
    (queue,) = add_queues(topology, "q")
    generation = topology.generation

    text = refusal(lambda: topology.bind(topology.exchange("amq.headers"), queue, "", table(("x-match", "I", 5))))

    assert text.endswith("Invalid x-match field type signedint (value 5); expected longstr")
    assert topology.bindings_of(queue) == ()
    assert topology.generation == generation


# -- auto-delete ------------------------------------------------------------------------------------------


def test_chains_of_them_go_together_however_long(topology: Topology) -> None:
    chain = [add_exchange(topology, f"x{number}", auto_delete=True) for number in range(3_000)]
    for source, destination in pairwise(chain):
        topology.bind(source, destination, "", ())
    (queue,) = add_queues(topology, "q")
    topology.bind(chain[-1], queue, "", ())

    topology.remove_queue(queue)

    assert not any(name.startswith("x") for name in topology.exchanges)


def test_a_cycle_of_them_ends_when_one_is_deleted(topology: Topology) -> None:
    first, second = (add_exchange(topology, name, auto_delete=True) for name in ("x1", "x2"))
    topology.bind(first, second, "", ())
    topology.bind(second, first, "", ())

    topology.delete_exchange("x1", False)

    assert not {"x1", "x2"} & set(topology.exchanges)


def test_one_that_is_bound_to_itself_stays_until_that_goes(topology: Topology) -> None:
    exchange = add_exchange(topology, "x", auto_delete=True)
    (queue,) = add_queues(topology, "q")
    topology.bind(exchange, exchange, "", ())
    topology.bind(exchange, queue, "", ())

    topology.remove_queue(queue)
    assert "x" in topology.exchanges
    topology.unbind(exchange, exchange, "", ())
    assert "x" not in topology.exchanges


# -- policies and the generation --------------------------------------------------------------------------


def test_an_alternate_exchange_of_the_arguments_wins(topology: Topology) -> None:
    plain, own = add_exchange(topology, "x"), add_exchange(topology, "y", arguments=alternate("S", b"own"))

    topology.set_alternate(plain, "policy")
    topology.set_alternate(own, "policy")
    assert (plain.alternate, own.alternate) == ("policy", "own")

    topology.set_alternate(plain, None)
    topology.set_alternate(own, None)
    assert (plain.alternate, own.alternate) == (None, "own")


def test_every_change_of_a_route_makes_a_new_generation(topology: Topology) -> None:
    source, queue = add_exchange(topology, "x"), named_queue("q")
    changes: list[Callable[[], object]] = [
        lambda: topology.add_queue(queue),
        lambda: topology.bind(source, queue, "", ()),
        lambda: topology.unbind(source, queue, "", ()),
        lambda: topology.remove_queue(queue),
        lambda: topology.set_alternate(source, "ae"),
        lambda: add_exchange(topology, "ae"),
        lambda: topology.delete_exchange("ae", False),
    ]
    for change in changes:
        generation = topology.generation
        change()
        assert topology.generation > generation
