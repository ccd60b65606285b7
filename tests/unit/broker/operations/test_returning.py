"""Returning dead letters, step by step, between queues in memory."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.operations.jobs.job_options import read_options
from leveret.broker.operations.jobs.plans import FULL, SAME, Counts
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.jobs.runner import ends_of
from leveret.broker.operations.principal import Principal
from leveret.policies.dead_letter import EXPIRED, Death, record_death
from leveret.protocol.field_table import FieldTable, FieldValue, normalize
from leveret.protocol.properties import HEADERS, encode_content_header, encode_headers
from leveret.storage.message import Envelope, Message
from tests.support.memory_broker import MemoryBroker
from tests.support.queues import declare


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def letter(queue: str, body: bytes) -> Message:
    """A dead letter of a queue."""
    recorded = record_death((), Death(queue, EXPIRED, 1, "", [queue]), trusted=True)
    headers = normalize(tuple((key, FieldValue(*value)) for key, value in recorded))
    header = encode_content_header(len(body), {HEADERS: encode_headers(headers)})
    return Message(Envelope(b"\x00\x03dlq", header, dead=True), body)


def fill(queue: ClassicQueue, origin: str, *bodies: str) -> None:
    for body in bodies:
        queue.publish([letter(origin, body.encode())], len(body))


def work_on(broker: MemoryBroker, source: ClassicQueue, **options: Any) -> ReturnWork:
    principal = Principal(broker.accounts, broker.accounts.users["guest"], broker.broker.vhosts["/"])
    return ReturnWork(principal, source, read_options(options), ends_of(source), Counts())


def run(work: ReturnWork) -> None:
    while not work.is_over:
        work.step(256)


def contents(queue: ClassicQueue) -> list[str]:
    found = []
    while (entry := queue.get(None)) is not None:
        found.append(entry[1].body.decode())
    return found


def limited(name: str, value: int, *others: tuple[str, FieldValue]) -> FieldTable:
    return ((name, FieldValue("l", value)), *others)


def test_room_counts_in_messages_and_bytes(broker: MemoryBroker) -> None:
    vhost = broker.broker.vhosts["/"]
    source = declare(vhost, "dlq")
    few, small = (
        declare(vhost, name, arguments=limited(argument, limit))
        for name, argument, limit in (("few", "x-max-length", 2), ("small", "x-max-length-bytes", 10))
    )
    fill(source, "few", "a", "b", "c")
    fill(source, "small", "1234", "123456", "1", "12345678901")
    work = work_on(broker, source)
    run(work)
    assert (contents(few), contents(small), contents(source)) == (
        ["a", "b"],
        ["1234", "123456"],
        ["c", "1", "12345678901"],
    )
    assert work.counts.left == {(FULL, "queue 'few'"): 1, (FULL, "queue 'small'"): 2}


def test_targets_that_drop_into_the_dead_letter_queue_lose_nothing(broker: MemoryBroker) -> None:
    """The target is full of expired messages: looking for room dead-letters them, and the source drops some."""
    vhost = broker.broker.vhosts["/"]
    source = declare(vhost, "dlq", arguments=limited("x-max-length", 5))
    dlx = FieldValue("S", b""), FieldValue("S", b"dlq")
    others = ("x-dead-letter-exchange", dlx[0]), ("x-dead-letter-routing-key", dlx[1])
    target = declare(vhost, "work", arguments=limited("x-max-length", 3, *others))
    fill(source, "work", "a", "b", "c", "d", "e")
    timed = Envelope(b"\x00\x04work", encode_content_header(1), expiration_ms=1)
    for body in (b"x", b"y", b"z"):
        target.publish([Message(timed, body)], 1)
    broker.loop.advance(10)
    work = work_on(broker, source)
    run(work)
    assert source.store.ready_count + target.store.ready_count == len(contents(source)) + len(contents(target))
    assert work.counts.returned <= 3


def test_what_comes_meanwhile_is_left_alone(broker: MemoryBroker) -> None:
    vhost = broker.broker.vhosts["/"]
    source, target = declare(vhost, "dlq"), declare(vhost, "work")
    fill(source, "work", "a", "b")
    work = work_on(broker, source)
    fill(source, "work", "c")
    run(work)
    assert (contents(target), contents(source)) == (["a", "b"], ["c"])


def test_it_does_not_come_back_to_its_own_queue(broker: MemoryBroker) -> None:
    source = declare(broker.broker.vhosts["/"], "dlq")
    fill(source, "dlq", "a")
    work = work_on(broker, source)
    run(work)
    assert work.counts.left == {(SAME, "queue 'dlq'"): 1}
    assert contents(source) == ["a"]


@pytest.mark.parametrize("limit", [1, 2, 300])
def test_a_limit(broker: MemoryBroker, limit: int) -> None:
    vhost = broker.broker.vhosts["/"]
    source, target = declare(vhost, "dlq"), declare(vhost, "work")
    numbers = [str(number) for number in range(600)]
    fill(source, "work", *numbers)
    work = work_on(broker, source, limit=limit)
    run(work)
    assert (contents(target), contents(source)) == (numbers[:limit], numbers[limit:])
