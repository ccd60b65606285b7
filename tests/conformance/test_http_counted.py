"""Rule 44.2: what is done to messages over HTTP counts in the virtual host like what clients do."""

from __future__ import annotations

from typing import Any

from tests.conformance.fixtures import Poll
from tests.conformance.http_api import HttpApi, path

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}


def test_44_2_publishing_and_getting(api: HttpApi, own_vhost: str, poll: Poll) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    below = path("exchanges", own_vhost, "amq.default", "publish")
    for _ in range(3):
        api.check("POST", below, MESSAGE, 200, {"routed": True})
    api.check("POST", below, {**MESSAGE, "routing_key": "nowhere"}, 200, {"routed": False})
    for mode, count in (("ack_requeue_true", 1), ("ack_requeue_false", 2), ("ack_requeue_false", 9)):
        body = {"count": count, "ackmode": mode, "encoding": "auto"}
        assert api.ask("POST", path("queues", own_vhost, "q", "get"), body).status == 200
    wanted = {
        "publish": 4, "confirm": 4, "return_unroutable": 1, "get": 1, "get_no_ack": 3, "get_empty": 1,
        "deliver_get": 4, "redeliver": 1, "deliver": 0, "ack": 0,
    }  # fmt: skip

    def counted() -> dict[str, Any]:
        stats = api.get(path("vhosts", own_vhost)).get("message_stats", {})
        return {name: stats.get(name) for name in wanted}

    poll(lambda: counted() == wanted)


def test_44_2_the_aliveness_test(api: HttpApi, own_vhost: str, poll: Poll) -> None:
    assert api.get(path("aliveness-test", own_vhost)) == {"status": "ok"}

    def counted() -> list[int]:
        stats = api.get(path("vhosts", own_vhost)).get("message_stats", {})
        return [stats.get(name) for name in ("publish", "get_no_ack", "deliver_get")]

    poll(lambda: counted() == [1, 1, 1])
