"""Rule 45.18: limits of virtual hosts and users over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Connect
from tests.conformance.http_api import NO_VHOST, NOT_FOUND, PASSWORD, Belongings, HttpApi, bad_request, path
from tests.support.wire import ConnectionClosed


class TestVhostLimits:
    def test_45_18_setting_and_lifting(self, api: HttpApi, own_vhost: str) -> None:
        below = path("vhost-limits", own_vhost)
        assert api.get(below) == []
        api.check("PUT", f"{below}/max-queues", {"value": 5}, 204)
        api.check("PUT", f"{below}/max-connections", {"value": 7}, 204)
        api.check("PUT", f"{below}/max-queues", {"value": -1}, 204)
        shown = [{"vhost": own_vhost, "value": {"max-queues": -1, "max-connections": 7}}]
        assert api.get(below) == shown
        assert shown[0] in api.get("vhost-limits")
        for _ in range(2):
            api.check("DELETE", f"{below}/max-queues", None, 204)
        assert api.get(below) == [{"vhost": own_vhost, "value": {"max-connections": 7}}]
        api.check("DELETE", f"{below}/max-connections", None, 204)
        api.check("DELETE", f"{below}/unknown", None, 204)
        assert api.get(below) == []

    @pytest.mark.parametrize(
        ("limit", "body", "reason"),
        [
            ("nope", {"value": 1}, 'Validation failed\n\nUnrecognised terms [{<<"nope">>,1}] in limits\n'),
            (
                "max-queues",
                {"value": "x"},
                'Validation failed\n\nmax-queues should be a number, actually was <<"x">>\n',
            ),
            (
                "max-connections",
                {"value": 7.5},
                "Validation failed\n\nmax-connections should be a number, actually was 7.5\n",
            ),
            ("max-queues", {}, "[{key_missing,value}]"),
        ],
    )
    def test_45_18_what_is_refused(self, api: HttpApi, own_vhost: str, limit: str, body: Any, reason: str) -> None:
        api.check("PUT", path("vhost-limits", own_vhost, limit), body, 400, bad_request(reason))

    def test_45_18_a_virtual_host_that_does_not_exist(self, api: HttpApi) -> None:
        below = path("vhost-limits", "conformance-no-vhost")
        api.check("GET", below, None, 404, NOT_FOUND)
        api.check("PUT", f"{below}/max-queues", {"value": 1}, 404, NO_VHOST)

    def test_45_18_queues_are_limited_over_http_too(self, api: HttpApi, own_vhost: str) -> None:
        api.check("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": 1}, 204)
        api.check("PUT", path("queues", own_vhost, "one"), {}, 201)
        reason = f"cannot declare queue 'two': queue limit in vhost '{own_vhost}' (1) is reached"
        api.check("PUT", path("queues", own_vhost, "two"), {}, 400, bad_request(reason))
        api.check("PUT", path("queues", own_vhost, "one"), {}, 204)
        api.check("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": -1}, 204)
        api.check("PUT", path("queues", own_vhost, "two"), {}, 201)


class TestUserLimits:
    def test_45_18_setting_and_lifting(self, api: HttpApi, belongings: Belongings) -> None:
        user = belongings.user("")
        below = path("user-limits", user)
        assert api.get(below) == []
        api.check("PUT", f"{below}/max-channels", {"value": 5}, 204)
        api.check("PUT", f"{below}/max-connections", {"value": -1}, 204)
        limits = {"max-channels": 5, "max-connections": -1}
        assert api.get(below) == [{"user": user, "value": limits}]
        assert {"user": user, "value": limits} in api.get("user-limits")
        assert api.get(path("users", user))["limits"] == limits
        for _ in range(2):
            api.check("DELETE", f"{below}/max-channels", None, 204)
        api.check("DELETE", f"{below}/unknown", None, 204)
        assert api.get(below) == [{"user": user, "value": {"max-connections": -1}}]

    @pytest.mark.parametrize(
        ("limit", "body", "reason"),
        [
            ("nope", {"value": 5}, 'Unrecognised terms [{<<"nope">>,5}] in user-limits'),
            ("max-channels", {"value": "x"}, 'max-channels should be a number, actually was <<"x">>'),
            ("max-channels", {}, "[{key_missing,value}]"),
        ],
    )
    def test_45_18_what_is_refused(
        self, api: HttpApi, belongings: Belongings, limit: str, body: Any, reason: str
    ) -> None:
        api.check("PUT", path("user-limits", belongings.user(""), limit), body, 400, bad_request(reason))

    def test_45_18_a_user_that_does_not_exist(self, api: HttpApi) -> None:
        below = path("user-limits", "conformance-no-user")
        api.check("GET", below, None, 404, NOT_FOUND)
        expected = bad_request(["no_such_user", "conformance-no-user"])
        api.check("PUT", f"{below}/max-channels", {"value": 1}, 400, expected)

    def test_45_18_they_count_for_open_connections(
        self, api: HttpApi, connect: Connect, belongings: Belongings, own_vhost: str
    ) -> None:
        user = belongings.user("", own_vhost)
        connection = connect(user=user, password=PASSWORD, vhost=own_vhost)
        connection.channel()
        api.check("PUT", path("user-limits", user, "max-channels"), {"value": 1}, 204)
        with pytest.raises(ConnectionClosed, match=r"has reached the maximum allowed user limit of \(1\)"):
            connection.channel()
