"""A deleted virtual host does not come back, and neither does anything that was in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.integration.restarts import Restarts, process, restart
from tests.support.leveret_process import LeveretProcess

__all__ = ["process", "restart"]

KINDS = ("exchanges", "queues", "bindings", "policies", "parameters", "permissions", "topic_permissions")


@pytest.fixture
def vhost(restart: Restarts) -> Iterator[str]:
    """A name for a virtual host."""
    name = restart.new("vhost")
    yield name
    api = HttpApi(restart.management)
    api.ask("DELETE", path("vhosts", name))


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


def test_nothing_of_a_deleted_vhost_returns(restart: Restarts, vhost: str) -> None:
    api = HttpApi(restart.management)
    api.check("PUT", path("vhosts", vhost), {}, 201)
    bare = held(api, vhost)
    api.check("DELETE", path("vhosts", vhost), None, 204)
    fill(api, vhost)
    assert all(held(api, vhost).values())
    api.check("DELETE", path("vhosts", vhost), None, 204)
    restart()
    assert api.ask("GET", path("vhosts", vhost)).status == 404
    assert not any(held(api, vhost).values())
    api.check("PUT", path("vhosts", vhost), {}, 201)
    assert held(api, vhost) == bare
    restart()
    assert held(api, vhost) == bare
    assert api.get(path("vhosts", vhost))["description"] == ""


def kept_of(process: LeveretProcess, vhost: str) -> list[tuple[str, str]]:
    """Kind and key of all rows of a virtual host."""
    with closing(sqlite3.connect(process.data_dir / "definitions.sqlite")) as database:
        rows = database.execute("select kind, key from definitions").fetchall()
    return [(kind, key) for kind, key in rows if vhost in json.loads(key)]


def test_nothing_of_it_is_left_in_the_database(restart: Restarts, vhost: str) -> None:
    api = HttpApi(restart.management)
    fill(api, vhost)
    assert len(kept_of(restart.process, vhost)) == 9
    api.check("DELETE", path("vhosts", vhost), None, 204)
    assert kept_of(restart.process, vhost) == []
