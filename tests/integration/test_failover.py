"""A cluster of three processes: what was confirmed is there after each failure, whichever node a client uses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.certificates import Authority
from tests.integration.confirmed import publish_numbers
from tests.integration.waiting import wait_until
from tests.support.cluster import Cluster, Node
from tests.support.cutting_proxy import CuttingProxy
from tests.support.wire import Connection

pytestmark = pytest.mark.etcd


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        running.start()
        yield running


def connect(node: Node) -> Connection:
    return Connection(f"amqp://guest:guest@127.0.0.1:{node.port}", timeout=30)


def publish(node: Node, first: int, count: int, queue: str = "q") -> None:
    publish_numbers(f"amqp://guest:guest@127.0.0.1:{node.port}", queue, range(first, first + count))


def numbers(node: Node) -> list[int]:
    """Return what is in the queue, in order; it stays there."""
    with connect(node) as connection:
        channel = connection.channel()
        count = channel.queue_declare("q", passive=True).message_count
        channel.consume("q", no_ack=False)
        return [int(each.body) for each in channel.deliveries(count, 60)]


def run_ctl(node: Node, *arguments: str, user: str = "guest:guest") -> subprocess.CompletedProcess[str]:
    url = f"http://{user}@127.0.0.1:{node.management_port}"
    command = [sys.executable, "-m", "leveret.broker.leveretctl", "--url", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def ctl(node: Node, *arguments: str) -> str:
    done = run_ctl(node, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_leader_that_dies_is_replaced(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    assert [node.leads for node in cluster.nodes] == [True, False, False]
    publish(third, 0, 300)
    first.kill()
    leader = cluster.wait_for_leader(first)
    standby = third if leader is second else second
    assert numbers(standby) == numbers(leader) == [*range(300)]
    publish(standby, 300, 100)
    # It comes back with what only it may have set aside, and has everything again.
    first.start()
    cluster.wait_for_copies(3)
    assert list((first.data_dir / "diverged/1").iterdir())
    for node in (leader, standby):
        node.kill()
    # Two of three are gone at once: nobody is in sync with this one but it has all, and waits for a second copy.
    if first.role == "standby":
        cluster.wait_for_leader()
    assert numbers(first) == [*range(400)]
    with connect(first) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish("", "q", b"400", {"delivery_mode": 2})
        wait_until(lambda: first.metric("copies") == 1, "it is alone")
        assert not channel.confirms
        leader.start()
        connection.read(60)
        while not channel.confirms:
            connection.read(60)
        assert channel.confirms.popleft().ack


def test_handing_over_by_hand(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    publish(first, 0, 100)
    assert "leads" in ctl(second, "failover", "n3")
    assert cluster.wait_for_leader(first) is third
    told = json.loads(ctl(second, "replication_status", "--formatter", "json"))
    assert (told["leader"], told["role"]) == ("n3", "leader")
    publish(first, 100, 100)
    assert numbers(second) == [*range(200)]
    # It had everything, so it needs no copy.
    cluster.wait_for_copies(3)
    assert "receives a copy" not in first.log.read_text()
    assert third.stop() == 0
    leader = cluster.wait_for_leader(third)
    assert numbers(leader) == [*range(200)]


def test_shovels_run_on_the_leader(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    value = json.dumps({"src-uri": "amqp://", "src-queue": "p", "dest-uri": "amqp://", "dest-queue": "q"})
    ctl(second, "set_parameter", "shovel", "x", value)
    publish(first, 0, 1, "p")
    wait_until(lambda: numbers(second) == [0], "it moves messages")
    ctl(second, "failover", "n3")
    assert cluster.wait_for_leader(first) is third
    publish(third, 1, 1, "p")
    wait_until(lambda: numbers(third) == [0, 1], "it moves messages on the next leader")
    running = [node for node in cluster.nodes if "shovel 'x' is running" in node.log.read_text()]
    assert running == [first, third]


def test_a_leader_that_wakes_up_is_none(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    publish(first, 0, 10)
    with connect(first) as connection:
        channel = connection.channel()
        channel.confirm_select()
        first.signal(signal.SIGSTOP)
        for number in range(5):
            channel.publish("", "q", b"%d" % (1000 + number), {"delivery_mode": 2})
        wait_until(lambda: "leader" in (second.role, third.role), "another leads")
        publish(second, 10, 10)
        first.signal(signal.SIGCONT)
        with connection.expect_connection_close(
            320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
        ):
            pass
        assert not channel.confirms
    wait_until(lambda: first.role == "standby", "it has become a standby")
    cluster.wait_for_copies(3)
    assert numbers(first) == [*range(20)]


def test_a_standby_that_is_stuck_does_not_hold_publishers_up(cluster: Cluster) -> None:
    standby = cluster.nodes[2]
    publish(cluster.nodes[0], 0, 10)
    standby.signal(signal.SIGSTOP)
    begun = time.monotonic()
    publish(cluster.nodes[0], 10, 10)
    assert time.monotonic() - begun > 2
    publish(cluster.nodes[0], 20, 10)
    assert cluster.nodes[0].metric("copies") == 2
    standby.signal(signal.SIGCONT)
    cluster.wait_for_copies(3)


def test_a_standby_has_all_that_goes_to_it_compressed(tmp_path: Path) -> None:
    bodies = [b"%d" % number + bytes(10_000) for number in range(200)]
    with CuttingProxy() as proxy, Cluster(tmp_path, 2, {"replication.compression": "true"}) as cluster:
        first, second = cluster.nodes
        for node in cluster.nodes:
            node.settings["replication.advertise"] = f"127.0.0.1:{proxy.lead_to(node.name, node.replication_port)}"
        cluster.start()
        with connect(second) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_select()
            for body in bodies:
                channel.publish("", "q", body, {"delivery_mode": 2})
            assert all(channel.wait_for_confirms(len(bodies)))
        # What is published takes 2 MB.
        assert 1000 < proxy.carried["n1", "n2"] < 500_000
        first.kill()
        assert cluster.wait_for_leader(first) is second
        with connect(second) as connection:
            channel = connection.channel()
            channel.consume("q")
            assert [each.body for each in channel.deliveries(len(bodies), 60)] == bodies


def test_who_is_connected_is_seen_through_a_standby(cluster: Cluster) -> None:
    with connect(cluster.nodes[1]) as connection:
        host, port = connection.wire.socket.getsockname()
        told = ctl(cluster.nodes[2], "list_connections", "peer_host", "peer_port", "--formatter", "json")
        assert json.loads(told) == [{"peer_host": host, "peer_port": port}]


def test_etcd_may_be_away(cluster: Cluster) -> None:
    publish(cluster.nodes[0], 0, 10)
    cluster.etcd.stop()
    done = threading.Event()

    def go_on() -> None:
        publish(cluster.nodes[1], 10, 10)
        done.set()

    # Nothing is confirmed after the lease; once etcd is back everything goes on.
    time.sleep(3)
    threading.Thread(target=go_on, daemon=True).start()
    assert not done.wait(3)
    assert [node.role for node in cluster.nodes] == ["leader", "standby", "standby"]
    cluster.etcd.start()
    assert done.wait(60)
    assert numbers(cluster.wait_for_leader()) == [*range(20)]


def test_a_node_with_another_brokers_data_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    register = f"etcd://127.0.0.1:{cluster.etcd.port}"
    alone = Node(tmp_path / "alone", "other", f"{register}/other", {"replication.min_copies": 1})
    alone.start()
    wait_until(lambda: alone.role == "leader", "it leads a cluster of its own")
    publish(alone, 0, 5)
    assert alone.stop() == 0
    stranger = Node(tmp_path / "stranger", "n4", f"{register}/test")
    shutil.copytree(alone.data_dir, stranger.data_dir)
    stranger.start()
    wait_until(lambda: "another broker's" in stranger.log.read_text(), "it is refused")
    twin = Node(tmp_path / "twin", "n2", f"{register}/test")
    twin.start()
    wait_until(lambda: "another node is called n2" in twin.log.read_text(), "it is refused")
    spy = Node(tmp_path / "spy", "n5", f"{register}/test", {"replication.secret": "guessed"})
    spy.start()
    wait_until(lambda: "another replication.secret" in spy.log.read_text(), "it is refused")
    for node in (stranger, twin, spy):
        node.kill()
    assert cluster.nodes[0].metric("copies") == 3


def test_links_with_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    settings = {
        "replication.secret": "",
        "replication.ssl_options.certfile": issued.certificate,
        "replication.ssl_options.keyfile": issued.key,
        "replication.ssl_options.cacertfile": authority.file,
    }
    with Cluster(tmp_path / "nodes", 2, settings) as cluster:
        cluster.start()
        first, second = cluster.nodes
        publish(second, 0, 100)
        # One with a certificate of another authority, and one without, get nowhere.
        (tmp_path / "other").mkdir()
        foreign = Authority(tmp_path / "other").issue("127.0.0.1")
        register = f"etcd://127.0.0.1:{cluster.etcd.port}/test"
        changed = {
            "replication.ssl_options.certfile": foreign.certificate,
            "replication.ssl_options.keyfile": foreign.key,
        }
        strangers = [
            Node(tmp_path / "n3", "n3", register, settings | changed),
            Node(tmp_path / "n4", "n4", register, {"replication.secret": ""}),
        ]
        for stranger in strangers:
            stranger.start()
        for stranger in strangers:
            wait_until(lambda stranger=stranger: "the link to n1 is" in stranger.log.read_text(), "it is refused")  # type: ignore[misc]
            stranger.kill()
        first.kill()
        cluster.wait_for_leader(first)
        assert numbers(second) == [*range(100)]


def test_an_observer_leads_by_hand_when_all_others_are_lost(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        cluster.start()
        first, second = cluster.nodes
        register = f"etcd://127.0.0.1:{cluster.etcd.port}/test"
        observer = Node(tmp_path / "o", "o", register, {"replication.observer": "true", "replication.min_copies": 1})
        cluster.nodes.append(observer)
        observer.start()
        observer.wait_for_role()
        assert observer.role == "observer"
        publish(observer, 0, 100)
        told = json.loads(ctl(first, "replication_status", "--formatter", "json"))
        assert [(each["name"], each["role"], each["in_sync"]) for each in told["standbys"]] == [
            ("n2", "standby", True), ("o", "observer", False),
        ]  # fmt: skip
        wait_until(lambda: observer.metric("lag_operations") == 0, "it has everything")
        shown = json.loads(ctl(second, "cluster_status", "--formatter", "json"))
        everyone = ["leveret@n1", "leveret@n2", "leveret@o"]
        assert [sorted(shown[name]) for name in ("disk_nodes", "running_nodes", "versions")] == [everyone] * 3
        refused = run_ctl(observer, "promote", "--force")
        assert (refused.returncode, "n1 leads: stop it first" in refused.stderr) == (69, True), refused
        assert run_ctl(observer, "promote", user="guest:wrong").returncode != 0
        for node in (first, second):
            node.kill()
        wait_until(lambda: not cluster.etcd.has("test/leader"), "the lease has run out")
        asked = run_ctl(observer, "promote")
        assert asked.returncode == 69
        assert re.search(r"ends at operation \d+: 0 operations .*ago\.\n.*add --force", asked.stderr), asked
        assert observer.role == "observer"
        assert "This node leads." in ctl(observer, "promote", "--force")
        assert observer.role == "leader"
        assert numbers(observer) == [*range(100)]
        shown = json.loads(ctl(observer, "cluster_status", "--formatter", "json"))
        assert (sorted(shown["disk_nodes"]), shown["running_nodes"]) == (everyone, ["leveret@o"])
        # What it has is the cluster's from now on. A node that does not come back is forgotten.
        assert "there is no other node n9" in run_ctl(observer, "forget_cluster_node", "leveret@n9").stderr
        ctl(observer, "forget_cluster_node", "leveret@n2")
        assert json.loads(ctl(observer, "cluster_status", "--formatter", "json"))["disk_nodes"] == [
            "leveret@n1", "leveret@o",
        ]  # fmt: skip
        publish(observer, 100, 10)
        first.start()
        cluster.wait_for_copies(2)
        assert "n1 is connected: stop it first" in run_ctl(observer, "forget_cluster_node", "n1").stderr
        assert ctl(observer, "failover", "leveret@n1")
        assert numbers(first) == [*range(110)]
        assert observer.role == "observer"
        wait_until(lambda: first.metric("copies") == 1, "it is an observer again")
