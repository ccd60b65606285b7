"""The index of due messages is a sorted list of (time, number), whatever is done to it."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.core.delays.schedule import DueIndex
from tests.support.examples import examples

TIMES = st.integers(0, 12) | st.integers(0, 10**15)


class DueIndexMachine(RuleBasedStateMachine):
    """The index beside a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.index = DueIndex()
        self.model: list[tuple[int, int]] = []
        self.next = 1

    @rule(due=TIMES, count=st.integers(1, 5) | st.sampled_from([1024, 3000]))
    def add(self, due: int, count: int) -> None:
        self.index.add(due, self.next, count)
        self.model = sorted(self.model + [(due, self.next + place) for place in range(count)])
        self.next += count

    @rule(due=TIMES, gap=st.integers(1, 3))
    def add_later_a_number_that_was_left_out(self, due: int, gap: int) -> None:
        """As at a start: recovered messages have lower numbers than those published meanwhile."""
        left_out, self.next = self.next, self.next + gap + 1
        self.index.add(due, left_out + 1)
        self.index.add(due, left_out)
        self.model = sorted([*self.model, (due, left_out), (due, left_out + 1)])

    @rule(count=st.integers(0, 2000))
    def drop(self, count: int) -> None:
        count = min(count, len(self.model))
        self.index.drop(count)
        del self.model[:count]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model) - 1))
        assert self.index.find(self.model[place][1]) == place
        self.index.remove(place)
        del self.model[place]

    @rule(until=TIMES, count=st.integers(0, 3000))
    def head(self, until: int, count: int) -> None:
        expected = [entry for entry in self.model if entry[0] <= until][:count]
        assert self.index.head(until, count) == expected

    @rule(data=st.data(), count=st.integers(0, 2000))
    def entries(self, data: st.DataObject, count: int) -> None:
        place = data.draw(st.integers(0, len(self.model)))
        assert list(self.index.entries(place, count)) == self.model[place : place + count]

    @invariant()
    def is_the_same(self) -> None:
        assert len(self.index) == len(self.model)
        if self.model:
            assert self.index.first_due() == self.model[0][0]
        assert self.index.find(self.next) is None


TestDueIndexMachine = DueIndexMachine.TestCase
TestDueIndexMachine.settings = settings(max_examples=examples(40), stateful_step_count=20)


@given(st.lists(st.integers(0, 5), max_size=50))
def test_equal_times_keep_the_order_of_the_numbers(times: list[int]) -> None:
    index = DueIndex()
    for number, due in enumerate(times, 1):
        index.add(due, number)
    assert index.head(10, 100) == sorted(zip(times, range(1, 100), strict=False))


def test_takes_few_bytes_for_each_message() -> None:
    index, count = DueIndex(), 100_000
    for number in range(count):
        # Far apart and in no order: the worst case.
        index.add(number * 7_919_993 % 1_000_003, number)
    arrays = [array for block in index._blocks for array in (block.times, block.numbers)]
    assert sum(map(sys.getsizeof, arrays)) < 40 * count
