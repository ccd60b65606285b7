from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations import exchanges
from leveret.broker.operations.exchanges import Ends
from leveret.protocol.faults import AmqpFault
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queues import declare, new_vhost

TO_QUEUE = Ends("amq.direct", "q", True)
TO_EXCHANGE = Ends("amq.direct", "amq.fanout", False)
DEFAULT = "403 ACCESS_REFUSED - operation not permitted on the default exchange"


@pytest.fixture
def vhost() -> VirtualHost:
    made = new_vhost(ManualLoop())
    declare(made)
    return made


def refusal(operation: Callable[[], object]) -> str:
    with pytest.raises(AmqpFault) as caught:
        operation()
    return str(caught.value)


def refused(name: str, resource: str = "exchange") -> str:
    return f"403 ACCESS_REFUSED - access to {resource} '{name}' in vhost 'v' refused for user 'guest'"


def routing_keys(vhost: VirtualHost, source: str = "amq.direct") -> list[str]:
    return [binding.routing_key for binding in vhost.topology.exchange(source).bindings.values()]


@pytest.mark.parametrize("ends", [TO_QUEUE, TO_EXCHANGE])
def test_a_binding_comes_and_goes(vhost: VirtualHost, ends: Ends) -> None:
    principal = new_principal(vhost, configure="^$", write=f"^{ends.destination}$", read="^amq.direct$")
    made = exchanges.bind(principal, ends, "k", ())
    assert made.binding.identity == exchanges.bind(principal, ends, "k", ()).binding.identity
    assert routing_keys(vhost) == ["k"]
    exchanges.unbind(principal, ends, "other", ())
    exchanges.unbind(principal, ends, "k", ())
    assert routing_keys(vhost) == []


@pytest.mark.parametrize("operation", [exchanges.bind, exchanges.unbind])
@pytest.mark.parametrize(
    ("ends", "write", "read", "text"),
    [
        (TO_QUEUE, "^$", "^$", refused("q", "queue")),
        (TO_EXCHANGE, "^$", "^$", refused("amq.fanout")),
        (TO_QUEUE, ".*", "^$", refused("amq.direct")),
        (Ends("", "q", True), "^$", "^$", refused("q", "queue")),
        (Ends("", "q", True), ".*", "^$", DEFAULT),
        (Ends("none", "", False), "^$", "^$", DEFAULT),
    ],
)
def test_the_order_of_the_checks(
    vhost: VirtualHost, operation: Callable[..., object], ends: Ends, write: str, read: str, text: str
) -> None:
    assert refusal(lambda: operation(new_principal(vhost, write=write, read=read), ends, "k", ())) == text


def test_topic_permissions_count_for_topic_exchanges(vhost: VirtualHost) -> None:
    accounts = Accounts()
    principal = new_principal(vhost, accounts=accounts)
    accounts.set_topic_permissions("guest", "v", "amq.topic", "^$", "^mine$")
    ends = Ends("amq.topic", "q", True)
    exchanges.bind(principal, ends, "mine", ())
    for operation in (exchanges.bind, exchanges.unbind):
        assert "access to topic 'k'" in refusal(lambda: operation(principal, ends, "k", ()))  # noqa: B023


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (Ends("none", "none", True), "404 NOT_FOUND - no exchange 'none' in vhost 'v'"),
        (Ends("amq.direct", "none", True), "404 NOT_FOUND - no queue 'none' in vhost 'v'"),
        (Ends("amq.direct", "none", False), "404 NOT_FOUND - no exchange 'none' in vhost 'v'"),
    ],
)
def test_missing_ends(vhost: VirtualHost, ends: Ends, text: str) -> None:
    principal = new_principal(vhost)
    assert refusal(lambda: exchanges.bind(principal, ends, "k", ())) == text
    exchanges.unbind(principal, ends, "k", ())


def test_an_exclusive_queue_is_locked_for_existing_bindings(vhost: VirtualHost) -> None:
    connection, principal = object(), new_principal(vhost)
    declare(vhost, "mine", owner=connection)
    ends = Ends("amq.direct", "mine", True)
    locked = "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost 'v'."
    assert refusal(lambda: exchanges.bind(principal, ends, "k", ())).startswith(locked)
    exchanges.bind(principal, ends, "k", (), connection)
    for other in (None, object()):
        assert refusal(lambda: exchanges.unbind(principal, ends, "k", (), other)).startswith(locked)  # noqa: B023
        exchanges.unbind(principal, ends, "none", (), other)
    exchanges.unbind(principal, ends, "k", (), connection)
    assert routing_keys(vhost) == []


@pytest.mark.parametrize("ends", [Ends("", "q", True), Ends("", "x", False), Ends("x", "", False)])
def test_the_default_exchange_has_no_bindings(vhost: VirtualHost, ends: Ends) -> None:
    assert refusal(lambda: exchanges.refuse_default(ends)) == DEFAULT
    exchanges.refuse_default(Ends("x", "", True))
