from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.storage.segments.dead_set import BLOCK, DeadSet
from tests.support.examples import examples

#: Around the edges of blocks, where it matters.
NUMBERS = st.builds(lambda block, off: max(1, block * BLOCK + off), st.integers(0, 4), st.integers(-3, 3))
COUNTS = st.one_of(st.integers(1, 5), st.sampled_from([BLOCK - 2, BLOCK, BLOCK + 2, 2 * BLOCK]))
TOP = 8 * BLOCK


@settings(max_examples=examples(200))
@given(st.integers(1, 5), st.lists(st.tuples(NUMBERS, COUNTS), max_size=12))
def test_it_is_a_set(floor: int, runs: list[tuple[int, int]]) -> None:
    dead, model = DeadSet(floor), set(range(floor))
    for first, count in runs:
        dead.add(first, count)
        model.update(range(first, first + count))
    assert dead.floor == next(seq for seq in range(TOP) if seq not in model)
    edges = [seq for block in range(8) for seq in range(block * BLOCK, block * BLOCK + 12)]
    assert [seq in dead for seq in edges] == [seq in model for seq in edges]
    live = [seq for start, end in dead.live_runs(0, TOP) for seq in range(start, end)]
    assert live == [seq for seq in range(TOP) if seq not in model]
    assert dead.count_live(0, TOP) == len(live)
    starts = [start for start, _ in dead.live_runs(0, TOP)]
    ends = [end for _, end in dead.live_runs(0, TOP)]
    assert not set(starts) & set(ends), "runs are as long as they can be"


@given(st.lists(st.integers(1, 3 * BLOCK), max_size=40, unique=True))
def test_what_is_saved_can_be_loaded(numbers: list[int]) -> None:
    dead = DeadSet()
    for seq in numbers:
        dead.add(seq, 1)
    again = DeadSet(dead.floor)
    for block, bitmap in dead.bitmaps():
        again.load_bitmap(block, bitmap)
    for first, end in dead.full_blocks():
        again.add(first * BLOCK, (end - first) * BLOCK)
    assert list(again.live_runs(0, TOP)) == list(dead.live_runs(0, TOP))


def test_a_million_settled_in_order_behind_one_that_is_not_cost_nothing() -> None:
    dead = DeadSet()
    before = sys.getallocatedblocks()
    for seq in range(2, 200_002):
        dead.add(seq, 1)
    assert sys.getallocatedblocks() - before < 60
    dead.add(1, 1)
    assert dead.floor == 200_002
