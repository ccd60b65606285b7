"""Backups of a cluster: an observer or a standby takes them, the leader knows of them, and takeovers cost no moment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leveret import LeveretCluster
from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.moments import spans
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore, selects
from leveret.broker.embedded_cluster import ClusterNode
from tests.integration.test_backup import bodies_in, tick
from tests.integration.waiting import wait_until
from tests.support.management import Management
from tests.support.s3_store import running_s3
from tests.support.wire import Connection


@contextmanager
def cluster(url: Path | str, nodes: int = 3, options: Mapping[str, str] = {}) -> Iterator[LeveretCluster]:
    own: dict[str, str | int] = {
        "backup.url": str(url),
        "backup.take_on": "standby",
        "backup.log_interval": "1s",
        "replication.min_copies": 1,
        "storage.segment_size": 65_536,
    }
    with LeveretCluster(nodes, {**own, **options}) as found:
        yield found


def told(node: ClusterNode) -> dict[str, Any]:
    found: dict[str, Any] = Management(node.http_url).request("GET", "backups")
    return found


def wait_for_taker(leader: ClusterNode, name: str) -> None:
    """Wait until a node has taken a backup since this call."""
    wait_until(lambda: told(leader)["node"] == name and told(leader)["backups"], f"a backup by {name}")


def wait_for_moment(leader: ClusterNode, moment: int) -> None:
    """Wait until the moment of a tick, in microseconds since 1970, can be restored; it may be the last one."""
    wait_until(lambda: any(each["to"] >= moment // 1000 for each in told(leader)["restorable"]), "a backup of it")


def change(node: ClusterNode, *bodies: bytes, purge: bool = False) -> int:
    """Publish to a queue, or purge it first; return the time of a tick after that."""
    with Connection(node.url, timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        if purge:
            channel.queue_purge("q")
        channel.confirm_select()
        for body in bodies:
            channel.publish("", "q", body, {"delivery_mode": 2})
        assert not bodies or all(channel.wait_for_confirms(len(bodies)))
        since = time.time_ns() // 1000
        # There is no tick if nothing is written.
        other = connection.channel()
        other.queue_declare("marker", durable=True)
        other.publish("", "marker", b"", {"delivery_mode": 2})
        other.queue_declare("marker", durable=True)
    data = Path(node._settings.data_dir)
    wait_until(lambda: tick(data) > since, "a tick")
    return tick(data)


def check(url: Path | str, into: Path, expected: Mapping[int, list[bytes]]) -> None:
    """Compare what is restored of some moments."""
    repository = Repository(str(url))
    assert not verify(repository).damage
    for number, (moment, bodies) in enumerate(expected.items()):
        restore(repository, str(into / f"r{number}"), moment, selects(None, None))
        assert bodies_in(into / f"r{number}", "q") == bodies, number


def test_a_standby_takes_them_and_others_go_on(tmp_path: Path) -> None:
    url, expected = tmp_path / "backup", {}
    with cluster(url) as nodes:
        first, second, third = nodes.nodes
        wait_for_taker(first, "n2")
        expected[change(first, b"1", b"2")] = [b"1", b"2"]
        expected[change(first, b"3", purge=True)] = [b"3"]
        # The leader has taken none, and what it knows is what there is.
        found = told(first)
        assert (found["url"], found["error"], found["failures"]) == (str(url), None, 0)
        assert found["age"] < 60
        nodes.kill(second)
        wait_for_taker(first, "n3")
        expected[change(first, b"4")] = [b"3", b"4"]
        nodes.start(second)
        nodes.wait_for_copies(3)
        moment = change(first, b"5")
        expected[moment] = [b"3", b"4", b"5"]
        wait_for_moment(first, moment)
        # Whoever takes them goes on.
        assert told(first)["node"] == "n3"
        # A takeover: what was dropped before it and not sent yet is there.
        expected[change(first, b"6", purge=True)] = [b"6"]
        moment = change(first, purge=True)
        expected[moment] = []
        nodes.kill(first)
        leader = nodes.wait_for_leader(first)
        other = second if leader is third else third
        wait_for_taker(leader, other.name)
        moment = change(leader, b"7")
        expected[moment] = [b"7"]
        wait_for_moment(leader, moment)
        # Nobody else is left.
        nodes.stop(other)
        wait_for_taker(leader, leader.name)
        moment = change(leader, b"8")
        expected[moment] = [b"7", b"8"]
        wait_for_moment(leader, moment)
    assert len(spans(Repository(str(url)).backups())) == 1
    check(url, tmp_path, expected)


def test_takers_and_leaders_die_in_the_midst_of_backups(tmp_path: Path) -> None:
    url = tmp_path / "backup"
    with cluster(url) as nodes:
        wait_for_taker(nodes.leader, "n2")
        expected: dict[int, list[bytes]] = {}
        bodies: list[bytes] = []
        for round_ in range(4):
            leader = nodes.leader
            new = [b"%d:%d" % (round_, number) + bytes(20_000) for number in range(100)]
            bodies += new
            moment = change(leader, *new)
            expected[moment] = [*bodies]
            taker = next(node for node in nodes.nodes if node.name == told(leader)["node"])
            dying = taker if round_ % 2 else leader
            nodes.kill(dying)
            nodes.wait_for_leader(dying)
            nodes.start(dying)
            nodes.wait_for_copies(3)
            last = change(nodes.leader)
            wait_for_moment(nodes.leader, last)
    repository = Repository(str(url))
    restorable = spans(repository.backups())
    # A leader that died may have had what nobody else has: then a moment may be missing, but is never wrong.
    check(url, tmp_path, {at: found for at, found in expected.items() if any(a <= at <= b for a, b in restorable)})
    assert len(restorable) <= 3


@pytest.mark.parametrize("take_on", ["leader", "auto"])
def test_the_leader_takes_those_in_a_directory_of_its_own(tmp_path: Path, take_on: str) -> None:
    with cluster(tmp_path / "backup", 2, {"backup.take_on": take_on}) as nodes:
        wait_for_taker(nodes.leader, "n1")
        nodes.stop(nodes.nodes[0])
        wait_for_taker(nodes.leader, "n2")


def test_what_was_dropped_before_a_takeover_is_in_the_next_backup(tmp_path: Path) -> None:
    url = tmp_path / "backup"
    with cluster(url, options={"backup.log_interval": "1h"}) as nodes:
        first, _, third = nodes.nodes
        wait_for_taker(first, "n2")
        moment = change(first, b"1" * 100_000, b"2")
        purged = change(first, purge=True)
        # It has taken none, and nothing has been sent since.
        nodes.fail_over(third)
        # Whichever of the others is back first takes the next one.
        wait_for_moment(third, purged)
    check(url, tmp_path, {moment: [b"1" * 100_000, b"2"], purged: []})


def test_a_standby_takes_them_to_an_object_store(tmp_path: Path) -> None:
    # All nodes reach it, and so nothing has to be said of who takes them.
    with running_s3() as bucket, cluster(f"{bucket}/backup", options={"backup.take_on": "auto"}) as nodes:
        url, expected = f"{bucket}/backup", {}
        first, second, _ = nodes.nodes
        wait_for_taker(first, "n2")
        expected[change(first, b"1", b"2" * 100_000)] = [b"1", b"2" * 100_000]
        expected[change(first, purge=True)] = []
        nodes.kill(second)
        wait_for_taker(first, "n3")
        moment = change(first, b"3")
        expected[moment] = [b"3"]
        wait_for_moment(first, moment)
        found = told(first)
        assert (found["url"], found["error"]) == (url, None)
        assert len(spans(Repository(url).backups())) == 1
        check(url, tmp_path, expected)


def test_an_observer_comes_first(tmp_path: Path) -> None:
    url = tmp_path / "backup"
    with cluster(url) as nodes:
        leader = nodes.leader
        wait_for_taker(leader, "n2")
        observer = nodes.nodes[2]
        nodes.stop(observer)
        replication = dataclasses.replace(observer._settings.replication, observer=True)
        observer._settings = dataclasses.replace(observer._settings, replication=replication)
        nodes.start(observer)
        wait_for_taker(leader, "n3")
        moment = change(leader, b"1")
        wait_for_moment(leader, moment)
    check(url, tmp_path, {moment: [b"1"]})
