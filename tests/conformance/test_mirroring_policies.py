"""Rule 45.22: policies of clusters: accepted, validated, and in force without doing anything on one node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Poll
from tests.conformance.http_api import HttpApi, bad_request, path

NO_MODE = "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"


def policy(**definition: Any) -> dict[str, Any]:
    """A policy for the queues q and quorum; keys with _ for -."""
    return {"pattern": "^q", "definition": {key.replace("_", "-"): value for key, value in definition.items()}}


@pytest.mark.parametrize(
    "definition",
    [
        {"ha_mode": "all"},
        {"ha_mode": "all", "ha_sync_mode": "automatic", "ha_sync_batch_size": 50, "max_length": 5},
        {"ha_mode": "all", "ha_promote_on_shutdown": "always", "ha_promote_on_failure": "when-synced"},
        {"ha_mode": "exactly", "ha_params": 2},
        {"ha_mode": "nodes", "ha_params": ["rabbit@a", "rabbit@b"]},
        {"queue_master_locator": "min-masters"},
    ],
)
def test_45_22_what_is_accepted(api: HttpApi, own_vhost: str, poll: Poll, definition: dict[str, Any]) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {"durable": True}, 201)
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    api.check("PUT", path("queues", own_vhost, "quorum"), quorum, 201)
    api.check("PUT", path("policies", own_vhost, "ha"), policy(**definition), 201)
    assert api.get(path("policies", own_vhost, "ha"))["definition"] == policy(**definition)["definition"]
    poll(lambda: api.get(path("queues", own_vhost, "q")).get("policy") == "ha")
    assert api.get(path("queues", own_vhost, "q"))["effective_policy_definition"] == policy(**definition)["definition"]
    assert not api.get(path("queues", own_vhost, "quorum")).get("policy")
    api.check("PUT", path("queues", own_vhost, "q"), {"durable": True}, 204)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"ha_mode": "none"}, '&lt;&lt;"none"&gt;&gt; is not a valid ha-mode value'),
        ({"ha_params": 2}, NO_MODE),
        ({"ha_sync_batch_size": 5}, NO_MODE),
        ({"ha_mode": "all", "ha_params": 1}, 'ha-mode="all" does not take parameters'),
        ({"ha_mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        ({"ha_mode": "exactly", "ha_params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
        ({"ha_mode": "exactly", "ha_params": True}, 'ha-mode="exactly" takes an integer, true given'),
        ({"ha_mode": "exactly", "ha_params": "2"}, 'ha-mode="exactly" takes an integer, &lt;&lt;"2"&gt;&gt; given'),
        ({"ha_mode": "nodes"}, 'ha-mode="nodes" takes a list, none given'),
        ({"ha_mode": "nodes", "ha_params": []}, 'ha-mode="nodes" list must be non-empty'),
        ({"ha_mode": "nodes", "ha_params": ["a", 1]}, 'ha-mode="nodes" takes a list of strings, [1] was not a string'),
        (
            {"ha_mode": "all", "ha_sync_mode": "x"},
            'ha-sync-mode must be "manual" or "automatic", got &lt;&lt;"x"&gt;&gt;',
        ),
        ({"ha_mode": "all", "ha_sync_batch_size": 0}, "ha-sync-batch-size takes an integer greater than 0, 0 given"),
        (
            {"ha_mode": "all", "ha_promote_on_shutdown": 1},
            'ha-promote-on-shutdown must be "always" or "when-synced", got 1',
        ),
        (
            {"ha_mode": "all", "ha_promote_on_failure": 1},
            'ha-promote-on-failure must be "always" or "when-synced", got 1',
        ),
        ({"queue_master_locator": "x"}, '&lt;&lt;"x"&gt;&gt; invalid queue-master-locator value'),
        ({"queue_master_locator": "x", "max_length": -1}, '&lt;&lt;"x"&gt;&gt; invalid queue-master-locator value'),
        ({"ha_mode": "x", "max_length": -1}, "-1 is not a valid maximum length"),
        ({"ha_mode": "all", "nope": 1}, '[{&lt;&lt;"nope"&gt;&gt;,1}] are not recognised policy settings'),
        ({"ha_mode": "x", "nope": 1}, '&lt;&lt;"x"&gt;&gt; is not a valid ha-mode value'),
    ],
)
def test_45_22_what_is_refused(api: HttpApi, own_vhost: str, definition: dict[str, Any], text: str) -> None:
    refusal = bad_request(f"Validation failed\n\n{text}\n")
    api.check("PUT", path("policies", own_vhost, "ha"), policy(**definition), 400, refusal)


@pytest.mark.parametrize(("key", "value"), [("ha-mode", "all"), ("queue-master-locator", "random")])
def test_45_22_operators_have_none_of_them(api: HttpApi, own_vhost: str, key: str, value: str) -> None:
    body = {"pattern": "", "definition": {key: value}}
    refusal = bad_request(f'Validation failed\n\n[{{<<"{key}">>,<<"{value}">>}}] are not recognised policy settings\n')
    api.check("PUT", path("operator-policies", own_vhost, "ha"), body, 400, refusal)
