"""Dead letters on their way from queue to queue: the rules 2.2 to 2.4."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr
from leveret.protocol.properties import Properties
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish, route_of, texts
from tests.support.queues import ManualTimers, declare


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
    def test_by_their_own_key(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="x"), made(vhost, "d")
        exchange(vhost, "x", "direct", letters)
        publish(queue, "a", key="d", exchange="amq.direct")
        reject(queue)
        (letter,) = drain(letters)
        assert route_of(letter) == ("x", "d")
        assert deaths(letter) == [("q", "rejected", 1)]
        assert find(headers_of(letter), "x-first-death-exchange") == longstr("amq.direct")

    def test_by_the_queues_key(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, "a")
        reject(queue)
        (letter,) = drain(letters)
        assert route_of(letter) == ("", "d")

    def test_oldest_first(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, *"abc")
        publish(queue, *"de", key="other")
        reject(queue, 5)
        assert contents(letters) == list("abcde")

    def test_all_keys_of_cc_and_bcc(self, vhost: VirtualHost) -> None:
        """Rule 2.3.2."""
        queue = made(vhost, dlx="x")
        targets = [made(vhost, name) for name in ("own", "copy", "blind", "other")]
        exchange(vhost, "x", "direct", *targets)
        headers: FieldTable = (("CC", FieldValue("A", (longstr("copy"), FieldValue("I", 1)))),)
        publish(queue, "a", key="own", headers=headers, blind_keys=("blind",))
        reject(queue)
        letters = [drain(target) for target in targets]
        assert [texts(each) for each in letters] == [["a"], ["a"], ["a"], []]
        letter = letters[0][0]
        assert route_of(letter) == ("x", "own")
        assert letter.envelope.blind_keys == ("blind",)
        entry = find(headers_of(letter), "x-death")
        assert entry is not None
        keys = find(entry.value[0].value, "routing-keys")
        assert keys == FieldValue("A", (longstr("own"), longstr("copy"))), "blind ones stay blind"

    def test_the_queues_key_replaces_them_all(self, vhost: VirtualHost) -> None:
        """Rule 2.3.3."""
        queue = made(vhost, dlx="x", key="d")
        targets = [made(vhost, name) for name in ("d", "own", "copy", "blind")]
        exchange(vhost, "x", "direct", *targets)
        headers: FieldTable = (("CC", FieldValue("A", (longstr("copy"),))), ("kept", FieldValue("I", 1)))
        publish(queue, "a", key="own", headers=headers, blind_keys=("blind",))
        reject(queue)
        letters = [drain(target) for target in targets]
        assert [len(each) for each in letters] == [1, 0, 0, 0]
        letter = letters[0][0]
        assert find(headers_of(letter), "CC") is None
        assert find(headers_of(letter), "kept") == FieldValue("I", 1)
        assert letter.envelope.blind_keys == ()

    def test_any_type_of_exchange_and_internal_ones(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="x"), made(vhost, "d")
        exchange(vhost, "x", "headers", internal=True)
        reason: FieldTable = (("x-first-death-reason", longstr("rejected")),)
        vhost.topology.bind(vhost.topology.exchange("x"), letters, "", reason)
        publish(queue, "a")
        reject(queue)
        assert contents(letters) == ["a"]

    def test_alternate_exchanges_apply(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="x"), made(vhost, "d")
        exchange(vhost, "other", "fanout", letters)
        exchange(vhost, "x", "direct", arguments=(("alternate-exchange", longstr("other")),))
        publish(queue, "a")
        reject(queue)
        assert contents(letters) == ["a"]

    def test_to_several_queues_each_its_own_copy(self, vhost: VirtualHost) -> None:
        queue = made(vhost, dlx="x")
        first, full = made(vhost, "1"), made(vhost, "2", max_length=1, overflow="reject-publish")
        exchange(vhost, "x", "fanout", first, full)
        publish(queue, *"ab")
        reject(queue, 2)
        assert (contents(first), contents(full)) == (["a", "b"], ["a"])

    @pytest.mark.parametrize("key", [None, "nobody"])
    def test_to_nobody(self, vhost: VirtualHost, key: str | None) -> None:
        queue = made(vhost, dlx="", key=key)
        publish(queue, "a", key="nobody")
        reject(queue)
        assert queue.ready_count() == 0

    def test_a_missing_exchange_may_come_later(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="x"), made(vhost, "d")
        publish(queue, *"ab")
        reject(queue)
        exchange(vhost, "x", "fanout", letters)
        reject(queue)
        assert contents(letters) == ["b"]
        assert queue.counters.dropped["rejected"] == 2
        assert queue.counters.dead_lettered["rejected"] == 1

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

    def test_a_change_of_policy_counts_at_once(self, vhost: VirtualHost) -> None:
        queue, first, second = made(vhost), made(vhost, "1"), made(vhost, "2")
        publish(queue, *"abc")
        for target in "12":
            definition = {"dead-letter-exchange": "", "dead-letter-routing-key": target}
            vhost.policies.set(Policy("p", "^q$", definition), operator=False)
            reject(queue)
        vhost.policies.clear("p", operator=False)
        reject(queue)
        assert (contents(first), contents(second)) == (["a"], ["b"])

    def test_without_an_exchange_nothing_goes_anywhere(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, "a")
        reject(queue)
        assert not queue.counters.dead_lettered

    def test_neither_purge_nor_delete_dead_letters(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, "a")
        assert queue.purge() == 1
        publish(queue, "b")
        vhost.delete_queue(queue)
        assert letters.ready_count() == 0


class TestWhatTheySay:
    def test_everything_else_stays(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, "a", headers=(("h", longstr("v")),), expiration=60_000, priority=3, persistent=True)
        reject(queue)
        (letter,) = drain(letters)
        envelope = letter.envelope
        assert (envelope.persistent, envelope.priority, envelope.expiration_ms, envelope.dead) == (True, 3, None, True)
        assert list(Properties(envelope.header).as_dict()) == ["headers"]
        assert find(headers_of(letter), "h") == longstr("v")
        entry = find(headers_of(letter), "x-death")
        assert entry is not None
        assert find(entry.value[0].value, "original-expiration") == longstr("60000")
        assert find(entry.value[0].value, "time") == FieldValue("T", 1000)

    def test_they_arrive_as_new_messages(self, vhost: VirtualHost) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(letters, "there")
        publish(queue, "a")
        reject(queue)
        found = [letters.get(None) for _ in range(2)]
        assert [entry and (entry[1].body, entry[2]) for entry in found] == [(b"there", False), (b"a", False)]

    def test_the_expiration_is_gone_where_they_go(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue, letters = made(vhost, dlx="", key="d"), made(vhost, "d")
        publish(queue, "a", expiration=10)
        loop.advance(10)
        assert contents(letters) == ["a"]

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

    @pytest.mark.parametrize(("trust", "counts"), [(False, [1, 2]), (True, [8, 9])])
    def test_an_x_death_of_the_publisher(self, loop: ManualLoop, trust: bool, counts: list[int]) -> None:
        """Rules 2.3.14 and 2.3.15."""
        vhost = VirtualHost("v", Turn(loop.call_soon), ManualTimers(loop), trust_publishers=trust)
        queue, letters = made(vhost, dlx=""), made(vhost, "d")
        publish(queue, *"ab", headers=self.FORGED)
        reject(queue)
        assert deaths(queue.store.take(2, 100)[0][1][1]) == [("q", "rejected", counts[0])]
        assert letters.ready_count() == 0

    @pytest.mark.parametrize(("trust", "kept"), [(False, ["a"]), (True, [])])
    def test_a_forged_cycle(self, loop: ManualLoop, trust: bool, kept: list[str]) -> None:
        """Rule 2.4.5."""
        vhost = VirtualHost("v", Turn(loop.call_soon), ManualTimers(loop), trust_publishers=trust)
        queue, letters = made(vhost, dlx="", key="d", max_length=0), made(vhost, "d")
        entry = FieldValue("F", (("queue", longstr("d")), ("reason", longstr("expired"))))
        publish(queue, "a", headers=(("x-death", FieldValue("A", (entry,))),))
        assert contents(letters) == kept


class TestCircles:
    def test_a_rejected_message_may_return_for_ever(self, vhost: VirtualHost) -> None:
        queue = made(vhost, dlx="")
        publish(queue, "a")
        for _ in range(5):
            reject(queue)
        (message,) = drain(queue)
        assert deaths(message) == [("q", "rejected", 5)]

    @pytest.mark.parametrize("given", [{"max_length": 1}, {"message_ttl": 0}])
    def test_a_queue_of_its_own_dead_letters(
        self, vhost: VirtualHost, caplog: pytest.LogCaptureFixture, given: dict[str, Any]
    ) -> None:
        queue = made(vhost, dlx="", **given)
        with caplog.at_level(logging.WARNING, "leveret.queue"):
            publish(queue, *"abc")
            publish(queue, *"def")
        assert queue.counters.published == 6, "none has come back"
        assert [record.getMessage() for record in caplog.records] == [
            "dead letters from queue 'q' reach queue 'q' in vhost 'v' in a cycle; they are dropped there"
        ]

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

    def test_there_and_back_by_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        there = made(vhost, "a", dlx="", key="b", message_ttl=10)
        back = made(vhost, "b", dlx="", key="a", message_ttl=10)
        publish(there, "m")
        loop.advance(0.011)
        assert back.ready_count() == 1
        loop.advance(1)
        assert (there.ready_count(), back.ready_count(), back.counters.dropped["expired"]) == (0, 0, 1)

    def test_a_retry_queue_sends_back_what_was_rejected(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, "work", dlx="", key="retry")
        made(vhost, "retry", dlx="", key="work", message_ttl=10)
        publish(queue, "m")
        for _ in range(4):
            reject(queue)
            loop.advance(1)
            assert queue.ready_count() == 1
        (message,) = drain(queue)
        assert deaths(message) == [("retry", "expired", 4), ("work", "rejected", 4)]

    def test_only_the_target_that_closes_the_circle_goes_without(self, vhost: VirtualHost) -> None:
        queue, other = made(vhost, dlx="x", max_length=1), made(vhost, "other")
        exchange(vhost, "x", "fanout", queue, other)
        publish(queue, *"ab")
        assert contents(other) == ["a"]
        assert contents(queue) == ["b"]


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
