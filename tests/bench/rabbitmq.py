"""Runs a RabbitMQ node for the benchmark if `rabbitmq-server` is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.in_flight import BenchError
from tests.bench.peer_process import free_ports, start, stop, wait_until_ready
from tests.integration.certificates import Authority

_STOP_SECONDS: Final = 20.0
_CONFIG: Final = "rabbitmq.conf"
_PLUGINS: Final = "enabled_plugins"


@dataclass(frozen=True)
class Installation:
    """Where the programs are.

    Attributes:
        server: `rabbitmq-server`.
        epmd: Erlang's port mapper, which a node needs.
    """

    server: Path
    epmd: Path


def find_installation() -> Installation | None:
    """Look for RabbitMQ and Erlang's epmd; None if one of them is missing."""
    # Debian's program on the path changes the user, so the one that it calls comes first.
    servers = [
        *sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), reverse=True),
        *_on_path("rabbitmq-server", "/usr/sbin"),
    ]
    mappers = [*_on_path("epmd", "/usr/lib/erlang/bin"), *Path("/usr/lib/erlang").glob("erts-*/bin/epmd")]
    return Installation(servers[0], mappers[0]) if servers and mappers else None


def _on_path(program: str, further: str) -> list[Path]:
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{further}")
    return [Path(found)] if found else []


class Node:
    """A node without plugins, on free loopback ports.

    Args:
        installation: What to start.
        directory: For its data and its log.

    Attributes:
        url: Its AMQP URL.
        tls_url: That of its encrypted listener.
    """

    def __init__(self, installation: Installation, directory: Path) -> None:
        port, tls_port, distribution, mapper = free_ports(4)
        self._installation, self._directory, self._mapper = installation, directory, mapper
        self._environment = _environment(directory, port, distribution, mapper)
        _configure(directory, port, tls_port)
        self._running: list[subprocess.Popen[bytes]] = []
        self.url = f"amqp://guest:guest@127.0.0.1:{port}"
        self.tls_url = f"amqps://guest:guest@127.0.0.1:{tls_port}"

    def start(self) -> None:
        """Start it, with the data that are there.

        Raises:
            BenchError: it did not start within 90 s.
        """
        mapper = [str(self._installation.epmd), "-port", str(self._mapper), "-address", "127.0.0.1"]
        path = self._directory / "node.log"
        with path.open("ab") as log:
            for command in (mapper, [str(self._installation.server)]):
                self._running.append(start(command, log, self._environment))
        wait_until_ready("RabbitMQ", self.url, self._running[-1], path)

    def stop(self) -> None:
        """Stop it so that it keeps its data."""
        _run(self._control("stop"), self._environment)
        self._running[-1].wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        for process in self._running:
            stop(process)
        self._running.clear()

    def queue_figures(self, queue: str) -> dict[str, int]:
        """What `rabbitmqctl list_queues` says of a queue: messages, messages_ram, memory.

        Raises:
            BenchError: it says nothing of it.
        """
        columns = ("name", "messages", "messages_ram", "memory")
        printed = _run(self._control("list_queues", "--quiet", "--formatter", "json", *columns), self._environment)
        for row in json.loads(printed):
            if row["name"] == queue:
                return {column: int(row[column]) for column in columns[1:]}
        raise BenchError(f"no queue {queue}: {printed}")

    def _control(self, *arguments: str) -> list[str]:
        program = self._installation.server.with_name("rabbitmqctl")
        return [str(program), "--node", self._environment["RABBITMQ_NODENAME"], *arguments]


@contextmanager
def running_node(installation: Installation) -> Iterator[tuple[str, str]]:
    """Start a node with data of its own; stop it at the end.

    Yields:
        Its AMQP URL, and the one of its encrypted listener.

    Raises:
        BenchError: it did not start within 90 s.
    """
    with tempfile.TemporaryDirectory(prefix="bench-rabbitmq-", ignore_cleanup_errors=True) as name:
        node = Node(installation, Path(name))
        try:
            node.start()
            yield node.url, node.tls_url
        finally:
            node.kill()


def _configure(directory: Path, port: int, tls_port: int) -> None:
    authority = Authority(directory)
    issued = authority.issue("127.0.0.1")
    options = {
        "listeners.tcp.1": f"127.0.0.1:{port}",
        "listeners.ssl.1": f"127.0.0.1:{tls_port}",
        "ssl_options.cacertfile": authority.file,
        "ssl_options.certfile": issued.certificate,
        "ssl_options.keyfile": issued.key,
    }
    text = "".join(f"{name} = {value}\n" for name, value in options.items())
    (directory / _CONFIG).write_text(text)
    (directory / _PLUGINS).write_text("[].\n")


def _environment(directory: Path, port: int, distribution: int, mapper: int) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return inherited | {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / _CONFIG),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / _PLUGINS),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper),
    }


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{command[0]} failed: {done.stderr[-500:]}")
    return done.stdout
