"""Hash exchanges: shares by weight, and what a change of bindings moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.core.exchanges.base import Binding, Destination
from leveret.broker.core.exchanges.choosing import ConsistentHashExchange, ModulusHashExchange
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.bound import bind_named, named_queue, names, table
from tests.support.examples import examples

KEYS = [f"key {number}" for number in range(300)]
QUEUES = tuple("abcdef")


def chosen(exchange: ConsistentHashExchange, key: str, headers: FieldTable = (), header: bytes = b"") -> Destination:
    (only,) = (each for each in exchange.find((key,), headers, header) if each is not None)
    return only


def hashing(name: str, value: str) -> ConsistentHashExchange:
    exchange = ConsistentHashExchange("/", "x", arguments=table((name, "S", value.encode())))
    for queue in QUEUES:
        bind_named(exchange, queue, "1")
    return exchange


class ConsistentHashMachine(RuleBasedStateMachine):
    """Bindings come and go; a key moves only to a queue that has gained weight, or from one that has lost some."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange = ConsistentHashExchange("/", "x")
        self.queues = {name: named_queue(name) for name in QUEUES}
        self.bound: set[tuple[str, str]] = set()
        self.places: dict[str, str] = {}

    def look(self) -> dict[str, str]:
        return {key: chosen(self.exchange, key).name for key in KEYS} if self.bound else {}

    def check_moves(self, gained: str | None, lost: str | None) -> None:
        before, self.places = self.places, self.look()
        for key, place in self.places.items():
            if key in before and before[key] != place:
                assert place == gained or before[key] == lost

    def binding(self, bound: tuple[str, str]) -> Binding:
        return Binding(self.exchange, self.queues[bound[0]], bound[1])

    @rule(name=st.sampled_from(QUEUES), weight=st.sampled_from(["1", "2", "7", "01", "+3", "1000000"]))
    def bind(self, name: str, weight: str) -> None:
        is_new = self.exchange.bind(self.binding((name, weight)))
        assert is_new is ((name, weight) not in self.bound)
        self.bound.add((name, weight))
        self.check_moves(gained=name, lost=None)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        bound = data.draw(st.sampled_from(sorted(self.bound)))
        assert self.exchange.unbind(self.binding(bound))
        self.bound.remove(bound)
        self.check_moves(gained=None, lost=bound[0])

    @invariant()
    def only_bound_queues_get_messages(self) -> None:
        assert set(self.places.values()) <= {name for name, _ in self.bound}

    @invariant()
    def order_does_not_matter(self) -> None:
        # As after a restart, which restores bindings in any order.
        other = ConsistentHashExchange("/", "x")
        for bound in sorted(self.bound):
            other.bind(Binding(other, self.queues[bound[0]], bound[1]))
        for key in KEYS[:20] if self.bound else ():
            assert chosen(other, key).name == self.places[key]


TestConsistentHash = ConsistentHashMachine.TestCase
TestConsistentHash.settings = settings(max_examples=examples(40), stateful_step_count=15)


@settings(max_examples=examples(30))
@given(weights=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_shares_follow_weights(weights: list[int]) -> None:
    exchange = ConsistentHashExchange("/", "x")
    for name, weight in zip(QUEUES, weights, strict=False):
        bind_named(exchange, name, str(weight))

    found = Counter(chosen(exchange, str(number)).name for number in range(4000))

    for name, weight in zip(QUEUES, weights, strict=False):
        share = weight / sum(weights)
        # Five standard deviations, and something for hash values that are not quite random.
        assert abs(found[name] / 4000 - share) < 5 * (share * (1 - share) / 4000) ** 0.5 + 0.005


def test_very_large_weights_are_compared_too() -> None:
    exchange = ConsistentHashExchange("/", "x")
    bind_named(exchange, "large", "9" * 255)
    bind_named(exchange, "small", "1")

    assert {chosen(exchange, key).name for key in KEYS} == {"large"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FieldValue("I", 5), FieldValue("l", 5)),
        (FieldValue("S", b"five"), FieldValue("x", b"five")),
        (FieldValue("t", True), FieldValue("t", True)),
        (FieldValue("F", table(("a", "I", 1))), FieldValue("F", table(("a", "I", 1)))),
        (FieldValue("V", None), FieldValue("V", None)),
    ],
)
def test_equal_headers_go_together(first: FieldValue, second: FieldValue) -> None:
    exchange = hashing("hash-header", "h")

    assert chosen(exchange, "a", (("h", first),)) is chosen(exchange, "b", (("h", second),))


def test_headers_of_any_type_are_spread() -> None:
    exchange = hashing("hash-header", "h")
    values = [FieldValue("I", number) for number in range(50)] + [FieldValue("S", b"%d" % n) for n in range(50)]

    assert len({chosen(exchange, "k", (("h", value),)).name for value in values}) == len(QUEUES)


def test_a_refused_binding_leaves_no_trace() -> None:
    exchange = ConsistentHashExchange("/", "x")
    binding = Binding(exchange, named_queue("q"), "none")

    with pytest.raises(ChannelFault, match="must be an integer"):
        exchange.bind(binding)

    assert not exchange.bindings
    assert list(exchange.find(("k",), (), b"")) == []


def test_the_order_of_binding_does_not_matter_to_a_modulus() -> None:
    exchanges = ModulusHashExchange("/", "x"), ModulusHashExchange("/", "x")
    queue, other = named_queue("q"), named_queue("other")
    bound = [
        (queue, "a", table(("n", "I", 1))),
        (queue, "a", table(("n", "S", b"1"))),
        (other, "a", ()),
        (queue, "b", ()),
    ]
    for exchange, bindings in zip(exchanges, (bound, [bound[place] for place in (3, 1, 0, 2)]), strict=True):
        assert all(exchange.bind(Binding(exchange, *each)) for each in bindings)
    places = [[names(exchange.destinations(key, ())) for key in KEYS] for exchange in exchanges]
    assert places[0] == places[1]
