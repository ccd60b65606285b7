from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations import exchanges, queues
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.virtual_hosts import clear_policy, set_policy
from leveret.policies.policy import Policy
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queue_content import publish
from tests.support.queues import declare, new_vhost, settle

QUORUM: FieldTable = (("x-queue-type", longstr("quorum")),)
SINGLE_ACTIVE: FieldTable = (*QUORUM, ("x-single-active-consumer", FieldValue("t", True)))


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


def test_the_ready_messages_are_told_before_the_deletion(vhost: VirtualHost, anyone: Principal) -> None:
    publish(declare(vhost), "a", "b")
    accepted_with: list[tuple[int, bool]] = []
    for name in ("q", "none"):
        queues.delete(
            anyone, name, False, False, accepted=lambda ready: accepted_with.append((ready, "q" in vhost.queues))
        )
    assert accepted_with == [(2, True), (0, False)]


def test_a_queue_that_could_not_be_restored(vhost: VirtualHost, anyone: Principal) -> None:
    vhost.unrestored.add("queue", ("v", "q"), "damaged")
    text = "406 PRECONDITION_FAILED - queue 'q' in vhost 'v' not empty"
    assert refusal(lambda: queues.delete(anyone, "q", False, True)) == text
    queues.delete(anyone, "q", True, False)
    assert not vhost.unrestored.has("queue", "q")


def test_an_exchange_that_could_not_be_restored(vhost: VirtualHost, anyone: Principal) -> None:
    vhost.unrestored.add("exchange", ("v", "x"), "damaged")
    exchanges.delete(anyone, "x", True)
    assert not vhost.unrestored.has("exchange", "x")


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_that_could_not_be_restored_is_cleared_or_replaced(vhost: VirtualHost, operator: bool) -> None:
    kind = "operator_policy" if operator else "policy"
    vhost.unrestored.add(kind, ("v", "p"), "damaged")
    assert clear_policy(vhost, "p", not operator) is None
    assert clear_policy(vhost, "p", operator) is not None
    assert clear_policy(vhost, "p", operator) is None
    vhost.unrestored.add(kind, ("v", "p"), "damaged")
    is_new, steps = set_policy(vhost, Policy("p", "^q", {"max-length": 1}), operator)
    list(steps)
    assert (is_new, vhost.unrestored.has(kind, "p")) == (True, False)


def test_cached_routes_end_with_a_change_of_topology_or_permissions(vhost: VirtualHost) -> None:
    accounts = Accounts()
    principal = new_principal(vhost, accounts=accounts)
    before = principal.generation
    declare(vhost)
    declared = principal.generation
    accounts.set_permissions("guest", "v", "", "", "")
    assert before < declared < principal.generation


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
