from __future__ import annotations

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.messages.origin import Origin
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.publishing import publish
from leveret.protocol import properties
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldValue, longstr
from leveret.protocol.properties import encode_content_header, encode_headers, encode_text
from tests.support.manual_loop import ManualLoop
from tests.support.principals import new_principal
from tests.support.queue_content import arguments, contents, drain, headers_of, route_of
from tests.support.queues import declare, new_vhost

ORIGIN = Origin("client", 1, "guest")


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


def send(vhost: VirtualHost, key: str, body: bytes = b"x", exchange: str = "", **said: bytes) -> bool:
    flags = {
        "headers": properties.HEADERS,
        "mode": properties.DELIVERY_MODE,
        "expiration": properties.EXPIRATION,
        "user_id": properties.USER_ID,
    }
    header = encode_content_header(len(body), {flags[name]: value for name, value in said.items()})
    accepted = publish(new_principal(vhost), exchange, key, header, body, ORIGIN)
    return bool(accepted) and all(accepted)


def test_a_message_goes_where_it_is_routed(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert send(vhost, "q", b"hello")
    assert not send(vhost, "nowhere")
    message = drain(queue)[0]
    assert (message.body, route_of(message), message.envelope.persistent) == (b"hello", ("", "q"), False)


def test_what_it_says_of_itself_counts(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert send(vhost, "q", mode=b"\x02", expiration=encode_text("5000"))
    envelope = drain(queue)[0].envelope
    assert (envelope.persistent, envelope.expiration_ms) == (True, 5000)


def test_copies_and_blind_copies(vhost: VirtualHost) -> None:
    queues = [declare(vhost, name) for name in "abc"]
    both = (("BCC", FieldValue("A", (longstr("c"),))), ("CC", FieldValue("A", (longstr("b"),))))
    assert send(vhost, "a", headers=encode_headers(both))
    found = [drain(queue)[0] for queue in queues]
    assert all([key for key, _ in headers_of(message)] == ["CC"] for message in found), "nobody learns of the blind"


def test_a_queue_that_refuses_has_not_taken_it(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=1, overflow="reject-publish"))
    assert send(vhost, "q", b"a")
    assert not send(vhost, "q", b"b")
    assert contents(queue) == ["a"]


@pytest.mark.parametrize(
    ("exchange", "said", "complaint"),
    [
        ("none", {}, "404 NOT_FOUND - no exchange 'none' in vhost 'v'"),
        ("amq.rabbitmq.trace", {}, "403 ACCESS_REFUSED - cannot publish to internal exchange"),
        ("", {"mode": b"\x03"}, "406 PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,3}"),
        ("", {"expiration": encode_text("x")}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
        (
            "",
            {"user_id": encode_text("other"), "mode": b"\x03"},
            "406 PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'",
        ),
        ("none", {"user_id": encode_text("other")}, "404 NOT_FOUND - no exchange 'none' in vhost 'v'"),
    ],
)
def test_what_is_refused(vhost: VirtualHost, exchange: str, said: dict[str, bytes], complaint: str) -> None:
    with pytest.raises(AmqpFault) as caught:
        send(vhost, "q", exchange=exchange, **said)
    assert str(caught.value).startswith(complaint)


def test_the_exchange_must_be_writable(vhost: VirtualHost) -> None:
    principal = new_principal(vhost, write="^amq.fanout$")
    publish(principal, "amq.fanout", "k", encode_content_header(1), b"x", ORIGIN)
    for exchange, shown in (("", "amq.default"), ("none", "none")):
        with pytest.raises(AmqpFault) as caught:
            publish(principal, exchange, "k", encode_content_header(1), b"x", ORIGIN)
        text = f"ACCESS_REFUSED - access to exchange '{shown}' in vhost 'v' refused for user 'guest'"
        assert caught.value.text == text


def test_topic_permissions_count_for_topic_exchanges(vhost: VirtualHost) -> None:
    accounts = Accounts()
    principal, header = new_principal(vhost, accounts=accounts), encode_content_header(1)
    for exchange in ("amq.topic", "amq.direct"):
        accounts.set_topic_permissions("guest", "v", exchange, "^mine$", ".*")
    publish(principal, "amq.direct", "k", header, b"x", ORIGIN)
    publish(principal, "amq.topic", "mine", header, b"x", ORIGIN)
    with pytest.raises(AmqpFault, match=r"access to topic 'k' in exchange 'amq\.topic'"):
        publish(principal, "amq.topic", "k", header, b"x", ORIGIN)


def test_an_impersonator_may_name_another_user(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    header = encode_content_header(1, {properties.USER_ID: encode_text("other")})
    assert publish(new_principal(vhost, tags=("impersonator",)), "", "q", header, b"x", ORIGIN)
    assert contents(queue) == ["x"]
