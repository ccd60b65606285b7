"""What an exchange remembers, compared with a dictionary that is searched from the beginning each time."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.core.deduplication.values import NEVER, RememberedValues

_KEYS = st.integers(0, 11).map(lambda number: b"%d" % number)
_TTLS = st.one_of(st.just(NEVER), st.integers(1, 40))


class Remembering(RuleBasedStateMachine):
    """The same steps on the values and on a model: expiry by key, in the order in which they were remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.values = RememberedValues()
        self.model: dict[bytes, int] = {}
        self.now = 1

    def _drop_expired_of_model(self) -> None:
        self.model = {key: expiry for key, expiry in self.model.items() if expiry > self.now}

    @rule(key=_KEYS, ttl=_TTLS)
    def add(self, key: bytes, ttl: int) -> None:
        self._drop_expired_of_model()
        assert self.values.has(key, self.now) is (key in self.model)
        if key not in self.model:
            expiry = NEVER if ttl == NEVER else self.now + ttl
            self.values.add(key, expiry)
            self.model[key] = expiry

    @rule(count=st.integers(1, 200), ttl=st.integers(1, 5))
    def add_many(self, count: int, ttl: int) -> None:
        """Values that soon expire, behind others that do not: enough that what is left of them is cleared away."""
        for number in range(count):
            key = b"many %d" % (number % 7)
            if not self.values.has(key, self.now):
                self.values.add(key, self.now + ttl)
            self._drop_expired_of_model()
            self.model.setdefault(key, self.now + ttl)
            self.pass_time(1)
            assert self.values.drop_expired(self.now, 10_000)

    @rule(key=_KEYS)
    def remove(self, key: bytes) -> None:
        self.values.remove(key)
        self.model.pop(key, None)

    @rule(micros=st.integers(1, 30))
    def pass_time(self, micros: int) -> None:
        self.now += micros

    @rule(count=st.integers(0, 5))
    def drop_expired(self, count: int) -> None:
        if self.values.drop_expired(self.now, count):
            self._drop_expired_of_model()
            assert dict(self.values.items()) == self.model
            assert self.values.next_expiry() <= min(self.model.values(), default=NEVER)

    @precondition(lambda self: len(self.values) > 0)
    @rule()
    def drop_oldest(self) -> None:
        while not self.values.drop_expired(self.now, 3):
            pass
        self._drop_expired_of_model()
        if self.model:
            self.values.drop_oldest()
            del self.model[next(iter(self.model))]

    @invariant()
    def same(self) -> None:
        live = {key: expiry for key, expiry in self.values.items() if expiry > self.now}
        assert list(live.items()) == [(key, expiry) for key, expiry in self.model.items() if expiry > self.now]


TestRemembering = Remembering.TestCase


@given(st.lists(st.tuples(_KEYS, _TTLS), max_size=60), st.integers(1, 8))
def test_the_oldest_ones_go(added: list[tuple[bytes, int]], size: int) -> None:
    values = RememberedValues()
    order: list[bytes] = []
    for key, ttl in added:
        if values.has(key, 0):
            continue
        while len(values) >= size:
            values.drop_oldest()
            order.pop(0)
        values.add(key, min(ttl, NEVER))
        order.append(key)
    assert [key for key, _ in values.items()] == order


def test_what_is_left_of_values_is_bounded() -> None:
    """Values that expire before older ones leave nothing behind, nor do those that are forgotten before they expire."""
    values = RememberedValues()
    values.add(b"first", NEVER)
    for number in range(20_000):
        key = b"%d" % (number % 3)
        values.add(key, number + 2)
        values.drop_expired(number + 2, 10)
    for number in range(20_000):
        values.add(b"short-lived", 10**9 + number)
        values.remove(b"short-lived")
    tracemalloc.start()
    copied = {name: len(getattr(values, name)) for name in ("_order", "_holes", "_sooner")}
    tracemalloc.stop()
    assert all(length < 3000 for length in copied.values()), copied


def test_the_memory_of_a_value() -> None:
    tracemalloc.start()
    values = RememberedValues()
    for number in range(100_000):
        values.add(number.to_bytes(15, "big"), 10**12 + number)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 100_000 < 190
