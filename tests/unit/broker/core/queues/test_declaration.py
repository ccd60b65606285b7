from __future__ import annotations

from dataclasses import replace

import pytest

from leveret.broker.core.message_stores.backing import QueueBacking
from leveret.broker.core.queues.declaration import (
    QueueDeclaration,
    check_arguments,
    check_equivalent,
    check_exclusive_use,
    check_not_locked,
    check_unreserved,
)
from leveret.broker.core.queues.queue import Queue
from leveret.policies.arguments import compared_arguments
from leveret.protocol.faults import AmqpFault, ChannelFault
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.storage.stores.memory_store import MemoryStore
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_vhost

ME, OTHER = object(), object()

QUORUM: FieldTable = (("x-queue-type", longstr("quorum")),)

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost 'v'. It could be originally"
    " declared on another connection or the exclusive property value does not match that of the original declaration."
)


def queue(
    durable: bool = True, auto_delete: bool = False, owner: object | None = None, arguments: FieldTable = ()
) -> Queue:
    """Return a queue with any arguments, unchecked."""
    host = new_vhost(ManualLoop())
    return Queue(host, "q", durable, auto_delete, owner, arguments, QueueBacking(MemoryStore()))


def declaration(
    durable: bool = True,
    auto_delete: bool = False,
    owner: object | None = None,
    arguments: FieldTable = (),
) -> QueueDeclaration:
    return QueueDeclaration("q", durable, auto_delete, owner, arguments)


def inequivalent(existing: Queue, declared: QueueDeclaration) -> str:
    """Return the error of a refused declaration."""
    with pytest.raises(ChannelFault) as caught:
        check_equivalent(existing, declared)
    return caught.value.text


def refusal(arguments: FieldTable) -> str:
    """Return the error for the arguments of a new queue; "" if they are accepted."""
    try:
        check_arguments(declaration(arguments=arguments), "v", lambda _: None)
    except AmqpFault as fault:
        return fault.text
    return ""


class TestNames:
    @pytest.mark.parametrize("name", ["amq.", "amq.gen-x", "amq.direct"])
    def test_names_that_the_broker_gives_are_reserved(self, name: str) -> None:
        with pytest.raises(ChannelFault) as caught:
            check_unreserved(name)
        assert caught.value.text == f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"

    @pytest.mark.parametrize("name", ["amq", "AMQ.x", "xamq.", "q", ""])
    def test_other_names_are_free(self, name: str) -> None:
        check_unreserved(name)


class TestLocks:
    def test_every_connection_may_use_a_shared_queue(self) -> None:
        check_not_locked(queue(), ME)

    def test_only_the_owner_may_use_an_exclusive_queue(self) -> None:
        check_not_locked(queue(owner=ME), ME)
        with pytest.raises(ChannelFault) as caught:
            check_not_locked(queue(owner=ME), OTHER)
        assert caught.value.text == LOCKED


class TestExclusiveUse:
    def refused(self, existing: Queue, exclusive: bool) -> bool:
        try:
            check_exclusive_use(existing, exclusive)
        except ChannelFault as fault:
            return fault.text == "ACCESS_REFUSED - queue 'q' in vhost 'v' in exclusive use"
        return False

    def test_a_queue_without_consumers_accepts_any_consumer(self) -> None:
        assert not self.refused(queue(), False)
        assert not self.refused(queue(), True)

    def test_an_exclusive_consumer_must_be_the_only_one(self) -> None:
        existing = queue()
        existing.add_consumer(FakeConsumer(existing))
        assert not self.refused(existing, False)
        assert self.refused(existing, True)

    def test_an_exclusive_consumer_excludes_all_other_consumers(self) -> None:
        existing = queue()
        consumer = FakeConsumer(existing, exclusive=True)
        existing.add_consumer(consumer)
        assert self.refused(existing, False)
        assert self.refused(existing, True)
        existing.remove_consumer(consumer)
        assert not self.refused(existing, True)

    def test_a_single_active_consumer_queue_refuses_exclusive_ones(self) -> None:
        existing = queue(arguments=(("x-single-active-consumer", FieldValue("t", True)),))
        assert self.refused(existing, True)
        assert not self.refused(existing, False)


class TestEquivalence:
    @pytest.mark.parametrize("durable", [True, False])
    @pytest.mark.parametrize("auto_delete", [True, False])
    def test_flags_have_to_be_the_same(self, durable: bool, auto_delete: bool) -> None:
        check_equivalent(queue(durable, auto_delete), declaration(durable, auto_delete))

    def test_durable_is_named(self) -> None:
        assert inequivalent(queue(durable=True), declaration(durable=False)) == (
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost 'v':"
            " received 'false' but current is 'true'"
        )

    def test_auto_delete_is_named(self) -> None:
        assert inequivalent(queue(auto_delete=False), declaration(auto_delete=True)) == (
            "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost 'v':"
            " received 'true' but current is 'false'"
        )

    def test_the_first_difference_is_named(self) -> None:
        text = inequivalent(queue(), declaration(False, True, arguments=(("x-max-length", FieldValue("I", 1)),)))
        assert "'durable'" in text
        text = inequivalent(queue(), declaration(True, True, arguments=(("x-max-length", FieldValue("I", 1)),)))
        assert "'auto_delete'" in text

    @pytest.mark.parametrize(
        ("owner", "declared_owner"), [(ME, OTHER), (ME, None), (None, ME)], ids=["others", "shared", "was shared"]
    )
    def test_exclusivity_comes_before_all_else(self, owner: object | None, declared_owner: object | None) -> None:
        declared = declaration(durable=False, auto_delete=True, owner=declared_owner)
        assert inequivalent(queue(owner=owner), declared) == LOCKED

    def test_the_durable_bit_means_nothing_to_an_exclusive_queue(self) -> None:
        existing = queue(durable=False, owner=ME)
        check_equivalent(existing, declaration(durable=True, owner=ME))
        check_equivalent(existing, declaration(durable=False, owner=ME))

    def test_unknown_arguments_are_not_compared(self) -> None:
        check_equivalent(queue(arguments=(("foo", longstr("a")),)), declaration(arguments=(("x-foo", longstr("b")),)))

    @pytest.mark.parametrize("key", compared_arguments("classic"))
    def test_every_argument_that_is_compared(self, key: str) -> None:
        existing = queue(arguments=((key, FieldValue("I", 1)),))
        check_equivalent(existing, declaration(arguments=((key, FieldValue("l", 1)),)))
        assert f"inequivalent arg '{key}'" in inequivalent(existing, declaration(arguments=((key, longstr("b")),)))
        assert f"inequivalent arg '{key}'" in inequivalent(existing, declaration())

    def test_no_queue_type_means_classic(self) -> None:
        classic: FieldTable = (("x-queue-type", longstr("classic")),)
        check_equivalent(queue(arguments=classic), declaration())
        check_equivalent(queue(), declaration(arguments=classic))
        text = inequivalent(queue(), declaration(arguments=(("x-queue-type", longstr("quorum")),)))
        assert "received the value 'quorum' of type 'longstr' but current is none" in text

    def test_an_explicit_default_differs_from_none(self) -> None:
        overflow: FieldTable = (("x-overflow", longstr("drop-head")),)
        assert inequivalent(queue(), declaration(arguments=overflow)).endswith(
            "received the value 'drop-head' of type 'longstr' but current is none"
        )

    def test_the_first_of_duplicate_keys_is_compared(self) -> None:
        twice: FieldTable = (("x-max-length", FieldValue("I", 1)), ("x-max-length", FieldValue("I", 2)))
        check_equivalent(queue(arguments=(("x-max-length", FieldValue("I", 1)),)), declaration(arguments=twice))


class TestArguments:
    def test_none_and_unknown_ones_are_fine(self) -> None:
        assert refusal(()) == ""
        assert refusal((("x-foo", longstr("a")), ("max-length", longstr("b")))) == ""

    def test_a_refusal_says_which_argument_and_why(self) -> None:
        assert refusal((("x-max-length", longstr("10")),)) == (
            "PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'q' in vhost 'v':"
            ' "expected integer, got longstr"'
        )

    def test_of_several_the_first_in_rabbitmqs_order_is_refused(self) -> None:
        wrong = FieldValue("I", -1)
        assert "'x-expires'" in refusal((("x-max-length", wrong), ("x-expires", wrong), ("x-message-ttl", wrong)))

    def test_an_argument_of_another_queue_type_is_refused(self) -> None:
        assert refusal((("x-delivery-limit", FieldValue("I", 1)),)) == (
            "PRECONDITION_FAILED - invalid arg 'x-delivery-limit' for queue 'q' in vhost 'v'"
            " of queue type rabbit_classic_queue"
        )

    def test_a_wrong_value_comes_before_a_foreign_argument(self) -> None:
        assert "'x-max-length'" in refusal((("x-max-age", longstr("1D")), ("x-max-length", longstr("1"))))

    def test_of_foreign_arguments_the_first_one_sent_is_refused(self) -> None:
        foreign = [("x-max-age", longstr("1D")), ("x-delivery-limit", FieldValue("I", 1))]
        assert "'x-max-age'" in refusal(tuple(foreign))
        assert "'x-delivery-limit'" in refusal(tuple(reversed(foreign)))

    def test_the_first_of_duplicate_keys_is_checked(self) -> None:
        assert refusal((("x-max-length", FieldValue("I", 1)), ("x-max-length", FieldValue("I", -1)))) == ""
        assert refusal((("x-max-length", FieldValue("I", -1)), ("x-max-length", FieldValue("I", 1)))) != ""

    @pytest.mark.parametrize(
        ("value", "reason"),
        [(longstr("zz"), "\"unsupported queue type 'zz'\""), (FieldValue("I", 1), "{unacceptable_type,signedint}")],
    )
    def test_a_queue_type_has_to_exist(self, value: FieldValue, reason: str) -> None:
        assert refusal((("x-queue-type", value),)) == (
            f"PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'q' in vhost 'v': {reason}"
        )

    def test_segments_of_streams_have_a_maximum_size(self) -> None:
        stream = ("x-queue-type", longstr("stream"))
        key = "x-stream-max-segment-size-bytes"
        assert refusal((stream, (key, FieldValue("l", 3_000_000_000)))) == ""
        text = f"PRECONDITION_FAILED - Exceeded max value for {key}"
        assert refusal((stream, (key, FieldValue("l", 3_000_000_001)))) == text

    @pytest.mark.parametrize(
        ("declared", "name"),
        [
            (declaration(durable=False, arguments=QUORUM), "non-durable"),
            (declaration(auto_delete=True, arguments=QUORUM), "auto-delete"),
            (declaration(owner=ME, arguments=QUORUM), "exclusive-owner"),
        ],
    )
    def test_what_a_quorum_queue_cannot_be(self, declared: QueueDeclaration, name: str) -> None:
        with pytest.raises(ChannelFault) as caught:
            check_arguments(declared, "v", lambda _: None)
        assert caught.value.text == f"PRECONDITION_FAILED - invalid property '{name}' for queue 'q' in vhost 'v'"

    def test_a_quorum_queue_has_a_name_of_its_own(self) -> None:
        check_arguments(declaration(arguments=QUORUM), "v", lambda _: None)
        with pytest.raises(ChannelFault) as caught:
            check_arguments(replace(declaration(arguments=QUORUM), server_named=True), "v", lambda _: None)
        assert caught.value.text == (
            "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
        )

    def test_arguments_of_other_queue_types_are_checked_as_theirs(self) -> None:
        quorum = ("x-queue-type", longstr("quorum"))
        assert "rabbit_quorum_queue" in refusal((quorum, ("x-max-priority", FieldValue("I", 1))))
        assert "value_negative" in refusal((quorum, ("x-max-length", FieldValue("I", -1))))


class TestDeadLetterExchange:
    def test_it_has_to_be_a_string_before_all_else(self) -> None:
        arguments: FieldTable = (("x-expires", FieldValue("I", -1)), ("x-dead-letter-exchange", FieldValue("I", 5)))
        assert refusal(arguments) == (
            "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost 'v'"
        )

    @pytest.mark.parametrize("name", ["", "dlx", "ä"])
    def test_the_user_is_asked_about_by_its_name(self, name: str) -> None:
        asked: list[str] = []
        arguments: FieldTable = (("x-dead-letter-exchange", longstr(name)),)
        check_arguments(declaration(arguments=arguments), "v", asked.append)
        assert asked == [name]

    def test_without_the_argument_no_permission_is_checked(self) -> None:
        asked: list[str] = []
        check_arguments(declaration(), "v", asked.append)
        assert asked == []

    def test_a_routing_key_needs_it(self) -> None:
        key = ("x-dead-letter-routing-key", longstr("k"))
        assert refusal((key,)).endswith(": routing_key_but_no_dlx_defined")
        assert refusal((key, ("x-dead-letter-exchange", longstr("")))) == ""
