"""A cluster of a leader and standbys inside a test, for programs that must go on when the broker they use is gone.

    with LeveretCluster() as cluster:
        connection = pika.BlockingConnection([pika.URLParameters(url) for url in cluster.urls])
        cluster.kill(cluster.leader)

The nodes are real: each has a data directory, listens, and ships to the others over sockets. Only the register in which
they agree on who leads is in memory, and links between them can be cut.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from leveret.broker.addresses import format_address
from leveret.broker.config.options import Settings
from leveret.broker.embedded import Definitions, Options, read_settings, urls
from leveret.broker.embedded_thread import LoopThread, wait_until
from leveret.broker.ports import Ports
from leveret.broker.replicated import ReplicatedBroker
from leveret.broker.replication.link import Dial, dial
from leveret.broker.replication.register import Register
from leveret.broker.testing.environment import NotRunningError
from leveret.broker.testing.memory_register import MemoryHub, MemoryRegister

T = TypeVar("T")

#: Seconds for starting, stopping, and what else is asked of a node.
_DEADLINE: Final = 120.0
#: Seconds to wait for a leader or for copies, by default.
_PATIENCE: Final = 30.0
#: Options that differ from the program's: tests should not wait for long.
_OPTIONS: Final = {"replication.port": 0, "replication.lease": "2s", "replication.timeout": "1s"}


class ClusterNode:
    """One node of a cluster.

    Args:
        cluster: The cluster.
        name: Its name.
        settings: Its settings.

    Attributes:
        name: Its name: `n1`, `n2` and so on.
        url: AMQP URL of the default user and virtual host, on this node; the same as long as the cluster exists.
        http_url: URL of its HTTP API, with the default user.
        metrics_url: URL of its metrics for Prometheus.
    """

    def __init__(self, cluster: LeveretCluster, name: str, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._ports = Ports()
        self._broker: ReplicatedBroker | None = None
        self.name = name
        self.url = self.http_url = self.metrics_url = ""

    @property
    def role(self) -> str:
        """`leader` or `standby`; "" if it does not run."""
        return self._broker.role if self._broker is not None else ""

    def __repr__(self) -> str:
        return f"<{self.name}: {self.role or 'does not run'}>"

    async def start(self) -> None:
        """Start it, in the thread of the cluster."""
        broker = ReplicatedBroker(
            self._settings,
            _ignore,
            _ignore,
            self._cluster.make_register,
            self._ports,
            self._cluster.links.dial_from(self.name),
        )
        self._ports.rewind()
        self._broker = broker
        try:
            await broker.start()
        except BaseException:
            self._broker = None
            await broker.kill()
            raise
        self._cluster.links.note_port(broker.replication_port, self.name)
        self.url, self.http_url = urls(self._settings, broker.addresses)
        self.metrics_url = f"http://{format_address(*broker.addresses['prometheus'][0])}/metrics"

    async def end(self, kill: bool) -> None:
        """Stop or kill it, in the thread of the cluster."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await (broker.kill() if kill else broker.stop())

    async def close(self) -> None:
        """Stop it for good, in the thread of the cluster."""
        with suppress(Exception):
            await self.end(kill=True)
        self._ports.close()

    def report(self) -> dict[str, Any]:
        """Return what it knows of the cluster, as `/api/replication` does.

        Raises:
            NotRunningError: It does not run.
        """
        if self._broker is None:
            raise NotRunningError(f"{self.name} does not run")
        return self._broker.report()

    async def hand_over(self, to: str) -> str:
        """Let another node lead, in the thread of the cluster."""
        if self._broker is None:
            raise NotRunningError(f"{self.name} does not run")
        return await self._broker.hand_over(to)


class LeveretCluster:
    """A leader and standbys in a separate thread: a context manager. Its methods may be called in any other thread.

    Args:
        nodes: Number of nodes.
        options: Options of all nodes by their names in a configuration file; see Leveret. A lease is 2 s unless
            `replication.lease` is given, so that another node leads 2 s after the death of the leader.
        definitions: What exists at first; see Leveret.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.

    Attributes:
        nodes: The nodes, `n1` first; it leads at first.
    """

    def __init__(self, nodes: int = 3, options: Options | None = None, definitions: Definitions | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="leveret-cluster-"))
        self._hub = MemoryHub()
        self.links = Links()
        self.nodes: list[ClusterNode] = []
        for name in (f"n{number}" for number in range(1, nodes + 1)):
            own = {**_OPTIONS, **(options or {}), "replication.node": name}
            settings = read_settings(self._directory / name, own, definitions)
            self.nodes.append(ClusterNode(self, name, settings))
        self._thread = LoopThread("leveret-cluster")

    def make_register(self, node: str, lease: float) -> Register:
        """Return the register of a node."""
        return MemoryRegister(self._hub, node, lease)

    # -- start and end -------------------------------------------------------------------------------------------------

    def __enter__(self) -> LeveretCluster:
        """Start all nodes, and wait until all are in sync.

        Raises:
            StartError: A node cannot start; the text says why.
        """
        atexit.register(self._end)
        self._thread.start()
        try:
            for node in self.nodes:
                self.start(node)
            self.wait_for_copies(len(self.nodes))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        atexit.unregister(self._end)
        if self._thread.is_running:
            for node in self.nodes:
                self._wait_for(node.close())
            self._thread.end(_DEADLINE)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work, _DEADLINE)

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def urls(self) -> list[str]:
        """AMQP URLs of all nodes; a client may use any of them."""
        return [node.url for node in self.nodes]

    @property
    def leader(self) -> ClusterNode:
        """The node that leads; waits for one."""
        return self.wait_for_leader()

    def wait_for_leader(self, other_than: ClusterNode | None = None, timeout: float = _PATIENCE) -> ClusterNode:
        """Wait until a node leads, and return it.

        Args:
            other_than: A node that is not meant, even if it still leads.
            timeout: Seconds.
        Raises:
            TimeoutError: None does in time.
        """

        def leading() -> list[ClusterNode]:
            return [node for node in self.nodes if node.role == "leader" and node is not other_than]

        return self.wait_until(leading, timeout)[-1]

    def wait_for_copies(self, count: int, timeout: float = _PATIENCE) -> None:
        """Wait until this many nodes, the leader included, have all that was confirmed.

        Raises:
            TimeoutError: They do not in time.
        """

        def has_copies() -> bool:
            reports = [node.report() for node in self.nodes if node.role == "leader"]
            return any(each.get("copies") == count for each in reports)

        self.wait_until(has_copies, timeout)

    def wait_until(self, condition: Callable[[], T], timeout: float = _PATIENCE) -> T:
        """Wait until a condition holds, and return its value; see Leveret.wait_until()."""
        return wait_until(condition, timeout)

    # -- what happens to nodes -----------------------------------------------------------------------------------------

    def kill(self, node: ClusterNode) -> None:
        """End a node as `kill -9` would. If it led, another one leads after the lease."""
        self._wait_for(node.end(kill=True))

    def stop(self, node: ClusterNode) -> None:
        """Stop a node. If it led, another one leads at once."""
        self._wait_for(node.end(kill=False))

    def start(self, node: ClusterNode) -> None:
        """Start a node that was killed or stopped, on its data and with its URLs.

        Raises:
            StartError: It cannot start; the text says why.
        """
        self._wait_for(node.start())

    def fail_over(self, to: ClusterNode | None = None) -> ClusterNode:
        """Let another node lead, as `leveretctl failover` does; return it once it leads.

        Args:
            to: The node; None for any that is in sync.
        Raises:
            ReplicationError: It is not in sync, or none is.
        """
        leader = self.leader
        name = self._wait_for(leader.hand_over("" if to is None else to.name))
        self.wait_for_leader(other_than=leader)
        return next(node for node in self.nodes if node.name == name)

    @contextmanager
    def cut(self, node: ClusterNode, other: ClusterNode | None = None) -> Iterator[None]:
        """Cut links while the block runs; clients stay connected.

        Args:
            node: A node.
            other: The node at the other end; None cuts it off from all others and from the register.
        """
        others = [each.name for each in self.nodes if each is not node] if other is None else [other.name]
        pairs = {frozenset((node.name, each)) for each in others}
        self.links.cut(pairs)
        if other is None:
            self._hub.cut_off.add(node.name)
        try:
            yield
        finally:
            self._hub.cut_off.discard(node.name)
            self.links.mend(pairs)

    @contextmanager
    def without_register(self) -> Iterator[None]:
        """Let no node reach the register while the block runs: nobody new leads, after a lease nothing is confirmed."""
        self._hub.is_away = True
        try:
            yield
        finally:
            self._hub.is_away = False
            self._hub.change()


def _ignore(*_: object) -> None:
    pass


class Links:
    """The connections between nodes. Used by the threads of all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut: set[frozenset[str]] = set()
        self._ports: dict[int, str] = {}
        self._open: list[tuple[frozenset[str], asyncio.AbstractEventLoop, asyncio.StreamWriter]] = []

    def note_port(self, port: int, name: str) -> None:
        """Note the replication port of a node."""
        self._ports[port] = name

    def dial_from(self, name: str) -> Dial:
        """Return what opens connections from a node."""

        async def open_link(
            host: str, port: int, tls: ssl.SSLContext | None
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            pair = frozenset((name, self._ports.get(port, "")))
            self._refuse(pair)
            reader, writer = await dial(host, port, tls)
            with self._lock:
                self._open = [each for each in self._open if not each[2].is_closing()]
                self._open.append((pair, asyncio.get_running_loop(), writer))
            try:
                self._refuse(pair)
            except ConnectionRefusedError:
                writer.transport.abort()
                raise
            return reader, writer

        return open_link

    def _refuse(self, pair: frozenset[str]) -> None:
        if pair in self._cut:
            raise ConnectionRefusedError("the link is cut")

    def cut(self, pairs: set[frozenset[str]]) -> None:
        """Cut the links between pairs of nodes."""
        with self._lock:
            self._cut |= pairs
            found = [(loop, writer) for pair, loop, writer in self._open if pair in pairs]
        for loop, writer in found:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(writer.transport.abort)

    def mend(self, pairs: set[frozenset[str]]) -> None:
        """Mend the links between pairs of nodes."""
        with self._lock:
            self._cut -= pairs
