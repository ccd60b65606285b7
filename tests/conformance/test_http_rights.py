"""Rules 41.5 and 42.1 to 42.4: who may change what over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import (
    NO_VHOST,
    NOT_FOUND,
    REFUSED,
    Belongings,
    HttpApi,
    bad_request,
    not_authorised,
    path,
)

NOT_ADMINISTRATOR = not_authorised("Not administrator user")
NO_ACCESS = not_authorised("User not authorised to access virtual host")
NOT_POLICYMAKER = not_authorised("User not authorised to access object")
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
POLICY = {"pattern": "^none$", "definition": {"max-length": 1}}

ADMINISTRATION: list[tuple[str, str, Any]] = [
    ("GET", "users", None),
    ("GET", "users/x", None),
    ("PUT", "users/x", {"tags": ""}),
    ("DELETE", "users/x", None),
    ("POST", "users/bulk-delete", {"users": []}),
    ("GET", "users/without-permissions", None),
    ("GET", "users/x/permissions", None),
    ("GET", "permissions", None),
    ("PUT", "permissions/{vhost}/x", {}),
    ("DELETE", "permissions/{vhost}/x", None),
    ("GET", "topic-permissions", None),
    ("PUT", "topic-permissions/{vhost}/x", {}),
    ("GET", "vhosts/{vhost}", None),
    ("PUT", "vhosts/{vhost}", None),
    ("DELETE", "vhosts/{vhost}", None),
    ("GET", "vhosts/{vhost}/permissions", None),
    ("POST", "vhosts/{vhost}/start/x", None),
    ("GET", "definitions", None),
    ("POST", "definitions", {}),
    ("GET", "definitions/{vhost}", None),
    ("POST", "definitions/{vhost}", {}),
    ("PUT", "vhost-limits/{vhost}/max-queues", {"value": 1}),
    ("DELETE", "vhost-limits/{vhost}/max-queues", None),
    ("PUT", "user-limits/x/max-channels", {"value": 1}),
    ("DELETE", "user-limits/x/max-channels", None),
    ("PUT", "operator-policies/{vhost}/x", POLICY),
    ("DELETE", "operator-policies/{vhost}/x", None),
    ("PUT", "cluster-name", {"name": "x"}),
    ("POST", "rebalance/queues", None),
    ("POST", "queues/{vhost}/q/actions", {"action": "sync"}),
]
#: Changes in a virtual host, and what is needed for them on the object named.
CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "queues/{vhost}/other", {}),
    ("DELETE", "queues/{vhost}/q", None),
    ("DELETE", "queues/{vhost}/q/contents", None),
    ("PUT", "exchanges/{vhost}/other", {}),
    ("DELETE", "exchanges/{vhost}/amq.direct", None),
    ("POST", "bindings/{vhost}/e/amq.direct/q/q", {}),
]


@pytest.fixture
def vhost_with_queue(api: HttpApi, own_vhost: str) -> str:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    return own_vhost


@pytest.mark.parametrize("tags", ["management", "policymaker", "monitoring"])
def test_42_1_administration(api: HttpApi, own_vhost: str, belongings: Belongings, tags: str) -> None:
    user = belongings.user(tags, own_vhost)
    for method, below, body in ADMINISTRATION:
        api.check(method, below.replace("{vhost}", own_vhost), body, 401, NOT_ADMINISTRATOR, user=user)


class TestPolicies:
    def test_42_1_policymakers_make_policies(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        user = belongings.user("policymaker", own_vhost)
        below = path("policies", own_vhost, "p")
        api.check("PUT", below, POLICY, 201, user=user)
        api.check("DELETE", below, None, 204, user=user)

    @pytest.mark.parametrize("tags", ["management", "monitoring"])
    def test_42_1_others_do_not(self, api: HttpApi, own_vhost: str, belongings: Belongings, tags: str) -> None:
        user = belongings.user(tags, own_vhost)
        for method, below, body in (
            ("PUT", path("policies", own_vhost, "p"), POLICY),
            ("DELETE", path("policies", own_vhost, "p"), None),
            ("GET", "parameters", None),
            ("PUT", path("parameters", "operator_policy", own_vhost, "p"), {"value": 1}),
            ("GET", "global-parameters", None),
            ("PUT", path("global-parameters", "conformance"), {"value": 1}),
            ("PUT", path("policies", "conformance-no-vhost", "p"), POLICY),
        ):
            api.check(method, below, body, 401, NOT_POLICYMAKER, user=user)

    def test_42_2_not_elsewhere(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        user = belongings.user("policymaker")
        for method, below, body in (
            ("PUT", path("policies", own_vhost, "p"), POLICY),
            ("DELETE", path("policies", own_vhost, "p"), None),
            ("GET", path("parameters", "vhost-limits", own_vhost), None),
            ("PUT", path("parameters", "nope", own_vhost, "p"), {"value": 1}),
        ):
            api.check(method, below, body, 401, NOT_POLICYMAKER, user=user)
        api.check("PUT", path("policies", "conformance-no-vhost", "p"), POLICY, 404, NO_VHOST, user=user)
        assert api.get("parameters", user=user) == []

    def test_42_2_administrators_everywhere(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        user = belongings.user("administrator")
        api.check("PUT", path("policies", own_vhost, "p"), POLICY, 201, user=user)


class TestVhosts:
    """Changes need permissions in the virtual host, and on the object."""

    def test_42_2_without_access(self, api: HttpApi, vhost_with_queue: str, belongings: Belongings) -> None:
        user = belongings.user("management")
        more = [
            ("POST", "queues/{vhost}/q/get", GET),
            ("POST", "exchanges/{vhost}/amq.direct/publish", MESSAGE),
            ("DELETE", "bindings/{vhost}/e/amq.direct/q/q/~", None),
            ("GET", "vhost-limits/{vhost}", None),
        ]
        for method, below, body in CHANGES + more:
            api.check(method, below.replace("{vhost}", vhost_with_queue), body, 401, NO_ACCESS, user=user)
        assert api.get("vhost-limits", user=user) == []

    def test_42_3_administrators_need_permissions_too(
        self, api: HttpApi, vhost_with_queue: str, belongings: Belongings
    ) -> None:
        user = belongings.user("administrator")
        more = [("POST", "queues/{vhost}/q/get", GET), ("POST", "exchanges/{vhost}/amq.direct/publish", MESSAGE)]
        for method, below, body in CHANGES + more:
            api.check(method, below.replace("{vhost}", vhost_with_queue), body, 401, REFUSED, user=user)

    def test_42_3_without_permission_on_the_object(
        self, api: HttpApi, vhost_with_queue: str, belongings: Belongings
    ) -> None:
        user = belongings.user("management", vhost_with_queue, ("^mine", "^mine", "^mine"))
        for method, below, body in CHANGES:
            api.check(method, below.replace("{vhost}", vhost_with_queue), body, 401, REFUSED, user=user)
        got = f"ACCESS_REFUSED - access to queue 'q' in vhost '{vhost_with_queue}' refused for user '{user}'"
        below = path("queues", vhost_with_queue, "q", "get")
        api.check("POST", below, GET, 401, not_authorised(got), user=user)
        published = (
            f"403 ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '{vhost_with_queue}'"
            f" refused for user '{user}'"
        )
        below = path("exchanges", vhost_with_queue, "amq.direct", "publish")
        api.check("POST", below, MESSAGE, 400, bad_request(published), user=user)

    def test_42_3_with_permission(self, api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
        user = belongings.user("management", own_vhost, ("^mine", "^mine", "^mine"))
        binding = path("bindings", own_vhost, "e", "mine", "q", "mine")
        api.check("PUT", path("queues", own_vhost, "mine"), {}, 201, user=user)
        api.check("PUT", path("exchanges", own_vhost, "mine"), {}, 201, user=user)
        assert api.ask("POST", binding, {}, user=user).status == 201
        api.check("POST", path("exchanges", own_vhost, "mine", "publish"), MESSAGE, 200, {"routed": False}, user=user)
        api.check("DELETE", f"{binding}/~", None, 204, user=user)
        api.check("DELETE", path("queues", own_vhost, "mine", "contents"), None, 204, user=user)
        api.check("DELETE", path("queues", own_vhost, "mine"), None, 204, user=user)
        api.check("DELETE", path("exchanges", own_vhost, "mine"), None, 204, user=user)

    @pytest.mark.parametrize(
        ("below", "arguments"),
        [
            ("queues/{vhost}/mine", {"x-dead-letter-exchange": "other"}),
            ("exchanges/{vhost}/mine", {"alternate-exchange": "other"}),
        ],
    )
    def test_42_3_what_messages_may_be_handed_to(
        self, api: HttpApi, own_vhost: str, belongings: Belongings, below: str, arguments: Any
    ) -> None:
        user = belongings.user("management", own_vhost, ("^mine", "^mine", "^mine"))
        api.check("PUT", below.replace("{vhost}", own_vhost), {"arguments": arguments}, 401, REFUSED, user=user)

    def test_42_3_topic_permissions(self, api: HttpApi, vhost_with_queue: str, belongings: Belongings) -> None:
        user = belongings.user("management", vhost_with_queue)
        topic = {"exchange": "amq.topic", "write": "^w", "read": "^r"}
        api.check("PUT", path("topic-permissions", vhost_with_queue, user), topic, 201)
        binding = path("bindings", vhost_with_queue, "e", "amq.topic", "q", "q")
        api.check("POST", binding, {"routing_key": "w"}, 401, REFUSED, user=user)
        assert api.ask("POST", binding, {"routing_key": "r"}, user=user).status == 201
        below = path("exchanges", vhost_with_queue, "amq.topic", "publish")
        refusal = (
            f"403 ACCESS_REFUSED - access to topic 'r' in exchange 'amq.topic' in vhost '{vhost_with_queue}'"
            f" refused for user '{user}'"
        )
        api.check("POST", below, {**MESSAGE, "routing_key": "r"}, 400, bad_request(refusal), user=user)
        api.check("POST", below, {**MESSAGE, "routing_key": "w"}, 200, {"routed": False}, user=user)

    def test_42_2_a_virtual_host_that_does_not_exist(self, api: HttpApi, belongings: Belongings) -> None:
        user = belongings.user("management")
        missing = "conformance-no-vhost"
        api.check("PUT", path("queues", missing, "q"), {}, 404, NO_VHOST, user=user)
        api.check("DELETE", path("queues", missing, "q"), None, 404, NOT_FOUND, user=user)
        api.check("PUT", path("exchanges", missing, "x"), {}, 404, NO_VHOST, user=user)
        api.check("POST", path("bindings", missing, "e", "x", "q", "q"), {}, 404, NO_VHOST, user=user)
        api.check("POST", path("queues", missing, "q", "get"), GET, 401, REFUSED, user=user)
        api.check("POST", path("exchanges", missing, "x", "publish"), MESSAGE, 401, REFUSED, user=user)


class TestLogin:
    def test_42_4_limits_of_users_are_no_secret(self, api: HttpApi, belongings: Belongings) -> None:
        user = belongings.user("management")
        assert isinstance(api.get("user-limits", user=user), list)
