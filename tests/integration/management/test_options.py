"""Options of the HTTP API: a path in front of all others, pages of other origins, statistics left out."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

ORIGIN = "https://console.example"


class Answer:
    """Status, header fields in small letters, and body of an answer."""

    def __init__(self, url: str, method: str, path: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        login = {"Authorization": Management(url).authorization, **(headers or {})}
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            connection.request(method, path, None, login)
            answer = connection.getresponse()
            self.status, self.body = answer.status, answer.read()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def document(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with options."""
    settings = {"management.path_prefix": "/mq/", "management.cors.allow_origins": ORIGIN, "management.cors.max_age": 9}
    with LeveretProcess(tmp_path_factory.mktemp("options"), settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker without statistics."""
    settings = {"management_agent.disable_metrics_collector": True, "management.enable_queue_totals": True}
    with LeveretProcess(tmp_path_factory.mktemp("plain"), settings=settings) as started:
        yield started


def test_everything_is_below_the_prefix(process: LeveretProcess) -> None:
    url = process.http_url
    assert Answer(url, "GET", "/mq/api/whoami").document()["name"] == "guest"
    assert Answer(url, "PUT", "/mq/api/queues/%2F/a%2Fb").status == 201
    assert Answer(url, "GET", "/mq/api/queues/%2F/a%2Fb").document()["name"] == "a/b"
    assert Answer(url, "DELETE", "/mq/api/queues/%2F/a%2Fb").status == 204
    index = Answer(url, "GET", "/mq/")
    assert (index.status, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
    moved = Answer(url, "GET", "/mq")
    assert (moved.status, moved.headers["location"]) == (301, "/mq/")
    contexts = Answer(url, "GET", "/mq/api/overview").document()["contexts"]
    assert [(each["description"], each["path"]) for each in contexts] == [
        ("RabbitMQ Management", "/mq"),
        ("RabbitMQ Prometheus", "/"),
    ]


@pytest.mark.parametrize("path", ["/api/whoami", "/", "/mqx/api/whoami", "/mq/api/nope", "/mq/nope"])
def test_there_is_nothing_elsewhere(process: LeveretProcess, path: str) -> None:
    answer = Answer(process.http_url, "GET", path)
    assert (answer.status, answer.document()) == (404, {"error": "Object Not Found", "reason": "Not Found"})


def test_leveretctl_finds_it(process: LeveretProcess) -> None:
    assert Leveretctl(f"{process.http_url}/mq").output("list_vhosts", "-s") == "/\n"


def test_pages_of_an_allowed_origin(process: LeveretProcess) -> None:
    answer = Answer(process.http_url, "GET", "/mq/api/whoami", {"Origin": ORIGIN})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert "access-control-allow-methods" not in answer.headers
    changing = Answer(process.http_url, "PUT", "/mq/api/queues/%2F/q", {"Origin": ORIGIN})
    assert (changing.status, changing.headers["access-control-allow-origin"]) == (201, ORIGIN)


def test_what_a_browser_asks_first(process: LeveretProcess) -> None:
    asked = {"Origin": ORIGIN, "Access-Control-Request-Headers": "authorization"}
    answer = Answer(process.http_url, "OPTIONS", "/mq/api/queues/%2F/q", asked)
    assert answer.status == 200
    found = {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}
    assert found == {
        "access-control-allow-origin": ORIGIN,
        "access-control-allow-credentials": "true",
        "access-control-max-age": "9",
        "access-control-allow-methods": "HEAD, GET, PUT, DELETE, OPTIONS",
        "access-control-allow-headers": "authorization",
    }


def test_pages_of_another_origin(process: LeveretProcess) -> None:
    answer = Answer(process.http_url, "GET", "/mq/api/whoami", {"Origin": "https://elsewhere.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "origin" in answer.headers["vary"]


def test_without_statistics(plain: LeveretProcess) -> None:
    management = Management(plain.http_url)
    management.request("PUT", "queues", "/", "q", body={})
    overview = management.request("GET", "overview")
    assert (overview["disable_stats"], overview["enable_queue_totals"]) == (True, True)
    assert "message_stats" not in overview
    assert management.request("GET", "queues", "/") == [
        {
            "arguments": {}, "auto_delete": False, "durable": False, "exclusive": False, "name": "q",
            "node": overview["node"], "state": "running", "type": "classic", "vhost": "/",
            "messages": 0, "messages_ready": 0, "messages_unacknowledged": 0,
        }
    ]  # fmt: skip
    assert management.refusal("GET", "channels") == (400, "Stats in management UI are disabled on this node")
