"""Whatever stands in a body, the answer is never an internal error; every operation that takes a body is tried."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from leveret.broker.management.http.openapi import document
from tests.conformance.http_api import HttpApi, path
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

#: What stands where a path has a part.
PARTS: Final = {
    "vhost": "v",
    "name": "thing",
    "user": "somebody",
    "exchange": "amq.topic",
    "node": "nowhere",
    "source": "amq.headers",
    "destination": "thing",
    "limit": "max-connections",
    "component": "operator_policy",
    "flag": "flag",
    "consumer": "somebody",
}
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 1.5, 1 << 70, "", "[", "a" * 300, "ä\x00\n", "\ud800", [], [1], [None], [{}], {}, {"a": None},
    {"a": 1}, {"a" * 300: 1},
)  # fmt: skip
#: Those that are tried inside of objects, too.
ODD_INSIDE: Final = (None, 1.5, 1 << 70, "[", "a" * 300, [None], {"a": None})
#: Bodies that are right, so that one wrong value at a time is looked at.
RIGHT: Final[dict[str, dict[str, Any]]] = {
    "Publish": {"properties": {}, "routing_key": "thing", "payload": "x", "payload_encoding": "string"},
    "Get": {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    "Move": {"to": "other"},
    "DeleteMessages": {"queue_id": 1, "keys": [[0, 1]]},
    "Policy": {"pattern": "^nothing$", "definition": {"max-length": 1}},
    "User": {"tags": ""},
    "Permissions": {"configure": "", "write": "", "read": ""},
    "TopicPermissions": {"exchange": "", "write": "", "read": ""},
    "Value": {"value": {"pattern": "x", "definition": {"max-length": 1}, "priority": 0}},
    "ClusterName": {"name": "x"},
    "Failover": {"node": "nowhere"},
    "ConsumerPlace": {"next": 1},
}
#: Values inside of these are tried too.
INNER: Final = {
    "properties": (
        *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
        *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
    ),
    "definition": ("max-length", "overflow", "expires", "queue-mode", "delivery-limit", "max-age", "nothing"),
    "arguments": ("x-max-length", "x-queue-type", "x-dead-letter-exchange", "x-max-priority", "alternate-exchange"),
    "filter": ("routing_key", "headers", "reason"),
    "value": ("pattern", "definition", "priority", "apply-to", "max-queues"),
}


DESCRIBED: Final = document()


def _operations() -> Iterator[tuple[str, str, str]]:
    for template, item in DESCRIBED["paths"].items():
        for method in ("put", "post"):
            body = item.get(method, {}).get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                yield method.upper(), template, body["schema"]["$ref"].rpartition("/")[2]


def _keys(schema: str) -> list[str]:
    return list(DESCRIBED["components"]["schemas"][schema]["properties"])


def _bodies(schema: str) -> Iterator[bytes]:
    right = RIGHT.get(schema, {})
    for value in ODD:
        yield json.dumps(value).encode()
        for key in _keys(schema):
            yield json.dumps({**right, key: value}).encode()
            for inner in INNER.get(key, ()) if value in ODD_INSIDE else ():
                yield json.dumps({**right, key: {inner: value}}).encode()
    yield from (b"", b"{", b"\xff", b"[" * 5000, b'{"value":NaN}', b'{"value":1e999}', b'{"value":"\xed\xa0\x80"}')


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> HttpApi:
    """Its API."""
    made = HttpApi(Management(process.http_url))
    made.check("PUT", "vhosts/v", None, 201)
    return made


@pytest.mark.parametrize(("method", "template", "schema"), list(_operations()))
def test_no_internal_error(api: HttpApi, process: LeveretProcess, method: str, template: str, schema: str) -> None:
    segments = [PARTS[part[1:-1]] if part.startswith("{") else part for part in template.split("/")[2:]]
    for queue in ("thing", "other"):
        assert api.ask("PUT", path("queues", "v", queue), {}).status < 500
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(process.http_url).port, timeout=120)
    headers = {"Authorization": Management(process.http_url).authorization}
    with closing(connection):
        for body in _bodies(schema):
            connection.request(method, f"/api/{path(*segments)}", body, headers)
            reply = connection.getresponse()
            assert reply.status < 500, (body, reply.status, reply.read())
            reply.read()


def test_and_it_all_comes_back_after_a_restart(api: HttpApi, process: LeveretProcess) -> None:
    before = api.get("definitions")
    process.stop()
    process.start()
    after = api.get("definitions")
    kept = {section: after[section] for section in ("users", "vhosts", "permissions", "policies", "parameters")}
    assert kept == {section: before[section] for section in kept}
