"""Rules 48.1 to 48.16: shovels as RabbitMQ's plugin has them. The other broker is the same one, over its AMQP port."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.deaths import arrival, dead_letter_to, history, reject
from tests.conformance.fixtures import Poll
from tests.conformance.http_api import NO_VHOST, NOT_FOUND, Belongings, HttpApi, bad_request, not_authorised, path
from tests.support.channel import Channel
from tests.support.content import properties
from tests.support.wire import Connection, parse_url

pytestmark = pytest.mark.plugin("shovel")

LOCAL = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}


def failed(*lines: str) -> dict[str, object]:
    return bad_request("Validation failed\n\n" + "".join(f"{line}\n" for line in lines))


def changed(**changes: Any) -> dict[str, Any]:
    """Return LOCAL with other values; those that are None are left out."""
    value = {**LOCAL, **{key.replace("_", "-"): each for key, each in changes.items()}}
    return {key: each for key, each in value.items() if each is not None}


NUMBER = "{} should be a number, actually was {}"
AFTER = '{} should be a number greater than or equal to 0, "never" or "queue-length", actually was {}'


class TestValues:
    @pytest.mark.parametrize(
        ("changes", "lines"),
        [
            ({"src_uri": None}, ['Key "src-uri" not found in x']),
            ({"dest_uri": None}, ['Key "dest-uri" not found in x']),
            ({"src_queue": None}, ["Must specify 'src-exchange' or 'src-queue'"]),
            ({"src_exchange": "x"}, ["Cannot specify 'src-exchange' and 'src-queue'"]),
            ({"dest_exchange": "x"}, ["Cannot specify 'dest-exchange' and 'dest-queue'"]),
            ({"src_delete_after": 5, "ack_mode": "no-ack"}, ["Cannot specify 'no-ack' and numerical 'delete-after'"]),
            ({"src_uri": 5}, ["src-uri should be list, actually was 5"]),
            ({"src_uri": [5]}, ["src-uri should be list, actually was 5"]),
            ({"src_queue": 5}, ["src-queue should be binary, actually was 5"]),
            ({"src_prefetch_count": True}, [NUMBER.format("src-prefetch-count", "true")]),
            ({"prefetch_count": "a"}, [NUMBER.format("prefetch-count", '&lt;&lt;"a"&gt;&gt;')]),
            ({"reconnect_delay": "a"}, [NUMBER.format("reconnect-delay", '&lt;&lt;"a"&gt;&gt;')]),
            ({"ack_mode": 5}, ["ack-mode should be binary, actually was 5"]),
            (
                {"ack_mode": "x"},
                [
                    'ack-mode should be one of [&lt;&lt;"no-ack"&gt;&gt;,&lt;&lt;"on-publish"&gt;&gt;,'
                    '&lt;&lt;"on-confirm"&gt;&gt;], actually was &lt;&lt;"x"&gt;&gt;'
                ],
            ),
            ({"src_delete_after": -1}, [AFTER.format("src-delete-after", "-1")]),
            ({"src_delete_after": "5"}, [AFTER.format("src-delete-after", '&lt;&lt;"5"&gt;&gt;')]),
            ({"delete_after": 1.5}, [AFTER.format("delete-after", "1.5")]),
            ({"dest_add_forward_headers": 5}, ["dest-add-forward-headers should be boolean, actually was 5"]),
            ({"add_forward_headers": "a"}, ['add-forward-headers should be boolean, actually was &lt;&lt;"a"&gt;&gt;']),
            ({"dest_add_timestamp_header": 5}, ["dest-add-timestamp-header should be boolean, actually was 5"]),
            ({"dest_publish_properties": 5}, ["dest-publish-properties not a list 5"]),
            ({"dest_publish_properties": {"priority": "1"}}, [NUMBER.format("priority", '&lt;&lt;"1"&gt;&gt;')]),
            ({"dest_publish_properties": {"type": 5}}, ["type should be binary, actually was 5"]),
            (
                {"publish_properties": {"nope": 1}},
                ['Unrecognised terms [{&lt;&lt;"nope"&gt;&gt;,1}] in publish-properties'],
            ),
            (
                {"foo": 1, "bar": "x"},
                ['Unrecognised terms [{&lt;&lt;"bar"&gt;&gt;,&lt;&lt;"x"&gt;&gt;},{&lt;&lt;"foo"&gt;&gt;,1}] in x'],
            ),
            (
                {"foo": 1, "ack_mode": 5, "src_uri": 5, "dest_uri": None},
                [
                    'Unrecognised terms [{&lt;&lt;"foo"&gt;&gt;,1}] in x',
                    'Key "dest-uri" not found in x',
                    "src-uri should be list, actually was 5",
                    "ack-mode should be binary, actually was 5",
                ],
            ),
        ],
    )
    def test_48_1_wrong_values(self, api: HttpApi, own_vhost: str, changes: dict[str, Any], lines: list[str]) -> None:
        below = path("parameters", "shovel", own_vhost, "x")
        api.check("PUT", below, {"value": changed(**changes)}, 400, failed(*lines))
        api.check("GET", below, None, 404, NOT_FOUND)

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            ("nope", "{unable_to_parse_uri,no_scheme}"),
            ("", "{unable_to_parse_uri,no_scheme}"),
            ("http://x", '{unexpected_uri_scheme,"http"}'),
            ("amqp://h:99999", "{port_out_of_range,99999}"),
            ("amqp://h/a/b", '{invalid_vhost,"a/b"}'),
        ],
    )
    def test_48_1_wrong_uris(self, api: HttpApi, own_vhost: str, uri: str, reason: str) -> None:
        shown = f'"{uri}"' if uri else "[]"
        line = f'"{uri}" not a valid URI: {{{reason},{shown}}}'
        body = {"value": changed(src_uri=uri)}
        api.check("PUT", path("parameters", "shovel", own_vhost, "x"), body, 400, failed(line))

    @pytest.mark.parametrize(
        "changes",
        [
            {"src_uri": ["amqp://h", "amqps://u:p@h:1/v?heartbeat=5"]},
            {"src_queue": None, "src_exchange": "x", "src_exchange_key": "k"},
            {"src_exchange_key": "k", "src_prefetch_count": 1.5, "reconnect_delay": 0, "src_protocol": "amqp091"},
            {"dest_queue": None, "dest_exchange": "x", "dest_exchange_key": "k", "src_delete_after": "never"},
            {"src_queue_args": {}, "dest_queue_args": [], "src_consumer_args": {"x-priority": 1}},
            {
                "publish_properties": [],
                "add_timestamp_header": True,
                "ack_mode": "no-ack",
                "delete_after": "queue-length",
            },
        ],
    )
    def test_48_1_right_values(self, api: HttpApi, own_vhost: str, changes: dict[str, Any]) -> None:
        value = changed(**{"src_uri": "amqp://127.0.0.1:1", "dest_uri": "amqp://127.0.0.1:1", **changes})
        api.check("PUT", path("parameters", "shovel", own_vhost, "x"), {"value": value}, 201)

    @pytest.mark.departs("none")
    @pytest.mark.parametrize(
        ("value", "line"),
        [
            (5, "x not a list 5"),
            (changed(src_queue_args=5), "src-queue-args not a list 5"),
            (changed(src_uri=[]), "src-uri should be one URI or more, actually was []"),
            (
                changed(src_protocol="amqp10"),
                'src-protocol should be one of [&lt;&lt;"amqp091"&gt;&gt;], actually was &lt;&lt;"amqp10"&gt;&gt;',
            ),
            (
                changed(src_uri="amqp://u:secret@h:99999"),
                '"amqp://h:99999" not a valid URI: {{port_out_of_range,99999},"amqp://h:99999"}',
            ),
        ],
    )
    def test_48_1_what_rabbitmq_does_not_check(self, api: HttpApi, own_vhost: str, value: Any, line: str) -> None:
        api.check("PUT", path("parameters", "shovel", own_vhost, "x"), {"value": value}, 400, failed(line))

    def test_48_1_wrong_values_in_definitions(self, api: HttpApi, own_vhost: str) -> None:
        entry = {"vhost": own_vhost, "component": "shovel", "name": "x", "value": {"src-uri": "amqp://"}}
        text = "Must specify 'src-exchange' or 'src-queue'\nKey \"dest-uri\" not found in x\n"
        expected = bad_request(f"Validation failed\n\n{text} ({own_vhost}/shovel/x)")
        api.check("POST", "definitions", {"parameters": [entry]}, 400, expected)


class TestParameters:
    def test_48_2_their_life(self, api: HttpApi, own_vhost: str) -> None:
        below = path("parameters", "shovel", own_vhost, "x")
        value = changed(src_uri="amqp://127.0.0.1:1")
        api.check("PUT", below, {"value": value}, 201)
        api.check("PUT", below, {"value": {**value, "src-queue": "c"}}, 204)
        shown = {"vhost": own_vhost, "component": "shovel", "name": "x", "value": {**value, "src-queue": "c"}}
        assert api.get(below) == shown
        assert api.get(path("parameters", "shovel", own_vhost)) == [shown]
        assert shown in api.get("parameters/shovel")
        assert shown in api.get("parameters")
        assert shown in api.get("definitions")["parameters"]
        api.check("DELETE", below, None, 204)
        api.check("DELETE", below, None, 404, NOT_FOUND)
        api.check("POST", "definitions", {"parameters": [shown]}, 204)
        assert api.get(below) == shown
        api.check("PUT", path("parameters", "shovel", "conformance-no-vhost", "x"), {"value": value}, 404, NO_VHOST)

    def test_48_2_who_may_set_them(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        below = path("parameters", "shovel", own_vhost, "x")
        body = {"value": changed(src_uri=f"amqp:///{own_vhost}", dest_uri=f"amqp:///{own_vhost}")}
        refused = not_authorised("User not authorised to access object")
        for tag in ("management", "monitoring"):
            api.check("PUT", below, body, 401, refused, user=belongings.user(tag, own_vhost))
        api.check("PUT", below, body, 401, refused, user=belongings.user("policymaker"))
        api.check("PUT", below, body, 201, user=belongings.user("policymaker", own_vhost))

    def test_48_3_virtual_hosts_of_this_broker(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        below = path("parameters", "shovel", own_vhost, "x")
        user = belongings.user("policymaker", own_vhost)
        body = {"value": changed(src_uri=["amqp:///conformance-no-vhost", f"amqp:///{own_vhost}"])}
        lines = [f'user "{user}" may not connect to vhost "{each}"' for each in ("/", "conformance-no-vhost")]
        api.check("PUT", below, body, 400, failed(*lines), user=user)


class Shovelling:
    """Sets shovels in a virtual host, and looks at its queues."""

    def __init__(self, api: HttpApi, vhost: str, channel: Channel, url: str, poll: Poll) -> None:
        self.api = api
        self.vhost = vhost
        self.channel = channel
        address = parse_url(url)
        self.uris = {
            "local": f"amqp:///{quote(vhost, safe='')}",
            "remote": f"amqp://{address.user}:{address.password}@{address.host}:{address.port}/{quote(vhost, safe='')}",
        }
        self.shown = f"amqp://{address.host}:{address.port}/{quote(vhost, safe='')}"
        self._poll = poll

    def set(self, source: str = "local", destination: str = "local", **value: Any) -> None:
        """Set the shovel x; keys have underscores."""
        given = {key.replace("_", "-"): each for key, each in value.items()}
        uris = {"src-uri": self.uris[source], "dest-uri": self.uris[destination]}
        self.api.check("PUT", path("parameters", "shovel", self.vhost, "x"), {"value": {**uris, **given}}, 201)

    def is_gone(self) -> bool:
        return self.api.ask("GET", path("parameters", "shovel", self.vhost, "x")).status == 404

    def wait(self, condition: Callable[[], bool]) -> None:
        self._poll(condition)

    def exists(self, queue: str) -> bool:
        return self.api.ask("GET", path("queues", self.vhost, queue)).status == 200

    def count(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).message_count)

    def take(self, queue: str, count: int) -> list[Any]:
        """Wait for messages, and take them."""
        self.wait(lambda: self.exists(queue) and self.count(queue) >= count)
        found = [self.channel.get(queue, no_ack=True) for _ in range(count)]
        assert self.count(queue) == 0
        return found


@pytest.fixture
def shovelling(api: HttpApi, own_vhost: str, broker_url: str, poll: Poll) -> Iterator[Shovelling]:
    address = parse_url(broker_url)
    url = f"amqp://{address.user}:{address.password}@{address.host}:{address.port}/{quote(own_vhost, safe='')}"
    with Connection(url) as connection:
        yield Shovelling(api, own_vhost, connection.channel(), broker_url, poll)
        api.ask("DELETE", path("parameters", "shovel", own_vhost, "x"))


WAYS = pytest.mark.parametrize(
    ("source", "destination"), [("local", "local"), ("local", "remote"), ("remote", "local"), ("remote", "remote")]
)
#: Each type of field, bytes that are no UTF-8, and a nested table.
HEADERS = [
    ("t", "t", True), ("b", "b", -3), ("s", "s", 300), ("I", "I", 70000), ("l", "l", 5), ("f", "f", 1.5),
    ("d", "d", 2.5),
    ("D", "D", (2, 314)), ("S", "S", "text"), ("bytes", "S", b"\xff\xfe"), ("x", "x", b"\x00\x01"),
    ("A", "A", [("I", 1), ("S", "two")]), ("F", "F", [("a", "F", [("b", "I", 1)])]), ("T", "T", 1234567890),
    ("V", "V", None),
]  # fmt: skip
ALL = {
    "content_type": "text/plain", "content_encoding": "gzip", "headers": HEADERS, "delivery_mode": 2, "priority": 3,
    "correlation_id": "c", "reply_to": "r", "expiration": "600000", "message_id": "m", "timestamp": 5, "type": "t",
    "app_id": "a", "cluster_id": "u",
}  # fmt: skip


class TestMessages:
    @WAYS
    def test_48_4_queues_are_declared(self, shovelling: Shovelling, source: str, destination: str) -> None:
        limits = {"src_queue_args": {"x-max-length": 7}, "dest_queue_args": {"x-message-ttl": 60000}}
        shovelling.set(source, destination, src_queue="aß b", dest_queue="b/'b", **limits)
        shovelling.wait(lambda: shovelling.exists("aß b") and shovelling.exists("b/'b"))
        found = [shovelling.api.get(path("queues", shovelling.vhost, name)) for name in ("aß b", "b/'b")]
        assert [(queue["durable"], queue["arguments"]) for queue in found] == [
            (True, {"x-max-length": 7}), (True, {"x-message-ttl": 60000})
        ]  # fmt: skip

    @WAYS
    def test_48_4_queues_that_exist_stay(self, shovelling: Shovelling, source: str, destination: str) -> None:
        for name in ("a", "b"):
            shovelling.channel.queue_declare(name, auto_delete=True)
        shovelling.channel.publish("", "a", b"1")
        arguments = {"src_queue_args": {"x-max-length": 7}, "dest_queue_args": {"x-max-length": 7}}
        shovelling.set(source, destination, src_queue="a", dest_queue="b", **arguments)
        assert [message.body for message in shovelling.take("b", 1)] == [b"1"]

    @pytest.mark.departs("3.12")
    @WAYS
    def test_48_4_predeclared(self, shovelling: Shovelling, source: str, destination: str) -> None:
        value = {"src_queue": "a", "dest_queue": "b", "src_predeclared": True, "dest_predeclared": True}
        shovelling.set(source, destination, **value, reconnect_delay=0.1)
        shovelling.channel.queue_declare("b")
        shovelling.channel.queue_declare("a")
        shovelling.channel.publish("", "a", b"1")
        assert [message.body for message in shovelling.take("b", 1)] == [b"1"]

    @pytest.mark.departs("none")
    @WAYS
    def test_48_19_the_destination_is_deleted(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.set(source, destination, src_queue="a", dest_queue="b", reconnect_delay=0.1)
        shovelling.wait(lambda: shovelling.exists("b"))
        shovelling.channel.queue_delete("b")
        shovelling.channel.publish("", "a", b"1")
        assert [message.body for message in shovelling.take("b", 1)] == [b"1"]

    @pytest.mark.parametrize("source", ["local", "remote"])
    def test_48_18_deaths_go_on_counting(self, shovelling: Shovelling, source: str) -> None:
        channel = shovelling.channel
        for name, letters in (("first", "a"), ("b", "second"), ("a", ""), ("second", "")):
            arguments = dead_letter_to("", letters) if letters else []
            channel.queue_declare(name, durable=True, arguments=arguments)
        shovelling.set(source, "local", src_queue="a", dest_queue="b")
        channel.publish("", "first", b"1")
        reject(channel, "first")
        shovelling.wait(lambda: shovelling.count("b") == 1)
        reject(channel, "b")
        assert history(arrival(channel, "second")) == [("b", "rejected", 1), ("first", "rejected", 1)]

    @WAYS
    def test_48_5_all_of_a_message(self, shovelling: Shovelling, source: str, destination: str) -> None:
        channel = shovelling.channel
        channel.queue_declare("a", durable=True, arguments=[("x-max-priority", "b", 5)])
        shovelling.set(source, destination, src_queue="a", dest_queue="b")
        bodies = [b"", b"1", b"x" * 300_000]
        for body in bodies:
            channel.publish("", "a", body, ALL)
        found = shovelling.take("b", 3)
        assert [message.body for message in found] == bodies
        assert {message.header[12:] for message in found} == {properties(**ALL)}
        assert {(message.exchange, message.routing_key) for message in found} == {("", "b")}
        shovelling.wait(lambda: shovelling.api.get(path("queues", shovelling.vhost, "a")).get("messages") == 0)

    @WAYS
    def test_48_5_the_order_of_many(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        bodies = [b"%d" % number for number in range(3000)]
        for number, body in enumerate(bodies):
            shovelling.channel.publish("", "a", body, {"delivery_mode": 2, "headers": [("n", "I", number % 3)]})
        shovelling.set(source, destination, src_queue="a", dest_queue="b", src_prefetch_count=50)
        assert [message.body for message in shovelling.take("b", 3000)] == bodies

    @WAYS
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"dest_exchange": "amq.fanout"}, ("amq.fanout", "k.1")),
            ({"dest_exchange": "amq.fanout", "dest_exchange_key": "other"}, ("amq.fanout", "other")),
        ],
    )
    def test_48_6_exchanges(
        self, shovelling: Shovelling, source: str, destination: str, given: dict[str, str], expected: tuple[str, str]
    ) -> None:
        channel = shovelling.channel
        channel.queue_declare("a", durable=True)
        channel.queue_bind("a", "amq.topic", "k.#")
        channel.queue_declare("b")
        channel.queue_bind("b", "amq.fanout")
        shovelling.set(source, destination, src_queue="a", **given)
        channel.publish("amq.topic", "k.1", b"1")
        (found,) = shovelling.take("b", 1)
        assert (found.exchange, found.routing_key) == expected

    @WAYS
    def test_48_6_as_it_was(self, shovelling: Shovelling, source: str, destination: str) -> None:
        channel = shovelling.channel
        channel.queue_declare("a", durable=True)
        channel.queue_bind("a", "amq.topic", "k.#")
        channel.publish("amq.topic", "k.1", b"1")
        channel.queue_unbind("a", "amq.topic", "k.#")
        channel.queue_declare("b")
        channel.queue_bind("b", "amq.topic", "k.#")
        shovelling.set(source, destination, src_queue="a")
        (found,) = shovelling.take("b", 1)
        assert (found.exchange, found.routing_key) == ("amq.topic", "k.1")

    @WAYS
    def test_48_7_exchanges_as_source(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.set(source, destination, src_exchange="amq.topic", src_exchange_key="k.#", dest_queue="b")
        below = path("exchanges", shovelling.vhost, "amq.topic", "bindings", "source")
        shovelling.wait(lambda: bool(shovelling.api.get(below)) and shovelling.exists("b"))
        shovelling.channel.publish("amq.topic", "other", b"0")
        shovelling.channel.publish("amq.topic", "k.1", b"1")
        assert [message.body for message in shovelling.take("b", 1)] == [b"1"]

    @WAYS
    def test_48_8_forward_headers(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        shovelling.set(
            source, destination, src_queue="a", dest_queue="b", dest_add_forward_headers=True,
            dest_add_timestamp_header=True,
        )  # fmt: skip
        before, earlier = int(time.time()), [("earlier", "I", 1)]
        shovelling.channel.publish("", "a", b"1", {"headers": [("z", "I", 1), ("x-shovelled", "A", [("F", earlier)])]})
        (found,) = shovelling.take("b", 1)
        shown = {"local": shovelling.uris["local"], "remote": shovelling.shown}
        way = {
            "shovelled-by": shovelling.api.get("cluster-name")["name"], "shovel-type": "dynamic", "shovel-name": "x",
            "shovel-vhost": shovelling.vhost, "src-uri": shown[source], "dest-uri": shown[destination],
            "src-queue": "a", "dest-queue": "b",
        }  # fmt: skip
        at = found.header.index(b"x-shovelled-timestampl") + len(b"x-shovelled-timestampl")
        (seconds,) = struct.unpack_from(">q", found.header, at)
        assert before <= seconds <= time.time()
        table = [(key, "S", value) for key, value in way.items()]
        headers = [
            ("x-shovelled", "A", [("F", table), ("F", earlier)]), ("x-shovelled-timestamp", "l", seconds), ("z", "I", 1)
        ]  # fmt: skip
        assert found.header[12:] == properties(headers=headers)

    @WAYS
    def test_48_9_properties(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        replaced = {"delivery_mode": 2, "content_type": "x/y", "priority": 7, "timestamp": 9}
        shovelling.set(source, destination, src_queue="a", dest_queue="b", dest_publish_properties=replaced)
        shovelling.channel.publish("", "a", b"1", {"content_type": "text/plain", "app_id": "a", "delivery_mode": 1})
        (found,) = shovelling.take("b", 1)
        assert found.header[12:] == properties(**replaced, app_id="a")

    @WAYS
    @pytest.mark.parametrize("mode", ["on-confirm", "on-publish"])
    def test_48_10_a_number_of_messages(self, shovelling: Shovelling, source: str, destination: str, mode: str) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        for number in range(10):
            shovelling.channel.publish("", "a", b"%d" % number)
        shovelling.set(source, destination, src_queue="a", dest_queue="b", src_delete_after=4, ack_mode=mode)
        shovelling.wait(shovelling.is_gone)
        assert [message.body for message in shovelling.take("b", 4)] == [b"0", b"1", b"2", b"3"]
        shovelling.wait(lambda: shovelling.count("a") == 6)

    @WAYS
    @pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
    def test_48_10_what_is_there(self, shovelling: Shovelling, source: str, destination: str, mode: str) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        for number in range(10):
            shovelling.channel.publish("", "a", b"%d" % number)
        shovelling.channel.sync("a")
        shovelling.set(
            source, destination, src_queue="a", dest_queue="b", src_delete_after="queue-length", ack_mode=mode
        )
        shovelling.wait(shovelling.is_gone)
        assert [message.body for message in shovelling.take("b", 10)] == [b"%d" % number for number in range(10)]

    @pytest.mark.parametrize("after", [0, "queue-length"])
    def test_48_10_nothing(self, shovelling: Shovelling, after: Any) -> None:
        shovelling.set(src_queue="a", dest_queue="b", src_delete_after=after)
        shovelling.wait(shovelling.is_gone)

    @WAYS
    def test_48_11_what_is_refused(self, shovelling: Shovelling, source: str, destination: str) -> None:
        full = [("x-max-length", "I", 2), ("x-overflow", "S", "reject-publish")]
        shovelling.channel.queue_declare("b", durable=True, arguments=full)
        shovelling.channel.queue_declare("a", durable=True)
        for number in range(5):
            shovelling.channel.publish("", "a", b"%d" % number)
        shovelling.set(source, destination, src_queue="a", dest_queue="b")
        found: list[bytes] = []
        while len(found) < 5:
            shovelling.wait(lambda: shovelling.count("b") > 0)
            message = shovelling.channel.get("b", no_ack=True)
            found += [] if message is None else [message.body]
        assert sorted(found) == [b"%d" % number for number in range(5)]
        shovelling.wait(lambda: shovelling.count("a") == 0)


class TestStates:
    def shown(self, shovelling: Shovelling, below: str = "") -> dict[str, Any]:
        """Wait until the shovel is listed; return it without what changes."""
        target = below or path("shovels", shovelling.vhost)
        shovelling.wait(lambda: bool(shovelling.api.get(target)))
        (shovel,) = [each for each in shovelling.api.get(target) if each["vhost"] == shovelling.vhost]
        return {key: value for key, value in shovel.items() if key not in ("forwarded", "pending", "remaining")}

    def wait_for(self, shovelling: Shovelling, state: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def is_in_state() -> bool:
            found.append(self.shown(shovelling))
            return bool(found[-1]["state"] == state)

        shovelling.wait(is_in_state)
        return found[-1]

    def test_48_12_a_running_one(self, shovelling: Shovelling) -> None:
        given = {"src_exchange": "amq.topic", "src_exchange_key": "k.#", "dest_exchange": "amq.fanout"}
        shovelling.set("remote", "local", **given, dest_exchange_key="d")
        found = self.wait_for(shovelling, "running")
        node = shovelling.api.get("overview")["node"]
        time.strptime(found.pop("timestamp"), "%Y-%m-%d %H:%M:%S")
        expected = {
            "node": node, "name": "x", "vhost": shovelling.vhost, "type": "dynamic", "state": "running",
            "src_uri": shovelling.shown, "src_protocol": "amqp091", "dest_protocol": "amqp091",
            "dest_uri": shovelling.uris["local"], "src_exchange": "amq.topic", "src_exchange_key": "k.#",
            "dest_exchange": "amq.fanout", "dest_exchange_key": "d",
        }  # fmt: skip
        assert found == expected
        for below in ("shovels", path("shovels", "vhost", shovelling.vhost, "x")):
            assert expected.items() <= self.shown(shovelling, below).items()

    def test_48_12_queues(self, shovelling: Shovelling) -> None:
        shovelling.set(src_queue="a", dest_queue="b")
        found = self.wait_for(shovelling, "running")
        ends = {key: value for key, value in found.items() if key.startswith(("src_", "dest_"))}
        uri = shovelling.uris["local"]
        protocols = {"src_protocol": "amqp091", "dest_protocol": "amqp091"}
        assert ends == {"src_uri": uri, "dest_uri": uri, **protocols, "src_queue": "a", "dest_queue": "b"}

    def test_48_12_what_does_not_exist(self, api: HttpApi, own_vhost: str) -> None:
        assert api.get(path("shovels", own_vhost)) == []
        for below in (path("shovels", "conformance-no-vhost"), path("shovels", "vhost", own_vhost, "nope")):
            api.check("GET", below, None, 404, NOT_FOUND)
        for below in ("nope", "nope/restart"):
            api.check("DELETE", f"{path('shovels', 'vhost', own_vhost)}/{below}", None, 404, NOT_FOUND)

    def test_48_13_who_sees_them(self, shovelling: Shovelling, belongings: Belongings) -> None:
        shovelling.set(src_queue="a", dest_queue="b")
        self.wait_for(shovelling, "running")
        api, below = shovelling.api, path("shovels", "vhost", shovelling.vhost, "x")
        for tag in ("management", "policymaker"):
            user = belongings.user(tag, shovelling.vhost)
            for target in ("shovels", path("shovels", shovelling.vhost), below):
                api.check("GET", target, None, 401, not_authorised("Not monitor user"), user=user)
            api.check("DELETE", below, None, 401, not_authorised("Not monitor user"), user=user)
        stranger = belongings.user("monitoring")
        api.check("GET", "shovels", None, 200, [], user=stranger)
        api.check("GET", below, None, 404, NOT_FOUND, user=stranger)
        found = api.get(path("shovels", shovelling.vhost), user=belongings.user("monitoring", shovelling.vhost))
        assert [each["name"] for each in found] == ["x"]

    @pytest.mark.departs("none")
    def test_48_13_who_changes_them(self, shovelling: Shovelling, belongings: Belongings) -> None:
        shovelling.set(src_queue="a", dest_queue="b")
        below, vhost = path("shovels", "vhost", shovelling.vhost, "x"), shovelling.vhost
        refused = not_authorised("User not authorised to access object")
        for target in (below, f"{below}/restart"):
            shovelling.api.check("DELETE", target, None, 401, refused, user=belongings.user("monitoring", vhost))
        both = belongings.user("monitoring,policymaker", vhost)
        shovelling.api.check("DELETE", f"{below}/restart", None, 204, user=both)

    def test_48_14_restarting_and_deleting(self, shovelling: Shovelling) -> None:
        shovelling.set(src_queue="a", dest_queue="b")
        before = self.wait_for(shovelling, "running")["timestamp"]
        below = path("shovels", "vhost", shovelling.vhost, "x")
        time.sleep(1.1)  # the time has whole seconds
        shovelling.api.check("DELETE", f"{below}/restart", None, 204)
        shovelling.wait(lambda: self.wait_for(shovelling, "running")["timestamp"] > before)
        shovelling.channel.publish("", "a", b"1")
        shovelling.take("b", 1)
        shovelling.api.check("DELETE", below, None, 204)
        shovelling.wait(lambda: shovelling.api.get(path("shovels", shovelling.vhost)) == [])
        assert shovelling.is_gone()
        shovelling.api.check("DELETE", below, None, 404, NOT_FOUND)

    @pytest.mark.parametrize("wrong", ["amqp://guest:wrong@{}", "amqp://127.0.0.1:1", "amqp://{}/conformance-no-vhost"])
    def test_48_15_no_connection(self, shovelling: Shovelling, wrong: str) -> None:
        host = shovelling.shown.removeprefix("amqp://").partition("/")[0]
        shovelling.uris["remote"] = wrong.format(host)
        shovelling.set("remote", "local", src_queue="a", dest_queue="b", reconnect_delay=1)
        found = self.shown(shovelling)
        assert found["state"] == "starting"
        assert not any(key.startswith(("src_", "dest_")) for key in found)

    def test_48_15_a_queue_that_is_locked(self, shovelling: Shovelling) -> None:
        shovelling.channel.queue_declare("a", exclusive=True)
        shovelling.set(src_queue="a", dest_queue="b", reconnect_delay=1)
        assert self.wait_for(shovelling, "terminated")["reason"]
        shovelling.channel.queue_delete("a")
        self.wait_for(shovelling, "running")

    @pytest.mark.departs("none")
    @WAYS
    def test_48_15_what_was_said(self, shovelling: Shovelling, source: str, destination: str) -> None:
        """RabbitMQ's shovel goes on without its channel when the exchange does not exist."""
        shovelling.channel.queue_declare("a", durable=True)
        shovelling.channel.publish("", "a", b"1")
        shovelling.set(source, destination, src_queue="a", dest_exchange="nope", reconnect_delay=0.2)
        found = self.wait_for(shovelling, "terminated")
        assert found["reason"] == f"<<\"NOT_FOUND - no exchange 'nope' in vhost '{shovelling.vhost}'\">>"
        shovelling.channel.queue_declare("b")
        shovelling.channel.queue_bind("b", "amq.fanout")
        # At no time it is there without a queue for the message.
        shovelling.channel.exchange_declare("nope", arguments=[("alternate-exchange", "S", "amq.fanout")])
        assert [message.body for message in shovelling.take("b", 1)] == [b"1"]

    @pytest.mark.departs("none")
    def test_48_15_one_queue_for_both_ends(self, shovelling: Shovelling) -> None:
        shovelling.channel.queue_declare("a", durable=True)
        shovelling.channel.publish("", "a", b"1")
        shovelling.set(src_queue="a", dest_queue="a", reconnect_delay=0.1)
        assert self.wait_for(shovelling, "terminated")["reason"] == "<<\"queue 'a' is source and destination\">>"
        assert shovelling.count("a") == 1

    @WAYS
    def test_48_15_the_queue_is_deleted(self, shovelling: Shovelling, source: str, destination: str) -> None:
        shovelling.set(source, destination, src_queue="a", dest_queue="b", reconnect_delay=1)
        self.wait_for(shovelling, "running")
        shovelling.channel.queue_delete("a")
        shovelling.wait(lambda: shovelling.exists("a"))
        shovelling.channel.publish("", "a", b"1")
        shovelling.take("b", 1)
