"""Rules 49.1 to 49.7: the exchange of events, as RabbitMQ's plugin has it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.http_api import PASSWORD, Belongings, HttpApi, path
from tests.support.channel import Channel
from tests.support.events import ConnectionClosed, Delivery
from tests.support.tables import Triple
from tests.support.wire import Connection

EXCHANGE = "amq.rabbitmq.event"
pytestmark = pytest.mark.plugin(EXCHANGE)

#: What Leveret tells and RabbitMQ does not, at least not of each event.
OURS = {"exclusive", "message_count", "peer_host", "user_who_performed_action", "exchange", "vhost"}
HOST = "{127,0,0,1}"


class Events:
    """Takes events from a queue that is bound to the exchange with ``#``."""

    def __init__(self, channel: Channel, queue: str, poll: Poll) -> None:
        channel.queue_declare(queue)
        channel.queue_bind(queue, EXCHANGE, "#")
        self._channel, self._queue, self._poll = channel, queue, poll
        self._taken: list[Delivery] = []

    def told(self, kind: str, **where: str) -> Delivery:
        """Return the next event of a kind that has some headers with these texts; those before it stay."""
        found: list[Delivery] = []

        def came() -> bool:
            while (got := self._channel.get(self._queue, no_ack=True)) is not None:
                self._taken.append(got)
            for index, each in enumerate(self._taken):
                if each.routing_key == kind and where.items() <= values_of(each).items():
                    found.append(each)
                    del self._taken[index]
                    return True
            return False

        self._poll(came)
        return found[0]

    def check(self, kind: str, expected: list[Triple], **where: str) -> Delivery:
        """Assert the headers of an event but for its time and what is ours."""
        event = self.told(kind, **where)
        headers = {key: (letter, value) for key, letter, value in event.properties["headers"]}
        assert headers.pop("timestamp_in_ms")[0] == "l"
        wanted = {key: (letter, value) for key, letter, value in expected}
        assert {key: each for key, each in headers.items() if key in wanted} == wanted
        assert headers.keys() - wanted.keys() <= OURS
        return event


def values_of(event: Delivery) -> dict[str, Any]:
    return {key: value for key, _, value in event.properties["headers"]}


def by(user: str, *about: Triple) -> list[Triple]:
    return [*about, ("user_who_performed_action", "S", user)]


@pytest.fixture
def events(channel: Channel, unique: Unique, poll: Poll) -> Events:
    return Events(channel, unique("events"), poll)


@pytest.fixture
def user(broker_url: str) -> str:
    return broker_url.split("//")[1].split(":")[0]


class TestExchange:
    def test_49_1_it_is_a_durable_internal_topic_exchange(self, api: HttpApi, vhost: str) -> None:
        shown = api.get(path("exchanges", vhost, EXCHANGE))
        kept = {key: shown[key] for key in ("type", "durable", "auto_delete", "internal", "arguments")}
        assert kept == {"type": "topic", "durable": True, "auto_delete": False, "internal": True, "arguments": {}}

    def test_49_1_clients_cannot_publish_to_it_or_delete_it(self, connect: Connect, vhost: str) -> None:
        channel = connect().channel()
        refusal = f"ACCESS_REFUSED - deletion of system exchange '{EXCHANGE}' in vhost '{vhost}' not allowed"
        with channel.expect_channel_close(403, refusal, commands.Exchange.Delete):
            channel.exchange_delete(EXCHANGE)
        channel = connect().channel()
        refusal = f"ACCESS_REFUSED - cannot publish to internal exchange '{EXCHANGE}' in vhost '{vhost}'"
        with channel.expect_channel_close(403, refusal, commands.Basic.Publish):
            channel.publish(exchange=EXCHANGE, routing_key="x", body=b"x")

    def test_49_2_an_event_is_a_persistent_message_without_a_body(
        self, channel: Channel, events: Events, unique: Unique
    ) -> None:
        name = unique()
        before = int(time.time()) - 1
        channel.queue_declare(name)
        event = events.told("queue.created", name=name)
        assert (event.exchange, event.body) == (EXCHANGE, b"")
        assert event.properties.keys() == {"headers", "delivery_mode", "timestamp"}
        assert event.properties["delivery_mode"] == 2
        assert before <= event.properties["timestamp"] <= time.time() + 1
        assert values_of(event)["timestamp_in_ms"] // 1000 == event.properties["timestamp"]

    def test_49_2_keys_select_events(self, channel: Channel, unique: Unique, poll: Poll) -> None:
        queue, declared = unique(), unique()
        channel.queue_declare(queue)
        channel.queue_bind(queue, EXCHANGE, "queue.deleted")
        channel.queue_declare(declared)
        channel.queue_delete(declared)
        got: list[Delivery] = []

        def came() -> bool:
            while (each := channel.get(queue, no_ack=True)) is not None:
                got.append(each)
            return any(values_of(each)["name"] == declared for each in got)

        poll(came)
        assert {each.routing_key for each in got} == {"queue.deleted"}


class TestObjects:
    def test_49_3_queues(
        self, connection: Connection, channel: Channel, events: Events, unique: Unique, vhost: str, user: str
    ) -> None:
        name = unique()
        arguments = [("x-max-length", "I", 10), ("x-custom", "S", "k"), ("t", "F", [("b", "t", True)])]
        channel.queue_declare(name, durable=True, arguments=arguments)
        made: list[Triple] = [
            ("name", "S", name),
            ("vhost", "S", vhost),
            ("durable", "t", True),
            ("auto_delete", "t", False),
            ("exclusive", "t", False),
            ("owner_pid", "S", ""),
            (
                "arguments",
                "A",
                [
                    ("S", '{<<"x-max-length">>,signedint,10}'),
                    ("S", '{<<"x-custom">>,longstr,<<"k">>}'),
                    ("S", '{<<"t">>,table,[{<<"b">>,bool,true}]}'),
                ],
            ),
        ]
        events.check("queue.created", by(user, *made), name=name)
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_delete(name)
        events.check("queue.deleted", by(user, ("name", "S", name), ("vhost", "S", vhost)), name=name)

    @pytest.mark.parametrize("kind", ["quorum", "stream"])
    def test_49_3_queue_types(self, channel: Channel, events: Events, unique: Unique, kind: str) -> None:
        name = unique()
        channel.queue_declare(name, durable=True, arguments=[("x-queue-type", "S", kind)])
        told = values_of(events.told("queue.created", name=name))
        assert told["type"] == f"rabbit_{kind}_queue"
        assert "owner_pid" not in told

    def test_49_3_the_broker_deletes_queues_that_nobody_deletes(
        self, connect: Connect, channel: Channel, events: Events, unique: Unique, vhost: str
    ) -> None:
        expiring, exclusive, used = unique(), unique(), unique()
        other = connect()
        theirs = other.channel()
        theirs.queue_declare(exclusive, exclusive=True)
        told = values_of(events.told("queue.created", name=exclusive))
        assert told["exclusive"]
        assert told["owner_pid"]
        theirs.queue_declare(used, auto_delete=True)
        theirs.cancel(theirs.consume(used).consumer_tag)
        channel.queue_declare(expiring, arguments=[("x-expires", "I", 100)])
        other.close()
        for name in (used, expiring, exclusive):
            events.check("queue.deleted", by("rmq-internal", ("name", "S", name), ("vhost", "S", vhost)), name=name)

    def test_49_3_exchanges_and_bindings(
        self, channel: Channel, events: Events, unique: Unique, vhost: str, user: str
    ) -> None:
        first, second, queue = unique("x"), unique("x"), unique()
        channel.exchange_declare(first, "topic", durable=True, arguments=[("alternate-exchange", "S", "amq.fanout")])
        made: list[Triple] = [
            ("name", "S", first),
            ("vhost", "S", vhost),
            ("type", "S", "topic"),
            ("durable", "t", True),
            ("auto_delete", "t", False),
            ("internal", "t", False),
            ("arguments", "A", [("S", '{<<"alternate-exchange">>,longstr,<<"amq.fanout">>}')]),
            ("policy", "S", ""),
        ]
        events.check("exchange.created", by(user, *made), name=first)
        channel.exchange_declare(second, "fanout", auto_delete=True)
        channel.queue_declare(queue)
        channel.queue_bind(queue, first, "a.b", arguments=[("h", "I", 1)])
        bound: list[Triple] = [
            ("source_name", "S", first),
            ("source_kind", "S", "exchange"),
            ("destination_name", "S", queue),
            ("destination_kind", "S", "queue"),
            ("routing_key", "S", "a.b"),
            ("arguments", "A", [("S", '{<<"h">>,signedint,1}')]),
            ("vhost", "S", vhost),
        ]
        events.check("binding.created", by(user, *bound), destination_name=queue)
        channel.queue_unbind(queue, first, "a.b", arguments=[("h", "I", 1)])
        events.check("binding.deleted", by(user, *bound), destination_name=queue)
        channel.exchange_bind(first, second, "k")
        told = values_of(events.told("binding.created", source_name=second))
        assert (told["destination_kind"], told["destination_name"], told["arguments"]) == ("exchange", first, [])
        channel.exchange_delete(first)
        events.check("exchange.deleted", by(user, ("name", "S", first), ("vhost", "S", vhost)), name=first)

    def test_49_3_what_goes_with_a_queue_is_deleted_by_the_broker(
        self, channel: Channel, events: Events, unique: Unique, vhost: str, user: str
    ) -> None:
        exchange, queue = unique("x"), unique()
        channel.exchange_declare(exchange, "fanout", auto_delete=True)
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, "k")
        channel.queue_delete(queue)
        seen: dict[str, str] = {}
        deleted = {
            "queue.deleted": {"name": queue},
            "binding.deleted": {"source_name": exchange},
            "exchange.deleted": {"name": exchange},
        }
        for kind, where in deleted.items():
            seen[kind] = values_of(events.told(kind, **where))["user_who_performed_action"]
        assert seen == {"queue.deleted": user, "binding.deleted": "rmq-internal", "exchange.deleted": "rmq-internal"}


class TestClients:
    def test_49_4_logins_connections_and_channels(
        self, connect: Connect, events: Events, vhost: str, user: str
    ) -> None:
        other = connect(client_properties=[("connection_name", "S", "mine"), ("product", "S", "test")])
        channel = other.channel()
        login: list[Triple] = [
            ("connection_type", "S", "network"),
            ("name", "S", user),
            ("host", "S", HOST),
            ("connection_name", "S", other.name),
            ("peer_host", "S", HOST),
            ("peer_port", "l", int(other.name.split(" ")[0].rpartition(":")[2])),
            ("protocol", "S", "{0,9,1}"),
            ("auth_mechanism", "S", "PLAIN"),
            ("ssl", "t", False),
        ]
        events.check("user.authentication.success", login, connection_name=other.name)
        event = events.told("connection.created", name=other.name)
        told = values_of(event)
        given = [("S", '{<<"connection_name">>,longstr,<<"mine">>}'), ("S", '{<<"product">>,longstr,<<"test">>}')]
        assert [each for each in told["client_properties"] if each in given] == given
        expected = {
            "type": "network",
            "user_provided_name": "mine",
            "user": user,
            "user_who_performed_action": user,
            "vhost": vhost,
            "peer_host": HOST,
            "host": HOST,
            "ssl": False,
            "auth_mechanism": "PLAIN",
            "protocol": "{0,9,1}",
            **dict.fromkeys(
                ("ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash", "peer_cert_subject", "peer_cert_issuer"),
                "",
            ),
            "peer_cert_validity": "",
        }
        assert {key: told[key] for key in expected} == expected
        assert told.keys() - expected.keys() == {
            "name", "pid", "node", "client_properties", "port", "peer_port", "timeout", "frame_max", "channel_max",
            "connected_at", "timestamp_in_ms",
        }  # fmt: skip
        opened = values_of(events.told("channel.created", connection=told["pid"]))
        named = (opened["name"], opened["number"], opened["user"], opened["vhost"])
        assert named == (f"{other.name} ({channel.number})", channel.number, user, vhost)
        channel.close()
        closed = events.told("channel.closed", pid=opened["pid"])
        assert values_of(closed)["user_who_performed_action"] == user
        other.close()
        ended = values_of(events.told("connection.closed", pid=told["pid"]))
        assert (ended["name"], ended["user_provided_name"], ended["node"]) == (told["name"], "mine", told["node"])
        assert ended["client_properties"] == told["client_properties"]

    def test_49_4_refused_logins(self, connect: Connect, events: Events) -> None:
        with pytest.raises(ConnectionClosed):
            connect(user="nobody-49", password="wrong")
        told = values_of(events.told("user.authentication.failure", name="nobody-49"))
        about = (told["auth_mechanism"], told["peer_host"], told["connection_type"], told["ssl"])
        assert about == ("PLAIN", HOST, "network", False)
        # RabbitMQ sends the characters as numbers.
        error = told["error"]
        assert (error if isinstance(error, str) else "".join(chr(code) for _, code in error)) == (
            "user 'nobody-49' - invalid credentials"
        )

    def test_49_5_consumers(
        self, connection: Connection, channel: Channel, events: Events, unique: Unique, vhost: str, user: str
    ) -> None:
        queue = unique()
        channel.queue_declare(queue)
        other = connection.channel()
        other.qos(7)
        other.consume(queue, "tag-49", arguments=[("x-priority", "I", 3)])
        started: list[Triple] = [
            ("consumer_tag", "S", "tag-49"),
            ("queue", "S", queue),
            ("vhost", "S", vhost),
            ("ack_required", "t", True),
            ("exclusive", "t", False),
            ("prefetch_count", "l", 7),
            ("arguments", "A", [("S", '{<<"x-priority">>,signedint,3}')]),
        ]
        event = events.told("consumer.created", queue=queue)
        headers = {key: (letter, value) for key, letter, value in event.properties["headers"]}
        for key, letter, value in by(user, *started):
            assert headers[key] == (letter, value)
        on = headers["channel"]
        other.cancel("tag-49")
        ended: list[Triple] = [*started[:3], ("channel", *on)]
        events.check("consumer.deleted", by(user, *ended), queue=queue)
        other.consume(queue, "tag-49")
        other.close()
        events.check("consumer.deleted", by("rmq-internal", *ended), queue=queue)


class TestAdministration:
    def test_49_6_users_and_permissions(
        self, api: HttpApi, belongings: Belongings, events: Events, own_vhost: str, user: str
    ) -> None:
        name = belongings.name("users")
        named: Triple = ("name", "S", name)
        api.ask("PUT", path("users", name), {"password": PASSWORD, "tags": "monitoring,other"})
        events.check("user.created", by(user, named), name=name)
        tags: Triple = ("tags", "A", [("S", "monitoring"), ("S", "other")])
        events.check("user.tags.set", by(user, named, tags), name=name)
        api.ask("PUT", path("users", name), {"password": "other", "tags": ""})
        events.check("user.password.changed", by(user, named), name=name)
        events.check("user.tags.set", by(user, named, ("tags", "A", [])), name=name)
        granted: list[Triple] = [("user", "S", name), ("vhost", "S", own_vhost), ("write", "S", "w"), ("read", "S", "")]
        api.ask("PUT", path("permissions", own_vhost, name), {"configure": "c", "write": "w", "read": ""})
        events.check("permission.created", by(user, *granted, ("configure", "S", "c")), user=name)
        api.ask("PUT", path("topic-permissions", own_vhost, name), {"exchange": "amq.topic", "write": "w", "read": ""})
        events.check("topic.permission.created", by(user, *granted, ("exchange", "S", "amq.topic")), user=name)
        for kind in ("topic-permissions", "permissions"):
            api.ask("DELETE", path(kind, own_vhost, name))
            events.check(f"{kind[:-1].replace('-', '.')}.deleted", by(user, *granted[:2]), user=name)
        api.ask("PUT", path("user-limits", name, "max-connections"), {"value": 5})
        limits: list[Triple] = [("name", "S", "limits"), ("username", "S", name)]
        events.check("user.limits.set", by(user, *limits, ("max-connections", "l", 5)), username=name)
        api.ask("DELETE", path("user-limits", name, "max-connections"))
        events.check("user.limits.cleared", by(user, *limits), username=name)
        api.ask("DELETE", path("users", name))
        events.check("user.deleted", by(user, named), name=name)

    def test_49_6_virtual_hosts(self, api: HttpApi, belongings: Belongings, events: Events, user: str) -> None:
        name = belongings.name("vhosts")
        api.ask("PUT", path("vhosts", name), {"description": "d", "tags": "a,b"})
        exchange = values_of(events.told("exchange.created", vhost=name, name="amq.rabbitmq.trace"))
        assert (exchange["type"], exchange["internal"]) == ("topic", True)
        told = values_of(events.told("vhost.created", name=name))
        expected = {"description": "d", "tags": [("S", "a"), ("S", "b")], "tracing": False}
        expected |= {"default_queue_type": "undefined", "user_who_performed_action": user}
        assert {key: told[key] for key in expected} == expected
        assert told["metadata"] == '#{description => <<"d">>,tags => [a,b]}'
        assert [(letter, value) for _, letter, value in told["cluster_state"]] == [("S", "running")]
        assert values_of(events.told("permission.created", vhost=name))["user"] == user
        api.ask("PUT", path("vhosts", name), {"description": "e"})
        assert values_of(events.told("vhost.updated", name=name))["description"] == "e"
        api.ask("PUT", path("vhost-limits", name, "max-queues"), {"value": 5})
        parameter: list[Triple] = [("name", "S", "limits"), ("component", "S", "vhost-limits"), ("vhost", "S", name)]
        events.check(
            "parameter.set", by(user, *parameter, ("value", "F", [("max-queues", "l", 5)])), component="vhost-limits"
        )
        events.check("vhost.limits.set", by(user, parameter[0], ("max-queues", "l", 5)))
        api.ask("DELETE", path("vhosts", name))
        assert values_of(events.told("permission.deleted", vhost=name))["user"] == user
        events.check("vhost.deleted", by(user, ("name", "S", name)), name=name)
        assert values_of(events.told("vhost.down", name=name))["user_who_performed_action"] == "rmq-internal"

    def test_49_6_policies_and_parameters(self, api: HttpApi, own_vhost: str, events: Events, user: str) -> None:
        value = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 3, "apply-to": "queues"}
        named: list[Triple] = [("name", "S", "p"), ("vhost", "S", own_vhost)]
        kept: list[Triple] = [
            ("pattern", "S", "^a"),
            ("definition", "F", [("max-length", "l", 5)]),
            ("priority", "l", 3),
            ("apply-to", "S", "queues"),
        ]
        api.ask("PUT", path("policies", own_vhost, "p"), value)
        events.check("policy.set", by(user, *named, *kept), vhost=own_vhost)
        api.ask("DELETE", path("policies", own_vhost, "p"))
        events.check("policy.cleared", by(user, *named), vhost=own_vhost)
        api.ask("PUT", path("operator-policies", own_vhost, "p"), {**value})
        told = values_of(events.told("parameter.set", vhost=own_vhost))
        assert (told["component"], told["name"], sorted(told["value"])) == ("operator_policy", "p", sorted(kept))
        events.check("policy.set", by(user, *named, *kept), vhost=own_vhost)
        api.ask("DELETE", path("operator-policies", own_vhost, "p"))
        component: Triple = ("component", "S", "operator_policy")
        events.check("parameter.cleared", by(user, *named, component), vhost=own_vhost)
        events.check("operator.policy.cleared", by(user, *named), vhost=own_vhost)
        api.ask("PUT", path("global-parameters", "conformance-49"), {"value": {"a": 1}})
        parameter: list[Triple] = [("name", "S", "conformance-49"), ("component", "S", "global")]
        value_set: Triple = ("value", "F", [("a", "l", 1)])
        events.check("parameter.set", by(user, *parameter, value_set), name="conformance-49")
        api.ask("DELETE", path("global-parameters", "conformance-49"))
        events.check("parameter.set", by(user, *parameter), name="conformance-49")

    def test_49_6_what_is_set_to_what_it_is(
        self, api: HttpApi, belongings: Belongings, own_vhost: str, events: Events
    ) -> None:
        name = belongings.name("users")
        api.ask("PUT", path("users", name), {"password": PASSWORD, "tags": ""})
        for number in (1, 1, 2):
            policy = {"pattern": "^a", "definition": {"max-length": number}, "priority": number, "apply-to": "queues"}
            api.ask("PUT", path("policies", own_vhost, "p"), policy)
            api.ask("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": number})
            api.ask("PUT", path("global-parameters", "conformance-49"), {"value": number})
            api.ask("PUT", path("user-limits", name, "max-connections"), {"value": number})
        api.ask("DELETE", path("global-parameters", "conformance-49"))
        for number in (1, 2):
            assert values_of(events.told("policy.set", vhost=own_vhost))["priority"] == number
            assert values_of(events.told("parameter.set", vhost=own_vhost))["value"] == [("max-queues", "l", number)]
            assert values_of(events.told("vhost.limits.set"))["max-queues"] == number
        for number in (1, 1, 2):
            assert values_of(events.told("parameter.set", name="conformance-49"))["value"] == number
            assert values_of(events.told("user.limits.set", username=name))["max-connections"] == number

    @pytest.mark.plugin("shovel")
    def test_49_6_shovels(self, api: HttpApi, vhost: str, events: Events, unique: Unique) -> None:
        name, source, target = unique("shovel"), unique(), unique()
        value = {"src-uri": "amqp://", "src-queue": source, "dest-uri": "amqp://", "dest-queue": target}
        api.ask("PUT", path("parameters", "shovel", vhost, name), {"value": value})
        named: list[Triple] = [("name", "S", name), ("vhost", "S", vhost)]
        events.check("shovel.worker.status", [*named, ("status", "S", "starting")], name=name)
        running: list[Triple] = [
            ("status", "S", "running"),
            ("src_uri", "S", "amqp://"),
            ("src_protocol", "S", "amqp091"),
            ("src_queue", "S", source),
            ("dest_uri", "S", "amqp://"),
            ("dest_protocol", "S", "amqp091"),
            ("dest_queue", "S", target),
        ]
        events.check("shovel.worker.status", [*named, *running], name=name, status="running")
        # It goes on if it is set to what it is.
        for delay in (None, 7):
            changed = value | ({"reconnect-delay": delay} if delay else {})
            api.ask("PUT", path("parameters", "shovel", vhost, name), {"value": changed})
        first, second = (values_of(events.told("parameter.set", name=name))["value"] for _ in range(2))
        assert {key: each for key, _, each in second}.items() - {key: each for key, _, each in first}.items() == {
            ("reconnect-delay", 7)
        }
        events.check("shovel.worker.removed", named, name=name)
        events.check("shovel.worker.status", [*named, ("status", "S", "starting")], name=name)
        events.check("shovel.worker.status", [*named, *running], name=name, status="running")
        api.ask("DELETE", path("parameters", "shovel", vhost, name))
        events.check("shovel.worker.removed", named, name=name)

    def test_49_7_each_event_names_user_and_address(
        self, api: HttpApi, channel: Channel, own_vhost: str, events: Events, user: str
    ) -> None:
        api.ask("PUT", path("queues", own_vhost, "q"), {})
        told = values_of(events.told("queue.created", vhost=own_vhost))
        assert told["user_who_performed_action"] == user
        api.ask("DELETE", path("queues", own_vhost, "q"))
        assert values_of(events.told("queue.deleted", vhost=own_vhost))["user_who_performed_action"] == user


@pytest.mark.departs
def test_49_7_address_and_count(api: HttpApi, channel: Channel, events: Events, unique: Unique, user: str) -> None:
    queue = unique()
    channel.queue_declare(queue)
    for _ in range(3):
        channel.publish(routing_key=queue, body=b"x")
    channel.queue_purge(queue)
    channel.publish(routing_key=queue, body=b"x")
    channel.queue_delete(queue)
    for kind, count in (("queue.created", None), ("queue.purged", 3), ("queue.deleted", 1)):
        told = values_of(events.told(kind, name=queue))
        about = (told["user_who_performed_action"], told["peer_host"], told.get("message_count"))
        assert about == (user, HOST, count)
    api.ask("GET", "whoami", user="nobody-49")
    told = values_of(events.told("user.authentication.failure", name="nobody-49"))
    assert (told["connection_type"], told["peer_host"]) == ("http", HOST)
