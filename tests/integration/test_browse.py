"""Looking at messages without taking them, over HTTP and by leveretctl."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Channel, Connection


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url) as opened:
        yield opened.channel()


class Api:
    """The resource of one broker."""

    def __init__(self, url: str) -> None:
        self.management = Management(url)

    def page(self, queue: str, **query: Any) -> dict[str, Any]:
        query = {name.removesuffix("_"): value for name, value in query.items()}
        url = f"{self.management.base}/api/queues/%2F/{quote(queue, safe='')}/browse?{urlencode(query)}"
        with urlopen(Request(url, headers={"Authorization": self.management.authorization})) as response:
            found: dict[str, Any] = json.loads(response.read())
        return found

    def all(self, queue: str, **query: Any) -> list[dict[str, Any]]:
        messages, place = [], ""
        while True:
            page = self.page(queue, from_=place, **query)
            messages += page["messages"]
            place = page["next"]
            if place is None:
                return messages

    def counters(self, queue: str) -> tuple[Any, ...]:
        found = self.management.request("GET", "queues", "/", queue)
        stats = found.get("message_stats", {})
        return (
            found["messages_ready"],
            found["messages_unacknowledged"],
            stats.get("deliver_get"),
            stats.get("redeliver"),
        )


def refused(api: Api, queue: str, **query: Any) -> int:
    """The status of a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        api.page(queue, **query)
    caught.value.close()
    return caught.value.code


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> Api:
    return Api(process.http_url)


KINDS: dict[str, tuple[bool, list[tuple[str, str, Any]]]] = {
    "classic": (True, []),
    "lazy": (True, [("x-queue-mode", "S", "lazy")]),
    "memory": (False, []),
    "quorum": (True, [("x-queue-type", "S", "quorum")]),
    "priority": (True, [("x-max-priority", "I", 5)]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [1, 2])
def test_ready_and_unacked_messages_are_seen_and_stay(channel: Channel, api: Api, kind: str, mode: int) -> None:
    durable, arguments = KINDS[kind]
    name = f"seen.{kind}.{mode}"
    channel.queue_declare(name, durable=durable, arguments=arguments)
    for number in range(700):
        channel.publish("", name, b"%d" % number, {"delivery_mode": mode})
    channel.sync()
    got = [channel.get(name) for _ in range(3)]
    before = api.counters(name)
    found = api.all(name, count=101)
    assert [each["payload"] for each in found] == [str(number) for number in range(700)]
    assert [each["state"] for each in found] == ["unacked"] * 3 + ["ready"] * 697
    assert [each["redelivered"] for each in found] == [True] * 3 + [False] * 697
    assert len({each["place"] for each in found}) == 700
    assert [each["place"] for each in api.all(name, count=1000)] == [each["place"] for each in found]
    assert api.counters(name) == before
    following = channel.get(name)
    assert following is not None
    assert (following.body, following.redelivered) == (b"3", False)
    assert got[0] is not None
    channel.reject(got[0].delivery_tag, requeue=True)
    channel.sync()
    states = [(each["payload"], each["state"]) for each in api.all(name)]
    if kind == "quorum":
        # It has a new place, at the tail.
        assert (states[0], states[-1]) == (("1", "unacked"), ("0", "ready"))
    else:
        assert states[:4] == [("0", "ready"), ("1", "unacked"), ("2", "unacked"), ("3", "unacked")]
    assert len(states) == 700
    channel.queue_delete(name)


def test_filters(channel: Channel, api: Api) -> None:
    channel.queue_declare("filtered", durable=True)
    for number in range(300):
        headers = [("n", "I", number)]
        properties = {"headers": headers, "message_id": f"m{number}", "delivery_mode": 2}
        channel.publish("", "filtered", json.dumps({"order": {"id": number}}).encode(), properties)
    channel.sync()

    def ids(condition: str) -> list[int]:
        return [json.loads(each["payload"])["order"]["id"] for each in api.all("filtered", filter=condition)]

    assert ids("header.n=7") == [7]
    assert ids('{"headers": {"n": 7}}') == [7]
    assert ids("property.message_id=m299") == [299]
    assert ids("body.order.id=150") == [150]
    assert ids("header.n=1\nbody.order.id=2\nmatch=any") == [1, 2]
    assert ids("older_than=1h") == []
    assert len(ids("newer_than=1h")) == 300
    assert len(ids("routing_key=filt*")) == 300
    page = api.page("filtered", filter="header.n=7", count=1)
    assert (page["scanned"], page["next"]) == (8, "0.9")
    channel.queue_delete("filtered")


def test_payloads(channel: Channel, api: Api) -> None:
    channel.queue_declare("payloads")
    channel.publish("", "payloads", b"\xff\xfe", {})
    channel.publish("", "payloads", b"plain", {"content_type": "text/plain"})
    channel.sync()
    first, second = api.all("payloads", truncate=3)
    assert (first["payload"], first["payload_encoding"], first["properties"]) == ("//4=", "base64", [])
    assert (second["payload"], second["payload_bytes"]) == ("pla", 5)
    assert second["properties"] == {"content_type": "text/plain"}
    assert api.all("payloads", encoding="base64")[1]["payload"] == "cGxhaW4="
    channel.queue_delete("payloads")


def test_messages_of_a_cancelled_consumer_and_of_a_transaction(channel: Channel, api: Api) -> None:
    channel.queue_declare("held")
    for number in range(4):
        channel.publish("", "held", b"%d" % number, {})
    channel.sync()
    other = channel.connection.channel()
    other.tx_select()
    taken = [other.get("held"), other.get("held")]
    assert taken[0] is not None
    other.ack(taken[0].delivery_tag)
    other.sync()
    assert [each["state"] for each in api.all("held")] == ["unacked", "unacked", "ready", "ready"]
    other.tx_commit()
    assert [each["payload"] for each in api.all("held")] == ["1", "2", "3"]
    channel.queue_delete("held")


def test_an_exclusive_queue_may_be_looked_at(channel: Channel, api: Api) -> None:
    channel.queue_declare("mine", exclusive=True)
    channel.publish("", "mine", b"x", {})
    channel.sync()
    assert [each["payload"] for each in api.all("mine")] == ["x"]


@pytest.mark.parametrize(
    "query", [{"from_": "x"}, {"from_": "1"}, {"count": 0}, {"count": 1001}, {"filter": "colour=red"}, {"truncate": -1}]
)
def test_bad_requests(channel: Channel, api: Api, query: dict[str, Any]) -> None:
    channel.queue_declare("bad")
    assert refused(api, "bad", **query) == 400


def test_permissions(process: LeveretProcess, channel: Channel, api: Api) -> None:
    channel.queue_declare("secret")
    for name, read in (("reader", ".*"), ("writer", "")):
        body = {"password": "x", "tags": "management"}
        api.management.request("PUT", "users", name, body=body)
        body = {"configure": ".*", "write": ".*", "read": read}
        api.management.request("PUT", "permissions", "/", name, body=body)
    assert Api(process.http_url.replace("guest:guest", "reader:x")).page("secret")["messages"] == []
    assert refused(Api(process.http_url.replace("guest:guest", "writer:x")), "secret") == 401
    assert refused(api, "nowhere") == 404


def test_leveretctl(process: LeveretProcess, channel: Channel) -> None:
    ctl = Leveretctl(process.http_url)
    channel.queue_declare("ctl", durable=True)
    for number in range(30):
        channel.publish("", "ctl", b"line\n%d" % number, {"headers": [("n", "I", number)]})
    channel.sync()
    shown = ctl.output("browse", "ctl", "place", "payload", "-s")
    assert shown.splitlines()[:2] == ["0.1\tline\\n0", "0.2\tline\\n1"]
    assert len(shown.splitlines()) == 20
    shown = ctl.output("browse", "ctl", "--from", "0.30", "--count", "5", "-s", "payload", "headers")
    assert shown == 'line\\n29\t{"n":29}\n'
    found = json.loads(ctl.output("browse", "ctl", "--filter", "header.n=3", "--formatter", "json"))
    assert [each["payload"] for each in found] == ["line\n3"]
    assert ctl("browse", "ctl", "colour").status == 64
    assert ctl("browse", "ctl", "--filter", "red").status == 65
    assert ctl("browse", "nowhere").err == "Error:\nno queue 'nowhere' in vhost '/'\n"


def test_it_says_what_the_filter_cannot_check(api: Api, channel: Channel) -> None:
    channel.queue_declare("long")
    for body in (b"[" + b" " * (1 << 20) + b"1]", b"[1]"):
        channel.publish("", "long", body)
    channel.sync()
    page = api.page("long", filter="body[0]=1")
    assert [each["payload"] for each in page["messages"]] == ["[1]"]
    assert page["unreadable"] == "1 not checked: the filter reads no body of more than 1048576 bytes"
    channel.queue_delete("long")


def test_dead_letters_are_counted_by_origin_and_nothing_changes(channel: Channel, api: Api) -> None:
    def origins() -> dict[str, Any]:
        found: dict[str, Any] = api.management.request("GET", "queues", "/", "dead", "dead-letters")
        return found

    channel.queue_declare("dead", durable=True)
    assert origins() == {"scanned": 0, "complete": True, "dead_letters": 0, "origins": []}
    to_dead = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "dead")]
    channel.queue_declare("full", arguments=[*to_dead, ("x-max-length", "I", 1)])
    # Where messages were dead-lettered first counts, not the queue that they went through.
    channel.queue_declare("over", arguments=[*to_dead[:1], (*to_dead[1][:2], "full"), ("x-message-ttl", "I", 0)])
    channel.exchange_declare("in", "fanout")
    channel.queue_bind("full", "in", "")
    for number in range(4):
        channel.publish("in", "", b"%d" % number, {"delivery_mode": 2})
    channel.publish("", "over", b"x", {"delivery_mode": 2})
    # As of a publisher that would like to be one.
    channel.publish("", "dead", b"no dead letter", {"headers": [("x-first-death-queue", "S", "full")]})
    channel.sync()
    deadline = time.monotonic() + 60
    while api.counters("dead")[0] < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert channel.get("dead") is not None
    before = api.counters("dead")
    channel.publish("in", "", b"4", {"delivery_mode": 2})
    channel.sync()
    found = origins()
    assert (found["scanned"], found["complete"], found["dead_letters"]) == (6, True, 5)
    rows = [(each["queue"], each["reason"], each["exchange"], each["messages"]) for each in found["origins"]]
    assert rows == [("full", "maxlen", "in", 4), ("over", "expired", "", 1)]
    assert all(0 < each["oldest"] <= each["newest"] for each in found["origins"])
    assert api.counters("dead")[1:] == before[1:]
    for name in ("dead", "full", "over"):
        channel.queue_delete(name)
