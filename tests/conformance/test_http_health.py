"""Rule 45.20: health checks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import HttpApi
from tests.support.wire import parse_url

OK = {"status": "ok"}
SINGLE = {"status": "ok", "reason": "single node cluster"}


def check(api: HttpApi, path: str) -> tuple[int, Any]:
    reply = api.ask("GET", path)
    return reply.status, reply.document


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("health/checks/alarms", OK),
        ("health/checks/alarms/", OK),
        ("health/checks/local-alarms", OK),
        ("health/checks/virtual-hosts", OK),
        ("health/checks/certificate-expiration/1/months", OK),
        ("health/checks/certificate-expiration/0/days", OK),
        ("health/checks/node-is-quorum-critical", SINGLE),
        ("health/checks/node-is-mirror-sync-critical", SINGLE),
        ("health/checks/protocol-listener/amqp091", {"status": "ok", "protocol": "amqp"}),
        ("health/checks/protocol-listener/AMQP", {"status": "ok", "protocol": "amqp"}),
        ("health/checks/protocol-listener/amqp0-9-1", {"status": "ok", "protocol": "amqp"}),
        ("health/checks/protocol-listener/http", {"status": "ok", "protocol": "http"}),
        ("healthchecks/node", OK),
        ("aliveness-test/%2F", OK),
    ],
)
def test_45_20_all_is_well(api: HttpApi, path: str, answer: object) -> None:
    assert check(api, path) == (200, answer)


def test_45_20_the_port_of_a_listener(api: HttpApi, broker_url: str) -> None:
    port = parse_url(broker_url).port
    assert check(api, f"health/checks/port-listener/{port}") == (200, {"status": "ok", "port": port})


@pytest.mark.parametrize("port", [0, 1, 70000])
def test_45_20_the_port_of_no_listener(api: HttpApi, broker_url: str, port: int) -> None:
    status, document = check(api, f"health/checks/port-listener/{port}")
    assert parse_url(broker_url).port in document.pop("ports")
    assert (status, document) == (503, {"status": "failed", "reason": "No active listener", "missing": port})


@pytest.mark.parametrize(("protocol", "missing"), [("mqtt", "mqtt"), ("amqps", "amqp/ssl"), ("nope", "nope")])
def test_45_20_a_protocol_without_listener(api: HttpApi, protocol: str, missing: str) -> None:
    status, document = check(api, f"health/checks/protocol-listener/{protocol}")
    assert {"amqp", "http", "http/prometheus"} <= set(document.pop("protocols"))
    assert (status, document) == (503, {"status": "failed", "reason": "No active listener", "missing": missing})


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("port-listener/abc", "Invalid port"),
        ("certificate-expiration/x/months", "Invalid expiration value."),
        ("certificate-expiration/1/eons", "Time unit not recognised. Supported units: days, weeks, months, years."),
        ("certificate-expiration/1/day", "Time unit not recognised. Supported units: days, weeks, months, years."),
    ],
)
def test_45_20_checks_that_make_no_sense(api: HttpApi, path: str, reason: str) -> None:
    assert check(api, f"health/checks/{path}") == (400, {"error": "bad_request", "reason": reason})


@pytest.mark.departs("4.1")
@pytest.mark.parametrize("name", ["is-in-service", "ready-to-serve-clients", "below-node-connection-limit"])
def test_45_20_checks_of_newer_releases(api: HttpApi, name: str) -> None:
    assert check(api, f"health/checks/{name}") == (200, OK)
