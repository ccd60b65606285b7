"""The documents of kinds whose documents are made elsewhere, too, against the table of fields."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pika
import pytest

from leveret.broker.management import fields
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

TOPIC: Final = {"exchange": "amq.topic", "write": "", "read": ""}
DELAYED: Final = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
POLICY: Final = {"pattern": "^(into|later)$", "definition": {"max-length": 9}}
#: Path of a list, its table, and fields that not all have.
LISTS: Final = (
    ("users", fields.USER, ()),
    ("permissions", fields.PERMISSION, ()),
    ("topic-permissions", fields.TOPIC_PERMISSION, ()),
    ("policies", fields.POLICY, ()),
    ("policies?counts=true", fields.POLICY, ("queues_in_force", "exchanges_in_force")),
    ("operator-policies", fields.POLICY, ()),
    ("policies/%2F/p/queues", fields.POLICY_MATCH, ("messages_ready", "message_bytes_ready", "fill_percent")),
    ("policies/%2F/p/exchanges", fields.POLICY_MATCH, ()),
    ("parameters", fields.PARAMETER, ()),
    ("global-parameters", fields.GLOBAL_PARAMETER, ()),
    ("vhost-limits", fields.VHOST_LIMIT, ()),
    ("user-limits", fields.USER_LIMIT, ()),
    ("feature-flags", fields.FEATURE_FLAG, ()),
    ("jobs", fields.JOB, ("first_offset", "next_offset", "end_offset")),
    ("losses", fields.LOSS, ()),
    ("losses?age=60", fields.LOSS, ("window",)),
    ("exchanges/%2F/later/delayed", fields.WAITING_MESSAGE, ("delay",)),
    ("queues/%2F/stream/browse", fields.BROWSED_MESSAGE, ()),
)


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Management]:
    with (
        LeveretProcess(tmp_path_factory.mktemp("fields")) as process,
        pika.BlockingConnection(pika.URLParameters(process.url)) as connection,
    ):
        made = Management(process.http_url)
        for path, body in (
            ("topic-permissions / guest", TOPIC),
            ("policies / p", POLICY),
            ("operator-policies / o", POLICY),
            ("vhost-limits / max-queues", {"value": 9}),
            ("user-limits guest max-channels", {"value": 9}),
            ("exchanges / later", DELAYED),
            ("queues / stream", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
            ("queues / into", {}),
        ):
            made.request("PUT", *path.split(), body=body)
        channel = connection.channel()
        channel.confirm_delivery()
        for exchange, key in (("later", "k"), ("", "stream"), ("", "nowhere")):
            properties = pika.BasicProperties(headers={"x-delay": 3_600_000})
            channel.basic_publish(exchange, key, b"x", properties)
        made.request("POST", "queues", "/", "stream", "replay", body={"into_queue": "into"})
        deadline = time.monotonic() + 60
        while made.request("GET", "jobs")[0]["state"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield made


def get(management: Management, path: str) -> Any:
    """Return a document by its path, which may have a query."""
    request = urllib.request.Request(
        f"{management.base}/api/{path}", headers={"Authorization": management.authorization}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


@pytest.mark.parametrize(("path", "table", "more"), LISTS, ids=lambda each: each if isinstance(each, str) else "")
def test_documents_have_the_fields_of_their_table(
    management: Management, path: str, table: fields.Table, more: tuple[str, ...]
) -> None:
    found = get(management, path)
    found = found["messages"] if isinstance(found, dict) else found
    own = [field for field in table if field.source and "." not in field.name and not field.single]
    assert found
    for document in found:
        assert [*document] == [field.name for field in own if field.name in more or not (field.optional or field.of)]


def test_a_node_alone_has_a_part_of_the_fields_of_replication(management: Management) -> None:
    assert {*get(management, "replication")} <= {field.name for field in fields.REPLICATION}
