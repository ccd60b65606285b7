"""Messages that wait in an exchange: when they leave, what is counted, and what the system's clock does to them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from leveret.broker.core.delays.waiting_messages import (
    DELAY_MAX,
    WaitingMessages,
    mark_delayed,
    published_delay,
    read_delay,
)
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import read_policy
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.protocol.properties import Properties, encode_content_header, encode_headers
from leveret.storage.message import Envelope
from tests.support import stored_queue
from tests.support.delayed import bind, bodies_in, declare_delayed, publish_delayed
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers, declare, new_vhost
from tests.support.simulated_files import SimulatedFiles, flip
from tests.support.stepping_clock import SteppingClock


@pytest.fixture
def queue(vhost: VirtualHost) -> ClassicQueue:
    declare_delayed(vhost)
    queue = declare(vhost)
    bind(vhost, queue)
    return queue


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_step_of_the_system_clock_changes_nothing(
    loop: ManualLoop, vhost: VirtualHost, queue: ClassicQueue, step: float
) -> None:
    timers = vhost.timers
    assert isinstance(timers, ManualTimers)
    waiting = declare_delayed(vhost)
    publish_delayed(waiting, 1000, b"1")
    due = waiting.schedule.due_times()
    assert due == (timers.now() + 1_000_000,) * 2
    timers.set_by += step
    assert waiting.schedule.due_times() == (timers.now() + 1_000_000,) * 2
    publish_delayed(waiting, 900, b"2")
    loop.advance(0.95)
    assert bodies_in(queue) == [b"2"]
    loop.advance(0.05)
    assert bodies_in(queue) == [b"1"]


def test_the_times_that_are_shown_do_not_change_with_each_look(vhost: VirtualHost) -> None:
    timers = vhost.timers
    assert isinstance(timers, ManualTimers)
    waiting = declare_delayed(vhost)
    publish_delayed(waiting, 1000, b"1")
    due = waiting.schedule.due_times()
    for microseconds in (-999, 1, 999):
        timers.set_by = microseconds / 1_000_000
        assert waiting.schedule.due_times() == due
    timers.set_by = 0.001
    assert waiting.schedule.due_times() == (timers.now() + 1_000_000,) * 2 != due


def test_many_at_once_are_routed_in_slices(loop: ManualLoop) -> None:
    vhost = new_vhost(loop, clock=SteppingClock())
    waiting = declare_delayed(vhost)
    queue = declare(vhost)
    bind(vhost, queue)
    publish_delayed(waiting, 100, *[b"%06d" % number for number in range(20_000)])
    loop.advance(0.0999)
    loop.now += 0.0001
    loop._timers.pop(0).callback()
    # One slice of five readings of the clock: they are not even all read.
    assert queue.store.ready_count == 0
    assert loop._soon
    arrived: list[int] = []
    while waiting.count:
        loop._soon.pop(0)()
        arrived.append(queue.store.ready_count)
    assert all(after - before <= 5 * 128 for before, after in pairwise(arrived))
    loop.advance(1)
    assert bodies_in(queue) == [b"%06d" % number for number in range(20_000)]


def test_exchanges_share_the_slices(loop: ManualLoop) -> None:
    vhost = new_vhost(loop, clock=SteppingClock())
    queues = []
    for name in ("d1", "d2"):
        waiting = declare_delayed(vhost, name)
        queues.append(declare(vhost, name))
        bind(vhost, queues[-1], name)
        publish_delayed(waiting, 100, *[b"%05d" % number for number in range(5000)])
    loop.advance(0.1)
    for _ in range(3):
        assert all(queue.store.ready_count for queue in queues) or loop.pending_timers
    loop.advance(1)
    assert [queue.store.ready_count for queue in queues] == [5000, 5000]


def test_a_limit_refuses_and_counts(loop: ManualLoop, vhost: VirtualHost, queue: ClassicQueue) -> None:
    waiting = declare_delayed(vhost)
    definition = {"pattern": "d", "definition": {"max-delayed": 3}, "apply-to": "exchanges", "priority": 0}
    vhost.policies.set(read_policy("p", definition, False), False)
    assert publish_delayed(waiting, 100, b"1", b"2") == 2
    assert publish_delayed(waiting, 100, b"3", b"4") == 1
    assert publish_delayed(waiting, 100, b"5") == 0
    assert waiting.counters.refuse == 2
    vhost.policies.clear("p", False)
    assert publish_delayed(waiting, 100, b"6") == 1
    loop.advance(1)
    assert bodies_in(queue) == [b"1", b"2", b"3", b"6"]


def test_deleting_the_virtual_host_does_too(loop: ManualLoop, vhost: VirtualHost) -> None:
    waiting = declare_delayed(vhost)
    publish_delayed(waiting, 100, b"1")
    vhost.delete_contents()
    assert waiting.counters.drop_deleted == 1
    loop.advance(1)


def test_looking(loop: ManualLoop, vhost: VirtualHost) -> None:
    waiting = declare_delayed(vhost)
    for delay in (500, 100, 300):
        publish_delayed(waiting, delay, b"%d" % delay)
    found = list(waiting.schedule.waiting(0, 10))
    assert [(each.number, each.message.body) for each in found] == [(2, b"100"), (3, b"300"), (1, b"500")]
    assert [each.due - vhost.timers.now() for each in found] == [100_000, 300_000, 500_000]
    assert [each.number for each in waiting.schedule.waiting(1, 1)] == [3]
    assert list(waiting.schedule.waiting(3, 1)) == []
    assert waiting.schedule.find(4) is None
    third = waiting.schedule.find(3)
    assert third is not None
    assert third.message.body == b"300"


def test_the_inner_type_that_varies_routes_each_message_by_itself(loop: ManualLoop, vhost: VirtualHost) -> None:
    waiting = declare_delayed(vhost, inner="x-random")
    queues = [declare(vhost, f"q{number}") for number in range(2)]
    for queue in queues:
        bind(vhost, queue)
    publish_delayed(waiting, 100, *[b"m"] * 200)
    loop.advance(0.1)
    counts = [queue.store.ready_count for queue in queues]
    assert sum(counts) == 200
    assert all(counts)


@pytest.mark.parametrize("first_is_last", [False, True])
def test_large_messages_are_not_all_read_at_once(loop: ManualLoop, vhost: VirtualHost, first_is_last: bool) -> None:
    """The order is kept although they are read in another one, and only some fit into memory."""
    waiting = declare_delayed(vhost)
    queue = declare(vhost)
    bind(vhost, queue)
    delays = list(range(100, 130))
    if first_is_last:
        delays.reverse()
    for delay in delays:
        publish_delayed(waiting, delay, b"%03d" % delay + bytes(1_000_000))
    loop.advance(0.0999)
    waiting.schedule._timers.now()
    loop.now += 1
    entries: list[int] = []
    steps = waiting.schedule.take_due()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            entries += [int(message.body[:3]) for _, message, _ in end.value]
            break
    assert 1 <= len(entries) <= 6
    assert entries == sorted(delays)[: len(entries)]
    assert waiting.count == 30 - len(entries)
    loop.advance(1)
    assert [int(body[:3]) for body in bodies_in(queue)] == sorted(delays)[len(entries) :]


def headers(kind: str, value: Any) -> FieldTable:
    return (("a", FieldValue("t", True)), ("x-delay", FieldValue(kind, value)))


@pytest.mark.parametrize(
    ("kind", "value", "delay"),
    [
        ("d", 900.9, 900), ("f", 2.5, 2), ("S", b"900", 900), ("S", b"+900", 900), ("S", b"0900", 900),
        ("l", 2**32, 2**32), ("l", 2**63 - 1, DELAY_MAX), ("d", 1e300, DELAY_MAX), ("S", b"9" * 5000, DELAY_MAX),
        ("S", b"9" * 25, DELAY_MAX),
    ],
)  # fmt: skip
def test_numbers_in_other_forms_count(kind: str, value: object, delay: int) -> None:
    assert read_delay(headers(kind, value)) == delay


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("I", 0), ("I", -5), ("d", 0.9), ("d", -1e300), ("S", b" 900"), ("S", b"900.5"), ("S", b"abc"), ("S", b""),
        ("S", b"-900"), ("S", b"+"), ("S", b"\xb2"), ("x", b"900"), ("t", True), ("T", 900), ("V", None), ("F", ()),
        ("A", ()), ("D", (0, 900)), ("d", math.nan), ("d", math.inf), ("f", -math.inf),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_no_delay(kind: str, value: object) -> None:
    assert read_delay(headers(kind, value)) == 0
    assert read_delay(()) == 0


def test_the_first_of_two_counts() -> None:
    assert read_delay((*headers("I", 5), *headers("I", 9))) == 5


def test_the_delivered_header_has_the_negative_delay() -> None:
    table = (("z", FieldValue("L", 1)), ("x-delay", FieldValue("S", b"900")), ("a", FieldValue("F", ())))
    header = encode_content_header(3, {properties.HEADERS: encode_headers(table), properties.PRIORITY: b"\x04"})
    published = Envelope(b"\x01d\x01k", header, True, 4, 7, True, ("blind",), 2)

    delay, stored = mark_delayed(published)

    read = Properties(stored.header)
    assert delay == 900
    assert read.headers() == (
        ("a", FieldValue("F", ())), ("x-delay", FieldValue("l", -900)), ("z", FieldValue("l", 1)),
    )  # fmt: skip
    assert read.octet(properties.PRIORITY, 0) == 4
    assert (stored.route, stored.persistent, stored.priority, stored.expiration_ms) == (b"\x01d\x01k", True, 4, 7)
    assert (stored.dead, stored.blind_keys, stored.delivery_count) == (True, ("blind",), 2)
    assert read_delay(read.headers()) == 0
    assert published_delay(stored) == 900
    assert published_delay(published) == 0


def test_a_message_without_delay_stays_as_it_is() -> None:
    envelope = Envelope(b"", encode_content_header(0))
    assert mark_delayed(envelope) == (0, envelope)


class Start(stored_queue.Start):
    """A start of a broker with a delayed exchange and a queue; its arguments are those of its base."""

    def __init__(self, files: SimulatedFiles, now: float) -> None:
        super().__init__(files, now)
        self.waiting: WaitingMessages = declare_delayed(self.vhost)
        bind(self.vhost, self.queue)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def test_all_are_found_in_their_order(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    expected = []
    for number in range(3000):
        delay = 1000 + number * 7919 % 3000
        expected.append((delay, number, b"%d" % number))
        publish_delayed(before.waiting, delay, b"%d" % number)
    before.stop()
    after = Start(files, 1000.5)
    assert after.waiting.count == 3000
    # Messages that are published while the others are entered come in their order too.
    publish_delayed(after.waiting, 1000, b"new")
    expected.append((1500, 3000, b"new"))
    after.loop.advance(0)
    after.loop.advance(5)
    found = [body for _, _, body in sorted(expected)]
    assert bodies_in(after.queue) == found


def test_overdue_ones_come_at_once_and_none_comes_early(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    for delay in (30_000, 10_000, 20_000):
        publish_delayed(before.waiting, delay, b"%d" % delay)
    before.stop()
    after = Start(files, 1020.0)
    after.loop.advance(0)
    assert bodies_in(after.queue) == [b"10000", b"20000"]
    after.loop.advance(9.99)
    assert bodies_in(after.queue) == []
    after.loop.advance(0.01)
    assert bodies_in(after.queue) == [b"30000"]


def test_what_was_routed_or_cancelled_is_gone(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    publish_delayed(before.waiting, 10, b"routed")
    publish_delayed(before.waiting, 10_000, b"stays")
    before.loop.advance(1)
    assert bodies_in(before.queue) == [b"routed"]
    before.stop()
    after = Start(files, 1020.0)
    after.loop.advance(0)
    assert bodies_in(after.queue) == [b"stays"]


def test_a_damaged_one_is_lost_and_the_others_come(files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> None:
    before = Start(files, 1000.0)
    for number in range(100):
        publish_delayed(before.waiting, 1000, b"body %03d" % number)
    before.stop()
    for path in [each for each in files.snapshot() if each.endswith(".seg")]:
        octets = files.read_all(path) or b""
        if b"body 050" in octets:
            flip(files, path, octets.index(b"body 050"), 1)
    after = Start(files, 1020.0)
    after.loop.advance(1)
    assert bodies_in(after.queue) == [b"body %03d" % number for number in range(100) if number != 50]
    assert "cannot be read" in caplog.text
    assert after.waiting.count == 0
