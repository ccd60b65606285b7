"""An etcd and the nodes of a cluster as processes on this machine, for black-box tests."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests.integration.certificates import Issued
from tests.integration.waiting import PATIENCE, wait_until

#: The program; Debian's package is etcd-server.
ETCD: Final = shutil.which("etcd")
#: States of threads, as in /proc.
_RUNNING: Final = frozenset("RSDI")
_ROLE: Final = re.compile(r" role=(leader|standby|observer)$", re.MULTILINE)


def free_port() -> int:
    """Return a port that nobody listens on now. It is none of those that systems give to connections."""
    while True:
        port = random.SystemRandom().randrange(10_240, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def thread_states(pid: int) -> set[str]:
    """Return the states of a process's threads, as in /proc."""
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states


def send_signal(pid: int, number: int) -> None:
    """Send a process a signal; after SIGSTOP wait until no thread of it runs, which takes a moment."""
    os.kill(pid, number)
    if number == signal.SIGSTOP:
        wait_until(lambda: not thread_states(pid) & _RUNNING, "all threads are stopped")


def _get(url: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Return what a URL answers with status 200; nothing otherwise."""
    with suppress(OSError, HTTPException), urllib.request.urlopen(url, timeout=5, context=tls) as response:
        return bytes(response.read())
    return b""


class Etcd:
    """A single etcd member; a context manager that stops it.

    Args:
        directory: Where its data are.
        issued: Its certificate; without one its clients are not encrypted.
        authority: The authority of certificates.
    """

    def __init__(self, directory: Path, issued: Issued | None = None, authority: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._scheme = "http" if issued is None else "https"
        self._tls: ssl.SSLContext | None = None
        self._files: list[str] = []
        if issued is not None:
            # It asks for certificates, too.
            self._tls = ssl.create_default_context(cafile=str(authority))
            self._tls.load_cert_chain(issued.certificate, issued.key)
            files = f"--cert-file={issued.certificate}", f"--key-file={issued.key}", f"--trusted-ca-file={authority}"
            self._files = [*files]
        self.port, self._peer_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        assert ETCD is not None
        client, peer = self._url, f"http://127.0.0.1:{self._peer_port}"
        with open(self.directory / "etcd.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    ETCD, f"--data-dir={self.directory}/data", f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
                    *self._files,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        wait_until(self._is_healthy, "etcd answers")

    def _is_healthy(self) -> bool:
        return b"true" in _get(f"{self._url}/health", self._tls)

    @property
    def _url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def _ask(self, path: str, body: object) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found

    def add_user(self, name: str, password: str) -> None:
        """Add a user with the role `root`, and let it ask for passwords from now on."""
        self._ask("auth/user/add", {"name": name, "password": password})
        self._ask("auth/role/add", {"name": "root"})
        self._ask("auth/user/grant", {"user": name, "role": "root"})
        self._ask("auth/enable", {})

    def has(self, key: str) -> bool:
        """Return whether it has a key."""
        return "kvs" in self._ask("kv/range", {"key": b64encode(key.encode()).decode()})

    def stop(self) -> None:
        """Kill it; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Etcd:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Node:
    """A node of a cluster as a process."""

    def __init__(
        self,
        directory: Path,
        name: str,
        register: str,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        before_kill: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._environment = environment or {}
        self._before_kill = before_kill
        self.name = name
        self.directory = directory
        self.data_dir = directory / "data"
        self.log = directory / "stderr.log"
        self._output = directory / "stdout.log"
        self.port, self.management_port, self.prometheus_port, self.replication_port = (free_port() for _ in range(4))
        self.settings = {
            "replication.register": register,
            "replication.node": name,
            "replication.port": self.replication_port,
            "replication.lease": "2s",
            "replication.secret": "not much of one",
            "log_level": "info",
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting for anything."""
        arguments = [
            sys.executable, "-m", "leveret", f"--data-dir={self.data_dir}", "--host=127.0.0.1", f"--port={self.port}",
            f"--management-port={self.management_port}", f"--prometheus-port={self.prometheus_port}",
        ]  # fmt: skip
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        self._output.unlink(missing_ok=True)
        with self.log.open("ab") as log, self._output.open("wb") as output:
            self.process = subprocess.Popen(
                arguments, stdout=output, stderr=log, env={**_environment(), **self._environment}
            )

    @property
    def role(self) -> str:
        """The role that it has printed last; "" before the first."""
        found = _ROLE.findall(self._output.read_text()) if self._output.exists() else []
        return found[-1] if found else ""

    def wait_for_role(self) -> None:
        """Wait until it has printed a role."""

        def has_role() -> bool:
            assert self.is_running, self.log.read_text()
            return bool(self.role)

        wait_until(has_role, f"{self.name} has a role")

    @property
    def leads(self) -> bool:
        """Whether its health check says that it leads."""
        return bool(_get(f"http://127.0.0.1:{self.management_port}/api/health/checks/leader"))

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def metric(self, name: str) -> float | None:
        """Return one of its metrics of replication."""
        told = _get(f"http://127.0.0.1:{self.prometheus_port}/metrics").decode()
        found = re.search(rf"^leveret_replication_{name} (\S+)$", told, re.MULTILINE)
        return float(found[1]) if found else None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        send_signal(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, as kill -9 does."""
        if self.process is not None:
            if self.is_running:
                self._before_kill(self.process.pid)
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        """Stop it cleanly; return its exit status."""
        assert self.process is not None
        self.signal(signal.SIGCONT)
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        self.process = None
        return status


class Cluster:
    """An etcd and nodes; a context manager that kills all of them."""

    def __init__(self, directory: Path, count: int = 3, settings: Mapping[str, object] | None = None) -> None:
        self.etcd = Etcd(directory / "etcd")
        self.settings = settings
        self.nodes = [self.make_node(directory / f"n{at}", f"n{at}") for at in range(1, count + 1)]

    def make_node(self, directory: Path, name: str) -> Node:
        """Return a node, which is not started."""
        return Node(directory, name, f"etcd://127.0.0.1:{self.etcd.port}/test", self.settings)

    def start(self) -> None:
        """Start all nodes, the first of them as the leader, and wait until all are in sync."""
        for node in self.nodes:
            node.start()
            node.wait_for_role()
        self.wait_for_copies(len(self.nodes))

    @property
    def leader(self) -> Node | None:
        """The node that leads; None if none of those that run does."""
        return next((node for node in self.nodes if node.is_running and node.role == "leader"), None)

    def wait_for_leader(self, other_than: Node | None = None) -> Node:
        """Wait until a node leads, which is not a certain one; return it."""
        wait_until(lambda: self.leader not in (None, other_than), "a node leads")
        assert self.leader is not None
        return self.leader

    def wait_for_copies(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait until this many nodes are in sync."""

        def has_copies() -> bool:
            leader = self.leader
            return leader is not None and leader.metric("copies") == count

        wait_until(has_copies, f"{count} nodes are in sync", timeout=seconds)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.kill()
        self.etcd.stop()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LEVERET_")}
