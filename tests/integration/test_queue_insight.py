"""What Leveret's HTTP API has beyond RabbitMQ's: explained queues, dry runs of policies, moved messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.http_api import Belongings, HttpApi, bad_request, not_authorised, path
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management


class Place:
    """One virtual host, of one test."""

    def __init__(self, api: HttpApi, vhost: str) -> None:
        self.api = api
        self.vhost = vhost

    def below(self, kind: str, *names: str) -> str:
        """The path of something in it."""
        return path(kind, self.vhost, *names)

    def declare(self, name: str, **arguments: Any) -> None:
        """Declare a queue."""
        self.api.check("PUT", self.below("queues", name), {"durable": True, "arguments": arguments}, 201)

    def publish(self, queue: str, payload: str, **headers: Any) -> None:
        """Publish a persistent message to a queue."""
        properties = {"delivery_mode": 2, "headers": headers}
        body = {"properties": properties, "routing_key": queue, "payload": payload, "payload_encoding": "string"}
        reply = self.api.ask("POST", self.below("exchanges", "amq.default", "publish"), body)
        assert reply.document == {"routed": True}

    def payloads(self, queue: str) -> list[str]:
        """Take all messages of a queue."""
        body = {"count": -1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        reply = self.api.ask("POST", self.below("queues", queue, "get"), body)
        return [message["payload"] for message in reply.document]


@pytest.fixture
def place(api: HttpApi, belongings: Belongings) -> Place:
    """A virtual host of the test's own."""
    return Place(api, belongings.vhost())


def test_a_dry_run_refuses_what_the_run_would(place: Place, belongings: Belongings) -> None:
    below = f"{place.below('policies', 'p')}?dry_run=true"
    reason = "Validation failed\n\n-1 is not a valid maximum length\n"
    place.api.check("PUT", below, {"pattern": "", "definition": {"max-length": -1}}, 400, bad_request(reason))
    user = belongings.user("management", place.vhost)
    refusal = not_authorised("User not authorised to access object")
    place.api.check("PUT", below, {"pattern": "", "definition": {"max-length": 1}}, 401, refusal, user=user)


class TestMove:
    def move(self, place: Place, source: str = "dead", **body: Any) -> Any:
        reply = place.api.ask("POST", place.below("queues", source, "move-messages"), {"to": "work", **body})
        assert reply.status == 200, reply
        return reply.document

    def fill(self, place: Place) -> None:
        place.declare("dead")
        place.declare("work")
        for number in range(6):
            place.publish("dead", f"{number}", tenant="a" if number % 2 else "b")

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({}, "[{key_missing,to}]"),
            ({"to": 5}, ["not_string", "to"]),
            ({"to": "dead"}, "queue 'dead' is source and target"),
            ({"to": "work", "limit": 0}, "limit must be 1 or more, is 0"),
            ({"to": "work", "limit": "x"}, "limit must be 1 or more, is x"),
            ({"to": "work", "rate": 5}, "rate needs job to be true"),
            ({"to": "work", "filter": {"reason": "bored"}}, None),
        ],
    )
    def test_what_is_refused(self, place: Place, body: Any, reason: object) -> None:
        self.fill(place)
        reply = place.api.ask("POST", place.below("queues", "dead", "move-messages"), body)
        assert reply.status == 400
        assert reason is None or reply.document == bad_request(reason)
        assert place.payloads("dead") == list("012345")

    def test_queues_that_do_not_exist(self, place: Place) -> None:
        place.declare("dead")
        expected = {"error": "not_found", "reason": f"no queue 'work' in vhost '{place.vhost}'"}
        place.api.check("POST", place.below("queues", "dead", "move-messages"), {"to": "work"}, 404, expected)

    def test_who_may(self, place: Place, belongings: Belongings) -> None:
        self.fill(place)
        below = place.below("queues", "dead", "move-messages")
        for patterns in (("", "", "^dead$"), ("", "^work$", "")):
            user = belongings.user("management", place.vhost, patterns)
            place.api.check("POST", below, {"to": "work"}, 401, not_authorised("Access refused."), user=user)
        user = belongings.user("management", place.vhost, ("", "^work$", "^dead$"))
        assert place.api.ask("POST", below, {"to": "work"}, user=user).document["moved"] == 6


class TestRestart:
    def test_all_that_is_set_over_http_is_kept(self, leveret_process: Callable[..., LeveretProcess]) -> None:
        process = leveret_process()
        api = HttpApi(Management(process.http_url))
        vhost = path("vhosts", "shop")
        api.check("PUT", vhost, {"description": "d", "tags": "a,b", "default_queue_type": "quorum"}, 201)
        api.check("PUT", path("vhost-limits", "shop", "max-queues"), {"value": 7}, 204)
        api.check("PUT", path("users", "u"), {"password": "conformance", "tags": "management"}, 201)
        api.check("PUT", path("user-limits", "u", "max-channels"), {"value": 3}, 204)
        api.check("PUT", path("permissions", "shop", "u"), {"configure": "", "write": "", "read": ".*"}, 201)
        topic = {"exchange": "amq.topic", "write": "^w", "read": ".*"}
        api.check("PUT", path("topic-permissions", "shop", "u"), topic, 201)
        api.check("PUT", path("global-parameters", "g"), {"value": {"a": [1, None]}}, 201)
        api.check("PUT", "cluster-name", {"name": "renamed"}, 204)
        api.check("PUT", path("policies", "shop", "p"), {"pattern": "q", "definition": {"max-length": 1}}, 201)
        cap = {"pattern": "q", "definition": {"max-length": 2}}
        api.check("PUT", path("operator-policies", "shop", "o"), cap, 201)
        api.check("PUT", path("queues", "shop", "q"), {"durable": True, "arguments": {"x-max-length": 3}}, 201)
        api.check("PUT", path("exchanges", "shop", "x"), {"type": "topic", "durable": True}, 201)
        binding = path("bindings", "shop", "e", "x", "q", "q")
        assert api.ask("POST", binding, {"routing_key": "k.#", "arguments": {"a": 1}}).status == 201
        before, overview = api.get("definitions"), api.get("overview?columns=cluster_name")
        process.kill()
        process.start()
        assert api.get("definitions") == before
        assert api.get("overview?columns=cluster_name") == overview == {"cluster_name": "renamed"}
        assert api.get(f"{quote('vhosts')}/shop?columns=description,tags,default_queue_type") == {
            "description": "d",
            "tags": ["a", "b"],
            "default_queue_type": "quorum",
        }
        assert api.ask("GET", "whoami", user="u").status == 200
