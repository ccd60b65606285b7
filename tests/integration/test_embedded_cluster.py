"""A cluster inside a test: what happens to nodes and links is what a client would see of machines."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest

from leveret import LeveretCluster
from leveret.broker.replication.plan import ReplicationError
from tests.integration.confirmed import publish_numbers
from tests.support.wire import Connection


def publish(url: str, *numbers: int) -> None:
    publish_numbers(url, "q", numbers)


def contents(url: str) -> list[int]:
    with Connection(url, timeout=60) as connection:
        channel = connection.channel()
        count = channel.queue_declare("q", passive=True).message_count
        channel.consume("q")
        return [int(each.body) for each in channel.deliveries(count, 60)]


def test_nodes_die_stop_and_come_back(leveret_cluster: LeveretCluster) -> None:
    cluster = leveret_cluster
    first, second, third = cluster.nodes
    assert [node.role for node in cluster.nodes] == ["leader", "standby", "standby"]
    urls = cluster.urls
    publish(third.url, 1, 2, 3)
    cluster.kill(first)
    assert first.role == ""
    with pytest.raises(ConnectionRefusedError):
        Connection(first.url)
    leader = cluster.wait_for_leader()
    assert contents(leader.url) == [1, 2, 3]
    cluster.start(first)
    cluster.wait_for_copies(3)
    assert cluster.urls == urls
    # A clean stop hands over, and needs no lease to end.
    cluster.stop(leader)
    assert cluster.leader is not leader
    publish(first.url, 4)
    cluster.start(leader)
    cluster.wait_for_copies(3)
    assert cluster.fail_over(second if cluster.leader is not second else third).role == "leader"
    with pytest.raises(ReplicationError, match="n9 is not in sync"):
        cluster._wait_for(cluster.leader.hand_over("n9"))
    assert contents(first.url) == [1, 2, 3, 4]


def test_who_waits_at_a_standby_is_served_by_it_when_it_leads(leveret_cluster: LeveretCluster) -> None:
    cluster = leveret_cluster
    first, second, third = cluster.nodes
    publish(first.url, 1)
    found: dict[str, list[int]] = {}
    cluster.kill(first)
    # Nobody leads for a lease; whichever of the two it is then, nobody's connection has ended.
    waiting = [
        threading.Thread(target=lambda node=node: found.setdefault(node.name, contents(node.url)))
        for node in (second, third)
    ]
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(60)
    # Whoever was second has got what the first had not acknowledged yet, and was closed.
    assert [1] in found.values()
    assert {*found} == {"n2", "n3"}


def test_a_leader_that_is_cut_off_confirms_nothing(leveret_cluster: LeveretCluster) -> None:
    cluster = leveret_cluster
    first = cluster.nodes[0]
    publish(first.url, 1)
    with Connection(first.url, timeout=60) as connection:
        channel = connection.channel()
        channel.confirm_select()
        with cluster.cut(first):
            channel.publish("", "q", b"99", {"delivery_mode": 2})
            other = cluster.wait_for_leader(other_than=first)
            publish(other.url, 2)
        with connection.expect_connection_close(
            320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
        ):
            pass
        assert not channel.confirms
    cluster.wait_for_copies(3)
    assert first.role == "standby"
    # What was not confirmed may be there, or not.
    assert [number for number in contents(first.url) if number != 99] == [1, 2]


def test_a_standby_that_is_cut_off_leaves_and_comes_back(leveret_cluster: LeveretCluster) -> None:
    cluster = leveret_cluster
    first, second, _ = cluster.nodes
    with cluster.cut(first, second):
        publish(first.url, 1)
        cluster.wait_for_copies(2)
    cluster.wait_for_copies(3)
    with cluster.without_register():
        threading.Event().wait(2.5)
        assert cluster.leader is first
    publish(first.url, 2)
    assert contents(second.url) == [1, 2]


@pytest.mark.leveret(definitions={"queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": {}}]})
def test_http_through_each_node_and_definitions(leveret_cluster: LeveretCluster) -> None:
    for node in leveret_cluster.nodes:
        with urllib.request.urlopen(_with_login(f"{node.http_url}/api/queues/%2F/q")) as response:
            assert response.status == 200
        try:
            status = urllib.request.urlopen(f"http://{node.http_url.partition('@')[2]}/api/health/checks/leader").status
        except urllib.error.HTTPError as error:
            status = error.code
        assert status == (200 if node.role == "leader" else 503)


def _with_login(url: str) -> urllib.request.Request:
    from base64 import b64encode

    scheme, _, rest = url.partition("://")
    login, _, place = rest.partition("@")
    request = urllib.request.Request(f"{scheme}://{place}")
    request.add_header("authorization", f"Basic {b64encode(login.encode()).decode()}")
    return request
