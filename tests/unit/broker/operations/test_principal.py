from __future__ import annotations

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.vhosts import grant_to_creator
from leveret.protocol.faults import ChannelFault, ReplyCode
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queues import declare, new_vhost


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


def test_each_permission_is_checked_by_itself(vhost: VirtualHost) -> None:
    principal = new_principal(vhost, configure="^c$", write="^w$", read="^r$")
    principal.check("configure", "queue", "c")
    principal.check("write", "queue", "w")
    principal.check("read", "exchange", "r")
    with pytest.raises(ChannelFault) as caught:
        principal.check("read", "exchange", "w")
    assert caught.value.text == "ACCESS_REFUSED - access to exchange 'w' in vhost 'v' refused for user 'guest'"


@pytest.mark.parametrize("name", ["c", "w", "r"])
def test_any_permission_is_enough_to_ask_whether_it_exists(vhost: VirtualHost, name: str) -> None:
    principal = new_principal(vhost, configure="^c$", write="^w$", read="^r$")
    principal.check_any("queue", name)
    with pytest.raises(ChannelFault) as caught:
        principal.check_any("queue", "other")
    assert caught.value.code is ReplyCode.ACCESS_REFUSED


def test_topic_permissions_apply_to_topic_exchanges(vhost: VirtualHost) -> None:
    accounts = Accounts()
    principal = new_principal(vhost, accounts=accounts)
    for exchange in ("amq.topic", "amq.direct", "none"):
        accounts.set_topic_permissions("guest", "v", exchange, "^w$", "^r$")
    for exchange in ("amq.direct", "none"):
        principal.check_topic("write", exchange, "k")
    principal.check_topic("read", "amq.topic", "r")
    with pytest.raises(ChannelFault, match="access to topic 'r'"):
        principal.check_topic("write", "amq.topic", "r")


def test_a_user_id_is_that_of_the_user(vhost: VirtualHost) -> None:
    principal = new_principal(vhost)
    principal.check_user_id(None)
    principal.check_user_id("guest")
    with pytest.raises(ChannelFault) as caught:
        principal.check_user_id("other")
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    new_principal(vhost, tags=("impersonator",)).check_user_id("other")


def test_the_generation_grows_with_topology_and_permissions(vhost: VirtualHost) -> None:
    accounts = Accounts()
    principal = new_principal(vhost, accounts=accounts)
    before = principal.generation
    declare(vhost)
    declared = principal.generation
    accounts.set_permissions("guest", "v", "", "", "")
    assert before < declared < principal.generation


def test_the_creator_of_a_virtual_host_may_do_everything_in_it(vhost: VirtualHost) -> None:
    accounts = Accounts()
    user = accounts.add_user("creator", "")
    grant_to_creator(accounts, user, "v")
    Principal(accounts, user, vhost).check("configure", "queue", "q")
    accounts.set_permissions("creator", "v", "^$", "^$", "^$")
    grant_to_creator(accounts, user, "v")
    with pytest.raises(ChannelFault):
        Principal(accounts, user, vhost).check("configure", "queue", "q")
    accounts.delete_user("creator")
    grant_to_creator(accounts, user, "v")
    assert accounts.permissions("creator", "v") is None
