from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations import exchanges
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldTable, longstr
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queues import new_vhost

DEFAULT = "403 ACCESS_REFUSED - operation not permitted on the default exchange"


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


def declare(
    principal: Principal, name: str = "x", type_name: str = "direct", arguments: FieldTable = ()
) -> Callable[[], None]:
    return lambda: exchanges.declare(principal, name, type_name, True, False, False, arguments)


def refusal(operation: Callable[[], object]) -> str:
    with pytest.raises(AmqpFault) as caught:
        operation()
    return str(caught.value)


def refused(name: str) -> str:
    return f"403 ACCESS_REFUSED - access to exchange '{name}' in vhost 'v' refused for user 'guest'"


def test_declaring_needs_configure(vhost: VirtualHost) -> None:
    principal = new_principal(vhost, configure="^x$")
    declare(principal, "x\r\n")()
    assert refusal(declare(principal, "y")) == refused("y")
    assert "x" in vhost.topology.exchanges
    assert "y" not in vhost.topology.exchanges


def test_the_order_of_the_checks(vhost: VirtualHost) -> None:
    nobody = new_principal(vhost, configure="^$")
    assert refusal(declare(nobody, "", "zzz")) == "406 PRECONDITION_FAILED - unknown exchange type 'zzz'"
    assert refusal(declare(nobody, "")) == DEFAULT
    assert refusal(declare(nobody, "amq.x")) == refused("amq.x")
    assert "contains reserved prefix" in refusal(declare(new_principal(vhost), "amq.x"))


def test_an_alternate_exchange_needs_permissions(vhost: VirtualHost) -> None:
    arguments = (("alternate-exchange", longstr("ae")),)
    assert refusal(declare(new_principal(vhost, write="^$"), arguments=arguments)) == refused("ae")
    assert refusal(declare(new_principal(vhost, read="^$"), arguments=arguments)) == refused("x")
    declare(new_principal(vhost, read="^x$", write="^ae$"), arguments=arguments)()
    declare(new_principal(vhost, read="^$", write="^$"), arguments=arguments)()


def test_a_passive_declaration_needs_any_permission(vhost: VirtualHost) -> None:
    exchanges.check_exists(new_principal(vhost, configure="^$", write="^$"), "amq.direct")
    nobody = new_principal(vhost, configure="^$", write="^$", read="^$")
    assert refusal(lambda: exchanges.check_exists(nobody, "amq.direct")) == refused("amq.direct")
    assert refusal(lambda: exchanges.check_exists(nobody, "")) == DEFAULT
    text = "404 NOT_FOUND - no exchange 'none' in vhost 'v'"
    assert refusal(lambda: exchanges.check_exists(new_principal(vhost), "none")) == text


def test_deleting(vhost: VirtualHost) -> None:
    anyone, nobody = new_principal(vhost), new_principal(vhost, configure="^$")
    declare(anyone)()
    assert refusal(lambda: exchanges.delete(nobody, "x", False)) == refused("x")
    assert refusal(lambda: exchanges.delete(nobody, "", False)) == DEFAULT
    text = "403 ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost 'v' not allowed"
    assert refusal(lambda: exchanges.delete(nobody, "amq.direct", False)) == text
    source, target = vhost.topology.exchange("x"), vhost.topology.exchange("amq.direct")
    vhost.topology.bind(source, target, "k", ())
    text = "406 PRECONDITION_FAILED - exchange 'x' in vhost 'v' in use"
    assert refusal(lambda: exchanges.delete(anyone, "x", True)) == text
    exchanges.delete(anyone, "x", False)
    exchanges.delete(anyone, "x", False)
    assert "x" not in vhost.topology.exchanges


def test_an_exchange_that_could_not_be_restored(vhost: VirtualHost) -> None:
    vhost.unrestored.add("exchange", ("v", "x"), "damaged")
    exchanges.delete(new_principal(vhost), "x", True)
    assert not vhost.unrestored.has("exchange", "x")
