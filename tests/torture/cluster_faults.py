"""What happens to the nodes of a cluster, their disks, their clocks and the connections between them, by lot."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.integration.waiting import wait_until
from tests.support.cluster import Cluster, Node
from tests.support.cutting_proxy import REGISTER, CuttingProxy
from tests.support.management import Management
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped
from tests.torture.preloaded_disk import Call, PreloadedDisk

LEASE: Final = 2.0
_SETTINGS: Final[Mapping[str, object]] = {
    "replication.lease": f"{LEASE:g}s",
    # So small that copies, too, are made of what a node has missed.
    "replication.backlog": 4 << 20,
    "storage.segment_size": 262_144,
    "disk_free_limit.absolute": 1_000_000,
    "trust_publisher_x_death": "true",
}
#: Seconds until all nodes have to be in sync when nothing is wrong with any.
_PATIENCE: Final = 240.0
#: Seconds by which clocks are set: a delayed message of a leader that is ahead waits so much longer on the next one.
_STEPS: Final = (1, 10, 60)
#: Messages that a leader confirms before the next one is wanted, unless that takes longer than some seconds.
_CONFIRMED: Final = 1000
_TRAFFIC_SECONDS: Final = 4.0


class TorturedCluster(Cluster):
    """A cluster whose connections lead through a proxy, and whose nodes may have disks that lose power.

    Args:
        directory: Where everything is.
        count: Number of nodes.
        library: The library of disk.c; None without a compiler.
    """

    def __init__(self, directory: Path, count: int, library: Path | None) -> None:
        self.proxy = CuttingProxy()
        self.disks: dict[str, PreloadedDisk] = {}
        self._library = library
        super().__init__(directory, count, _SETTINGS)

    def make_node(self, directory: Path, name: str) -> Node:
        """Return a node, which is not started."""
        to_register = self.proxy.lead_to(REGISTER, self.etcd.port, name)
        environment: Mapping[str, str] = {}
        before_kill: Callable[[int], None] = lambda _pid: None  # noqa: E731
        if self._library is not None:
            data = directory / "data"
            data.mkdir(parents=True, mode=0o750)
            disk = self.disks[name] = PreloadedDisk(self._library, data, directory)
            environment, before_kill = disk.environment, disk.stop_between_calls
        register = f"etcd://127.0.0.1:{to_register}/test"
        node = Node(directory, name, register, self.settings, environment, before_kill)
        node.settings["replication.advertise"] = f"127.0.0.1:{self.proxy.lead_to(name, node.replication_port)}"
        return node

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.proxy.__exit__(*error)


class Faults:
    """Causes faults, and notes what only they can see.

    Args:
        cluster: The cluster.
        seed: Of all that is decided by lot.
        confirmed: Returns how many messages were ever confirmed.

    Attributes:
        counts: How often each was caused.
        takeovers: Seconds from the end of a leader to the next one, by fault.
        wrong: Promises that were broken.
        refused_writes: How many writes and syncs have failed.
        last: The fault that was caused last.
    """

    def __init__(self, cluster: TorturedCluster, seed: int, confirmed: Callable[[], int]) -> None:
        self._cluster = cluster
        self._confirmed = confirmed
        self._proxy = cluster.proxy
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.takeovers: defaultdict[str, list[float]] = defaultdict(list)
        self.wrong: list[str] = []
        self.refused_writes = 0
        self.last = "none"

    def cause(self) -> None:
        """Cause one fault. Not always are all nodes in sync again before the next one."""
        faults: dict[Callable[[], None], int] = {
            self.hand_over: 80, self.kill_leader: 8, self.kill_leader_and_restart: 2, self.stop_leader: 4,
            self.pause_leader: 4, self.kill_standby: 2, self.pause_standby: 1, self.lose_register: 1, self.kill_all: 1,
            self.cut_leader_off: 4, self.cut_leader_from_register: 3, self.cut_leader_from_standbys: 2,
            self.cut_standby: 2, self.cut_standby_from_register: 1, self.damage_frames: 3, self.join_empty: 2,
        }  # fmt: skip
        if self._cluster.disks:
            faults |= {
                self.lose_power: 4, self.lose_all_power: 2, self.fill_disk: 2, self.fail_syncs: 1, self.step_clock: 2,
            }  # fmt: skip
        (fault,) = self._random.choices([*faults], [*faults.values()])
        self.counts[fault.__name__] += 1
        self.last = fault.__name__
        fault()
        if self._random.random() < 0.2:
            time.sleep(self._random.uniform(0, 2))
        else:
            self.recover()

    def recover(self) -> None:
        """Wait until all nodes are in sync."""

        def are_in_sync() -> bool:
            for node in self._cluster.nodes:
                if not node.is_running:
                    # As a supervisor does: a node ends when it cannot sync.
                    self.counts["a node that had ended"] += 1
                    node.start()
            leader = self._cluster.leader
            return leader is not None and leader.metric("copies") == len(self._cluster.nodes)

        wait_until(are_in_sync, "all nodes are in sync", timeout=_PATIENCE)

    def set_clocks_right(self) -> None:
        """Give all nodes the time of this machine."""
        for disk in self._cluster.disks.values():
            disk.step_clock(0)

    def _standbys(self) -> list[Node]:
        leader = self._cluster.wait_for_leader()
        return [node for node in self._cluster.nodes if node is not leader and node.is_running]

    def _standby(self) -> Node:
        standbys = self._standbys()
        wait_until(lambda: any(node.role for node in standbys), "there is a standby")
        return self._random.choice(standbys)

    def _await_next(self, old: Node, begun: float, what: str) -> Node:
        """Wait until another node leads; note how long it took."""
        others = [node for node in self._cluster.nodes if node is not old]
        wait_until(lambda: any(node.is_running and node.role == "leader" for node in others), "another node leads")
        self.takeovers[what].append(time.monotonic() - begun)
        return next(node for node in others if node.role == "leader")

    # --- processes ----------------------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Let another node lead by hand, a few times in a row."""
        for _ in range(self._random.randrange(1, 20)):
            self.recover()
            self._await_traffic()
            leader = self._cluster.wait_for_leader()
            api = Management(f"http://guest:guest@127.0.0.1:{leader.management_port}", timeout=10)
            begun = time.monotonic()
            with suppress(OSError):
                api.request("POST", "replication", "failover", body={})
                self._await_next(leader, begun, "hand over")

    def _await_traffic(self) -> None:
        """Let clients come back, so that what a leader leaves behind is more than their connections."""
        enough, until = self._confirmed() + _CONFIRMED, time.monotonic() + _TRAFFIC_SECONDS
        while self._confirmed() < enough and time.monotonic() < until:
            time.sleep(0.05)

    def kill_leader(self) -> None:
        """Kill the leader, and start it again once another leads."""
        self.recover()
        leader, begun = self._cluster.wait_for_leader(), time.monotonic()
        leader.kill()
        self._await_next(leader, begun, "kill")
        leader.start()

    def kill_leader_and_restart(self) -> None:
        """Kill the leader, and start it again at once."""
        leader = self._cluster.wait_for_leader()
        leader.kill()
        leader.start()
        wait_until(lambda: bool(leader.role), "it has a role again")

    def stop_leader(self) -> None:
        """Stop the leader cleanly: it hands over."""
        self.recover()
        leader, begun = self._cluster.wait_for_leader(), time.monotonic()
        status = leader.stop()
        if status:
            self.wrong.append(f"{leader.name} ended with status {status}")
        self._await_next(leader, begun, "stop")
        leader.start()

    def pause_leader(self) -> None:
        """Stop the leader's process for longer than its lease: it wakes up as a leader that is none any more."""
        self.recover()
        leader, begun = self._cluster.wait_for_leader(), time.monotonic()
        with _Witness(leader, self.wrong) as witness:
            leader.signal(signal.SIGSTOP)
            try:
                witness.publish()
                self._await_next(leader, begun, "pause")
                time.sleep(self._random.uniform(0, 1))
            finally:
                leader.signal(signal.SIGCONT)
            witness.expect_no_confirm()
        wait_until(lambda: leader.role == "standby", f"{leader.name} is a standby")

    def kill_standby(self) -> None:
        """Kill a standby."""
        standby = self._standby()
        standby.kill()
        time.sleep(self._random.uniform(0, 5))
        standby.start()
        standby.wait_for_role()

    def pause_standby(self) -> None:
        """Stop a standby's process until it has left the in-sync set."""
        self.recover()
        standby = self._standby()
        standby.signal(signal.SIGSTOP)
        try:
            self._await_copies_below(len(self._cluster.nodes))
        finally:
            standby.signal(signal.SIGCONT)

    def _await_copies_below(self, count: int) -> None:
        def are_fewer() -> bool:
            leader = self._cluster.leader
            copies = None if leader is None else leader.metric("copies")
            return copies is not None and copies < count

        wait_until(are_fewer, f"fewer than {count} nodes are in sync")

    def kill_all(self) -> None:
        """Kill all nodes, and start them in any order."""
        nodes = [*self._cluster.nodes]
        for node in nodes:
            node.kill()
        self._start_all(nodes)

    def _start_all(self, nodes: list[Node]) -> None:
        self._random.shuffle(nodes)
        for node in nodes:
            node.start()
            time.sleep(self._random.uniform(0, 1))
        self._cluster.wait_for_leader()

    def join_empty(self) -> None:
        """Lose the disk of a standby: it joins with an empty one."""
        self.recover()
        standby = self._standby()
        standby.kill()
        # It may have become the leader meanwhile; then there are two others that were in sync.
        self._await_next(standby, time.monotonic(), "disk lost")
        shutil.rmtree(standby.data_dir)
        standby.data_dir.mkdir(mode=0o750)
        if self._cluster.disks:
            self._cluster.disks[standby.name].begin()
        standby.start()
        standby.wait_for_role()
        if self._random.random() < 0.3:
            # In the middle of the join.
            time.sleep(self._random.uniform(0, 1))
            leader = self._cluster.wait_for_leader()
            if leader is not standby:
                leader.kill()
                leader.start()

    def lose_register(self) -> None:
        """Kill etcd for as long as a few leases."""
        self._cluster.etcd.stop()
        time.sleep(self._random.uniform(0, 3 * LEASE))
        self._cluster.etcd.start()

    # --- connections --------------------------------------------------------------------------------------------------

    def cut_leader_off(self) -> None:
        """Cut the leader off from everybody but its clients, until another leads."""
        self.recover()
        leader, begun = self._cluster.wait_for_leader(), time.monotonic()
        one_way = self._random.random() < 0.3
        with _Witness(leader, self.wrong) as witness:
            for other in (REGISTER, *(node.name for node in self._cluster.nodes if node is not leader)):
                self._proxy.cut(leader.name, other, one_way=one_way)
            try:
                witness.publish()
                self._await_next(leader, begun, "cut off")
                time.sleep(self._random.uniform(0, 1))
                witness.publish()
            finally:
                self._proxy.heal(reset=self._random.random() < 0.5)
            witness.expect_no_confirm()
        wait_until(lambda: leader.role == "standby", f"{leader.name} is a standby")

    def cut_leader_from_register(self) -> None:
        """Cut the leader from etcd, until another leads."""
        self.recover()
        leader, begun = self._cluster.wait_for_leader(), time.monotonic()
        self._cut(leader.name, REGISTER)
        try:
            self._await_next(leader, begun, "cut from register")
        finally:
            self._proxy.heal(reset=self._random.random() < 0.5)

    def cut_leader_from_standbys(self) -> None:
        """Cut the leader from all others: it stays the leader, and confirms nothing, for it has no second copy."""
        leader = self._cluster.wait_for_leader()
        for node in self._standbys():
            self._cut(leader.name, node.name)
        self._heal_after(6)

    def cut_standby(self) -> None:
        """Cut a standby from the leader, for a moment or until it has left the in-sync set."""
        leader = self._cluster.wait_for_leader()
        self._cut(leader.name, self._standby().name)
        self._heal_after(6)

    def cut_standby_from_register(self) -> None:
        """Cut a standby from etcd."""
        self._cut(self._standby().name, REGISTER)
        self._heal_after(3 * LEASE)

    def _cut(self, one: str, other: str) -> None:
        ends = [one, other]
        self._random.shuffle(ends)
        self._proxy.cut(*ends, one_way=self._random.random() < 0.5)

    def _heal_after(self, most: float) -> None:
        try:
            time.sleep(self._random.uniform(0, most))
        finally:
            self._proxy.heal(reset=self._random.random() < 0.5)

    def damage_frames(self) -> None:
        """Damage what the leader sends to a standby."""
        leader, standby = self._cluster.wait_for_leader(), self._standby()
        for _ in range(self._random.choice((1, 1, 3))):
            self._proxy.damage(leader.name, standby.name)
            time.sleep(self._random.uniform(0, 1))

    # --- disks and clocks ---------------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Cut the power of one node."""
        node = self._random.choice([self._cluster.wait_for_leader(), self._standby()])
        node.kill()
        self._cut_power(node)
        if self._random.random() < 0.5:
            with suppress(AssertionError):
                wait_until(lambda: self._cluster.leader is not None, "another leads", timeout=3 * LEASE)
        node.start()
        node.wait_for_role()

    def lose_all_power(self) -> None:
        """Cut the power of all nodes."""
        nodes = [*self._cluster.nodes]
        kills = [threading.Thread(target=node.kill) for node in nodes]
        for kill in kills:
            kill.start()
        for kill in kills:
            kill.join()
        for node in nodes:
            self._cut_power(node)
        self._start_all(nodes)

    def _cut_power(self, node: Node) -> None:
        self._cluster.disks[node.name].cut_power(self._random)

    def fill_disk(self) -> None:
        """Fill the disk of a node for a while."""
        disk = self._cluster.disks[self._random.choice(self._cluster.nodes).name]
        before = disk.refused_writes
        disk.limit_room(self._random.choice((0, 5_000, 200_000)))
        time.sleep(self._random.uniform(1, 5))
        disk.limit_room(None)
        self.refused_writes += disk.refused_writes - before

    def fail_syncs(self) -> None:
        """Let syncs of a node fail."""
        disk = self._cluster.disks[self._random.choice(self._cluster.nodes).name]
        disk.fail(Call.SYNC, self._random.randrange(20), self._random.choice((1, 3)))
        time.sleep(self._random.uniform(1, 3))
        self.refused_writes += disk.succeed(Call.SYNC)

    def step_clock(self) -> None:
        """Put the clock of a node forward or back."""
        disk = self._cluster.disks[self._random.choice(self._cluster.nodes).name]
        disk.step_clock(self._random.choice((-1, 1)) * self._random.choice(_STEPS))


class _Witness:
    """A client of a leader that is replaced while it is connected: it must get no confirm any more."""

    def __init__(self, leader: Node, wrong: list[str]) -> None:
        self._leader = leader
        self._wrong = wrong
        self._connection = Connection(f"amqp://guest:guest@127.0.0.1:{leader.port}", timeout=10)
        self._channel = self._connection.channel()
        self._channel.queue_declare("witness", durable=True, arguments=[("x-max-length", "I", 10)])
        self._channel.confirm_select()

    def __enter__(self) -> _Witness:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.abort()

    def publish(self) -> None:
        """Publish something to a leader that cannot have its copies any more."""
        with suppress(OSError):
            self._channel.publish("", "witness", b"", {"delivery_mode": 2})

    def expect_no_confirm(self) -> None:
        """Note what is confirmed until the connection ends."""
        deadline = time.monotonic() + 20
        with suppress(ConnectionClosed, ConnectionDropped, OSError):
            while time.monotonic() < deadline:
                self._connection.read(deadline - time.monotonic())
        if any(confirm.ack for confirm in self._channel.confirms):
            self._wrong.append(f"{self._leader.name} confirmed after another node had begun to lead")
