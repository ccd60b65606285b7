"""Three nodes and etcd under load: leaders are ended, stopped and replaced, and what was confirmed is compared.

python -m tests.torture --nodes 3 --seconds 600 --seed 7
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.support.cluster import Cluster, Node, wait_until
from tests.support.tables import Triple
from tests.support.wire import Connection

#: Messages that a publisher has unconfirmed at most.
_WINDOW: Final = 100
_LEASE: Final = 2.0
#: How queues are declared, by name.
QUEUES: Final[dict[str, list[Triple]]] = {
    "classic": [],
    "lazy": [("x-queue-mode", "S", "lazy")],
    "quorum": [("x-queue-type", "S", "quorum")],
    "priority": [("x-max-priority", "I", 3)],
    "stream": [("x-queue-type", "S", "stream")],
}


class Publisher(threading.Thread):
    """Publishes ascending numbers to a queue by whatever node answers.

    Attributes:
        confirmed: Numbers that were confirmed.
        failed: What should not have happened; "" for nothing.
    """

    def __init__(self, queue: str, nodes: Sequence[Node], seed: int) -> None:
        super().__init__(daemon=True)
        self._queue = queue
        self._nodes = nodes
        self._random = random.Random(seed)
        self._ends = threading.Event()
        self._number = 0
        self.confirmed: set[int] = set()
        self.longest_gap = 0.0
        self._last = time.monotonic()
        self.failed = ""

    def stop(self) -> None:
        """Let it end."""
        self._ends.set()

    def run(self) -> None:
        """Publish until stop() is called."""
        while not self._ends.is_set():
            try:
                self._publish()
            except Exception as error:  # noqa: BLE001 - any connection may end in any way
                self.last_error = repr(error)
                time.sleep(0.05)

    def _publish(self) -> None:
        node = self._random.choice(self._nodes)
        connection = Connection(f"amqp://guest:guest@127.0.0.1:{node.port}", timeout=6)
        try:
            channel = connection.channel()
            channel.queue_declare(self._queue, durable=True, arguments=QUEUES[self._queue])
            channel.confirm_select()
            unconfirmed: dict[int, int] = {}
            tag = 0
            # One node for a while.
            until = time.monotonic() + self._random.uniform(2, 20)
            while not self._ends.is_set() and time.monotonic() < until:
                for _ in range(_WINDOW // 4):
                    tag += 1
                    self._number += 1
                    unconfirmed[tag] = self._number
                    channel.publish("", self._queue, b"%d" % self._number, {"delivery_mode": 2})
                while len(unconfirmed) > _WINDOW:
                    connection.read(6)
                    self._take(channel, unconfirmed)
            while unconfirmed:
                connection.read(6)
                self._take(channel, unconfirmed)
        finally:
            connection.abort()

    def _take(self, channel: object, unconfirmed: dict[int, int]) -> None:
        confirms = channel.confirms  # type: ignore[attr-defined]
        while confirms:
            confirm = confirms.popleft()
            last = confirm.delivery_tag
            tags = [tag for tag in unconfirmed if tag <= last] if confirm.multiple else [last]
            numbers = [unconfirmed.pop(tag) for tag in tags]
            if confirm.ack:
                self.confirmed.update(numbers)
                now = time.monotonic()
                self.longest_gap, self._last = max(self.longest_gap, now - self._last), now


class Faults:
    """What happens to a cluster, by lot."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.takeovers: list[float] = []

    def cause(self) -> None:
        """Cause one fault, and wait until all nodes are in sync again."""
        faults: list[Callable[[], None]] = [
            self.kill_leader, self.kill_leader, self.stop_leader, self.pause_leader, self.kill_standby,
            self.pause_standby, self.lose_etcd, self.kill_all, self.kill_leader_and_restart,
        ]  # fmt: skip
        fault = self._random.choice(faults)
        self.counts[fault.__name__] += 1
        fault()
        self._cluster.wait_for_copies(len(self._cluster.nodes))
        time.sleep(self._random.uniform(0, 2))

    def _standby(self) -> Node:
        leader = self._cluster.leader
        return self._random.choice([node for node in self._cluster.nodes if node is not leader])

    def kill_leader(self) -> None:
        """Kill the leader, and start it again once another leads."""
        leader = self._cluster.wait_for_leader()
        begun = time.monotonic()
        leader.kill()
        self._cluster.wait_for_leader(leader)
        self.takeovers.append(time.monotonic() - begun)
        leader.start()

    def kill_leader_and_restart(self) -> None:
        """Kill the leader, and start it again at once."""
        leader = self._cluster.wait_for_leader()
        leader.kill()
        leader.start()
        wait_until(lambda: leader.role, "it has a role again")

    def stop_leader(self) -> None:
        """Stop the leader cleanly: it hands over."""
        leader = self._cluster.wait_for_leader()
        status = leader.stop()
        assert status == 0, f"{leader.name} ended with {status}"
        self._cluster.wait_for_leader(leader)
        leader.start()

    def pause_leader(self) -> None:
        """Stop the leader's process for longer than its lease: it wakes up as a leader that is none any more."""
        leader = self._cluster.wait_for_leader()
        leader.signal(signal.SIGSTOP)
        try:
            others = [node for node in self._cluster.nodes if node is not leader]
            wait_until(lambda: any(node.role == "leader" for node in others), "another node leads")
            time.sleep(self._random.uniform(0, 1))
        finally:
            leader.signal(signal.SIGCONT)
        wait_until(lambda: leader.role == "standby", f"{leader.name} is a standby")

    def kill_standby(self) -> None:
        """Kill a standby."""
        standby = self._standby()
        standby.kill()
        time.sleep(self._random.uniform(0, 5))
        standby.start()
        wait_until(lambda: standby.role, "it has a role again")

    def pause_standby(self) -> None:
        """Stop a standby's process until it has left the in-sync set."""
        standby = self._standby()
        standby.signal(signal.SIGSTOP)
        try:
            self._cluster.wait_for_copies(len(self._cluster.nodes) - 1)
        finally:
            standby.signal(signal.SIGCONT)

    def lose_etcd(self) -> None:
        """Kill etcd for longer than a lease."""
        self._cluster.etcd.stop()
        time.sleep(self._random.uniform(0, 3 * _LEASE))
        self._cluster.etcd.start()

    def kill_all(self) -> None:
        """Kill all nodes, and start them in any order."""
        nodes = [*self._cluster.nodes]
        for node in nodes:
            node.kill()
        self._random.shuffle(nodes)
        for node in nodes:
            node.start()
            time.sleep(self._random.uniform(0, 1))
        self._cluster.wait_for_leader()


def drain(node: Node, queue: str) -> list[int]:
    """Return the numbers in a queue, in its order."""
    found: list[int] = []
    with Connection(f"amqp://guest:guest@127.0.0.1:{node.port}", timeout=30) as connection:
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).message_count
        if queue == "stream":
            count = -1
        channel.qos(prefetch_count=1000)
        arguments: list[Triple] = [("x-stream-offset", "S", "first")] if queue == "stream" else []
        channel.consume(queue, no_ack=False, arguments=arguments)
        quiet = 3.0
        while len(found) != count:
            try:
                connection.read(quiet if count < 0 else 30)
            except TimeoutError:
                break
            while channel.pending:
                delivery = channel.pending.popleft()
                found.append(int(delivery.body))
                if len(found) % 200 == 0:
                    channel.ack(delivery.delivery_tag, multiple=True)
    return found


def check(publisher: Publisher, found: Sequence[int]) -> tuple[list[str], int]:
    """Return what is wrong with what a queue holds, and how many messages came twice."""
    wrong: list[str] = []
    lost = publisher.confirmed - {*found}
    if lost:
        wrong.append(f"lost {len(lost)}, from {min(lost)} to {max(lost)}")
    firsts = [*dict.fromkeys(found)]
    # What a closed connection has published may arrive after what the next one publishes, but is not confirmed.
    kept = [number for number in firsts if number in publisher.confirmed]
    if kept != sorted(kept):
        wrong.append("reordered")
    return wrong, len(found) - len(firsts)


def run(seconds: float, seed: int, count: int) -> int:
    """Run a cluster under load for a time; return 1 if a promise was broken."""
    directory = Path(tempfile.mkdtemp(prefix="leveret-failovers-"))
    with Cluster(directory, count) as cluster:
        cluster.start()
        publishers = {queue: Publisher(queue, cluster.nodes, seed + at) for at, queue in enumerate(QUEUES)}
        for publisher in publishers.values():
            publisher.start()
        faults, deadline = Faults(cluster, seed), time.monotonic() + seconds
        while time.monotonic() < deadline:
            faults.cause()
        for publisher in publishers.values():
            publisher.stop()
        for publisher in publishers.values():
            publisher.join(60)
        leader, broken = cluster.wait_for_leader(), False
        total = twice = 0
        for queue, publisher in publishers.items():
            wrong, doubled = check(publisher, drain(leader, queue))
            total += len(publisher.confirmed)
            twice += doubled
            broken = broken or bool(wrong)
            print(
                f"{queue}: confirmed {len(publisher.confirmed)}, twice {doubled}, {'; '.join(wrong) or 'nothing lost'}"
                f", longest wait {publisher.longest_gap:.1f} s"
            )
        print(f"{sum(faults.counts.values())} faults: {dict(faults.counts)}; {total} confirmed, {twice} twice")
        if faults.takeovers:
            times = sorted(faults.takeovers)
            print(f"from kill -9 to the next leader: median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    if broken:
        print(f"see {directory}")
    else:
        shutil.rmtree(directory)
    return int(broken)
