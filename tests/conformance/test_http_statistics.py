"""Rules 44.1 to 44.3 and 45.1: counters, rates and samples of what has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.fixtures import Poll
from tests.conformance.http_scene import Scene
from tests.support.management import Management
from tests.support.wire import Channel

DELIVERIES = ("ack", "deliver", "deliver_get", "deliver_no_ack", "get", "get_empty", "get_no_ack", "redeliver")
PUBLISHES = ("confirm", "drop_unroutable", "publish", "return_unroutable")
#: Of the publishing and the receiving channel: confirm mode, and unacknowledged messages.
MODES = [(True, 0), (False, 2)]
RANGE = "lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5&data_rates_age=60&data_rates_incr=5"


@pytest.fixture(scope="module")
def scene(management: Management, broker_url: str, poll: Poll) -> Iterator[Scene]:
    """A virtual host where a little of everything has happened, seen by the statistics."""
    with Scene(management, broker_url) as made:
        connection = made.connect()
        publish(connection.channel())
        receive(connection.channel())
        poll(lambda: counted(made, "queues/{v}/q").get("ack") == 2)
        poll(lambda: counted(made, "queues/{v}/q").get("publish") == 6)
        poll(lambda: counted(made, "queues/{v}/q").get("get_no_ack") == 1)
        poll(lambda: counted(made, "exchanges/{v}/amq.topic").get("publish_in") == 4)
        poll(lambda: counted(made, "vhosts/{v}").get("publish") == 10)
        poll(lambda: len(channels(made)) == 2 and all("message_stats" in each for each in channels(made)))
        poll(lambda: [(each["confirm"], each["messages_unacknowledged"]) for each in channels(made)] == MODES)
        poll(lambda: channels(made)[0]["message_stats"].get("confirm") == 10)
        poll(lambda: channels(made)[1]["message_stats"].get("ack") == 2)
        poll(lambda: made.get("vhosts/{v}").document.get("messages") == 3)
        poll(lambda: counted(made, "vhosts/{v}").get("deliver_get") == 6)
        yield made


def publish(channel: Channel) -> None:
    """Publish 6 messages to a queue and 4 to nowhere, 3 of these mandatory."""
    channel.queue_declare("q", durable=True)
    channel.queue_declare("unused")
    channel.confirm_select()
    for _ in range(6):
        channel.publish("", "q", b"12345")
    for number in range(4):
        channel.publish("amq.topic", "nowhere", b"x", mandatory=number < 3)
    channel.wait_for_confirms(10)
    for _ in range(3):
        channel.next_return()


def receive(channel: Channel) -> None:
    """Take 3 messages by delivery, one of them twice, and 2 by get; acknowledge 2."""
    channel.qos(3)
    channel.consume("q", "tag")
    first, _, third = channel.deliveries(3)
    channel.cancel("tag")
    channel.ack(first.delivery_tag)
    channel.nack(third.delivery_tag, requeue=True)
    channel.qos(1)
    channel.consume("q", "again")
    again = channel.next_delivery()
    # An acknowledgement before it would bring another message.
    channel.cancel("again")
    channel.ack(again.delivery_tag)
    assert channel.get("q") is not None
    assert channel.get("q", no_ack=True) is not None
    assert channel.get("unused") is None


def counted(scene: Scene, path: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.get(path).document.get("message_stats", {})
    return found


def channels(scene: Scene) -> list[dict[str, Any]]:
    documents = scene.get("channels").document
    return sorted((each for each in documents if each["vhost"] == scene.vhost), key=lambda each: str(each["name"]))


def numbers(stats: dict[str, Any]) -> dict[str, int]:
    """The numbers that are not 0, without ours."""
    return {name: stats[name] for name in (*PUBLISHES, *DELIVERIES, "publish_in", "publish_out") if stats.get(name)}


def test_44_1_a_queue(scene: Scene) -> None:
    stats = counted(scene, "queues/{v}/q")
    assert numbers(stats) == {
        "publish": 6, "ack": 2, "deliver": 4, "deliver_get": 6, "get": 1, "get_no_ack": 1, "redeliver": 1
    }  # fmt: skip
    assert set(DELIVERIES) <= set(stats)


def test_44_1_a_queue_that_was_only_asked(scene: Scene) -> None:
    assert numbers(counted(scene, "queues/{v}/unused")) == {"get_empty": 1}
    assert "publish" not in counted(scene, "queues/{v}/unused")


def test_44_1_an_exchange(scene: Scene) -> None:
    assert numbers(counted(scene, "exchanges/{v}/amq.topic")) == {"publish_in": 4}
    assert "publish_out" not in counted(scene, "exchanges/{v}/amq.topic")
    assert numbers(counted(scene, "exchanges/{v}/amq.default")) == {"publish_in": 6, "publish_out": 6}
    assert "message_stats" not in scene.get("exchanges/{v}/amq.fanout").document


def test_44_1_a_publishing_channel(scene: Scene) -> None:
    publisher = channels(scene)[0]
    stats = publisher["message_stats"]
    assert numbers(stats) == {"publish": 10, "confirm": 10, "drop_unroutable": 1, "return_unroutable": 3}
    assert not set(DELIVERIES) & set(stats)
    assert (publisher["confirm"], publisher["messages_unconfirmed"]) == (True, 0)


def test_44_1_a_receiving_channel(scene: Scene) -> None:
    receiver = channels(scene)[1]
    stats = receiver["message_stats"]
    assert numbers(stats) == {
        "ack": 2, "deliver": 4, "deliver_get": 6, "get": 1, "get_no_ack": 1, "get_empty": 1, "redeliver": 1
    }  # fmt: skip
    assert not set(PUBLISHES) & set(stats)
    assert (receiver["messages_unacknowledged"], receiver["prefetch_count"]) == (2, 1)


def test_44_1_a_virtual_host(scene: Scene) -> None:
    document = scene.get("vhosts/{v}").document
    stats = document["message_stats"]
    assert (stats["publish"], stats["confirm"], stats["deliver_get"], stats["get_empty"]) == (10, 10, 6, 1)
    assert document["recv_oct"] > 100
    assert document["send_oct"] > 100
    assert document["messages"] == document["messages_ready"] + document["messages_unacknowledged"] == 3


def test_45_1_lengths_of_a_queue(scene: Scene, poll: Poll) -> None:
    def lengths() -> list[int]:
        document = scene.get("queues/{v}/q").document
        return [document.get(key, -1) for key in ("messages", "messages_ready", "messages_unacknowledged")]

    poll(lambda: lengths() == [3, 1, 2])
    keys = ("message_bytes", "message_bytes_ready", "message_bytes_unacknowledged")
    poll(lambda: [scene.get("queues/{v}/q").document.get(key) for key in keys] == [15, 5, 10])


def test_44_1_the_overview_counts_everything(scene: Scene) -> None:
    document = scene.get("overview").document
    assert set(PUBLISHES) | set(DELIVERIES) <= set(document["message_stats"])
    assert document["message_stats"]["publish"] >= 10
    churn = document["churn_rates"]
    assert churn["queue_created"] >= 2
    assert churn["connection_created"] >= 1
    assert churn["channel_created"] >= 2
    assert churn["queue_declared"] >= churn["queue_created"]


def check_details(document: dict[str, Any], *names: str) -> None:
    for name in names:
        details = document[f"{name}_details"]
        assert set(details) == {"avg", "avg_rate", "rate", "samples"}
        samples = details["samples"]
        times = [each["timestamp"] for each in samples]
        assert len(samples) == 13
        assert times == [times[0] - 5000 * step for step in range(13)]
        assert times[0] % 5000 == 0
        assert details["avg"] == pytest.approx(sum(each["sample"] for each in samples) / 13)
        assert details["avg_rate"] == pytest.approx((samples[0]["sample"] - samples[-1]["sample"]) / 60)


@pytest.mark.parametrize("path", ["queues/{v}/q", "vhosts/{v}"])
def test_44_3_samples(scene: Scene, path: str) -> None:
    document = scene.get(f"{path}?{RANGE}").document
    check_details(document, "messages", "messages_ready", "messages_unacknowledged")
    check_details(document["message_stats"], "publish", "deliver_get", "ack")


def test_44_3_samples_of_an_exchange(scene: Scene) -> None:
    check_details(scene.get(f"exchanges/{{v}}/amq.topic?{RANGE}").document["message_stats"], "publish_in")


def test_44_3_samples_of_the_overview(scene: Scene) -> None:
    document = scene.get(f"overview?{RANGE}").document
    check_details(document["queue_totals"], "messages", "messages_ready", "messages_unacknowledged")
    check_details(document["message_stats"], "publish", "confirm", "deliver_get")


def test_44_3_samples_of_a_connection(scene: Scene, poll: Poll) -> None:
    def names() -> list[str]:
        return [each["name"] for each in scene.get("connections").document if each["vhost"] == scene.vhost]

    poll(lambda: bool(names()))
    name = names()[0]
    document = scene.get(f"connections/{quote(name, safe='')}?{RANGE}").document
    check_details(document, "recv_oct", "send_oct")


def test_44_3_samples_end_at_what_is_counted_now(scene: Scene, poll: Poll) -> None:
    def newest() -> int:
        document = scene.get(f"queues/{{v}}/q?{RANGE}").document
        sample: int = document["message_stats"]["publish_details"]["samples"][0]["sample"]
        return sample

    poll(lambda: newest() == 6)


def test_44_3_samples_of_the_past_are_0(scene: Scene) -> None:
    query = "msg_rates_age=600&msg_rates_incr=60"
    samples = scene.get(f"queues/{{v}}/q?{query}").document["message_stats"]["publish_details"]["samples"]
    assert len(samples) == 11
    assert samples[-1]["sample"] == 0
    assert all(each["timestamp"] % 60_000 == 0 for each in samples)


def test_44_3_rates_without_a_range(scene: Scene) -> None:
    document = scene.get("queues/{v}/q").document
    for details in (document["messages_details"], document["message_stats"]["publish_details"]):
        assert set(details) == {"rate"}
        assert isinstance(details["rate"], float)


@pytest.mark.parametrize("query", ["lengths_age=60", "lengths_age=x&lengths_incr=1", "lengths_incr=5"])
def test_44_3_half_a_range_is_none(scene: Scene, query: str) -> None:
    assert set(scene.get(f"queues/{{v}}/q?{query}").document["messages_details"]) == {"rate"}


@pytest.mark.parametrize(("age", "increment"), [(60, 0), (600, 1)])
@pytest.mark.parametrize("path", ["overview", "queues/{v}/q"])
def test_44_3_ranges_that_cannot_be(scene: Scene, path: str, age: int, increment: int) -> None:
    reply = scene.get(f"{path}?lengths_age={age}&lengths_incr={increment}")
    reason = f"Invalid range parameters: age {age}, incr {increment}"
    assert (reply.status, reply.document) == (400, {"error": "bad_request", "reason": reason})


def test_44_3_a_rate_while_messages_flow(scene: Scene, poll: Poll) -> None:
    channel = scene.connect().channel()
    channel.queue_declare("flow")

    def rate() -> float:
        channel.publish("", "flow", b"x")
        found: float = counted(scene, "queues/{v}/flow").get("publish_details", {}).get("rate", 0.0)
        return found

    ask: Callable[[], bool] = lambda: rate() > 0  # noqa: E731
    poll(ask)
