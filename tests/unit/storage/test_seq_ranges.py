from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.storage.seq_ranges import SeqRanges

RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=20)


def members(ranges: SeqRanges) -> list[int]:
    return [seq for first, end in ranges for seq in range(first, end)]


@given(RUNS, st.integers(0, 70))
def test_it_is_a_set(runs: list[tuple[int, int]], floor: int) -> None:
    ranges, model = SeqRanges(), set[int]()
    for first, count in runs:
        ranges.add(first, first + count)
        model.update(range(first, first + count))
    assert members(ranges) == sorted(model)
    assert [seq for seq in range(70) if seq in ranges] == sorted(model)
    ranges.drop_below(floor)
    assert members(ranges) == sorted(seq for seq in model if seq >= floor)
    assert bool(ranges) == bool(len(ranges))


def test_ranges_that_touch_are_one() -> None:
    ranges = SeqRanges()
    for seq in (5, 1, 3, 2, 4):
        ranges.add(seq, seq + 1)
    assert list(ranges) == [(1, 6)]
    assert ranges.first() == (1, 6)
    ranges.clear()
    assert not ranges
