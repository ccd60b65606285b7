"""Detection of requests by pages of another origin."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from aiohttp.test_utils import make_mocked_request

from leveret.broker.management.http.origins import is_cross_origin

CASES: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"origin": "http://broker:15672"}, False),
    ({"origin": "HTTP://BROKER:15672"}, False),
    ({"origin": "http://broker"}, True),
    ({"origin": "http://broker:8080"}, True),
    ({"origin": "http://broker:15672.evil.example"}, True),
    ({"origin": "null"}, True),
    ({"origin": ""}, True),
    ({"sec-fetch-site": "same-origin"}, False),
    ({"sec-fetch-site": "none"}, False),
    ({"sec-fetch-site": "same-site"}, True),
    ({"sec-fetch-site": "cross-site"}, True),
    ({"sec-fetch-site": "cross-site", "origin": "http://broker:15672"}, True),
    # a proxy that does not forward Host
    ({"origin": "http://outside.example", "x-forwarded-host": "outside.example"}, False),
    ({"origin": "http://evil.example", "x-forwarded-host": "outside.example"}, True),
    ({"sec-fetch-site": "same-origin", "origin": "https://outside.example"}, False),
]


@pytest.mark.parametrize(("headers", "expected"), CASES)
def test_is_cross_origin(headers: dict[str, str], expected: bool) -> None:
    request = make_mocked_request("POST", "/api/x", {"host": "broker:15672", **headers})
    assert is_cross_origin(request) is expected


@pytest.mark.parametrize(
    ("allowed", "expected"), [((), True), (("*",), False), (("https://a.example",), False), (("https://b",), True)]
)
def test_allowed_origins(allowed: Collection[str], expected: bool) -> None:
    headers = {"host": "broker:15672", "origin": "https://a.example", "sec-fetch-site": "cross-site"}
    assert is_cross_origin(make_mocked_request("POST", "/api/x", headers), allowed) is expected
