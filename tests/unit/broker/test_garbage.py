from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from leveret.broker.garbage import GarbageCollection


class Node:
    """Something that can be part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.fixture
def later() -> Iterator[list[Callable[[], None]]]:
    """What is to be called later; the collector is as it was after the test."""
    thresholds, waiting = gc.get_threshold(), list[Callable[[], None]]()
    collection = GarbageCollection(waiting.append)
    collection.start()
    try:
        yield waiting
    finally:
        collection.stop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def test_what_stays_is_looked_at_once(later: list[Callable[[], None]]) -> None:
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(30_000)]
    assert gc.get_freeze_count() > before + 10_000
    gc.collect()
    assert len(gc.get_objects()) < len(kept), "nothing that stays is left to be looked at"


def test_everything_is_looked_at_now_and_then(later: list[Callable[[], None]]) -> None:
    cycle = Node()
    cycle.other = cycle
    gc.collect()
    before = gc.get_freeze_count()
    del cycle
    for _ in range(1_000):
        gc.collect(0)
    assert gc.get_freeze_count() >= before, "it has been frozen with the rest"
    look_at_everything = later.pop()
    look_at_everything()
    assert not [each for each in gc.get_objects() if type(each) is Node]
    gc.unfreeze()
    assert not [each for each in gc.get_objects() if type(each) is Node]
