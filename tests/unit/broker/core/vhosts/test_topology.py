"""Exchanges, bindings and routes: any sequence of changes leaves the same as in a model that is a set of tuples."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.core.exchanges.base import Destination
from leveret.broker.core.vhosts.routing import Route, route
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldTable
from tests.support.bound import add_exchange, add_queues, named_queue, table
from tests.support.examples import examples

EXCHANGES = tuple("uvwxyz")
QUEUES = tuple("abc")
KEYS = ("", "k")
PREDECLARED = frozenset(Topology("/").exchanges)

exchange_names = st.sampled_from(EXCHANGES)
queue_names = st.sampled_from(QUEUES)
# The kind and name of a destination.
ends = st.one_of(
    st.tuples(st.just("exchange"), exchange_names),
    st.tuples(st.just("queue"), queue_names),
)
keys = st.sampled_from(KEYS)


class Bound(NamedTuple):
    source: str
    end: tuple[str, str]
    key: str


class TopologyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topology = Topology("/")
        #: Type and auto-delete by name.
        self.exchanges: dict[str, tuple[str, bool]] = {}
        self.queues: set[str] = set()
        self.bindings: set[Bound] = set()

    # -- the model ----------------------------------------------------------------------------------------

    def exists(self, end: tuple[str, str]) -> bool:
        return end[1] in (self.exchanges if end[0] == "exchange" else self.queues)

    def drop(self, gone: set[Bound]) -> None:
        self.bindings -= gone
        for source in {bound.source for bound in gone}:
            alive = source in self.exchanges and self.exchanges[source][1]
            if alive and not any(bound.source == source for bound in self.bindings):
                self.remove(("exchange", source))

    def remove(self, end: tuple[str, str]) -> None:
        if end[0] == "exchange":
            del self.exchanges[end[1]]
            self.bindings -= {bound for bound in self.bindings if bound.source == end[1]}
        else:
            self.queues.remove(end[1])
        self.drop({bound for bound in self.bindings if bound.end == end})

    def reachable(self, exchange: str, key: str) -> set[str]:
        seen = {exchange}
        queues: set[str] = set()
        while True:
            reached = {
                bound.end
                for bound in self.bindings
                if bound.source in seen and (self.exchanges[bound.source][0] == "fanout" or bound.key == key)
            }
            queues = {name for kind, name in reached if kind == "queue"}
            exchanges = {name for kind, name in reached if kind == "exchange"}
            if exchanges <= seen:
                return queues
            seen |= exchanges

    # -- changes ------------------------------------------------------------------------------------------

    def destination(self, end: tuple[str, str]) -> Destination:
        return self.topology.exchange(end[1]) if end[0] == "exchange" else self.topology.queues[end[1]]

    @rule(name=exchange_names, type_name=st.sampled_from(["fanout", "direct"]), auto_delete=st.booleans())
    def declare_exchange(self, name: str, type_name: str, auto_delete: bool) -> None:
        if name not in self.exchanges:
            add_exchange(self.topology, name, type_name, auto_delete=auto_delete)
            self.exchanges[name] = (type_name, auto_delete)

    @rule(name=queue_names)
    def add_queue(self, name: str) -> None:
        if name not in self.queues:
            self.topology.add_queue(named_queue(name))
            self.queues.add(name)

    @precondition(lambda self: self.exchanges)
    @rule(source=exchange_names, end=ends, key=keys)
    def bind(self, source: str, end: tuple[str, str], key: str) -> None:
        if source not in self.exchanges or not self.exists(end):
            return
        bound = Bound(source, end, key)
        is_new = self.topology.bind(self.topology.exchange(source), self.destination(end), key, ())
        assert is_new is (bound not in self.bindings)
        self.bindings.add(bound)

    @precondition(lambda self: self.bindings)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        bound = data.draw(st.sampled_from(sorted(self.bindings)))
        source, destination = self.topology.exchange(bound.source), self.destination(bound.end)
        assert self.topology.unbind(source, destination, bound.key, ())
        self.drop({bound})

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data())
    def delete_exchange(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.exchanges)))
        self.topology.delete_exchange(name, False)
        self.remove(("exchange", name))

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def remove_queue(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queues)))
        self.topology.remove_queue(self.topology.queues[name])
        self.remove(("queue", name))

    # -- what must hold -----------------------------------------------------------------------------------

    @invariant()
    def same_exchanges_and_queues(self) -> None:
        assert set(self.topology.exchanges) - PREDECLARED == set(self.exchanges)
        assert set(self.topology.queues) == self.queues

    @invariant()
    def same_bindings_from_both_ends(self) -> None:
        outgoing = {
            Bound(b.source.name, (b.identity.destination_type, b.destination.name), b.routing_key)
            for exchange in self.topology.exchanges.values()
            for b in exchange.bindings.values()
        }
        destinations: list[Destination] = [*self.topology.exchanges.values(), *self.topology.queues.values()]
        incoming = {
            Bound(b.source.name, (b.identity.destination_type, b.destination.name), b.routing_key)
            for destination in destinations
            for b in self.topology.bindings_of(destination)
        }
        assert outgoing == incoming == self.bindings

    @invariant()
    def same_routes(self) -> None:
        for name in self.exchanges:
            for key in KEYS:
                found = route(self.topology, self.topology.exchange(name), [key], ()).queues
                assert sorted(queue.name for queue in found) == sorted(self.reachable(name, key))


TestTopologyMachine = TopologyMachine.TestCase
TestTopologyMachine.settings = settings(max_examples=examples(60), stateful_step_count=40)


@pytest.fixture
def topology() -> Topology:
    return Topology("/")


def test_refused_arguments_leave_no_binding(topology: Topology) -> None:
    (queue,) = add_queues(topology, "q")
    generation = topology.generation
    with pytest.raises(ChannelFault, match="Invalid x-match field type signedint"):
        topology.bind(topology.exchange("amq.headers"), queue, "", table(("x-match", "I", 5)))
    assert topology.bindings_of(queue) == ()
    assert topology.generation == generation


def test_chains_that_delete_themselves_go_together_however_long(topology: Topology) -> None:
    chain = [add_exchange(topology, f"x{number}", auto_delete=True) for number in range(3_000)]
    for source, destination in pairwise(chain):
        topology.bind(source, destination, "", ())
    (queue,) = add_queues(topology, "q")
    topology.bind(chain[-1], queue, "", ())
    assert list(find(topology, "x0").queues) == [queue], "and are followed to their end"
    topology.remove_queue(queue)
    assert not any(name.startswith("x") for name in topology.exchanges)


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


def find(topology: Topology, exchange: str, key: str = "", headers: FieldTable = ()) -> Route:
    return route(topology, topology.exchange(exchange), (key,), headers)


def test_a_route_without_headers_exchange_is_cacheable(topology: Topology) -> None:
    topology.bind(add_exchange(topology, "x", "topic"), add_queues(topology, "q")[0], "#", ())
    assert find(topology, "x", "k").cacheable
    assert find(topology, "", "q").cacheable


def test_a_headers_exchange_anywhere_makes_it_uncacheable(topology: Topology) -> None:
    first, second = add_exchange(topology, "x1"), add_exchange(topology, "x2", "headers")
    add_exchange(topology, "x3", "direct", arguments=table(("alternate-exchange", "S", b"x2")))
    topology.bind(first, second, "", ())
    (queue,) = add_queues(topology, "q")
    topology.bind(second, queue, "", table(("a", "I", 1)))
    assert find(topology, "x1", headers=table(("a", "I", 1))) == Route((queue,), False)
    assert find(topology, "x1") == Route((), False)
    assert not find(topology, "x2").cacheable
    assert not find(topology, "x3").cacheable
