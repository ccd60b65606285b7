"""Whatever stands in a path, a query or a header, the answer is valid and never an internal error."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest

from leveret.broker.management.http.openapi import document
from tests.conformance.http_api import HttpApi
from tests.integration.management.test_any_body import PARTS
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

DESCRIBED: Final = document()
METHODS: Final = ("get", "put", "post", "delete")
#: As they stand in an address.
ODD: Final = (
    *("", "0", "-1", "1", "%2B1", "1.5", "9" * 19, "9" * 310, "9" * 5000, "-" + "9" * 5000, "1e999", "NaN", "true"),
    *("%00", "%0D%0Aa:b", "%FF", "%ED%A0%80", "%EF%BF%BF", "%1B", "%F0%9F%90%87", "%D9%A1", "%", "%zz", "[", "(%3F"),
    *("a." * 1500, "a," * 1500, ".", ",", "..%2F..", "%22", "*", "a" * 3000),
)
HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Content-Type": (
        *("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x; charset=y"),
        *("application/x-www-form-urlencoded; charset=punycode", "a", ";", "text/plain; charset=\xff", "*/*"),
    ),
    "Content-Encoding": ("gzip", "deflate", "br", "zstd", "nonsense"),
    "Accept": ("", ";", "text/html", "application/json;q=x", ",,,"),
    "Accept-Encoding": ("gzip;q=", "gzip;q=x", ";;", "*"),
    "Authorization": ("", "Basic", "Basic =", "Basic /w==", "Basic Og==", "Bearer x", "Digest x", "Basic \xff"),
    "Cookie": ("=", ";;;", "leveret_session=\xff", "a" * 4000),
    "Origin": ("null", "http://[", "http://x:y:z", "\xff"),
    "X-Vhost": ("\xff", "nowhere"),
    "X-Forwarded-Host": ("[", "\xff"),
    "Expect": ("100-continue", "nonsense"),
    "Range": ("bytes=0-0", "bytes=9-1", "x"),
    "If-Modified-Since": ("x", "9" * 100),
}
#: Parameters of all lists are tried on these only.
SHARED: Final = frozenset(
    ("page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "disable_stats", "msg_rates_age",
     "msg_rates_incr", "data_rates_age", "data_rates_incr", "lengths_age", "lengths_incr")
)  # fmt: skip
LISTS: Final = ("/api/queues", "/api/overview", "/api/nodes", "/api/losses", "/api/queues/{vhost}/{name}")
BODIES: Final = (b"", b"{}", b"--x\r\n", b"--x\r\n\r\n\r\n--x--\r\n", b"\xff" * 10)


def _parameters(item: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    for each in [*item.get("parameters", ()), *operation.get("parameters", ())]:
        found = DESCRIBED["components"]["parameters"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if found["in"] == "query":
            yield found["name"]


def _operations() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for template, item in DESCRIBED["paths"].items():
        for method in METHODS:
            if method in item:
                found = (each for each in _parameters(item, item[method]) if template in LISTS or each not in SHARED)
                yield method.upper(), template, tuple(found)


def _target(template: str, parts: Mapping[str, str]) -> str:
    return "/".join(parts.get(part[1:-1], "x") if part.startswith("{") else part for part in template.split("/"))


def _targets(template: str, parameters: tuple[str, ...]) -> Iterator[str]:
    names = [part[1:-1] for part in template.split("/") if part.startswith("{")]
    right = {name: quote(value, safe="") for name, value in PARTS.items()}
    for odd in ODD:
        for name in names:
            yield _target(template, {**right, name: odd})
        for parameter in parameters:
            beside = {"page": "1", "lengths_incr": "5", "lengths_age": "5", "use_regex": "true", parameter: odd}
            yield f"{_target(template, right)}?" + "&".join(f"{key}={value}" for key, value in beside.items())


class Asking:
    """Sends requests over one connection as long as it stays open."""

    def __init__(self, process: LeveretProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", urlsplit(process.http_url).port, timeout=120)
        self._login = Management(process.http_url).authorization

    def close(self) -> None:
        self._connection.close()

    def check(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self._connection.request(method, target, body, {"Authorization": self._login, **(headers or {})})
        reply = self._connection.getresponse()
        text = reply.read()
        said = (method, target[:200], headers, body, reply.status, text[:200])
        # 503 is the answer of a check of health that fails.
        assert reply.status < 500 or (reply.status == 503 and "health" in target), said
        if text and reply.headers.get_content_type() == "application/json" and "Content-Encoding" not in reply.headers:
            json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON: {said}"))


@pytest.fixture(scope="module")
def asking(process: LeveretProcess) -> Iterator[Asking]:
    """Asks a broker with a virtual host and a queue; asserts at the end that the log has no traceback."""
    api = HttpApi(Management(process.http_url))
    for target in ("vhosts/v", "queues/v/thing"):
        assert api.ask("PUT", target, {}).status in (201, 204)
    with closing(Asking(process)) as made:
        yield made
    assert "Traceback" not in process.log_text()


@pytest.mark.parametrize(("method", "template", "parameters"), list(_operations()))
def test_no_internal_error(asking: Asking, method: str, template: str, parameters: tuple[str, ...]) -> None:
    for target in _targets(template, parameters):
        asking.check(method, target)


@pytest.mark.parametrize("header", HEADERS)
def test_no_internal_error_by_a_header(asking: Asking, header: str) -> None:
    for value in HEADERS[header]:
        for body in BODIES:
            for method, target in (
                *(("POST", "/api/login"), ("POST", "/api/session"), ("POST", "/api/definitions")),
                *(("GET", "/api/queues"), ("GET", "/"), ("GET", "/app.js"), ("PUT", "/api/queues/v/thing")),
            ):
                asking.check(method, target, {header: value}, body)
