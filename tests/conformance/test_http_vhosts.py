"""Rule 45.16: virtual hosts over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Connect
from tests.conformance.http_api import NOT_FOUND, Belongings, HttpApi, bad_request, path
from tests.support.wire import ConnectionClosed

COLUMNS = "columns=name,description,tags,metadata,tracing"


def described(name: str, description: str = "", tags: tuple[str, ...] = (), tracing: bool = False) -> dict[str, Any]:
    metadata = {"description": description, "tags": list(tags)}
    return {"name": name, **metadata, "metadata": metadata, "tracing": tracing}


def test_45_16_making_and_deleting(api: HttpApi, belongings: Belongings) -> None:
    name = belongings.name("vhosts")
    api.check("PUT", path("vhosts", name), None, 201)
    api.check("PUT", path("vhosts", name), None, 204)
    shown = api.get(f"{path('vhosts', name)}?{COLUMNS},default_queue_type")
    assert shown == {**described(name), "default_queue_type": "undefined"}
    api.check("DELETE", path("vhosts", name), None, 204)
    api.check("DELETE", path("vhosts", name), None, 404, NOT_FOUND)
    api.check("GET", path("vhosts", name), None, 404, NOT_FOUND)


def test_45_16_metadata(api: HttpApi, own_vhost: str) -> None:
    below = path("vhosts", own_vhost)
    api.check("PUT", below, {"description": "d", "tags": "a, b", "tracing": True}, 204)
    assert api.get(f"{below}?{COLUMNS}") == described(own_vhost, "d", ("a", "b"), tracing=True)
    api.check("PUT", below, {"tags": ["c"], "tracing": "false"}, 204)
    assert api.get(f"{below}?{COLUMNS}") == described(own_vhost, "", ("c",))
    api.check("PUT", below, {"tracing": True}, 204)
    api.check("PUT", below, {}, 204)
    assert api.get(f"{below}?{COLUMNS}") == described(own_vhost, tracing=True), "tracing stays unless it is named"


def test_45_16_metadata_that_cannot_be(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("vhosts", own_vhost), {"tracing": "x"}, 400, bad_request(["not_boolean", "x"]))


def test_45_16_who_makes_it_has_all_permissions(api: HttpApi, own_vhost: str) -> None:
    granted = api.get(path("vhosts", own_vhost, "permissions"))
    assert [(each["configure"], each["write"], each["read"]) for each in granted] == [(".*", ".*", ".*")]


def test_45_16_deleting_closes_connections(api: HttpApi, connect: Connect, belongings: Belongings) -> None:
    name = belongings.vhost()
    connection = connect(vhost=name)
    api.check("DELETE", path("vhosts", name), None, 204)
    with pytest.raises(ConnectionClosed) as caught:
        connection.channel()
    # RabbitMQ has two parts that close it, and either may be the first.
    texts = [f"CONNECTION_FORCED - vhost '{name}' is {state}" for state in ("deleted", "down")]
    assert (caught.value.code, caught.value.text in texts) == (320, True), caught.value


def test_45_16_deleting_takes_all_that_is_in_it(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {"durable": True}, 201)
    api.check("PUT", path("policies", own_vhost, "p"), {"pattern": "q", "definition": {"max-length": 1}}, 201)
    api.check("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": 5}, 204)
    api.check("DELETE", path("vhosts", own_vhost), None, 204)
    api.check("PUT", path("vhosts", own_vhost), None, 201)
    for kind in ("queues", "policies", "vhost-limits"):
        assert api.get(path(kind, own_vhost)) == []


def test_45_16_starting(api: HttpApi, own_vhost: str) -> None:
    node = next(iter(api.get(path("vhosts", own_vhost))["cluster_state"]))
    api.check("POST", path("vhosts", own_vhost, "start", node), {}, 204)
    reason = "Request to node nope@x failed with nodedown"
    api.check("POST", path("vhosts", own_vhost, "start", "nope@x"), {}, 400, bad_request(reason))


def test_45_16_what_lists_need_their_virtual_host(api: HttpApi) -> None:
    for below in ("permissions", "topic-permissions"):
        api.check("GET", path("vhosts", "conformance-no-vhost", below), None, 404, NOT_FOUND)
