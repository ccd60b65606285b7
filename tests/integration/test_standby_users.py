"""A standby knows the same users as its leader, also those of other servers."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.integration.auth_http.server import AuthServer, password_of
from tests.support.cluster import Cluster, Node
from tests.support.management import Management

pytestmark = pytest.mark.etcd


def state(node: Node, name: str, password: str) -> str:
    """What a node says of its role to a user."""
    api = Management(f"http://guest:guest@127.0.0.1:{node.management_port}")
    api.authorization = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
    found: str = api.request("GET", "replication", "local")["role"]
    return found


def test_its_state_is_shown_to_users_of_other_servers(tmp_path: Path) -> None:
    with AuthServer() as server:
        settings = {"auth_backends": "http,internal", "auth_cache.ttl": 0, **server.options()}
        with Cluster(tmp_path, 2, settings) as cluster:
            cluster.start()
            leader, standby = cluster.nodes
            for name, password in (("dora", password_of("dora")), ("guest", "guest")):
                assert state(leader, name, password) == "leader"
                assert state(standby, name, password) == "standby"
            # The tags count, and the server is asked each time.
            for name, password in (("bert", password_of("bert")), ("dora", "wrong"), ("guest", "wrong")):
                with pytest.raises(HTTPError, match="401"):
                    state(standby, name, password)
            server.answers["user"] = "deny"
            with pytest.raises(HTTPError, match="401"):
                state(standby, "dora", password_of("dora"))
            # The broker's own users do not need the server.
            server.end()
            assert state(standby, "guest", "guest") == "standby"
