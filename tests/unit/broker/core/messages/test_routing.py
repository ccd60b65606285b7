from __future__ import annotations

from itertools import pairwise

import pytest

from leveret.broker.core.messages.routing import Route, route
from leveret.broker.core.topology import Topology
from leveret.protocol.field_table import FieldTable
from tests.support.bound import add_exchange, add_queues, table


@pytest.fixture
def topology() -> Topology:
    return Topology("/")


def alternate(name: str) -> FieldTable:
    return table(("alternate-exchange", "S", name.encode()))


def found(topology: Topology, exchange: str, *keys: str, headers: FieldTable = ()) -> list[str]:
    return [queue.name for queue in find(topology, exchange, *keys, headers=headers).queues]


def find(topology: Topology, exchange: str, *keys: str, headers: FieldTable = ()) -> Route:
    return route(topology, topology.exchange(exchange), keys or ("",), headers)


def test_the_default_exchange_finds_queues_by_name(topology: Topology) -> None:
    add_queues(topology, "q1", "q2")

    assert found(topology, "", "q1") == ["q1"]
    assert found(topology, "", "q3") == []
    assert found(topology, "", "q2", "q3", "q1") == ["q2", "q1"]


def test_a_queue_comes_once_however_many_bindings_match(topology: Topology) -> None:
    source = add_exchange(topology, "x", "topic")
    (queue,) = add_queues(topology, "q")
    for pattern in ("#", "a.*", "a.b"):
        topology.bind(source, queue, pattern, ())

    assert found(topology, "x", "a.b") == ["q"]


def test_several_keys_join_their_queues(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct")
    for queue in add_queues(topology, "a", "b", "c"):
        topology.bind(source, queue, queue.name, ())

    assert found(topology, "x", "a", "c", "a", "none") == ["a", "c"]


def test_exchanges_are_followed_with_the_published_key(topology: Topology) -> None:
    first, second = add_exchange(topology, "x1"), add_exchange(topology, "x2", "direct")
    (queue,) = add_queues(topology, "q")
    topology.bind(first, second, "ignored", ())
    topology.bind(second, queue, "k", ())

    assert found(topology, "x1", "k") == ["q"]
    assert found(topology, "x1", "ignored") == []


def test_cycles_end(topology: Topology) -> None:
    first, second = add_exchange(topology, "x1"), add_exchange(topology, "x2")
    queues = add_queues(topology, "q1", "q2")
    topology.bind(first, first, "", ())
    topology.bind(first, second, "", ())
    topology.bind(second, first, "", ())
    topology.bind(first, queues[0], "", ())
    topology.bind(second, queues[1], "", ())

    assert found(topology, "x1") == ["q1", "q2"]


def test_long_chains_are_followed_to_their_end(topology: Topology) -> None:
    chain = [add_exchange(topology, f"x{number}") for number in range(5_000)]
    for source, destination in pairwise(chain):
        topology.bind(source, destination, "", ())
    (queue,) = add_queues(topology, "q")
    topology.bind(chain[-1], queue, "", ())

    assert found(topology, "x0") == ["q"]


def test_internal_exchanges_are_reached_by_bindings(topology: Topology) -> None:
    source = add_exchange(topology, "x")
    (queue,) = add_queues(topology, "q")
    internal = topology.declare_exchange("internal", "fanout", False, False, True, ())
    topology.bind(source, internal, "", ())
    topology.bind(internal, queue, "", ())

    assert found(topology, "x") == ["q"]


# -- alternate exchanges ----------------------------------------------------------------------------------


def test_the_alternate_exchange_gets_what_matches_no_binding(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct", arguments=alternate("ae"))
    queues = add_queues(topology, "q", "rest")
    topology.bind(source, queues[0], "k", ())
    topology.bind(add_exchange(topology, "ae"), queues[1], "", ())

    assert found(topology, "x", "k") == ["q"]
    assert found(topology, "x", "other") == ["rest"]


def test_one_key_that_matches_keeps_the_others_from_the_alternate_exchange(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct", arguments=alternate("ae"))
    queues = add_queues(topology, "q", "rest")
    topology.bind(source, queues[0], "k", ())
    topology.bind(add_exchange(topology, "ae"), queues[1], "", ())

    assert found(topology, "x", "other", "k") == ["q"]


def test_a_match_that_leads_nowhere_is_a_match(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct", arguments=alternate("ae"))
    (queue,) = add_queues(topology, "rest")
    topology.bind(add_exchange(topology, "ae"), queue, "", ())
    topology.bind(source, add_exchange(topology, "dead-end"), "k", ())

    assert found(topology, "x", "k") == []


def test_alternate_exchanges_form_chains(topology: Topology) -> None:
    add_exchange(topology, "x1", arguments=alternate("x2"))
    add_exchange(topology, "x2", arguments=alternate("x3"))
    (queue,) = add_queues(topology, "q")
    topology.bind(add_exchange(topology, "x3"), queue, "", ())

    assert found(topology, "x1") == ["q"]


def test_alternate_exchanges_in_a_cycle_lead_nowhere(topology: Topology) -> None:
    add_exchange(topology, "x1", arguments=alternate("x2"))
    add_exchange(topology, "x2", arguments=alternate("x1"))

    assert found(topology, "x1") == []


def test_a_missing_alternate_exchange_leads_nowhere_until_it_is_declared(topology: Topology) -> None:
    add_exchange(topology, "x", arguments=alternate("ae"))
    (queue,) = add_queues(topology, "q")
    generation = topology.generation

    assert found(topology, "x") == []
    topology.bind(add_exchange(topology, "ae"), queue, "", ())
    assert topology.generation != generation
    assert found(topology, "x") == ["q"]


def test_the_default_exchange_is_no_alternate(topology: Topology) -> None:
    add_exchange(topology, "x", arguments=alternate(""))
    add_queues(topology, "q")

    assert found(topology, "x", "q") == []


# -- what may be remembered -------------------------------------------------------------------------------


def test_a_route_without_headers_exchange_is_cacheable(topology: Topology) -> None:
    source = add_exchange(topology, "x", "topic")
    (queue,) = add_queues(topology, "q")
    topology.bind(source, queue, "#", ())

    assert find(topology, "x", "k").cacheable
    assert find(topology, "", "q").cacheable


def test_a_headers_exchange_anywhere_makes_it_uncacheable(topology: Topology) -> None:
    first, second = add_exchange(topology, "x1"), add_exchange(topology, "x2", "headers")
    add_exchange(topology, "x3", "direct", arguments=alternate("x2"))
    topology.bind(first, second, "", ())
    (queue,) = add_queues(topology, "q")
    topology.bind(second, queue, "", table(("a", "I", 1)))

    assert find(topology, "x1", headers=table(("a", "I", 1))) == Route((queue,), False)
    assert find(topology, "x1") == Route((), False)
    assert not find(topology, "x2").cacheable
    assert not find(topology, "x3").cacheable
