"""Rule 45.23: the requests of rabbitmqadmin 2, as it sends them, one after the other."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from tests.conformance.http_api import Belongings, HttpApi

#: As it encodes path segments: everything but letters and digits.
_HEADERS: Final = {"Accept": "*/*", "User-Agent": "rabbitmqadmin 2.35.0"}


def _segment(text: str) -> str:
    encoded = quote(text, safe="")
    return "".join(f"%{ord(each):02X}" if each in "-._~" else each for each in encoded)


def test_45_23_declares_uses_and_deletes(api: HttpApi, belongings: Belongings) -> None:
    vhost, user = belongings.name("vhosts"), belongings.name("users")
    v, u = _segment(vhost), _segment(user)
    named = {"vhost": vhost, "name": "p"}
    policy = {**named, "pattern": "^q", "apply-to": "queues", "priority": 1, "definition": {"max-length": 9}}
    queue = {"name": "q1", "durable": True, "auto_delete": False, "exclusive": False}
    message = {"payload": "hello", "payload_encoding": "string", "properties": {}, "routing_key": "q1"}
    limits = {"name": "limits", "vhost": vhost, "component": "vhost-limits", "value": {"max-queues": 8}}
    rights = {"user": user, "vhost": vhost, "configure": ".*", "read": ".*", "write": ".*"}
    hashed = "bvkSeAqruUKG1PlHcTw78ihVXRJyJZmTSouunIGDvM61SHFu"
    wanted = {"ackmode": "ack_requeue_true", "count": 3, "encoding": "auto"}
    steps: list[tuple[str, str, Any, int]] = [
        ("PUT", f"vhosts/{v}", {"name": vhost, "tracing": False}, 201),
        ("PUT", f"queues/{v}/q1", {**queue, "arguments": {"x-queue-type": "classic"}}, 201),
        ("PUT", f"queues/{v}/q2", {**queue, "name": "q2", "arguments": {"x-queue-type": "quorum"}}, 201),
        ("PUT", f"exchanges/{v}/x1", _exchange("topic"), 201),
        ("PUT", f"exchanges/{v}/x2", _exchange("nope"), 400),
        ("POST", f"bindings/{v}/e/x1/q/q1", {"arguments": {}, "routing_key": "a.#"}, 201),
        ("PUT", f"policies/{v}/p", policy, 201),
        ("PUT", f"policies/{v}/p", {**policy, "definition": {}}, 400),
        ("PUT", f"operator-policies/{v}/p", policy, 201),
        ("PUT", f"vhost-limits/{v}/max%2Dqueues", {"value": 20}, 204),
        ("PUT", f"parameters/vhost%2Dlimits/{v}/limits", limits, 204),
        ("PUT", f"users/{u}", {"name": user, "password_hash": hashed, "tags": "management"}, 201),
        ("PUT", f"user-limits/{u}/max%2Dchannels", {"value": 20}, 204),
        ("PUT", f"permissions/{v}/{u}", rights, 201),
        ("POST", f"exchanges/{v}//publish", message, 200),
        ("POST", f"exchanges/{v}/x1/publish", {**message, "properties": {"priority": 1}, "routing_key": "a.b"}, 200),
        ("POST", f"queues/{v}/q1/get", wanted, 200),
        ("GET", f"queues/{v}/q1/bindings", None, 200),
        ("GET", f"vhost-limits/{v}", None, 200),
        ("PUT", "feature-flags/quorum%5Fqueue/enable", {"name": "quorum_queue"}, 204),
        ("POST", "rebalance/queues", {}, 204),
        ("DELETE", f"queues/{v}/q1/contents", None, 204),
        ("DELETE", f"bindings/{v}/e/x1/q/q1/a%2E%2523", None, 204),
        ("DELETE", f"policies/{v}/p", None, 204),
        ("DELETE", f"operator-policies/{v}/p", None, 204),
        ("DELETE", f"vhost-limits/{v}/max%2Dqueues", None, 204),
        ("DELETE", f"user-limits/{u}/max%2Dchannels", None, 204),
        ("DELETE", f"permissions/{v}/{u}", None, 204),
        ("DELETE", f"exchanges/{v}/x1", None, 204),
        ("DELETE", f"queues/{v}/q1", None, 204),
        ("DELETE", f"queues/{v}/nope", None, 404),
        ("POST", f"vhosts/{v}/deletion/protection", None, 405),
        ("GET", "federation-links", None, 404),
        ("DELETE", f"users/{u}", None, 204),
        ("DELETE", f"vhosts/{v}", None, 204),
        ("DELETE", f"vhosts/{v}", None, 404),
    ]
    found = [(method, below, api.ask(method, below, body, headers=_HEADERS).status) for method, below, body, _ in steps]
    assert found == [(method, below, status) for method, below, _, status in steps]


def _exchange(kind: str) -> dict[str, Any]:
    return {"type": kind, "durable": True, "auto_delete": False, "arguments": {}}
