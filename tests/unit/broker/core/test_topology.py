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


AE = alternate("S", b"ae")

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


def test_finds_exchanges_by_name(topology: Topology) -> None:
    declared = add_exchange(topology, "x")

    assert topology.exchange("x") is declared
    assert refusal(lambda: topology.exchange("y")) == "404 NOT_FOUND - no exchange 'y' in vhost 'v'"


@pytest.mark.parametrize("name", ["x", "amq.", "amq", "ämq"])
def test_an_equal_declaration_changes_nothing(topology: Topology, name: str) -> None:
    if name == "amq.":
        name = "amq.topic"
    else:
        topology.declare_exchange(name, "topic", True, False, False, table(("foo", "I", 1)))
    generation, existing = topology.generation, topology.exchange(name)

    again = topology.declare_exchange(name, "topic", True, False, False, table(("bar", "I", 2)))

    assert again is existing
    assert topology.generation == generation
    assert existing.arguments in ((), table(("foo", "I", 1)))


@pytest.mark.parametrize(
    ("type_name", "durable", "auto_delete", "internal", "arguments", "key", "received", "current"),
    [
        ("fanout", True, False, False, AE, "type", "'fanout'", "'direct'"),
        ("direct", False, False, False, AE, "durable", "'false'", "'true'"),
        ("direct", True, True, False, AE, "auto_delete", "'true'", "'false'"),
        ("direct", True, False, True, AE, "internal", "'true'", "'false'"),
        ("direct", True, False, False, (), "alternate-exchange", "none", "the value 'ae' of type 'longstr'"),
        ("direct", True, False, False, alternate("S", b"b"), "alternate-exchange", "'b'", "'ae'"),
        ("direct", True, False, False, alternate("I", 5), "alternate-exchange", "'5'", "'ae'"),
        ("fanout", False, True, True, (), "type", "'fanout'", "'direct'"),
        ("direct", False, True, True, (), "durable", "'false'", "'true'"),
        ("direct", True, True, True, (), "auto_delete", "'true'", "'false'"),
        ("direct", True, False, True, (), "internal", "'true'", "'false'"),
    ],
)
def test_the_first_difference_is_named(
    topology: Topology,
    type_name: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
    key: str,
    received: str,
    current: str,
) -> None:
    topology.declare_exchange("x", "direct", True, False, False, AE)

    text = refusal(lambda: topology.declare_exchange("x", type_name, durable, auto_delete, internal, arguments))

    assert text == (
        f"406 PRECONDITION_FAILED - inequivalent arg '{key}' for exchange 'x' in vhost 'v':"
        f" received {received} but current is {current}"
    )


def test_new_names_must_not_be_reserved(topology: Topology) -> None:
    text = refusal(lambda: add_exchange(topology, "amq.zzz", arguments=alternate("I", 5)))

    assert text == "403 ACCESS_REFUSED - exchange name 'amq.zzz' contains reserved prefix 'amq.*'"
    assert "amq.zzz" not in topology.exchanges
    assert add_exchange(topology, "amq").name == "amq"


@pytest.mark.parametrize(
    ("kind", "value", "shown"), [("I", 5, "signedint"), ("x", b"a", "binary"), ("V", None, "void")]
)
def test_an_alternate_exchange_must_be_a_string(topology: Topology, kind: str, value: object, shown: str) -> None:
    text = refusal(lambda: add_exchange(topology, "x", arguments=alternate(kind, value)))

    assert text == (
        f"406 PRECONDITION_FAILED - invalid type '{shown}' for arg 'alternate-exchange' in exchange 'x' in vhost 'v'"
    )
    assert "x" not in topology.exchanges


def test_types_that_do_not_exist_are_refused(topology: Topology) -> None:
    expected = "406 PRECONDITION_FAILED - unknown exchange type 'zzz'"

    assert refusal(lambda: add_exchange(topology, "x", "zzz")) == expected


def test_nothing_can_be_done_to_the_default_exchange(topology: Topology) -> None:
    default, other = topology.exchange(""), add_exchange(topology, "x")
    actions: list[Callable[[], object]] = [
        lambda: topology.declare_exchange("", "direct", True, False, False, ()),
        lambda: topology.delete_exchange("", False),
        lambda: topology.bind(default, other, "k", ()),
        lambda: topology.bind(other, default, "k", ()),
        lambda: topology.unbind(default, other, "k", ()),
        lambda: topology.unbind(other, default, "k", ()),
    ]

    for action in actions:
        assert refusal(action) == "403 ACCESS_REFUSED - operation not permitted on the default exchange"


# -- deletion ---------------------------------------------------------------------------------------------


def test_deleting_what_does_not_exist_is_fine(topology: Topology) -> None:
    topology.delete_exchange("x", False)
    topology.delete_exchange("x", True)


@pytest.mark.parametrize("name", ["amq.direct", "amq.zzz"])
def test_system_exchanges_stay(topology: Topology, name: str) -> None:
    expected = f"403 ACCESS_REFUSED - deletion of system exchange '{name}' in vhost 'v' not allowed"

    assert refusal(lambda: topology.delete_exchange(name, False)) == expected
    assert "amq.direct" in topology.exchanges


def test_if_unused_looks_at_bindings_as_source(topology: Topology) -> None:
    source, destination = add_exchange(topology, "s"), add_exchange(topology, "d")
    topology.bind(source, destination, "", ())

    assert refusal(lambda: topology.delete_exchange("s", True)) == (
        "406 PRECONDITION_FAILED - exchange 's' in vhost 'v' in use"
    )
    topology.delete_exchange("d", True)
    topology.delete_exchange("s", True)
    assert not {"s", "d"} & set(topology.exchanges)


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


def test_binding_twice_is_binding_once(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct")
    (queue,) = add_queues(topology, "q")
    assert topology.bind(source, queue, "k", table(("a", "I", 1), ("b", "I", 2)))
    generation = topology.generation

    assert not topology.bind(source, queue, "k", table(("b", "I", 2), ("a", "I", 1)))

    assert topology.generation == generation
    assert len(topology.bindings_of(queue)) == len(source.bindings) == 1


def test_only_the_very_binding_can_be_undone(topology: Topology) -> None:
    source = add_exchange(topology, "x", "direct")
    (queue,) = add_queues(topology, "q")
    topology.bind(source, queue, "k", table(("a", "I", 1)))

    assert not topology.unbind(source, queue, "k", ())
    assert not topology.unbind(source, queue, "k", table(("a", "l", 1)))
    assert not topology.unbind(source, queue, "other", table(("a", "I", 1)))
    assert topology.unbind(source, queue, "k", table(("a", "I", 1)))
    assert not topology.unbind(source, queue, "k", table(("a", "I", 1)))
    assert topology.bindings_of(queue) == ()


def test_refused_arguments_leave_no_binding(topology: Topology) -> None:
    (queue,) = add_queues(topology, "q")
    generation = topology.generation

    text = refusal(lambda: topology.bind(topology.exchange("amq.headers"), queue, "", table(("x-match", "I", 5))))

    assert text.endswith("Invalid x-match field type signedint (value 5); expected longstr")
    assert topology.bindings_of(queue) == ()
    assert topology.generation == generation


def test_a_queue_and_an_exchange_of_one_name_are_two(topology: Topology) -> None:
    source, exchange = add_exchange(topology, "x"), add_exchange(topology, "same")
    (queue,) = add_queues(topology, "same")
    topology.bind(source, exchange, "", ())

    assert topology.bind(source, queue, "", ())
    topology.remove_queue(queue)

    assert [binding.destination for binding in source.bindings.values()] == [exchange]


# -- auto-delete ------------------------------------------------------------------------------------------


def test_an_auto_delete_exchange_waits_for_its_first_binding(topology: Topology) -> None:
    add_exchange(topology, "x", auto_delete=True)
    source = add_exchange(topology, "s")
    topology.bind(source, topology.exchange("x"), "", ())

    topology.unbind(source, topology.exchange("x"), "", ())

    assert "x" in topology.exchanges


def test_it_goes_with_its_last_binding(topology: Topology) -> None:
    source = add_exchange(topology, "x", auto_delete=True)
    queues = add_queues(topology, "q1", "q2")
    for queue in queues:
        topology.bind(source, queue, "", ())

    topology.unbind(source, queues[0], "", ())
    assert "x" in topology.exchanges
    topology.unbind(source, queues[1], "", ())
    assert "x" not in topology.exchanges


def test_it_goes_with_its_last_queue(topology: Topology) -> None:
    source = add_exchange(topology, "x", auto_delete=True)
    (queue,) = add_queues(topology, "q")
    topology.bind(source, queue, "a", ())
    topology.bind(source, queue, "b", ())

    topology.remove_queue(queue)

    assert "x" not in topology.exchanges
    assert "q" not in topology.queues


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
