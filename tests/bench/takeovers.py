"""`python -m tests.bench.takeovers`: how long clients wait when a leader is killed or hands over, or a node joins.

Three nodes with a lease of 2 s (10 s with `--count 0`) and an etcd. From `kill -9`, or from the request to hand over,
to the first confirm that a client gets by any node; and with `--join` the longest wait of a publisher before an empty
node joins, and meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.integration.waiting import wait_until
from tests.support.cluster import Cluster, Node
from tests.support.management import Management
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped

_ERRORS: Final = (OSError, ConnectionClosed, ConnectionDropped, AssertionError)
_BIG: Final = bytes(100_000)
#: Seconds that a join may take.
_JOIN_SECONDS: Final = 3600.0


def first_confirm(nodes: Sequence[Node]) -> None:
    """Publish by one node after the other until a message is confirmed."""
    while True:
        for node in nodes:
            with suppress(*_ERRORS):
                connection = Connection(f"amqp://guest:guest@127.0.0.1:{node.port}", timeout=10)
                try:
                    channel = connection.channel()
                    channel.queue_declare("takeovers", durable=True)
                    channel.confirm_select()
                    channel.publish("", "takeovers", b"body", {"delivery_mode": 2})
                    if channel.wait_for_confirms(1) == [True]:
                        return
                finally:
                    connection.abort()


def repeat(cluster: Cluster, count: int, end: Callable[[Node], object], again: Callable[[Node], object]) -> list[float]:
    """Let leaders end, one after the other; return the seconds until the first confirm after each."""
    found: list[float] = []
    for number in range(count):
        cluster.wait_for_copies(len(cluster.nodes))
        leader = cluster.wait_for_leader()
        # Right after a takeover the nodes have much to do.
        time.sleep(1)
        begun = time.monotonic()
        end(leader)
        first_confirm([node for node in cluster.nodes if node is not leader])
        found.append(time.monotonic() - begun)
        print(f"{number + 1}: {found[-1]:.2f} s", file=sys.stderr, flush=True)
        again(leader)
    return found


def hand_over(leader: Node) -> None:
    """Ask a leader to hand over; return once another node leads."""
    api = Management(f"http://guest:guest@127.0.0.1:{leader.management_port}", timeout=10)
    api.request("POST", "replication", "failover", body={})
    wait_until(lambda: leader.role == "standby", "it has handed over")


class Steady(threading.Thread):
    """A publisher that waits for each confirm, and notes the longest wait."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._ends = threading.Event()
        self.longest = 0.0
        self.count = 0

    def run(self) -> None:
        """Publish until end() is called."""
        with Connection(f"amqp://guest:guest@127.0.0.1:{self._node.port}", timeout=60) as connection:
            channel = connection.channel()
            channel.queue_declare("steady", durable=True, arguments=[("x-max-length", "I", 1000)])
            channel.confirm_select()
            while not self._ends.is_set():
                begun = time.monotonic()
                channel.publish("", "steady", bytes(1000), {"delivery_mode": 2})
                channel.wait_until(lambda: bool(channel.confirms), "a confirm", 60)
                channel.confirms.clear()
                self.longest = max(self.longest, time.monotonic() - begun)
                self.count += 1

    def end(self) -> None:
        """End it."""
        self._ends.set()
        self.join(60)


def join(cluster: Cluster, mib: int, seconds: float) -> None:
    """Let an empty node join a leader with a backlog, under load; print what that took."""
    leader, joining = cluster.wait_for_leader(), cluster.nodes[-1]
    joining.kill()
    shutil.rmtree(joining.data_dir)
    with Connection(f"amqp://guest:guest@127.0.0.1:{leader.port}", timeout=600) as connection:
        channel = connection.channel()
        channel.queue_declare("backlog", durable=True, arguments=[("x-queue-mode", "S", "lazy")])
        channel.confirm_select()
        sent, count = 0, (mib << 20) // len(_BIG)
        confirmed = 0
        while confirmed < count:
            while sent < count and sent - confirmed < 100:
                channel.publish("", "backlog", _BIG, {"delivery_mode": 2})
                sent += 1
            connection.read(600)
            while channel.confirms:
                confirm = channel.confirms.popleft()
                confirmed = confirm.delivery_tag if confirm.multiple else confirmed + 1
    publisher = Steady(leader)
    publisher.start()
    time.sleep(seconds)
    before, count = publisher.longest, publisher.count
    publisher.longest = 0.0
    begun = time.monotonic()
    joining.start()
    cluster.wait_for_copies(len(cluster.nodes), _JOIN_SECONDS)
    took = time.monotonic() - begun
    publisher.end()
    assert cluster.leader is leader, "another node leads: the leader had no time to renew its lease"
    print(f"an empty node joins a leader with {mib} MiB: {took:.1f} s")
    for when, longest, messages in (
        (f"{seconds:g} s before", before, count), ("meanwhile", publisher.longest, publisher.count - count),
    ):  # fmt: skip
        print(f"longest wait of a publisher {when}: {longest * 1000:.0f} ms, of {messages} messages")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.takeovers", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how often a leader ends in each way (default: 20)")
    parser.add_argument("--join", type=int, default=0, metavar="MIB", help="a backlog to join a leader with")
    parser.add_argument("--seconds", type=float, default=20, help="seconds before a node joins (default: 20)")
    given = parser.parse_args(argv)
    # A copy is no takeover: that the machine is busy with it should not make it one.
    settings = {} if given.count else {"replication.lease": "10s"}
    with tempfile.TemporaryDirectory(prefix="bench-takeovers-") as name, Cluster(Path(name), 3, settings) as cluster:
        cluster.start()
        ways = {
            "by hand": (hand_over, lambda _leader: None),
            "kill -9": (Node.kill, Node.start),
        }
        for what, (end, again) in ways.items():
            if given.count:
                times = sorted(repeat(cluster, given.count, end, again))
                middle = statistics.median(times)
                print(f"{what}: {len(times)} times, median {middle:.2f} s, longest {times[-1]:.2f} s", flush=True)
        if given.join:
            cluster.wait_for_copies(len(cluster.nodes))
            join(cluster, given.join, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
