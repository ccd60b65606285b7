"""Paging through a queue while messages come, go and return: nothing that is there throughout is missed or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from leveret import compilation
from leveret.broker.core.queues import browsing
from leveret.broker.core.queues.browsing import (
    Browser,
    Place,
    oldest_ready_age,
    oldest_unacked_age,
    read_place,
)
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.queues.returns import RETURN_STEP
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.examples import examples
from tests.support.manual_loop import ManualLoop
from tests.support.messages import ENVELOPE, message
from tests.support.queue_content import publish
from tests.support.queues import declare, new_vhost, settle
from tests.support.segment_stores import commit, open_engine
from tests.support.simulated_files import SimulatedFiles
from tests.support.stepping_clock import SteppingClock
from tests.support.stored_queue import Start


def queue_on(store: MessageStore | None, arguments: FieldTable = ()) -> ClassicQueue:
    """A queue whose messages are in a store; None for one in memory."""
    queue = declare(new_vhost(ManualLoop()), durable=False, arguments=arguments)
    if store is not None:
        queue.backing.store = store
    return queue


class Paging(RuleBasedStateMachine):
    """A queue, someone who holds messages, and someone who looks."""

    #: Whether a message that returns keeps its place.
    keeps_places = True

    def __init__(self) -> None:
        super().__init__()
        browsing._STEP_MESSAGES = 3  # type: ignore[misc]
        self.disk: list[SegmentStore] = []
        self.queue = self.make()
        self.holders = [Holder(self.queue), Holder(self.queue)]
        self.taken: list[list[Entry]] = [[], []]
        for holder, taken in zip(self.holders, self.taken, strict=True):
            holder.taken = taken
        self.present: set[str] = set()
        self.published = 0
        self.delivered: set[str] = set()
        self.place: Place | None = None
        self.throughout: set[str] | None = None
        self.returned: set[str] = set()
        self.seen: Counter[str] = Counter()

    def teardown(self) -> None:
        browsing._STEP_MESSAGES = 256  # type: ignore[misc]

    def make(self) -> ClassicQueue:
        return queue_on(None)

    def store(self, lazy: bool) -> SegmentStore:
        engine = open_engine(SimulatedFiles())
        store = engine.store(engine.create_queue(True, {"name": "q"}))
        store.set_lazy(lazy)
        self.disk.append(store)
        return store

    @rule(count=st.integers(1, 9), persistent=st.booleans(), priority=st.integers(0, 2))
    def publish(self, count: int, persistent: bool, priority: int) -> None:
        envelope = Envelope(ENVELOPE.route, ENVELOPE.header, persistent, priority)
        for _ in range(count):
            body = str(self.published)
            self.published += 1
            self.present.add(body)
            self.queue.publish([Message(envelope, body.encode())], len(body))

    @rule(count=st.integers(1, 5), which=st.integers(0, 1))
    def take(self, count: int, which: int) -> None:
        for _ in range(count):
            ready = [found for found in self._all() if found.is_ready]
            entry = self.queue.get(self.holders[which])
            assert (entry is None) == (not ready)
            if entry is not None:
                body = entry[1].body.decode()
                assert entry[2] is (body in self.delivered)
                if self.keeps_places:
                    assert entry[1].body == ready[0].message.body
                self.delivered.add(body)
                self.taken[which].append(entry)

    @rule(data=st.data(), which=st.integers(0, 1))
    def pick(self, data: st.DataObject, which: int) -> None:
        steps = [[found for found in step if found.is_ready] for step in Browser(self.queue, ready_only=True).steps()]
        steps = [step for step in steps if step]
        if not steps:
            return
        at = data.draw(st.integers(0, len(steps) - 1))
        chosen = data.draw(st.lists(st.sampled_from(steps[at]), min_size=1, unique_by=id))
        chosen.sort()
        entries = browsing.take_out(self.queue, chosen)
        assert [entry[1].body for entry in entries] == [found.message.body for found in chosen]
        self.queue.delivery.hold(self.holders[which], len(entries), sum(len(entry[1].body) for entry in entries))
        self.delivered.update(entry[1].body.decode() for entry in entries)
        self.taken[which] += entries
        left = {found.message.body.decode() for found in self._all() if found.is_ready}
        assert left == self.present - self._held()
        assert self.queue.store.ready_count == len(left)
        assert self.queue.store.ready_bytes == sum(map(len, left))

    def _all(self) -> list[browsing.Browsed]:
        return [found for step in Browser(self.queue).steps() for found in step]

    @precondition(lambda self: any(self.taken))
    @rule(data=st.data(), requeued=st.booleans())
    def settle(self, data: st.DataObject, requeued: bool) -> None:
        which = data.draw(st.sampled_from([at for at in (0, 1) if self.taken[at]]))
        entry = data.draw(st.sampled_from(self.taken[which]))
        self.taken[which].remove(entry)
        settle(self.holders[which], [entry], "requeue" if requeued else "acknowledge")
        body = entry[1].body.decode()
        if requeued:
            self.returned.add(body)
        else:
            self.present.discard(body)
            if self.throughout is not None:
                self.throughout.discard(body)

    @precondition(lambda self: self.disk)
    @rule()
    def write(self) -> None:
        for store in self.disk:
            commit(store)

    @precondition(lambda self: self.disk)
    @rule(lazy=st.booleans())
    def change_mode(self, lazy: bool) -> None:
        for store in self.disk:
            store.set_lazy(lazy)

    @rule(steps=st.integers(1, 4))
    def look(self, steps: int) -> None:
        if self.throughout is None:
            self.throughout, self.place = set(self.present), None
            self.returned.clear()
            self.seen.clear()
        ready, unacked = self.queue.store.ready_count, self.queue.unacked_count
        is_new = self.place is None or self.place.level < 0
        browser = Browser(self.queue, None if is_new else read_place(str(self.place)))
        for _, step in zip(range(steps), self._pages(browser), strict=False):
            for found in step:
                body = found.message.body.decode()
                assert body in self.present
                assert found.is_ready is (body not in self._held())
                self.seen[body] += 1
        self.place = browser.place
        assert (self.queue.store.ready_count, self.queue.unacked_count) == (ready, unacked)
        if self.place is None:
            self._finish()

    def _pages(self, browser: Browser) -> Iterator[list[browsing.Browsed]]:
        # At least one real step, so that there is a place.
        for step in browser.steps():
            yield step
            if browser.place is None:
                return

    def _held(self) -> set[str]:
        return {entry[1].body.decode() for taken in self.taken for entry in taken}

    def _finish(self) -> None:
        assert self.throughout is not None
        assert self.throughout <= set(self.seen)
        doubled = {body for body, count in self.seen.items() if count > 1}
        assert not doubled - (set() if self.keeps_places else self.returned)
        self.throughout = None


class PagingOnDisk(Paging):
    def make(self) -> ClassicQueue:
        return queue_on(self.store(lazy=False))


class PagingOnDiskLazily(Paging):
    def make(self) -> ClassicQueue:
        return queue_on(self.store(lazy=True))


class PagingByPriority(Paging):
    def make(self) -> ClassicQueue:
        arguments = (("x-max-priority", FieldValue("I", 2)),)
        return queue_on(PriorityStore(2, lambda level: self.store(lazy=True)), arguments)


class PagingByPriorityInMemory(Paging):
    def make(self) -> ClassicQueue:
        return queue_on(None, (("x-max-priority", FieldValue("I", 2)),))


class PagingOfAQuorumQueue(Paging):
    keeps_places = False

    def make(self) -> ClassicQueue:
        return declare(new_vhost(ManualLoop()), arguments=(("x-queue-type", longstr("quorum")),))


LIMITS = settings(max_examples=examples(60), stateful_step_count=40)
TestMemory = Paging.TestCase
TestDisk = PagingOnDisk.TestCase
TestLazy = PagingOnDiskLazily.TestCase
TestPriority = PagingByPriority.TestCase
TestPriorityInMemory = PagingByPriorityInMemory.TestCase
TestQuorum = PagingOfAQuorumQueue.TestCase
for _machine in (TestMemory, TestDisk, TestLazy, TestPriority, TestPriorityInMemory, TestQuorum):
    _machine.settings = LIMITS


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "a.1", "-1.1", "1.-1", "1.1.1", "0.99999999999999999999", "٣.1"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is not a place such as"):
        read_place(text)


def test_what_is_ready_says_whether_it_was_delivered_before() -> None:
    queue = queue_on(None)
    publish(queue, "a", "b")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    settle(holder, [entry], "requeue")
    found = [each for step in Browser(queue).steps() for each in step]
    assert [(each.message.body, each.is_ready, each.redelivered) for each in found] == [
        (b"a", True, True),
        (b"b", True, False),
    ]


def test_what_is_held_is_not_ready() -> None:
    queue = queue_on(None)
    publish(queue, "a", "b")
    holder = Holder(queue)
    holder.taken = [entry for entry in [queue.get(holder)] if entry is not None]
    found = [each for step in Browser(queue, ready_only=True).steps() for each in step]
    assert [each.message.body for each in found] == [b"b"]


def test_the_rest_of_a_priority_is_left_out() -> None:
    queue = queue_on(None, (("x-max-priority", FieldValue("I", 2)),))
    publish(queue, "a", "b", "c", priority=2)
    publish(queue, "d", "e")
    browser = Browser(queue, most=1)
    steps = browser.steps()
    found = next(steps)
    browser.skip_level()
    # A second time, there is nothing to leave out.
    browser.skip_level()
    found += [each for step in steps for each in step]
    assert [each.message.body for each in found] == [b"a", b"d", b"e"]


def test_what_is_delivered_while_one_looks_is_in_its_place() -> None:
    queue = queue_on(None)
    publish(queue, "a", "b", "c", "d")
    holder, other = Holder(queue), Holder(queue)

    def take(by: Holder, count: int) -> None:
        by.taken = [*by.taken, *(entry for _ in range(count) if (entry := queue.get(by)) is not None)]

    take(holder, 3)
    settle(holder, list(holder.taken[:2]), "requeue")
    holder.taken = holder.taken[2:]
    browser = Browser(queue, most=1)
    found = []
    for step in browser.steps():
        found += step
        if found and not other.taken:
            take(other, 2)
    assert [each.message.body for each in found] == [b"a", b"b", b"c", b"d"]


def test_very_many_that_return_while_one_looks_are_in_their_places() -> None:
    queue = declare(new_vhost(ManualLoop(), clock=SteppingClock()))
    count = 8 * RETURN_STEP
    publish(queue, *(f"{number:05}" for number in range(count)))
    holder = Holder(queue)
    holder.taken = [entry for _ in range(2) if (entry := queue.get(holder)) is not None]
    browser = Browser(queue, most=100)
    steps = browser.steps()
    found = next(steps)
    # Then there are no holders of these messages: they are neither ready yet nor unacked any more.
    others = [entry for _ in range(count - 2) if (entry := queue.get(holder)) is not None]
    queue.release(holder, others)
    queue.requeue(others)
    assert queue.delivery.returning.batches
    found += [each for step in steps for each in step]
    assert [int(each.message.body) for each in found] == [*range(count)]


class TaggedHolder(Holder):
    """A holder whose messages have delivery tags, which notes from which tag on it is asked for them."""

    def __init__(self, queue: ClassicQueue) -> None:
        super().__init__(queue)
        self.asked: list[int] = []

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        self.asked.append(from_tag)
        return iter(self.taken[max(0, from_tag - 1) :])

    def next_tag(self) -> int:
        return len(self.taken) + 1


@pytest.mark.skipif(compilation.form() == "compiled", reason="functions are replaced in pure Python only")
def test_a_holder_is_asked_only_for_what_was_delivered_since() -> None:
    queue = queue_on(None)
    publish(queue, *"abcdef")
    holder = TaggedHolder(queue)

    def take() -> None:
        entry = queue.get(holder)
        assert entry is not None
        holder.taken = [*holder.taken, entry]

    take()
    take()
    found = []
    for step in Browser(queue, most=2).steps():
        found += step
        if len(holder.taken) == 2:
            take()
    assert [each.message.body.decode() for each in found] == list("abcdef")
    assert holder.asked == [0, 3]


def test_taken_messages_that_nobody_holds_are_left_out() -> None:
    """Such as those whose dead letters are not confirmed yet."""
    queue = queue_on(None)
    publish(queue, "a", "b")
    queue.store.take(1, 1)
    found = [each for step in Browser(queue).steps() for each in step]
    assert [each.message.body for each in found] == [b"b"]


def test_a_place_outlives_its_messages() -> None:
    queue = queue_on(None)
    make: Callable[[str], Message] = lambda body: Message(ENVELOPE, body.encode())  # noqa: E731
    queue.publish([make("a"), make("b")], 2)
    queue.purge()
    queue.publish([make("c")], 1)
    for start, expected in (("0.1", ["c"]), ("0.3", ["c"]), ("0.4", []), ("7.1", [])):
        found = [each.message.body.decode() for step in Browser(queue, read_place(start)).steps() for each in step]
        assert found == expected


@pytest.mark.parametrize("waits", [False, True])
def test_what_cannot_be_read_for_now_is_left_out_and_told(waits: bool) -> None:
    files = SimulatedFiles()
    start = Start(files, queue_mode="lazy", delayed_retry_type="all", delayed_retry_min=60_000)
    publish(start.queue, "a", persistent=True)
    if waits:
        start.returned()
    start.loop.run()
    files.unreadable.update(path for path in files.snapshot() if path.endswith(".seg"))
    browser = Browser(start.queue)
    assert [each for step in browser.steps() for each in step] == []
    assert browser.failure is not None
    files.unreadable.clear()
    browser = Browser(start.queue)
    assert [each.message.body for step in browser.steps() for each in step] == [b"a"]
    assert browser.failure is None


def ages(queue: ClassicQueue) -> tuple[int | None, int | None]:
    """The ages of the oldest ready and unacked message in full seconds."""
    found = oldest_ready_age(queue), oldest_unacked_age(queue)
    return None if found[0] is None else round(found[0]), None if found[1] is None else round(found[1])


def take(holder: Holder) -> Entry:
    assert isinstance(holder.queue, ClassicQueue)
    entry = holder.queue.get(holder)
    assert entry is not None
    holder.taken = [*holder.taken, entry]
    return entry


def test_an_empty_queue_has_none(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert ages(queue) == (None, None)


@pytest.mark.parametrize("durable", [False, True])
def test_the_oldest_ready_and_the_oldest_unacked_message(vhost: VirtualHost, loop: ManualLoop, durable: bool) -> None:
    queue = declare(vhost, durable=durable)
    for body in ("a", "b", "c"):
        queue.publish([message(body)], len(body))
        loop.advance(2)
    assert ages(queue) == (6, None)
    holder, other = Holder(queue), Holder(queue)
    first = take(holder)
    assert ages(queue) == (4, 6)
    take(other)
    assert queue.holders() == [holder, other]
    settle(holder, [first], "acknowledge")
    holder.taken = []
    loop.advance(1)
    assert queue.holders() == [other]
    assert ages(queue) == (3, 5)


@pytest.mark.parametrize("durable", [False, True])
def test_a_redelivered_message_may_be_the_oldest_of_its_holder(
    vhost: VirtualHost, loop: ManualLoop, durable: bool
) -> None:
    queue = declare(vhost, durable=durable)
    for body in ("a", "b"):
        queue.publish([message(body)], len(body))
        loop.advance(2)
    holder, other = Holder(queue), Holder(queue)
    first = take(holder)
    take(other)
    settle(holder, [first], "requeue")
    holder.taken = []
    # Behind a newer one, in the order of delivery.
    take(other)
    assert [entry[1].body for entry in other.taken] == [b"b", b"a"]
    assert ages(queue)[1] == 4
