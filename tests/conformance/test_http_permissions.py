"""Rule 45.17: permissions and topic permissions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import NOT_FOUND, Belongings, HttpApi, bad_request, path

GRANT = {"configure": "", "write": "^a", "read": ".*"}
TOPIC = {"exchange": "amq.topic", "write": "^w", "read": ".*"}


@pytest.fixture
def user(belongings: Belongings) -> str:
    return belongings.user("")


def one(vhost: str, user: str, kind: str = "permissions") -> str:
    return path(kind, vhost, user)


class TestPermissions:
    def test_45_17_setting_and_taking(self, api: HttpApi, own_vhost: str, user: str) -> None:
        api.check("PUT", one(own_vhost, user), GRANT, 201)
        api.check("PUT", one(own_vhost, user), GRANT, 204)
        shown = {"user": user, "vhost": own_vhost, **GRANT}
        assert api.get(one(own_vhost, user)) == shown
        assert api.get(path("users", user, "permissions")) == [shown]
        assert shown in api.get(path("vhosts", own_vhost, "permissions"))
        assert shown in api.get("permissions")
        api.check("DELETE", one(own_vhost, user), None, 204)
        api.check("DELETE", one(own_vhost, user), None, 404, NOT_FOUND)
        api.check("GET", one(own_vhost, user), None, 404, NOT_FOUND)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({}, "[{key_missing,configure},{key_missing,write},{key_missing,read}]"),
            ({"configure": ".*"}, "[{key_missing,write},{key_missing,read}]"),
            (
                {**GRANT, "configure": "["},
                ["invalid_regexp", [91], [list(b"missing terminating ] for character class"), 1]],
            ),
        ],
    )
    def test_45_17_what_is_refused(self, api: HttpApi, own_vhost: str, user: str, body: Any, reason: object) -> None:
        api.check("PUT", one(own_vhost, user), body, 400, bad_request(reason))

    def test_45_17_user_and_virtual_host_must_exist(self, api: HttpApi, own_vhost: str, user: str) -> None:
        for vhost, name in ((own_vhost, "conformance-no-user"), ("conformance-no-vhost", user)):
            api.check("PUT", one(vhost, name), GRANT, 400, bad_request("vhost_or_user_not_found"))
            api.check("GET", one(vhost, name), None, 404, NOT_FOUND)
            api.check("DELETE", one(vhost, name), None, 404, NOT_FOUND)

    def test_45_17_lists_of_what_does_not_exist(self, api: HttpApi) -> None:
        for kind in ("permissions", "topic-permissions"):
            api.check("GET", path("users", "conformance-no-user", kind), None, 404, NOT_FOUND)
            api.check("GET", path("vhosts", "conformance-no-vhost", kind), None, 404, NOT_FOUND)


class TestTopicPermissions:
    kind = "topic-permissions"

    def test_45_17_setting_and_taking_all(self, api: HttpApi, own_vhost: str, user: str) -> None:
        below = one(own_vhost, user, self.kind)
        api.check("PUT", below, TOPIC, 201)
        api.check("PUT", below, {**TOPIC, "exchange": ""}, 204)
        shown = [{"user": user, "vhost": own_vhost, **TOPIC, "exchange": name} for name in ("", "amq.topic")]
        for listed in (below, path("users", user, self.kind), path("vhosts", own_vhost, self.kind)):
            assert sorted(api.get(listed), key=lambda entry: str(entry["exchange"])) == shown
        assert all(entry in api.get(self.kind) for entry in shown)
        api.check("DELETE", below, None, 204)
        api.check("DELETE", below, None, 404, NOT_FOUND)
        api.check("GET", below, None, 404, NOT_FOUND)

    def test_45_17_taking_those_of_one_exchange(self, api: HttpApi, own_vhost: str, user: str) -> None:
        below = one(own_vhost, user, self.kind)
        for exchange in ("x", "y"):
            assert api.ask("PUT", below, {**TOPIC, "exchange": exchange}).status in (201, 204)
        api.check("DELETE", f"{below}/x", None, 204)
        assert [entry["exchange"] for entry in api.get(below)] == ["y"]

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"write": "", "read": ""}, "[{key_missing,exchange}]"),
            ({**TOPIC, "write": "["}, ["invalid_regexp", "[", [list(b"missing terminating ] for character class"), 1]]),
        ],
    )
    def test_45_17_what_is_refused(self, api: HttpApi, own_vhost: str, user: str, body: Any, reason: object) -> None:
        api.check("PUT", one(own_vhost, user, self.kind), body, 400, bad_request(reason))

    def test_45_17_user_and_virtual_host_must_exist(self, api: HttpApi, own_vhost: str, user: str) -> None:
        for vhost, name in ((own_vhost, "conformance-no-user"), ("conformance-no-vhost", user)):
            below = one(vhost, name, self.kind)
            api.check("PUT", below, TOPIC, 400, bad_request("vhost_or_user_not_found"))
            api.check("GET", below, None, 404, NOT_FOUND)
            api.check("DELETE", f"{below}/x", None, 404, NOT_FOUND)
