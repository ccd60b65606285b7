"""Returned messages of a store with priorities come before the others of their priority."""

from __future__ import annotations

import random

from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.returns_store import RETURNS_PRIORITY_MAX, ReturnsStore

_ALL = 1 << 40


def message(body: bytes, priority: int) -> Message:
    return Message(Envelope(b"\0\0", b"", priority=priority), body)


def test_against_a_list() -> None:
    chance, store = random.Random(1), ReturnsStore(lambda level: MemoryStore(), max_priority=RETURNS_PRIORITY_MAX)
    #: Place in the order (level, whether it never returned, number there), whether it was delivered, body.
    expected: list[tuple[tuple[int, bool, int], bool, bytes]] = []
    taken: list[tuple[Entry, tuple[int, bool, int]]] = []
    for number in range(3000):
        what = chance.randrange(5)
        if what < 2:
            priority, body = chance.choice((0, 1, 7, RETURNS_PRIORITY_MAX, 255)), b"%d" % number
            store.append([message(body, priority)], len(body))
            expected.append(((-min(priority, RETURNS_PRIORITY_MAX), True, number), False, body))
        elif what < 4 and taken:
            entry, place = taken.pop(chance.randrange(len(taken)))
            if what == 2:
                store.append_returned([entry[1]], len(entry[1].body))
                store.settle([entry])
                place = place[0], False, number
            else:
                store.requeue([entry])
            expected.append((place, True, entry[1].body))
        else:
            entries, _ = store.take(3, _ALL)
            expected.sort()
            assert [(entry[2], entry[1].body) for entry in entries] == [each[1:] for each in expected[:3]]
            taken += zip(entries, [each[0] for each in expected[:3]], strict=True)
            del expected[:3]
        assert store.ready_count == len(expected)
