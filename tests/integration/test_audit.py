"""The audit log of a broker: a scripted administrator's day is there line by line, also after a kill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.http_api import HttpApi
from tests.support.events import ConnectionClosed
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import LeveretctlProgram
from tests.support.management import Management
from tests.support.wire import Connection

HOST = "127.0.0.1"
#: What a day has: kind, object, number of messages, and whether it is a consequence; in order.
Line = tuple[str, str, int | None, bool]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path) as process:
        yield process


def audit(broker: LeveretProcess, **query: Any) -> Any:
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return HttpApi(Management(broker.http_url)).get(f"audit?{text}")


class TestADay:
    """Everything that an administrator does over AMQP, HTTP and with leveretctl."""

    def test_each_line_is_there_with_user_and_address(self, broker: LeveretProcess) -> None:
        api, ctl = Management(broker.http_url), LeveretctlProgram(broker.http_url)
        expected: list[Line] = []
        for act in (self._over_http, self._over_amqp, self._by_command, self._failures):
            expected += act(broker, api, ctl)
        found = audit(broker, page=1, page_size=500)
        assert not found["has_more"]
        lines = [
            (each["kind"], each["details"].get("queue", each["object"]), each["count"], each["broker"])
            for each in reversed(found["items"])
            # Those of the new virtual host's own exchanges.
            if not (each["kind"].startswith("exchange.") and not each["object"].startswith("x"))
        ]
        assert lines == expected
        assert "secret" not in str(found)
        assert {each["host"] for each in found["items"]} == {HOST}
        users = {each["user"] for each in found["items"]}
        assert users == {"guest", "nobody"}
        assert {each["user"] for each in found["items"] if each["kind"] != "user.authentication.failure"} == {"guest"}

    def _over_http(self, broker: LeveretProcess, api: Management, ctl: LeveretctlProgram) -> list[Line]:
        api.request("PUT", "vhosts", "v", body={"description": "d"})
        api.request("PUT", "users", "ann", body={"password": "p", "tags": "monitoring"})
        api.request("PUT", "permissions", "v", "ann", body={"configure": ".*", "write": ".*", "read": ".*"})
        api.request("PUT", "policies", "v", "p", body={"pattern": "^q", "definition": {"max-length": 9}})
        api.request("DELETE", "policies", "v", "p")
        api.request("PUT", "exchanges", "v", "x", body={"type": "direct"})
        api.request("PUT", "queues", "v", "q", body={"durable": True})
        api.request("POST", "bindings", "v", "e", "x", "q", "q", body={"routing_key": "k"})
        body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        for _ in range(3):
            api.request("POST", "exchanges", "v", "amq.default", "publish", body=body)
        api.request("DELETE", "queues", "v", "q", "contents")
        api.request("POST", "exchanges", "v", "amq.default", "publish", body=body)
        api.request("DELETE", "queues", "v", "q")
        api.request("DELETE", "users", "ann")
        api.request("DELETE", "vhosts", "v")
        return [
            ("vhost.created", "v", None, False),
            ("permission.created", "guest", None, False),
            ("user.created", "ann", None, False),
            ("user.tags.set", "ann", None, False),
            ("permission.created", "ann", None, False),
            ("policy.set", "p", None, False),
            ("policy.cleared", "p", None, False),
            ("exchange.created", "x", None, False),
            ("queue.created", "q", None, False),
            ("binding.created", "x -> q", None, False),
            ("queue.purged", "q", 3, False),
            ("binding.deleted", "x -> q", None, True),
            ("queue.deleted", "q", 1, False),
            ("user.deleted", "ann", None, False),
            ("permission.deleted", "guest", None, False),
            ("exchange.deleted", "x", None, False),
            ("vhost.deleted", "v", None, False),
            ("vhost.down", "v", None, True),
        ]

    def _over_amqp(self, broker: LeveretProcess, api: Management, ctl: LeveretctlProgram) -> list[Line]:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.exchange_declare("x2", "fanout", auto_delete=True)
            channel.queue_declare("mine", exclusive=True)
            channel.queue_declare("q2", durable=True)
            channel.queue_bind("q2", "x2")
            channel.queue_bind("mine", "x2")
            for _ in range(2):
                channel.publish(routing_key="q2", body=b"x")
            channel.consume("q2", "c")
            channel.cancel("c")
            channel.recover()
            channel.queue_purge("q2")
            channel.queue_unbind("q2", "x2")
            channel.queue_delete("q2")
        return [
            ("exchange.created", "x2", None, False),
            ("queue.created", "q2", None, False),
            ("binding.created", "x2 -> q2", None, False),
            ("queue.purged", "q2", 2, False),
            ("binding.deleted", "x2 -> q2", None, False),
            ("queue.deleted", "q2", 0, False),
            ("exchange.deleted", "x2", None, True),
        ]

    def _by_command(self, broker: LeveretProcess, api: Management, ctl: LeveretctlProgram) -> list[Line]:
        for line in (
            "declare_queue from", "declare_queue into", "publish from x", "move_messages from into",
            "set_parameter shovel s {\"src-uri\":\"amqp://u:secret@127.0.0.1:1\",\"src-queue\":\"a\",\"dest-uri\":"
            "\"amqp://\",\"dest-queue\":\"into\"}",
            "clear_parameter shovel s", "set_vhost_limits {\"max-queues\":9}", "clear_vhost_limits",
            "set_cluster_name c", "change_password guest guest",
        ):  # fmt: skip
            ran = ctl(*line.split(" "))
            assert ran.status == 0, ran
        delayed = ("xd", "x-delayed-message", "--argument", "x-delayed-type=direct")
        assert ctl("declare_exchange", *delayed).status == 0
        assert ctl("publish", "k", "x", "--exchange", "xd", "--header", "x-delay=1000000").status == 0
        (number,) = [each["id"] for each in api.request("GET", "exchanges", "/", "xd", "delayed")["messages"]]
        assert ctl("cancel_delayed_message", "xd", str(number)).status == 0
        return [
            ("queue.created", "from", None, False),
            ("queue.created", "into", None, False),
            ("job.created", "from", None, False),
            ("job.ended", "from", 1, False),
            ("parameter.set", "shovel/s", None, False),
            ("parameter.cleared", "shovel/s", None, False),
            ("parameter.set", "vhost-limits/limits", None, False),
            ("vhost.limits.set", "/", None, False),
            ("parameter.cleared", "vhost-limits/limits", None, False),
            ("vhost.limits.cleared", "/", None, False),
            ("parameter.set", "global/cluster_name", None, False),
            ("user.password.changed", "guest", None, False),
            ("user.tags.set", "guest", None, False),
            ("exchange.created", "xd", None, False),
            ("message.cancelled", "xd", 1, False),
        ]

    def _failures(self, broker: LeveretProcess, api: Management, ctl: LeveretctlProgram) -> list[Line]:
        with pytest.raises(ConnectionClosed):
            Connection(broker.url, user="nobody", password="wrong")
        return [("user.authentication.failure", "nobody", None, False)]


def test_it_survives_a_kill(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    for number in range(20):
        api.request("PUT", "queues", "/", f"q{number}", body={})
    broker.kill()
    broker.start()
    names = [each["object"] for each in audit(broker, kind="queue.created")["items"]]
    assert names == [f"q{number}" for number in reversed(range(20))]


def test_it_is_searched_by_all_that_it_has(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    for name in ("a1", "a2", "b[1]"):
        api.request("PUT", "queues", "/", name, body={})
    middle = audit(broker)["items"][0]["at"]
    while time.time() * 1000 < middle + 1:
        # The clock of the log has milliseconds.
        pass
    for name in ("a1", "a2"):
        api.request("DELETE", "queues", "/", name)

    def objects(**query: Any) -> list[str]:
        return [each["object"] for each in audit(broker, **query)["items"]]

    assert objects(kind="queue.*", object="a*") == ["a2", "a1", "a2", "a1"]
    assert objects(kind="queue.deleted", user="guest", host=HOST, vhost="%2F") == ["a2", "a1"]
    assert objects(object="b%5B1%5D") == ["b[1]"]
    assert objects(user="ann") == objects(host="10.*") == objects(vhost="v") == []
    assert objects(since=middle + 1) == ["a2", "a1"]
    assert objects(until=middle) == ["b[1]", "a2", "a1"]
    pages = [audit(broker, page=page, page_size=2) for page in (1, 2, 3)]
    assert [[each["object"] for each in page["items"]] for page in pages] == [["a2", "a1"], ["b[1]", "a2"], ["a1"]]
    assert [page["has_more"] for page in pages] == [True, True, False]


def test_clients_are_logged_if_asked_for(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"audit.connections": "true"}) as broker:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("mine", exclusive=True)
            channel.consume("mine", "c")
        kinds = [each["kind"] for each in reversed(audit(broker)["items"])]
        assert kinds[:5] == [
            "user.authentication.success", "connection.created", "channel.created", "queue.created", "consumer.created",
        ]  # fmt: skip
        assert sorted(kinds[5:]) == ["channel.closed", "connection.closed", "consumer.deleted", "queue.deleted"]


def test_equal_failed_logins_are_counted_and_the_exchange_tells_each(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    api.request("PUT", "queues", "/", "failures", body={})
    body = {"routing_key": "user.authentication.failure"}
    api.request("POST", "bindings", "/", "e", "amq.rabbitmq.event", "q", "failures", body=body)
    for _ in range(4):
        with pytest.raises(ConnectionClosed):
            Connection(broker.url, user="nobody", password="wrong")
    api.request("DELETE", "queues", "/", "failures", "contents")
    assert [each["count"] for each in audit(broker, kind="queue.purged")["items"]] == [4]
    assert [each["count"] for each in audit(broker, user="nobody")["items"]] == [None]
    broker.stop()
    broker.start()
    counted, first = audit(broker, user="nobody")["items"]
    assert (counted["count"], first["count"]) == (3, None)
    assert first["at"] <= counted["details"]["first"] <= counted["details"]["last"] == counted["at"]


def test_without_it_there_are_no_files(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"audit.enabled": "false"}) as broker:
        Management(broker.http_url).request("PUT", "queues", "/", "q", body={})
        assert audit(broker) == {"enabled": False, "page": 1, "page_size": 100, "has_more": False, "items": []}
        ran = LeveretctlProgram(broker.http_url)("list_audit")
        assert (ran.status, "audit.enabled is false" in ran.err) == (69, True)
    assert not [*tmp_path.glob("**/au-*.log")]


def test_the_command_lists_columns(broker: LeveretProcess) -> None:
    api, ctl = Management(broker.http_url), LeveretctlProgram(broker.http_url)
    for name in ("a", "b"):
        api.request("PUT", "queues", "/", name, body={})
    listed = ctl("list_audit", "--kind", "queue.*", "--quiet", "user", "host", "kind", "object")
    assert listed.out.splitlines() == [
        "user\thost\tkind\tobject", f"guest\t{HOST}\tqueue.created\tb", f"guest\t{HOST}\tqueue.created\ta",
    ]  # fmt: skip
    assert ctl("list_audit", "--limit", "1", "--silent", "object").out == "b\n"
    # All virtual hosts, unless one is named.
    api.request("PUT", "vhosts", "v")
    api.request("PUT", "queues", "v", "c", body={})
    created = ("list_audit", "--kind", "queue.created", "--silent")
    assert ctl(*created, "object").out.split() == ["c", "b", "a"]
    assert ctl(*created, "--vhost", "v", "object").out.split() == ["c"]
    assert ctl(*created, "--host", HOST, "object").out.split() == ["c", "b", "a"]
    assert ctl(*created, "--host", "10.*", "object").out == ""
