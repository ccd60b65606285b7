"""A deleted virtual host does not come back, and neither does anything that was in it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from tests.conformance.deaths import arrival
from tests.conformance.http_api import HttpApi, path
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import Restarts
from tests.support.wire import Channel

KINDS = ("exchanges", "queues", "bindings", "policies", "parameters", "permissions", "topic_permissions")


def fill(api: HttpApi, vhost: str) -> None:
    """Make a virtual host with something of every kind in it."""
    api.check("PUT", path("vhosts", vhost), {"description": "old"}, 201)
    api.check("PUT", path("queues", vhost, "q"), {"durable": True}, 201)
    api.check("PUT", path("exchanges", vhost, "x"), {"type": "topic", "durable": True}, 201)
    for source, kind, destination in (
        ("amq.direct", "e", "amq.fanout"),
        ("amq.topic", "e", "amq.headers"),
        ("amq.topic", "q", "q"),
        ("x", "e", "amq.fanout"),
    ):
        body = {"routing_key": "k", "arguments": {"a": 1}}
        api.check("POST", path("bindings", vhost, "e", source, kind, destination), body, 201)
    policy = {"pattern": "^q", "definition": {"max-length": 3}}
    api.check("PUT", path("policies", vhost, "p"), policy, 201)
    api.check("PUT", path("operator-policies", vhost, "o"), policy, 201)
    api.check("PUT", path("vhost-limits", vhost, "max-queues"), {"value": 7}, 204)
    topic = {"exchange": "amq.topic", "write": "^k", "read": ".*"}
    api.check("PUT", path("topic-permissions", vhost, "guest"), topic, 201)


def held(api: HttpApi, vhost: str) -> dict[str, list[object]]:
    """What definitions say that a virtual host has."""
    whole = api.get("definitions")
    return {kind: [each for each in whole[kind] if each["vhost"] == vhost] for kind in KINDS}


@row()
def nothing_of_a_deleted_vhost_returns(place: Restarts) -> Steps:
    api, vhost = HttpApi(place.management), place.new("vhost")
    api.check("PUT", path("vhosts", vhost), {}, 201)
    bare = held(api, vhost)
    api.check("DELETE", path("vhosts", vhost), None, 204)
    fill(api, vhost)
    assert all(held(api, vhost).values())
    assert len(_rows_of(place, vhost)) == 9
    api.check("DELETE", path("vhosts", vhost), None, 204)
    assert _rows_of(place, vhost) == []
    yield
    assert api.ask("GET", path("vhosts", vhost)).status == 404
    assert not any(held(api, vhost).values())
    api.check("PUT", path("vhosts", vhost), {}, 201)
    assert held(api, vhost) == bare
    yield
    assert held(api, vhost) == bare
    assert api.get(path("vhosts", vhost))["description"] == ""


def _rows_of(place: Restarts, vhost: str) -> list[str]:
    """The keys of all rows of a virtual host in the database."""
    with closing(sqlite3.connect(place.process.data_dir / "definitions.sqlite")) as database:
        return [key for (key,) in database.execute("select key from definitions") if vhost in json.loads(key)]


@row()
def tracing_goes_on(place: Restarts) -> Steps:
    vhost = place.new("vhost")
    place.management.request("PUT", "vhosts", vhost, body={"tracing": True})

    def channel() -> Channel:
        return place.connect(vhost=vhost).channel()

    first = channel()
    first.queue_declare("trace", durable=True)
    first.queue_bind("trace", "amq.rabbitmq.trace", "publish.#")
    yield
    second = channel()
    second.publish("amq.fanout", "", b"seen")
    copy = arrival(second, "trace", timeout=120)
    assert (copy.routing_key, copy.body) == ("publish.amq.fanout", b"seen")
