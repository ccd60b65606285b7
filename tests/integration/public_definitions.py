"""Definitions as programs in public have them, of many releases of RabbitMQ; all names are ours.

What matters is which sections, keys and values they have and lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Of the password "secret", as MD5 of early releases and as SHA-256.
MD5: Final = "kI3GCjp/4GmDJUepnA1+aCzaba4="
SHA256: Final = "kI3GCqG+cq65rBQ9tiUUCREygKhmilKrZEWKSz+H0FJ1fk4/"
_SHA256_NAME: Final = "rabbit_password_hashing_sha256"
_ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}


def _user(name: str, tags: Any = "administrator", **more: Any) -> dict[str, Any]:
    return {"name": name, "tags": tags, **(more or {"password_hash": SHA256, "hashing_algorithm": _SHA256_NAME})}


def _queue(name: str, vhost: str = "shop", **arguments: Any) -> dict[str, Any]:
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": given}


def _exchange(name: str, kind: str = "topic", vhost: str = "shop", **more: Any) -> dict[str, Any]:
    flags = {"durable": True, "auto_delete": False, "internal": False}
    return {"name": name, "vhost": vhost, "type": kind, **flags, "arguments": {}, **more}


def _binding(source: str, destination: str, key: str, vhost: str = "shop", **arguments: Any) -> dict[str, Any]:
    ends = {"source": source, "vhost": vhost, "destination": destination, "destination_type": "queue"}
    return {**ends, "routing_key": key, "arguments": arguments}


def _parameter(component: str, name: str, value: Any) -> dict[str, Any]:
    return {"component": component, "name": name, "vhost": "shop", "value": value}


def _policy(name: str, pattern: str, definition: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"vhost": "shop", "name": name, "pattern": pattern, "definition": definition, **more}


def _begin(release: str | None, *users: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The version, and users that may do everything in the virtual host."""
    version = {} if release is None else {"rabbit_version": release}
    permissions = [{"user": user["name"], "vhost": "shop", **_ALL} for user in users]
    return {**version, "users": list(users), "vhosts": [{"name": "shop"}], "permissions": permissions, **more}


_SHOVEL: Final = {
    "src-protocol": "amqp091",
    "src-queue": "returns",
    "src-uri": "amqp:///shop",
    "src-delete-after": "never",
    "dest-protocol": "amqp091",
    "dest-queue": "orders",
    "dest-uri": ["amqp://one", "amqp://two"],
    "ack-mode": "on-confirm",
}
_UPSTREAM: Final = {"uri": "amqps://far", "queue": "files", "ack-mode": "on-confirm", "trust-user-id": False}
_MIRRORED: Final = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 1}

DEFINITIONS: Final[Mapping[str, dict[str, Any]]] = {
    # A first cluster, with passwords as MD5 without the name of the algorithm, and users without tags.
    "3.0.4": _begin(
        "3.0.4",
        _user("boss", password_hash=MD5),
        _user("clerk", "", password_hash=MD5),
        parameters=[],
        policies=[],
        queues=[
            _queue("later", message_ttl=2000, dead_letter_exchange="parcels", dead_letter_routing_key="later.parcels"),
            _queue("my-parcels"),
            _queue("parcels"),
        ],
        exchanges=[_exchange("parcels"), _exchange("later")],
        bindings=[
            _binding("later", "later", "#"),
            _binding("parcels", "my-parcels", "#.my-parcels"),
            _binding("parcels", "parcels", "#.parcels"),
        ],
    ),
    # An alternate exchange that comes later in the list, arguments that mean nothing, a durable exchange bound to a
    # transient queue.
    "3.7.3": _begin(
        "3.7.3",
        _user("boss"),
        topic_permissions=[],
        parameters=[],
        global_parameters=[{"name": "shop_name", "value": "shop@592672564a11"}],
        policies=[],
        queues=[
            _queue("builds", dead_letter_exchange="builds.dead", message_ttl=5000),
            {**_queue("builds.dead"), "durable": False},
        ],
        exchanges=[
            _exchange("builds", "direct", arguments={"alternate-exchange": "builds.dead", "x-match": "any"}),
            _exchange("builds.dead", "fanout"),
        ],
        bindings=[
            _binding("builds", "builds", "build", routing_key="build"),
            _binding("builds.dead", "builds.dead", ""),
        ],
    ),
    # Mirroring without priority and apply-to, with an empty pattern; a durable queue that deletes itself.
    "3.7.17": _begin(
        "3.7.17",
        _user("boss"),
        parameters=[],
        policies=[_policy("mirrored", "", {**_MIRRORED, "ha-sync-batch-size": 5})],
        queues=[{**_queue("main.q"), "auto_delete": True}],
        exchanges=[_exchange("main.x")],
        bindings=[_binding("main.x", "main.q", "all.messages")],
    ),
    # The type classic by its name.
    "3.8.3": _begin(
        "3.8.3",
        _user("boss"),
        rabbitmq_version="3.8.3",
        topic_permissions=[],
        parameters=[],
        global_parameters=[{"name": "shop_id", "value": "rabbitmq-cluster-id-hMCpv2MQRWT-DqJMuDKM7A"}],
        policies=[],
        queues=[_queue("new", queue_type="classic")],
        exchanges=[_exchange("new", "fanout")],
        bindings=[_binding("new", "new", "")],
    ),
    # A default queue type and tags, in the metadata of a virtual host; limits as an empty list.
    "3.9.1": {
        **_begin(
            "3.9.1", _user("boss", ["administrator"], password_hash=SHA256, hashing_algorithm=_SHA256_NAME, limits={})
        ),
        "rabbitmq_version": "3.9.1",
        "topic_permissions": [],
        "vhosts": [
            {
                "limits": [],
                "metadata": {"default_queue_type": "quorum", "description": "The shop", "tags": ["ab", "cde"]},
                "name": "shop",
            }
        ],
        "queues": [{**_queue("priorities", max_priority=3), "type": "classic"}, {**_queue("plain"), "type": "classic"}],
    },
    # Federation of a queue that is mirrored too; bindings of queues and exchanges that do not exist.
    "federation": _begin(
        None,
        _user("boss"),
        topic_permissions=[],
        parameters=[_parameter("federation-upstream", "far-files", _UPSTREAM)],
        policies=[
            _policy(
                "far",
                "files",
                {"federation-upstream": "far-files", **_MIRRORED},
                **{"apply-to": "queues", "priority": 0},
            ),
            _policy("far-ids", "ids", {"federation-upstream": "far-files"}, **{"apply-to": "queues", "priority": 0}),
            _policy("mirrored", ".*", _MIRRORED),
        ],
        queues=[_queue("files"), _queue("ids")],
        exchanges=[_exchange("archive")],
        bindings=[
            _binding("archive", "files", "files"),
            _binding("archive", "errors", "errors"),
            _binding("nowhere", "ids", "ids"),
        ],
    ),
    # Shovels, streams, an alternate exchange by policy, an exchange without arguments.
    "3.11.11": _begin(
        "3.11.11",
        _user("boss", password="secret"),
        parameters=[_parameter("shovel", name, _SHOVEL) for name in ("done", "mapped")],
        global_parameters=[],
        policies=[
            _policy("strays", "^main$", {"alternate-exchange": "main.dead"}, **{"apply-to": "exchanges", "priority": 0})
        ],
        queues=[_queue("orders"), _queue("returns", max_age="1M", queue_type="stream"), _queue("all.dead")],
        exchanges=[
            {
                "name": "main",
                "vhost": "shop",
                "type": "topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
            },
            _exchange("main.dead"),
        ],
        bindings=[
            _binding("main", "orders", "orders"),
            _binding("main", "returns", "returns"),
            _binding("main.dead", "all.dead", "#"),
        ],
    ),
    # A user without a password, one with tags of its own and one without tags; limits by arguments.
    "3.12": _begin(
        "3.12.5",
        _user("boss", ["administrator"], password_hash=SHA256, hashing_algorithm=_SHA256_NAME, limits={}),
        _user("owner", ["administrator"], password_hash="", hashing_algorithm=_SHA256_NAME, limits={}),
        _user("merchant", ["merchant"], password_hash=SHA256, hashing_algorithm=_SHA256_NAME, limits={}),
        _user("guests", [], password="secret", limits={}),
        product_name="RabbitMQ",
        product_version="3.12.5",
        topic_permissions=[],
        queues=[_queue(f"prices{number}", message_ttl=1800000 * number, max_length=1000 * number) for number in (1, 2)],
        exchanges=[_exchange("shop.market")],
        bindings=[
            _binding("shop.market", f"prices{number}", key) for number, key in ((1, "prices.*"), (2, "market.#"))
        ],
    ),
    # Dead letters for an exchange that no queue is bound to; a binding of an exchange with another spelling,
    # and one without key and arguments.
    "by hand": _begin(
        None,
        _user("boss", password="secret"),
        queues=[
            _queue(name, dead_letter_exchange="dlx", dead_letter_routing_key="dead")
            for name in ("rides", "drivers", "places")
        ],
        exchanges=[_exchange("ride_topic"), _exchange("place_fanout", "fanout"), _exchange("dlx", "direct")],
        bindings=[
            _binding("ride_topic", "rides", "ride.request.*"),
            {"source": "place_fanout", "vhost": "shop", "destination": "places", "destination_type": "queue"},
            _binding("rides_topic", "drivers", "driver.*.#"),
        ],
    ),
    # Quorum queues by their type alone, the newest policy keys, an operator policy as a list of pairs.
    "4.1": _begin(
        "4.1.0",
        _user("boss", ["administrator"], password_hash=SHA256, hashing_algorithm=_SHA256_NAME, limits={}),
        rabbitmq_definition_format="cluster",
        original_cluster_name="rabbit@far",
        explanation="Definitions of cluster 'rabbit@far'",
        topic_permissions=[{"user": "boss", "vhost": "shop", "exchange": "amq.topic", "write": "^a", "read": "^b"}],
        parameters=[
            _parameter(
                "operator_policy",
                "capped",
                {"apply-to": "queues", "pattern": "^work", "priority": 0, "definition": [["max-length", 5000]]},
            ),
            _parameter("shovel", "moving", {**_SHOVEL, "src-queue": "work2"}),
        ],
        policies=[
            _policy(
                "grown",
                "^work",
                {"max-length": 1000, "target-group-size": 3, "stream-filter-size-bytes": 32},
                **{"apply-to": "quorum_queues", "priority": 1},
            )
        ],
        queues=[{**_queue("work", queue_type="quorum"), "type": "quorum"}, {**_queue("work2"), "type": "quorum"}],
        exchanges=[_exchange("work", "direct")],
        bindings=[_binding("work", "work", "k")],
    ),
}

_FEDERATION: Final = (
    "parameters: 'far-files' of component 'federation-upstream' in vhost 'shop'",
    "policies: 'federation-upstream' of 'far' in vhost 'shop'",
    "policies: 'federation-upstream' of 'far-ids' in vhost 'shop'",
    "bindings: from 'archive' to queue 'errors' in vhost 'shop', as one of these does not exist",
    "bindings: from 'nowhere' to queue 'ids' in vhost 'shop', as one of these does not exist",
)
#: What an import leaves out, and how many entries of a section are left.
LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "federation": _FEDERATION,
    "by hand": ("bindings: from 'rides_topic' to queue 'drivers' in vhost 'shop', as one of these does not exist",),
    "4.1": ("policies: 'target-group-size', 'stream-filter-size-bytes' of 'grown' in vhost 'shop'",),
}
REMAINING: Final[Mapping[str, Mapping[str, int]]] = {
    "federation": {"parameters": 0, "policies": 2, "bindings": 1},
    "by hand": {"bindings": 2},
}
