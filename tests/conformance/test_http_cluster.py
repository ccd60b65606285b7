"""Rule 45.21: the cluster's name, and what keeps clusters in balance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import HttpApi, bad_request


def test_45_21_its_name_comes_back(api: HttpApi) -> None:
    name = api.get("cluster-name")["name"]
    assert isinstance(name, str)
    assert api.get("overview?columns=cluster_name") == {"cluster_name": name}


@pytest.mark.parametrize(
    ("method", "below", "body", "status", "document"),
    [
        ("PUT", "cluster-name", {}, 400, bad_request("[{key_missing,name}]")),
        ("POST", "rebalance/queues", {}, 204, None),
        ("POST", "rebalance/queues", None, 204, None),
    ],
)
def test_45_21_requests(api: HttpApi, method: str, below: str, body: Any, status: int, document: object) -> None:
    api.check(method, below, body, status, document)


def test_45_21_feature_flags(api: HttpApi) -> None:
    """Clients check these: NServiceBus needs ``stream_queue``."""
    flags = api.get("feature-flags")
    assert [(flag["name"], flag["doc_url"].rpartition("/")[2]) for flag in flags] == [
        ("classic_mirrored_queue_version", ""),
        ("drop_unroutable_metric", ""),
        ("empty_basic_get_metric", ""),
        ("implicit_default_bindings", ""),
        ("maintenance_mode_status", ""),
        ("quorum_queue", "quorum-queues.html"),
        ("stream_queue", "stream.html"),
        ("user_limits", ""),
        ("virtual_host_metadata", ""),
    ]
    assert {(flag["state"], flag["stability"]) for flag in flags} == {("enabled", "stable")}
    by_agent = [flag["name"] for flag in flags if flag["provided_by"] != "rabbit"]
    assert by_agent == ["drop_unroutable_metric", "empty_basic_get_metric"]
