"""Rules 41.8 and 45.7: declaring and deleting exchanges over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import NO_VHOST, NOT_FOUND, REFUSED, HttpApi, bad_request, path


def x(vhost: str, name: str = "x") -> str:
    return path("exchanges", vhost, name)


COLUMNS = "columns=name,type,durable,auto_delete,internal,arguments"


def test_45_7_declaring_again_changes_nothing(api: HttpApi, own_vhost: str) -> None:
    structure = {
        "type": "topic",
        "durable": True,
        "auto_delete": True,
        "internal": True,
        "arguments": {"alternate-exchange": "y"},
    }
    api.check("PUT", x(own_vhost), structure, 201)
    api.check("PUT", x(own_vhost), structure, 204)
    assert api.get(f"{x(own_vhost)}?{COLUMNS}") == {"name": "x", **structure}


def test_45_7_everything_may_be_missing(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", x(own_vhost), {}, 201)
    shown = {"name": "x", "type": "direct", "durable": False, "auto_delete": False, "internal": False, "arguments": {}}
    assert api.get(f"{x(own_vhost)}?{COLUMNS}") == shown


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        # A name that is an atom of RabbitMQ itself; others it calls `unknown`, until somebody has made one of them.
        ({"type": "classic"}, "invalid exchange type 'classic'"),
        ({"durable": "maybe"}, ["not_boolean", "maybe"]),
        (
            {"arguments": {"alternate-exchange": 5}},
            "invalid type 'long' for arg 'alternate-exchange' in exchange 'x' in vhost '{vhost}'",
        ),
    ],
)
def test_45_7_what_cannot_be_declared(api: HttpApi, own_vhost: str, body: Any, reason: object) -> None:
    expected = reason.replace("{vhost}", own_vhost) if isinstance(reason, str) else reason
    api.check("PUT", x(own_vhost), body, 400, bad_request(expected))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"type": "fanout"},
            "inequivalent arg 'type' for exchange 'x' in vhost '{vhost}': received 'fanout' but current is 'direct'",
        ),
        (
            {"arguments": {"alternate-exchange": "y"}},
            "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '{vhost}':"
            " received the value 'y' of type 'longstr' but current is none",
        ),
    ],
)
def test_45_7_what_differs_from_the_exchange_that_exists(api: HttpApi, own_vhost: str, body: Any, reason: str) -> None:
    api.check("PUT", x(own_vhost), {}, 201)
    api.check("PUT", x(own_vhost), body, 400, bad_request(reason.replace("{vhost}", own_vhost)))


class TestSystemExchanges:
    @pytest.mark.parametrize("name", ["amq.foo", "amq.default"])
    def test_45_7_they_are_not_declared(self, api: HttpApi, own_vhost: str, name: str) -> None:
        api.check("PUT", x(own_vhost, name), {"type": "direct", "durable": True}, 401, REFUSED)

    def test_45_7_those_that_exist_may_be_declared_again(self, api: HttpApi, own_vhost: str) -> None:
        api.check("PUT", x(own_vhost, "amq.direct"), {"type": "direct", "durable": True}, 204)

    @pytest.mark.parametrize("name", ["amq.direct", "amq.default"])
    def test_45_7_they_are_not_deleted(self, api: HttpApi, own_vhost: str, name: str) -> None:
        api.check("DELETE", x(own_vhost, name), None, 401, REFUSED)


def test_45_7_deleting(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", x(own_vhost), {}, 201)
    api.check("DELETE", x(own_vhost), None, 204)
    api.check("DELETE", x(own_vhost), None, 404, NOT_FOUND)
    api.check("DELETE", x(own_vhost, "amq.nope"), None, 404, NOT_FOUND)


def test_45_7_deleting_only_if_it_is_unused(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", x(own_vhost), {}, 201)
    binding = path("bindings", own_vhost, "e", "x", "e", "amq.fanout")
    assert api.ask("POST", binding, {}).status == 201
    reason = f"exchange 'x' in vhost '{own_vhost}' in use"
    api.check("DELETE", f"{x(own_vhost)}?if-unused=true", None, 400, bad_request(reason))
    api.check("DELETE", f"{binding}/~", None, 204)
    api.check("DELETE", f"{x(own_vhost)}?if-unused=true", None, 204)


def test_41_8_a_virtual_host_that_does_not_exist(api: HttpApi) -> None:
    api.check("PUT", x("conformance-no-vhost"), {}, 404, NO_VHOST)
    api.check("DELETE", x("conformance-no-vhost"), None, 404, NOT_FOUND)
