"""What scopes allow; the matrix was recorded on RabbitMQ 3.10.8, see tests/conformance/oauth2_matrix.py."""

from __future__ import annotations

import pytest

from leveret.broker.auth.oauth2.tokens import Scopes, Wildcards
from leveret.policies.permissions import DEFAULT_EXCHANGE
from tests.conformance.oauth2_matrix import TOPIC, Request, recorded


def _decide(scopes: Scopes, request: Request) -> bool:
    """Return what the scopes say about an operation of the matrix, as AMQP's methods ask them."""
    vhost = request.vhost
    if not scopes.allows_vhost(vhost):
        return False
    match request.kind:
        case "configure" | "write" | "read" as kind:
            return bool(scopes.deciding(kind, vhost, request.name or DEFAULT_EXCHANGE))
        case "topic-write":
            return bool(scopes.deciding("write", vhost, TOPIC) and scopes.deciding("write", vhost, TOPIC, request.key))
        case _:
            is_bindable = scopes.deciding("write", vhost, "orders") and scopes.deciding("read", vhost, TOPIC)
            return bool(is_bindable and scopes.deciding("read", vhost, TOPIC, request.key))


def test_decisions_are_those_of_rabbitmq() -> None:
    count = 0
    for texts, decisions in recorded():
        scopes = Scopes(texts)
        for request, decision in decisions.items():
            assert _decide(scopes, request) == decision, (texts, request)
            count += 1
    assert count >= 2000


def test_tags_are_sorted_and_given_once() -> None:
    scopes = Scopes(["tag:monitoring", "tag:administrator", "read:a/b", "tag:monitoring", "Tag:other"])
    assert scopes.tags == ("administrator", "monitoring")


def test_the_deciding_scope_is_named() -> None:
    scopes = Scopes(["write:*/other", "write:v/q*", "write:v/queue", "write:v/x/key"])
    assert scopes.deciding("write", "v", "queue") == "write:v/q*"
    assert scopes.deciding("write", "v", "x", "key") == "write:v/x/key"
    assert scopes.deciding("read", "v", "queue") is None


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [("a*b*c", "aXbYc", True), ("a*b*c", "acb", False), ("%", "%", False), ("a%2", "a%2", False), ("%25", "%", True)],
)
def test_wildcards(pattern: str, text: str, matches: bool) -> None:
    assert Wildcards(pattern).matches(text.encode()) == matches
