"""Rules 41.9 and 43.1 to 43.6: pages, filters, order and columns of lists, and lists without statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.fixtures import Poll
from tests.conformance.http_scene import Scene
from tests.support.management import Management

QUEUES = ["b.two", "b.one", "A.three", "c", "b.four"]
NAMES = sorted(QUEUES)
#: Messages in each queue.
READY = {"b.two": 2, "b.one": 1, "A.three": 3}


@pytest.fixture(scope="module")
def scene(management: Management, broker_url: str, poll: Poll) -> Iterator[Scene]:
    """A virtual host with five queues, some with messages."""
    with Scene(management, broker_url) as made:
        channel = made.connect().channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=queue != "c")
            for _ in range(READY.get(queue, 0)):
                channel.publish("", queue, b"xx")
        channel.sync("c")
        poll(lambda: [each.get("messages", -1) for each in listed(made, "queues/{v}")] == [3, 0, 1, 2, 0])
        yield made


def listed(scene: Scene, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.get(path).document
    return found


def names(scene: Scene, query: str, resource: str = "queues") -> list[str]:
    document = scene.get(f"{resource}/{{v}}?columns=name&{query}").document
    return [each["name"] for each in (document["items"] if isinstance(document, dict) else document)]


def test_43_1_lists_are_in_order_of_names(scene: Scene) -> None:
    assert names(scene, "") == NAMES


def test_43_1_reverse_order(scene: Scene) -> None:
    assert names(scene, "sort_reverse=true") == NAMES[::-1]


def test_43_2_page(scene: Scene) -> None:
    document = scene.get("queues/{v}?page=2&page_size=2&columns=name").document
    assert document == {
        "filtered_count": 5,
        "item_count": 2,
        "items": [{"name": name} for name in NAMES[2:4]],
        "page": 2,
        "page_count": 3,
        "page_size": 2,
        "total_count": 5,
    }


def test_43_2_page_size_is_100_by_default(scene: Scene) -> None:
    document = scene.get("queues/{v}?page=1&columns=name").document
    assert (document["page_size"], document["item_count"]) == (100, 5)


def test_43_2_without_page_the_other_parameters_do_nothing(scene: Scene) -> None:
    assert names(scene, "page_size=2&name=two&use_regex=true&pagination=true") == NAMES


@pytest.mark.parametrize("pagination", ["true", "false", "True"])
def test_43_2_pagination_does_nothing(scene: Scene, pagination: str) -> None:
    assert scene.get(f"queues/{{v}}?page=1&pagination={pagination}&columns=name").document["item_count"] == 5


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=B.", ["b.four", "b.one", "b.two"]),
        ("name=three", ["A.three"]),
        ("name=^a&use_regex=true", ["A.three"]),
        ("name=o$&use_regex=true", ["b.two"]),
        ("name=^b&use_regex=false", []),
        ("name=", NAMES),
    ],
)
def test_43_3_name_filters(scene: Scene, query: str, found: list[str]) -> None:
    document = scene.get(f"queues/{{v}}?page=1&columns=name&{query}").document
    assert [each["name"] for each in document["items"]] == found
    assert (document["filtered_count"], document["total_count"]) == (len(found), 5)


def test_43_3_nothing_matches(scene: Scene) -> None:
    document = scene.get("queues/{v}?page=1&name=nosuch").document
    assert (document["items"], document["page_count"], document["filtered_count"]) == ([], 0, 0)


@pytest.mark.parametrize(
    "query", ["page=x", "page=", "page=1&page_size=x", "page=1&page_size=", "page=1&name=[&use_regex=true"]
)
def test_43_2_parameters_that_are_none(scene: Scene, query: str) -> None:
    reply = scene.get(f"queues/{{v}}?{query}")
    error = {"error": "bad_request", "reason": "Pagination parameters are invalid"}
    assert (reply.status, reply.document) == (400, error)


@pytest.mark.parametrize(
    ("query", "page", "size"),
    [("page=0", 0, "undefined"), ("page=1&page_size=501", 1, 501), ("page=1&page_size=0", 1, 0)],
)
def test_43_2_pages_that_cannot_be(scene: Scene, query: str, page: int, size: object) -> None:
    reply = scene.get(f"queues/{{v}}?{query}")
    reason = f"Invalid pagination parameters: page number {page}, page size {size}"
    assert (reply.status, reply.document) == (400, {"error": "invalid_pagination_parameters", "reason": reason})


def test_43_2_a_page_behind_the_end(scene: Scene) -> None:
    reply = scene.get("queues/{v}?page=4&page_size=2")
    reason = "Page out of range, page: 4 page size: 2, len: 5"
    assert (reply.status, reply.document) == (400, {"error": "page_out_of_range", "reason": reason})


def test_43_2_a_page_that_starts_at_the_end_is_empty(scene: Scene) -> None:
    document = scene.get("queues/{v}?page=2&page_size=5").document
    assert (document["items"], document["item_count"], document["page_count"]) == ([], 0, 1)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sort=messages", ["b.four", "c", "b.one", "b.two", "A.three"]),
        ("sort=messages&sort_reverse=true", ["A.three", "b.two", "b.one", "c", "b.four"]),
        ("sort=durable", ["c", "A.three", "b.four", "b.one", "b.two"]),
        ("sort=message_stats.publish&sort_reverse=true", ["A.three", "b.two", "b.one", "c", "b.four"]),
        # Missing values come first.
        ("sort=message_stats.publish", ["b.four", "c", "b.one", "b.two", "A.three"]),
        ("sort=nosuch", NAMES),
        ("page=1&page_size=1&sort=message_bytes&sort_reverse=true", ["A.three"]),
    ],
)
def test_43_1_sort(scene: Scene, query: str, found: list[str]) -> None:
    assert names(scene, query) == found


def test_43_4_columns(scene: Scene) -> None:
    documents = listed(scene, "queues/{v}?columns=name,messages_details.rate,nosuch,message_stats.publish")
    assert documents[0] == {
        "name": "A.three",
        "messages_details": {"rate": documents[0]["messages_details"]["rate"]},
        "message_stats": {"publish": 3},
    }


def test_43_4_columns_of_one_object(scene: Scene) -> None:
    assert scene.get("queues/{v}/c?columns=durable,vhost").document == {"durable": False, "vhost": scene.vhost}


@pytest.mark.parametrize("resource", ["exchanges", "vhosts", "channels", "connections"])
def test_43_5_paginated_lists(scene: Scene, resource: str) -> None:
    document = scene.get(f"{resource}?page=1&page_size=1&columns=name").document
    assert (document["item_count"], document["page_size"]) == (1, 1)


@pytest.mark.parametrize("resource", ["bindings", "consumers"])
def test_43_5_lists_without_pages(scene: Scene, resource: str) -> None:
    assert isinstance(scene.get(f"{resource}?page=1&page_size=1").document, list)


def test_41_9_header_x_vhost_filters(scene: Scene) -> None:
    documents = scene.get("queues?columns=name", **{"x-vhost": scene.vhost}).document
    assert [each["name"] for each in documents] == NAMES


def test_43_6_queues_without_statistics(scene: Scene) -> None:
    document = listed(scene, "queues/{v}?disable_stats=true")[0]
    fields = {"arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost"}
    assert (fields, "live") == (set(document), document["state"])


def test_43_6_queue_totals_without_statistics(scene: Scene) -> None:
    document = listed(scene, "queues/{v}?disable_stats=true&enable_queue_totals=true")[0]
    keys = ("messages", "messages_ready", "messages_unacknowledged")
    assert [document[key] for key in keys] == [3, 3, 0]


def test_43_6_connections_without_statistics(scene: Scene) -> None:
    documents = [each for each in listed(scene, "connections?disable_stats=true") if each["vhost"] == scene.vhost]
    assert [set(each) for each in documents] == [{"name", "vhost", "user", "node"}]


def test_43_6_exchanges_without_statistics(scene: Scene) -> None:
    assert not any("message_stats" in each for each in listed(scene, "exchanges/{v}?disable_stats=true"))


def test_43_6_overview_without_statistics(scene: Scene) -> None:
    document = scene.get("overview?disable_stats=true").document
    assert set(document["object_totals"]) == {"queues", "exchanges", "connections"}
    assert not {"message_stats", "queue_totals", "churn_rates"} & set(document)
    assert document["disable_stats"] is True


@pytest.mark.parametrize("resource", ["channels", "consumers"])
def test_43_6_what_is_nothing_but_statistics(scene: Scene, resource: str) -> None:
    reply = scene.get(f"{resource}?disable_stats=true")
    reason = "Stats in management UI are disabled on this node"
    assert (reply.status, reply.document) == (400, {"error": "bad_request", "reason": reason})
