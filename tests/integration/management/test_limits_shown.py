"""How full queues are, which policies are in force where, and what policies may hold: what pages show of limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.conformance.http_api import NOT_FOUND, Belongings, HttpApi, path
from tests.support.leveret_process import LeveretProcess

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Place:
    """A virtual host of the test's own, and a channel of a real client in it."""

    def __init__(self, api: HttpApi, vhost: str, channel: BlockingChannel) -> None:
        self.api = api
        self.vhost = vhost
        self._channel = channel

    def declare(self, queue: str, count: int = 0, **arguments: Any) -> None:
        """Declare a durable queue with some messages of 10 bytes; arguments without x-, with _ for -."""
        table = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self._channel.queue_declare(queue, durable=True, arguments=table)
        for _ in range(count):
            self._channel.basic_publish("", queue, b"0123456789", PERSISTENT)

    def set_policy(self, name: str, pattern: str, kind: str = "policies", priority: int = 0, **definition: Any) -> None:
        """Set a policy for queues; keys with _ for -."""
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        body = {"pattern": pattern, "definition": keys, "priority": priority, "apply-to": "queues"}
        assert self.api.ask("PUT", self.below(kind, name), body).status in (201, 204)

    def below(self, kind: str, *names: str) -> str:
        """The path of something in the virtual host."""
        return path(kind, self.vhost, *names)

    def get(self, kind: str, *names: str, query: str = "") -> Any:
        """Something in the virtual host."""
        return self.api.get(f"{self.below(kind, *names)}?{query}")


@pytest.fixture
def place(process: LeveretProcess, api: HttpApi, belongings: Belongings) -> Iterator[Place]:
    """A virtual host, and a channel in confirm mode."""
    vhost = belongings.vhost()
    connection = pika.BlockingConnection(pika.URLParameters(f"{process.url.removesuffix('/%2F')}/{vhost}"))
    channel = connection.channel()
    channel.confirm_delivery()
    yield Place(api, vhost, channel)
    connection.close()


def test_the_fill_of_a_queue(place: Place) -> None:
    place.declare("q", 4, max_length=10)
    place.set_policy("p", "^q", max_length=8, max_length_bytes=400)
    place.set_policy("cap", "^q", "operator-policies", max_length_bytes=50, overflow="reject-publish")
    fill = {
        "length_counts": "ready",
        "messages_counted": 4,
        "message_bytes_counted": 40,
        "messages_ready": 4,
        "max_length": 8,
        "max_length_source": "policy",
        "messages_percent": 50.0,
        "message_bytes_ready": 40,
        "max_length_bytes": 50,
        "max_length_bytes_source": "operator policy",
        "bytes_percent": 80.0,
        "percent": 80.0,
        "overflow": "reject-publish",
        "at_limit": "new messages are refused",
    }
    assert place.get("queues", "q")["fill"] == fill
    assert place.get("queues", "q", "explain")["fill"] == fill
    assert place.get("queues")[0]["fill"] == fill


@pytest.mark.parametrize("column", ["fill", "fill.percent"])
def test_the_fullest_queue_is_found(place: Place, column: str) -> None:
    for name, count, arguments in (
        ("half", 2, {"max_length": 4}),
        ("free", 5, {}),
        ("bytes", 3, {"max_length_bytes": 40}),
        ("empty", 0, {"max_length": 9}),
        ("none", 0, {"max_length": 0}),
    ):
        place.declare(name, count, **arguments)
    query = f"sort={column}&sort_reverse=true&page=1&page_size=10&columns=name,fill.percent"
    assert place.get("queues", query=query)["items"] == [
        {"name": "none", "fill": {"percent": 100.0}},
        {"name": "bytes", "fill": {"percent": 75.0}},
        {"name": "half", "fill": {"percent": 50.0}},
        {"name": "empty", "fill": {"percent": 0.0}},
        {"name": "free", "fill": None},
    ]


def test_where_the_messages_are(place: Place) -> None:
    place.declare("lazy", 3, queue_mode="lazy")
    place.declare("eager", 3)
    lazy, eager = (place.get("queues", name)["storage"] for name in ("lazy", "eager"))
    assert (lazy["messages_disk"], lazy["message_bytes_disk"]) == (3, 30)
    assert (eager["messages_disk"], eager["message_bytes_disk"]) == (0, 0)
    for storage in (lazy, eager):
        assert storage["segments"] == 1
        assert storage["segment_bytes"] > 30
        assert storage["oldest_segment"] > 1_600_000_000_000


def test_a_quorum_queue_has_both_too(place: Place) -> None:
    place.declare("q", 1, queue_type="quorum", max_length=2, overflow="reject-publish-dlx")
    document = place.get("queues", "q")
    assert (document["fill"]["percent"], document["storage"]["segments"]) == (50.0, 1)
    assert document["fill"]["at_limit"] == "the oldest messages are dropped"


# -- policies -------------------------------------------------------------------------------------------------


@pytest.fixture
def ruled(place: Place) -> Place:
    """Policies: all, and a stronger one for orders; three queues."""
    for name in ("orders.a", "orders.b", "other"):
        place.declare(name, 2)
    place.set_policy("all", ".*", max_length=10)
    place.set_policy("orders", "^orders", priority=5, message_ttl=60_000)
    return place


def test_where_a_policy_is_in_force(ruled: Place) -> None:
    found = ruled.get("policies", "all", "queues")
    assert [(each["name"], each["in_force"], each["rival"]) for each in found] == [
        ("orders.a", False, "orders"),
        ("orders.b", False, "orders"),
        ("other", True, None),
    ]
    assert found[0]["reason"] == "'orders' has the higher priority (5 against 0)"
    assert (found[2]["reason"], found[2]["messages_ready"], found[2]["fill_percent"]) == (None, 2, 20.0)
    assert (found[2]["type"], found[2]["vhost"]) == ("classic", ruled.vhost)


def test_pages_of_it(ruled: Place) -> None:
    page = ruled.get("policies", "all", "queues", query="page=1&page_size=1&in_force=false&sort=name&sort_reverse=true")
    assert [each["name"] for each in page["items"]] == ["orders.b"]
    assert (page["total_count"], page["page_count"]) == (2, 2)
    page = ruled.get("policies", "all", "queues", query="page=1&name=OTH")
    assert [each["name"] for each in page["items"]] == ["other"]
    reply = ruled.api.ask("GET", f"{ruled.below('policies', 'all', 'queues')}?in_force=maybe")
    assert reply.status == 400


def test_exchanges_and_operator_policies(ruled: Place) -> None:
    assert ruled.get("policies", "all", "exchanges") == []
    body = {"pattern": "^amq.top", "definition": {"alternate-exchange": "amq.fanout"}, "apply-to": "exchanges"}
    assert ruled.api.ask("PUT", ruled.below("policies", "alternate"), body).status == 201
    (found,) = ruled.get("policies", "alternate", "exchanges")
    assert (found["name"], found["type"], found["in_force"]) == ("amq.topic", "topic", True)
    ruled.set_policy("cap", "^other", "operator-policies", max_length=5)
    assert [each["name"] for each in ruled.get("operator-policies", "cap", "queues")] == ["other"]


def test_counts_of_policies(ruled: Place) -> None:
    counts = {each["name"]: each["queues_in_force"] for each in ruled.get("policies", query="counts=true")}
    assert counts == {"all": 1, "orders": 2}
    assert "queues_in_force" not in ruled.get("policies")[0]


def test_who_may_see_it(ruled: Place, belongings: Belongings) -> None:
    below = ruled.below("policies", "all", "queues")
    assert len(ruled.api.get(below, user=belongings.user("management", ruled.vhost))) == 3
    assert ruled.api.ask("GET", below, user=belongings.user("management")).status == 401
    for missing in (ruled.below("policies", "none", "queues"), ruled.below("operator-policies", "all", "queues")):
        ruled.api.check("GET", missing, None, 404, NOT_FOUND)


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_dry_run_says_what_would_be_dead_lettered(place: Place, kind: str) -> None:
    place.declare("dead")
    place.declare("q1", 3, dead_letter_exchange="", dead_letter_routing_key="dead")
    place.declare("q2", 2)
    body = {"pattern": "^q", "definition": {"max-length": 1}, "apply-to": "queues"}
    found = place.api.ask("PUT", f"{place.below(kind, 'p')}?dry_run=true", body).document
    assert found["would_drop"] == {
        "messages": 3,
        "bytes": 30,
        "estimated": False,
        "dead_lettered": 2,
        "lost": 1,
        "lost_estimated": False,
    }
    drops = {queue["name"]: queue["would_drop"] for queue in found["queues"]}
    assert [drops["q1"][key] for key in ("messages", "dead_lettered", "dead_letter_exchange")] == [2, 2, ""]
    assert [drops["q2"][key] for key in ("messages", "dead_lettered", "dead_letter_exchange")] == [1, 0, None]
    assert place.api.ask("PUT", place.below(kind, "p"), body).status == 201
    assert place.get("queues", "dead")["messages"] == 2


def test_a_dry_run_of_a_change_shows_the_queues_that_lose_the_policy(ruled: Place) -> None:
    body = {"pattern": "^orders.a$", "definition": {"message-ttl": 1}, "priority": 5, "apply-to": "queues"}
    found = ruled.api.ask("PUT", f"{ruled.below('policies', 'orders')}?dry_run=true", body).document
    assert (found["matching"], found["in_force"]) == (1, 1)
    lost = next(queue for queue in found["queues"] if queue["name"] == "orders.b")
    assert (lost["matches"], lost["in_force"], lost["rival"]) == (False, False, "all")
    assert lost["changes"] == {"message-ttl": {"from": 60_000, "to": None}, "max-length": {"from": None, "to": 10}}


# -- what forms offer -----------------------------------------------------------------------------------------


def test_every_policy_key_that_is_offered_is_taken(place: Place) -> None:
    keys = {each["key"]: each for each in place.api.get("policy-keys")}
    assert len(keys) > 15
    for name, key in keys.items():
        samples = {"string": "x", "age": "7D", "delays": "1s,10s", "boolean": True, "integer": key["minimum"]}
        value = key["values"][0] if key["values"] else samples[key["type"]]
        # A type of delays says nothing without a delay.
        others = {"delayed-retry-min": 1} if name == "delayed-retry-type" else {}
        body = {"pattern": "^nothing$", "definition": {name: value, **others}}
        assert place.api.ask("PUT", place.below("policies", name), body).status == 201, name
        status = place.api.ask("PUT", place.below("operator-policies", name), body).status
        assert status == (201 if key["operator"] else 400), name
        if key["minimum"] is not None:
            body = {"pattern": "^nothing$", "definition": {name: key["minimum"] - 1}}
            assert place.api.ask("PUT", place.below("policies", name), body).status == 400, name


def test_the_hints_of_a_key(place: Place) -> None:
    keys = {each["key"]: each for each in place.api.get("policy-keys")}
    assert [keys[name]["unit"] for name in ("expires", "max-length", "max-length-bytes")] == [
        "milliseconds", "messages", "bytes"
    ]  # fmt: skip
    key = keys["overflow"]
    assert key.pop("summary").startswith("At the length limit")
    assert key == {
        "key": "overflow",
        "argument": "x-overflow",
        "type": "string",
        "minimum": None,
        "maximum": None,
        "values": ["drop-head", "reject-publish", "reject-publish-dlx"],
        "unit": None,
        "queue_types": ["classic", "quorum"],
        "exchanges": False,
        "unfit_queue_types": ["stream"],
        "operator": True,
        "argument_merge": {
            "classic": "the argument comes before the policy",
            "quorum": "the policy comes before the argument",
        },
        "operator_merge": "the operator policy comes before the policy",
        "has_effect": True,
    }


def test_every_argument_that_is_offered_is_taken(place: Place) -> None:
    arguments = place.api.get("queue-arguments")
    assert len(arguments) > 15
    for argument in arguments:
        samples = {"string": "x", "age": "7D", "delays": "1s,10s", "integer": argument["minimum"], "boolean": True}
        value = argument["values"][0] if argument["values"] else samples[argument["type"]]
        for queue_type in argument["queue_types"]:
            name = argument["argument"]
            table = {"x-queue-type": queue_type, name: value}
            if name == "x-dead-letter-routing-key":
                table["x-dead-letter-exchange"] = "x"
            if name == "x-queue-type" and queue_type != value:
                continue
            body = {"durable": True, "arguments": table}
            reply = place.api.ask("PUT", place.below("queues", f"{queue_type} {name}"), body)
            assert reply.status == 201, (table, reply.document)


def test_who_may_ask_for_hints(place: Place, belongings: Belongings) -> None:
    for below in ("policy-keys", "queue-arguments"):
        assert place.api.get(f"{below}?columns=summary", user=belongings.user("management"))
        assert place.api.ask("GET", below, user=belongings.user("")).status == 401
        assert place.api.ask("GET", below, user="").status == 401
