"""Rule 45.13: closing connections over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Connect, Poll
from tests.conformance.http_api import NOT_FOUND, PASSWORD, Belongings, HttpApi, path
from tests.support.wire import Connection


@pytest.fixture
def shown(api: HttpApi, poll: Poll) -> Any:
    """A function that waits until a user's only connection is listed, and returns its path."""

    def find(user: str) -> str:
        below = path("connections", "username", user)
        poll(lambda: len(api.get(below)) == 1)
        found = path("connections", api.get(below)[0]["name"])
        # RabbitMQ knows it by its name only once there are statistics.
        poll(lambda: api.ask("GET", found).status == 200)
        return found

    return find


def opened(connect: Connect, user: str, vhost: str) -> Connection:
    return connect(user=user, password=PASSWORD, vhost=vhost)


def test_45_13_users_close_their_own(
    api: HttpApi, connect: Connect, belongings: Belongings, own_vhost: str, shown: Any
) -> None:
    user = belongings.user("management", own_vhost)
    connection = opened(connect, user, own_vhost)
    below = shown(user)
    with connection.expect_connection_close(320, "CONNECTION_FORCED - Closed via management plugin", (0, 0)):
        api.check("DELETE", below, None, 204, user=user)


@pytest.mark.parametrize("tags", ["management", "policymaker", "monitoring"])
def test_45_13_but_not_those_of_others(
    api: HttpApi, connect: Connect, belongings: Belongings, own_vhost: str, shown: Any, tags: str
) -> None:
    owner, other = belongings.user("", own_vhost), belongings.user(tags, own_vhost)
    connection = opened(connect, owner, own_vhost)
    reply = api.ask("DELETE", shown(owner), user=other)
    assert reply.status == 401
    connection.channel().close()


def test_45_13_one_that_does_not_exist(api: HttpApi) -> None:
    api.check("DELETE", path("connections", "conformance-nothing"), None, 404, NOT_FOUND)
