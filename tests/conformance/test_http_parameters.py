"""Rule 45.19: parameters and global parameters over HTTP, as RabbitMQ without plugins has them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.http_api import NO_VHOST, NOT_FOUND, HttpApi, bad_request, path

CAP = {"pattern": "^a$", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"}


def failed(*texts: str) -> dict[str, object]:
    return bad_request(f"Validation failed\n\n{''.join(texts)}")


class TestOperatorPolicies:
    def test_45_19_they_are_parameters_too(self, api: HttpApi, own_vhost: str) -> None:
        below = path("parameters", "operator_policy", own_vhost, "cap")
        api.check("PUT", below, {"value": CAP}, 201)
        api.check("PUT", below, {"value": {**CAP, "priority": 2}}, 204)
        shown = {"vhost": own_vhost, "component": "operator_policy", "name": "cap", "value": {**CAP, "priority": 2}}
        assert api.get(below) == shown
        assert api.get(path("parameters", "operator_policy", own_vhost)) == [shown]
        assert shown in api.get("parameters/operator_policy")
        assert shown in api.get("parameters")
        assert api.get(path("operator-policies", own_vhost, "cap"))["priority"] == 2
        api.check("DELETE", below, None, 204)
        api.check("DELETE", below, None, 404, NOT_FOUND)
        assert api.get(path("operator-policies", own_vhost)) == []

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({}, bad_request("[{key_missing,value}]")),
            ({"value": 5}, failed("cap not a list 5\n")),
            (
                {"value": {}},
                failed(*(f'Key "{key}" not found in cap\n' for key in ("definition", "pattern", "priority"))),
            ),
            ({"value": {"pattern": "a", "definition": {"max-length": 1}}}, failed('Key "priority" not found in cap\n')),
        ],
    )
    def test_45_19_nothing_has_a_default(self, api: HttpApi, own_vhost: str, body: Any, expected: object) -> None:
        api.check("PUT", path("parameters", "operator_policy", own_vhost, "cap"), body, 400, expected)


class TestLimits:
    def test_45_19_they_are_a_parameter_too(self, api: HttpApi, own_vhost: str) -> None:
        below = path("parameters", "vhost-limits", own_vhost, "limits")
        api.check("PUT", below, {"value": {"max-queues": 5}}, 201)
        shown = {"vhost": own_vhost, "component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}}
        assert api.get(path("parameters", "vhost-limits", own_vhost)) == [shown]
        assert api.get(path("vhost-limits", own_vhost)) == [{"vhost": own_vhost, "value": {"max-queues": 5}}]
        api.check("DELETE", below, None, 204)
        api.check("DELETE", below, None, 404, NOT_FOUND)
        assert api.get(path("vhost-limits", own_vhost)) == []


class TestOthers:
    def test_45_19_policies_are_shown_only(self, api: HttpApi, own_vhost: str) -> None:
        below = path("parameters", "policy", own_vhost, "p")
        api.check("PUT", below, {"value": {}}, 400, bad_request("policies may not be set using this method"))
        policy = {"pattern": "a", "definition": {"max-length": 3}}
        api.check("PUT", path("policies", own_vhost, "p"), policy, 201)
        assert api.get(below)["value"] == {**policy, "priority": 0, "apply-to": "all"}
        assert all(entry["component"] != "policy" for entry in api.get("parameters"))

    @pytest.mark.parametrize("component", ["nope", "federation-upstream"])
    def test_45_19_components_of_plugins(self, api: HttpApi, own_vhost: str, component: str) -> None:
        below = path("parameters", component, own_vhost, "x")
        api.check("PUT", below, {"value": {}}, 400, failed(f"component {component} not found\n"))
        api.check("GET", below, None, 404, NOT_FOUND)
        assert api.get(path("parameters", component)) == []

    def test_45_19_what_does_not_exist(self, api: HttpApi, own_vhost: str) -> None:
        api.check("GET", path("parameters", "vhost-limits", own_vhost, "nope"), None, 404, NOT_FOUND)
        api.check("GET", path("parameters", "vhost-limits", "conformance-no-vhost"), None, 404, NOT_FOUND)
        below = path("parameters", "vhost-limits", "conformance-no-vhost", "limits")
        api.check("PUT", below, {"value": {}}, 404, NO_VHOST)


@pytest.fixture
def parameter(api: HttpApi) -> Iterator[str]:
    """The path of a global parameter that is not there yet."""
    below = path("global-parameters", f"conformance-{uuid.uuid4().hex[:12]}")
    yield below
    api.ask("DELETE", below)


class TestGlobalParameters:
    @pytest.mark.parametrize("value", [None, 1, "abc", [1, {"a": True}], {"a": [1, 2.5, None]}])
    def test_45_19_setting_and_clearing(self, api: HttpApi, parameter: str, value: Any) -> None:
        api.check("PUT", parameter, {"value": "first"}, 201)
        api.check("PUT", parameter, {"value": value}, 204)
        name = parameter.removeprefix("global-parameters/")
        assert api.get(parameter) == {"name": name, "value": value}
        assert {"name": name, "value": value} in api.get("global-parameters")
        api.check("DELETE", parameter, None, 204)
        api.check("DELETE", parameter, None, 404, NOT_FOUND)
        api.check("GET", parameter, None, 404, NOT_FOUND)

    def test_45_19_a_value_is_needed(self, api: HttpApi, parameter: str) -> None:
        api.check("PUT", parameter, {}, 400, bad_request("[{key_missing,value}]"))

    def test_45_19_one_identifies_the_cluster(self, api: HttpApi) -> None:
        assert isinstance(api.get("global-parameters/internal_cluster_id")["value"], str)
