from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.stats.counters import ChannelCounters
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queue_content import publish
from tests.support.queues import declare, new_vhost, settle

QUORUM: FieldTable = (("x-queue-type", longstr("quorum")),)
SINGLE_ACTIVE: FieldTable = (*QUORUM, ("x-single-active-consumer", FieldValue("t", True)))
LOCKED = "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost 'v'."


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


@pytest.fixture
def anyone(vhost: VirtualHost) -> Principal:
    """A user with all permissions."""
    return new_principal(vhost)


def refusal(operation: Callable[[], object]) -> str:
    with pytest.raises(AmqpFault) as caught:
        operation()
    return str(caught.value)


def refused(name: str, resource: str = "queue") -> str:
    return f"403 ACCESS_REFUSED - access to {resource} '{name}' in vhost 'v' refused for user 'guest'"


# -- declaring --------------------------------------------------------------------------------------------


def test_declaring_needs_configure(vhost: VirtualHost) -> None:
    principal = new_principal(vhost, configure="^q$")
    queues.declare(principal, "q", True, False, ())
    assert refusal(lambda: queues.declare(principal, "other", True, False, ())) == refused("other")
    assert set(vhost.queues) == {"q"}


def test_a_queue_without_a_name_gets_one(vhost: VirtualHost, anyone: Principal) -> None:
    for name in ("", "\r\n"):
        queue = queues.declare(anyone, name, False, False, ())
        assert queue.name.startswith("amq.gen-")
        again = refusal(lambda: queues.declare(anyone, queue.name, False, False, ()))  # noqa: B023 - called at once
        assert again == f"403 ACCESS_REFUSED - queue name '{queue.name}' contains reserved prefix 'amq.*'"
    assert len(vhost.queues) == 2


def test_line_ends_are_removed_from_names(anyone: Principal) -> None:
    assert queues.declare(anyone, "a\r\nb", False, False, ()).name == "ab"


@pytest.mark.parametrize(
    ("read", "write", "text"),
    [(".*", "^$", refused("dlx", "exchange")), ("^$", ".*", refused("q"))],
)
def test_a_dead_letter_exchange_needs_permissions(vhost: VirtualHost, read: str, write: str, text: str) -> None:
    principal = new_principal(vhost, read=read, write=write)
    arguments = (("x-dead-letter-exchange", longstr("dlx")),)
    assert refusal(lambda: queues.declare(principal, "q", True, False, arguments)) == text
    assert not vhost.queues


def test_finding_needs_any_permission(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert queues.find(new_principal(vhost, configure="^$", write="^$"), "q") is queue
    nobody = new_principal(vhost, configure="^$", write="^$", read="^$")
    assert refusal(lambda: queues.find(nobody, "q")) == refused("q")
    assert refusal(lambda: queues.find(nobody, "none")) == refused("none")


# -- deleting ---------------------------------------------------------------------------------------------


def test_deleting_needs_configure(vhost: VirtualHost) -> None:
    declare(vhost)
    nobody = new_principal(vhost, configure="^$")
    for name in ("q", "none"):
        assert refusal(lambda: queues.delete(nobody, name, False, False)) == refused(name)  # noqa: B023
    queues.delete(new_principal(vhost), "q", False, False)
    assert not vhost.queues


def test_the_ready_messages_are_told_before_the_deletion(vhost: VirtualHost, anyone: Principal) -> None:
    publish(declare(vhost), "a", "b")
    accepted_with: list[tuple[int, bool]] = []
    for name in ("q", "none"):
        queues.delete(
            anyone, name, False, False, accepted=lambda ready: accepted_with.append((ready, "q" in vhost.queues))
        )
    assert accepted_with == [(2, True), (0, False)]


def test_conditions(vhost: VirtualHost, anyone: Principal) -> None:
    queue = declare(vhost)
    consumer = FakeConsumer(queue)
    queue.add_consumer(consumer)
    prefix = "406 PRECONDITION_FAILED - queue 'q' in vhost 'v'"
    assert refusal(lambda: queues.delete(anyone, "q", True, False)) == f"{prefix} in use"
    queue.remove_consumer(consumer)
    publish(queue, "a")
    assert refusal(lambda: queues.delete(anyone, "q", True, True)) == f"{prefix} not empty"
    queues.delete(anyone, "q", True, False)
    assert not vhost.queues


@pytest.mark.parametrize(
    ("if_unused", "if_empty", "flag"),
    [(True, False, "if-unused"), (False, True, "if-empty"), (True, True, "if-unused")],
)
def test_quorum_queues_have_no_conditions(
    vhost: VirtualHost, anyone: Principal, if_unused: bool, if_empty: bool, flag: str
) -> None:
    declare(vhost, arguments=QUORUM)
    text = refusal(lambda: queues.delete(anyone, "q", if_unused, if_empty))
    assert text == (
        f"540 NOT_IMPLEMENTED - cannot delete queue 'q' in vhost 'v'. queue.delete operations with {flag} flag set are"
        " not supported by quorum queues"
    )


def test_a_queue_that_could_not_be_restored(vhost: VirtualHost, anyone: Principal) -> None:
    vhost.unrestored.add("queue", ("v", "q"), "damaged")
    text = "406 PRECONDITION_FAILED - queue 'q' in vhost 'v' not empty"
    assert refusal(lambda: queues.delete(anyone, "q", False, True)) == text
    queues.delete(anyone, "q", True, False)
    assert not vhost.unrestored.has("queue", "q")


# -- exclusive queues -------------------------------------------------------------------------------------


def test_exclusive_queues_are_for_their_connection(vhost: VirtualHost, anyone: Principal) -> None:
    connection = object()
    queue = queues.declare(anyone, "q", False, False, (), connection)
    for other in (None, object()):
        for operation in (
            lambda: queues.find(anyone, "q", other),  # noqa: B023 - called at once
            lambda: queues.open_for_get(anyone, "q", other),  # noqa: B023
            lambda: queues.purge(anyone, "q", other),  # noqa: B023
            lambda: queues.delete(anyone, "q", False, False, other),  # noqa: B023
            lambda: queues.declare(anyone, "q", False, False, (), other),  # noqa: B023
        ):
            assert refusal(operation).startswith(LOCKED)
    assert queues.find(anyone, "q", connection) is queues.open_for_get(anyone, "q", connection) is queue
    queues.delete(anyone, "q", False, False, connection)
    assert not vhost.queues


# -- reading ----------------------------------------------------------------------------------------------


def test_reading_needs_read(vhost: VirtualHost) -> None:
    declare(vhost)
    nobody = new_principal(vhost, read="^$")
    for operation in (queues.open_for_reading, queues.open_for_get, queues.purge):
        assert refusal(lambda: operation(nobody, "q")) == refused("q")  # noqa: B023 - called at once


def test_moving_needs_read_on_the_source_and_write_on_the_target(vhost: VirtualHost) -> None:
    source, target = declare(vhost, "source"), declare(vhost, "target")
    principal = new_principal(vhost, read="^source$", write="^target$")
    assert queues.open_for_move(principal, "source", "target") == (source, target)
    assert refusal(lambda: queues.open_for_move(principal, "target", "target")) == refused("target")
    assert refusal(lambda: queues.open_for_move(principal, "none", "source")) == refused("none")
    assert refusal(lambda: queues.open_for_move(principal, "source", "source")) == refused("source")


def test_a_single_active_consumer_keeps_the_messages_of_a_quorum_queue(vhost: VirtualHost, anyone: Principal) -> None:
    declare(vhost, arguments=SINGLE_ACTIVE)
    declare(vhost, "other")
    text = (
        "405 RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost 'v'. basic.get operations are not"
        " supported by quorum queues with single active consumer"
    )
    assert refusal(lambda: queues.open_for_get(anyone, "q")) == text
    assert refusal(lambda: queues.open_for_move(anyone, "q", "other")) == text
    assert refusal(lambda: queues.open_for_move(anyone, "other", "q")) == text
    queues.open_for_reading(anyone, "q")


def test_what_is_got_is_counted(vhost: VirtualHost) -> None:
    queue, counters = declare(vhost), ChannelCounters()
    publish(queue, "a")
    holder = Holder(queue)
    entry = queues.get(queue, holder, counters)
    assert entry is not None
    assert queues.get(queue, holder, counters) is None
    settle(holder, [entry], "requeue")
    assert queues.get(queue, None, counters) is not None
    assert (counters.get, counters.get_no_ack, counters.get_empty, counters.redeliver) == (1, 1, 1, 1)


def test_purging_leaves_nothing_ready(vhost: VirtualHost, anyone: Principal) -> None:
    publish(declare(vhost), "a", "b")
    assert queues.purge(anyone, "q") == 2
    assert queues.purge(anyone, "q") == 0
