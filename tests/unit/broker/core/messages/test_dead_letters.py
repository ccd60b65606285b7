"""Dead letters on their way from queue to queue: the rules 2.2 to 2.4."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish, texts
from tests.support.queues import declare, new_vhost


def made(vhost: VirtualHost, name: str = "q", dlx: str | None = None, key: str | None = None, **given: Any) -> Queue:
    """Declare a queue with these arguments, and with a dead-letter exchange and routing key where they are named."""
    given |= {} if dlx is None else {"dead_letter_exchange": dlx}
    given |= {} if key is None else {"dead_letter_routing_key": key}
    return declare(vhost, name, arguments=arguments(**given))


def exchange(vhost: VirtualHost, name: str, type_name: str, *queues: Queue, **given: Any) -> None:
    """Declare an exchange and bind queues to it by their names."""
    vhost.declare_exchange(name, type_name, True, False, given.get("internal", False), given.get("arguments", ()))
    for queue in queues:
        vhost.topology.bind(vhost.topology.exchange(name), queue, queue.name, ())


def reject(queue: Queue, count: int = 1) -> None:
    """Get messages and reject them at once."""
    holder = Holder(queue)
    entries = [queue.get(holder) for _ in range(count)]
    held = [entry for entry in entries if entry is not None]
    assert len(held) == count
    queue.release(holder, held)
    queue.reject(held)


class TestWhereTheyGo:
    def test_a_change_of_bindings_counts_at_once(self, vhost: VirtualHost) -> None:
        queue, first, second = made(vhost, dlx="x"), made(vhost, "1"), made(vhost, "2")
        exchange(vhost, "x", "fanout", first)
        publish(queue, *"abc")
        reject(queue)
        vhost.topology.bind(vhost.topology.exchange("x"), second, "", ())
        reject(queue)
        vhost.delete_queue(first)
        reject(queue)
        assert contents(second) == ["b", "c"]


class TestWhatTheySay:
    def test_a_second_of_time_later_the_entry_says_so(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, *"ab")
        reject(queue)
        loop.advance(1)
        reject(queue)
        times = []
        for letter in drain(letters):
            entry = find(headers_of(letter), "x-death")
            assert entry is not None
            times.append(find(entry.value[0].value, "time"))
        assert times == [FieldValue("T", 1000), FieldValue("T", 1001)]

    FORGED: FieldTable = (
        (
            "x-death",
            FieldValue(
                "A",
                (
                    FieldValue(
                        "F",
                        (("queue", longstr("q")), ("reason", longstr("rejected")), ("count", FieldValue("l", 7))),
                    ),
                ),
            ),
        ),
    )

    @pytest.mark.parametrize(("trust", "kept"), [(False, ["a"]), (True, [])])
    def test_a_forged_cycle(self, loop: ManualLoop, trust: bool, kept: list[str]) -> None:
        """Rule 2.4.5."""
        vhost = new_vhost(loop, trust_publishers=trust)
        queue, letters = made(vhost, dlx="", key="d", max_length=0), made(vhost, "d")
        entry = FieldValue("F", (("queue", longstr("d")), ("reason", longstr("expired"))))
        publish(queue, "a", headers=(("x-death", FieldValue("A", (entry,))),))
        assert contents(letters) == kept


class TestCircles:
    def test_an_exchange_that_does_not_exist_is_logged_once(
        self, vhost: VirtualHost, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = made(vhost, dlx="nowhere", max_length=1)
        with caplog.at_level(logging.WARNING, "leveret.queue"):
            publish(queue, *"abc")
            publish(queue, *"def")
        assert [record.getMessage() for record in caplog.records] == [
            "dead letters of queue 'q' reach no queue: exchange 'nowhere' does not exist in vhost 'v'"
        ]


class TestChains:
    LENGTH = 500
    #: Enough to tell a stack that grows; a message carries its deaths along, so that the work grows with the square.
    SHORT = 150

    def chain(self, vhost: VirtualHost, length: int = LENGTH, **given: Any) -> list[Queue]:
        """Queues each of which dead-letters to the next."""
        return [made(vhost, str(at), dlx="", key=str(at + 1), **given) for at in range(length)]

    def test_a_long_one_needs_no_deep_stack(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, max_length=0)
        last = made(vhost, str(self.LENGTH))
        publish(queues[0], *"abc")
        found = drain(last)
        assert texts(found) == ["a", "b", "c"]
        assert len(deaths(found[0])) == self.LENGTH
        assert all(queue.counters.dead_lettered["maxlen"] == 3 for queue in queues)

    def test_each_push_out_one_of_the_next(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, max_length=1)
        last = made(vhost, str(self.LENGTH))
        for queue in queues:
            publish(queue, f"from {queue.name}")
        publish(queues[0], "new")
        heads = [queue.store.take(1, 1)[0][0][1] for queue in queues]
        assert texts(heads) == ["new", *(f"from {at}" for at in range(self.LENGTH - 1))]
        assert contents(last) == [f"from {self.LENGTH - 1}"]

    def test_by_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queues = self.chain(vhost, self.SHORT, message_ttl=0)
        last = made(vhost, str(self.SHORT))
        publish(queues[0], *"ab")
        loop.run()
        assert contents(last) == ["a", "b"]

    def test_refused_ones_travel_on_too(self, vhost: VirtualHost) -> None:
        queues = self.chain(vhost, self.SHORT, max_length=0, overflow="reject-publish-dlx")
        last = made(vhost, str(self.SHORT))
        assert publish(queues[0], *"ab") == 0
        assert contents(last) == ["a", "b"]


def test_a_target_that_is_deleted_on_the_way_is_passed_over(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, dlx="x")
    first, second = made(vhost, "1"), made(vhost, "2")
    exchange(vhost, "x", "fanout", first, second)
    publish(queue, *"ab")
    reject(queue)
    first.deleted = True
    reject(queue)
    assert contents(second) == ["a", "b"]
