"""What was lost, asked of the HTTP API after real clients have lost it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.conformance.http_api import Belongings, HttpApi, bad_request, path
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess

NO_DROPS = {"maxlen": 0, "expired": 0, "rejected": 0, "delivery_limit": 0, "purged": 0, "deleted": 0}
NO_LETTERS = {"maxlen": 0, "expired": 0, "rejected": 0, "delivery_limit": 0}


class Place:
    """A virtual host of the test's own, and a channel of a real client in it."""

    def __init__(self, api: HttpApi, vhost: str, channel: BlockingChannel) -> None:
        self.api = api
        self.vhost = vhost
        self.channel = channel

    def declare(self, queue: str = "q", **arguments: Any) -> None:
        """Declare a durable queue; the arguments' names are without x-, with _ for -."""
        table = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=table)

    def publish(self, count: int, queue: str = "q", exchange: str = "") -> int:
        """Publish messages with confirms; return how many were confirmed."""
        confirmed = 0
        for _ in range(count):
            try:
                self.channel.basic_publish(exchange, queue, b"0123456789")
                confirmed += 1
            except pika.exceptions.NackError:
                pass
        return confirmed

    def losses(self, query: str = "") -> list[dict[str, Any]]:
        """The rows of the virtual host."""
        rows: list[dict[str, Any]] = self.api.get(f"{path('losses', self.vhost)}?{query}")
        return rows

    def loss(self, name: str = "q") -> dict[str, Any]:
        """What a row says was lost, without what is 0."""
        (row,) = (each for each in self.losses() if each["name"] == name and each["state"] == "present")
        kinds = ("dropped", "dead_lettered", "dead_letters_lost", "unroutable")
        found: dict[str, Any] = {
            kind: {reason: count for reason, count in row[kind].items() if count} for kind in kinds
        }
        found |= {name: row[name] for name in ("lost", "refused", "refused_told")}
        return {name: value for name, value in found.items() if value}

    def queue(self, query: str = "", name: str = "q") -> dict[str, Any]:
        """The document of a queue."""
        document: dict[str, Any] = self.api.get(f"{path('queues', self.vhost, name)}?{query}")
        return document


@pytest.fixture
def place(process: LeveretProcess, api: HttpApi, belongings: Belongings) -> Iterator[Place]:
    """A virtual host, and a channel in confirm mode."""
    vhost = belongings.vhost()
    connection = pika.BlockingConnection(pika.URLParameters(f"{process.url.removesuffix('/%2F')}/{vhost}"))
    channel = connection.channel()
    channel.confirm_delivery()
    yield Place(api, vhost, channel)
    connection.close()


# -- exactly what happened ------------------------------------------------------------------------------------


def test_dropped_by_the_limit(place: Place) -> None:
    place.declare(max_length=3)
    assert place.publish(10) == 10
    assert place.loss() == {"lost": 7, "dropped": {"maxlen": 7}}


def test_refused_by_the_limit(place: Place) -> None:
    place.declare(max_length=3, overflow="reject-publish")
    assert place.publish(10) == 3
    assert place.loss() == {"refused": 7, "refused_told": 7}
    other = place.channel.connection.channel()
    for _ in range(4):
        other.basic_publish("", "q", b"0123456789")
    other.queue_declare("q", passive=True)
    other.tx_select()
    other.basic_publish("", "q", b"0123456789")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        other.tx_commit()
    assert place.loss() == {"lost": 4, "refused": 12, "refused_told": 8}
    document = place.queue()
    assert (document["refused"], document["refused_told"], document["loss_stats"]["lost"]) == (12, 8, 4)


@pytest.mark.parametrize("exchange", ["amq.fanout", "there-is-none", ""])
def test_refused_and_dead_lettered_with_word_to_the_publisher(place: Place, exchange: str) -> None:
    place.declare("dead")
    place.declare(
        max_length=3,
        overflow="reject-publish-dlx",
        dead_letter_exchange=exchange,
        dead_letter_routing_key="dead",
    )
    assert place.publish(5) == 3
    found = place.loss()
    assert "lost" not in found
    assert found["refused"] == 2
    # Those that are in the dead-letter queue are counted there alone.
    assert found.get("refused_told", 0) == (0 if exchange == "" else 2)


def test_expired(place: Place) -> None:
    place.declare(message_ttl=1)
    place.publish(4)
    wait_until(lambda: bool(place.losses()) and place.losses()[0]["lost"] == 4, "all have expired")
    assert place.loss() == {"lost": 4, "dropped": {"expired": 4}}


def test_rejected_by_a_consumer(place: Place) -> None:
    place.declare()
    place.publish(3)
    for requeue in (False, False, True):
        frame, _, _ = place.channel.basic_get("q")
        assert frame is not None
        place.channel.basic_nack(frame.delivery_tag, requeue=requeue)
    place.channel.queue_declare("q", passive=True)
    assert place.loss() == {"lost": 2, "dropped": {"rejected": 2}}


def test_returned_too_often(place: Place) -> None:
    place.declare(queue_type="quorum", delivery_limit=1)
    place.publish(1)
    for _ in range(2):
        frame, _, _ = place.channel.basic_get("q")
        assert frame is not None
        place.channel.basic_nack(frame.delivery_tag, requeue=True)
    place.channel.queue_declare("q", passive=True, durable=True)
    assert place.loss() == {"lost": 1, "dropped": {"delivery_limit": 1}}


def test_dead_lettered(place: Place) -> None:
    place.declare("dead")
    place.declare(max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    place.publish(5)
    assert place.loss() == {"dropped": {"maxlen": 3}, "dead_lettered": {"maxlen": 3}}
    assert place.queue(name="dead")["messages"] == 3


@pytest.mark.parametrize("exchange", ["amq.fanout", "there-is-none"])
def test_dead_lettered_to_nowhere(place: Place, exchange: str) -> None:
    place.declare(max_length=2, dead_letter_exchange=exchange)
    place.publish(5)
    handed = {"dead_lettered": {"maxlen": 3}} if exchange == "amq.fanout" else {}
    assert place.loss() == {"lost": 3, "dropped": {"maxlen": 3}, "dead_letters_lost": {"maxlen": 3}, **handed}
    assert place.queue()["dead_letters_lost"] == {**NO_LETTERS, "maxlen": 3}


def test_purged_is_not_lost(place: Place) -> None:
    place.declare()
    place.publish(2)
    place.channel.queue_purge("q")
    assert place.loss() == {"dropped": {"purged": 2}}


def test_unroutable(place: Place) -> None:
    place.channel.exchange_declare("e")
    place.channel.basic_publish("e", "nowhere", b"x")
    for _ in range(2):
        with pytest.raises(pika.exceptions.UnroutableError):
            place.channel.basic_publish("e", "nowhere", b"x", mandatory=True)
    assert place.loss("e") == {"lost": 1, "unroutable": {"dropped": 1, "returned": 2}}
    stats = place.api.get(path("exchanges", place.vhost, "e"))["loss_stats"]
    assert (stats["lost"], stats["drop_unroutable"], stats["return_unroutable"]) == (1, 1, 2)


def test_a_deleted_queue_keeps_its_row(place: Place) -> None:
    place.declare(max_length=3)
    place.publish(5)
    place.channel.queue_delete("q")
    (row,) = place.losses()
    assert (row["kind"], row["state"], row["name"], row["lost"]) == ("queue", "deleted", "q", 2)
    assert row["dropped"] == {**NO_DROPS, "maxlen": 2, "deleted": 3}
    assert row["since"] <= row["deleted_at"] <= time.time() * 1000
    place.declare(max_length=0)
    place.publish(1)
    assert [(each["state"], each["lost"]) for each in place.losses()] == [("deleted", 2), ("present", 1)]


# -- the list -------------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(place: Place) -> Place:
    """Queues q1, q2 and q3, which have dropped as many, one that has lost nothing, and an unroutable message."""
    for count in (1, 2, 3):
        place.declare(f"q{count}", max_length=0)
        place.publish(count, f"q{count}")
    place.declare("full")
    place.publish(1, "full")
    place.publish(1, "nowhere", "amq.topic")
    return place


def test_the_biggest_loss_comes_first(lossy: Place) -> None:
    assert [(row["name"], row["lost"]) for row in lossy.losses()] == [
        ("q3", 3),
        ("q2", 2),
        ("amq.topic", 1),
        ("q1", 1),
    ]
    assert [row["name"] for row in lossy.losses("sort=name&sort_reverse=true&kind=queue")] == ["q3", "q2", "q1"]
    assert [row["name"] for row in lossy.losses("kind=exchange")] == ["amq.topic"]
    assert lossy.losses("columns=name,dropped.maxlen&kind=queue")[0] == {"name": "q3", "dropped": {"maxlen": 3}}


def test_a_page_has_the_totals(lossy: Place) -> None:
    page = lossy.api.get(f"{path('losses', lossy.vhost)}?page=1&page_size=2&age=3600")
    assert [row["name"] for row in page["items"]] == ["q3", "q2"]
    assert (page["total_count"], page["page_count"]) == (4, 2)
    totals = page["totals"]
    assert (totals["lost"], totals["dropped"]["maxlen"], totals["unroutable"]) == (7, 6, {"dropped": 1, "returned": 0})
    assert totals["window"]["lost"] == 7
    named = lossy.api.get(f"{path('losses', lossy.vhost)}?page=1&name=Q2")
    assert [row["name"] for row in named["items"]] == ["q2"]


def test_a_window_says_what_it_covers(lossy: Place) -> None:
    for row in lossy.losses("age=86400"):
        window = row["window"]
        assert (window["age"], window["lost"], window["dropped"]) == (86400, row["lost"], row["dropped"])
        # Counting began later than a day ago.
        assert window["from"] == row["since"]
        assert window["resolution"] in (5, 1800)


def test_what_was_lost_before_the_window_is_left_out(lossy: Place) -> None:
    wait_until(lambda: not lossy.losses("age=1"), "what was lost has been sampled and is past", timeout=120)
    assert len(lossy.losses("age=600")) == 4
    lossy.publish(2, "q1")
    (row,) = lossy.losses("age=1")
    assert (row["name"], row["lost"], row["window"]["lost"]) == ("q1", 3, 2)


def test_losses_of_a_queue_over_time(lossy: Place) -> None:
    stats = lossy.queue(name="q3")["loss_stats"]
    assert (stats["lost"], stats["drop_maxlen"], stats["refuse"]) == (3, 3, 0)

    def samples() -> list[int]:
        shown = lossy.queue("msg_rates_age=60&msg_rates_incr=5", "q3")["loss_stats"]["drop_maxlen_details"]
        return [each["sample"] for each in shown["samples"]]

    wait_until(lambda: samples()[0] == 3, "a sample has been taken", timeout=120)
    assert samples()[-1] == 0
    assert len(samples()) == 13
    assert "loss_stats" not in lossy.queue(name="full")


@pytest.mark.parametrize("query", ["age=0", "age=86401", "age=x", "kind=vhost"])
def test_what_cannot_be_asked(place: Place, query: str) -> None:
    name, _, value = query.partition("=")
    allowed = "must be one of queue, exchange" if name == "kind" else "must be 1 to 86400 seconds"
    reply = place.api.ask("GET", f"losses?{query}")
    assert (reply.status, reply.document) == (400, bad_request(f"Invalid {name}: {value}, {allowed}"))


def test_everybody_sees_the_losses_of_their_virtual_hosts(lossy: Place, belongings: Belongings) -> None:
    everywhere = lossy.api.get("losses")
    assert {row["vhost"] for row in everywhere} >= {lossy.vhost}
    own, stranger = belongings.user("management", lossy.vhost), belongings.user("management")
    assert {row["vhost"] for row in lossy.api.get("losses", user=own)} == {lossy.vhost}
    assert lossy.api.get("losses", user=stranger) == []
    assert lossy.api.ask("GET", path("losses", lossy.vhost), user=stranger).status == 401
    assert lossy.api.ask("GET", "losses", user=belongings.user("", lossy.vhost)).status == 401
    assert lossy.api.ask("GET", "losses", user="").status == 401
    assert lossy.api.ask("GET", path("losses", "there-is-none")).status == 404
