"""What is the in-memory store's own; the rest is in the contract of all stores."""

from __future__ import annotations

import random
import sys

from leveret.storage.stores.memory_store import MemoryStore
from tests.support.messages import message, size_of


def test_a_message_that_waits_costs_no_object_of_its_own() -> None:
    store = MemoryStore()
    messages = [message("x")] * 10_000
    before = sys.getallocatedblocks()
    store.append(messages, size_of(messages))
    # A deque allocates a block for 64 messages.
    assert sys.getallocatedblocks() - before < 10_000 / 32


def test_the_caller_may_use_its_list_again() -> None:
    store = MemoryStore()
    messages = [message("a")]
    store.append(messages, 1)
    messages.clear()
    assert len(store.take(5, 5)[0]) == 1


def test_many_requeued_one_by_one_in_disorder_keep_their_order() -> None:
    store = MemoryStore()
    messages = [message(str(number)) for number in range(500)]
    store.append(messages, size_of(messages))
    entries = store.take(500, 1 << 20)[0]
    random.Random(7).shuffle(entries)
    for entry in entries[:250]:
        store.requeue([entry])
    store.requeue(entries[250:])
    again = store.take(1000, 1 << 20)[0]
    assert [entry[1] for entry in again] == messages
    assert all(entry[2] for entry in again)


def test_requeued_messages_go_before_the_deque_in_one_take() -> None:
    store = MemoryStore()
    messages = [message("a"), message("b"), message("c")]
    store.append(messages, 3)
    store.requeue(store.take(2, 10)[0])
    assert [(entry[0], entry[2]) for entry in store.take(3, 10)[0]] == [(1, True), (2, True), (3, False)]
