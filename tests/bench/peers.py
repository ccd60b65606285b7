"""Starts and stops brokers to compare with: LavinMQ if `LAVINMQ` names its program, RabbitMQ if it is installed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.bench.in_flight import BenchError
from tests.integration.certificates import Authority
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped

_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 20.0
_PORTS: Final = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ports that stay free over a restart: none that the system would give to another program."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise BenchError("no free ports")


def start(command: list[str], log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, so that the whole group can be ended."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def wait_until_ready(name: str, url: str, node: subprocess.Popen[bytes], log: Path) -> None:
    """Return once a broker accepts AMQP connections."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            Connection(url).close()
        except (OSError, ConnectionDropped, ConnectionClosed) as error:
            if node.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                raise BenchError(f"{name} did not start: {error}\n{text}") from error
            time.sleep(0.1)
        else:
            return


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program and all of its process group; its data is not needed again."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_SECONDS)


#: Path of LavinMQ's program. Releases before 2.9 confirm before they sync, which durable scenarios show.
LAVINMQ_VARIABLE: Final = "LAVINMQ"


@contextmanager
def running_lavinmq(program: str) -> Iterator[tuple[str, str]]:
    """Run LavinMQ on free loopback ports with an empty data directory; stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-lavinmq-", ignore_cleanup_errors=True) as name:
        port, tls_port, http_port = free_ports(3)
        issued = Authority(Path(name)).issue("127.0.0.1")
        command = [program, "-D", f"{name}/data", "-b", "127.0.0.1", "-p", str(port), "--http-port", str(http_port)]
        command += ["--amqps-port", str(tls_port), "--cert", str(issued.certificate), "--key", str(issued.key)]
        path = Path(name, "lavinmq.log")
        try:
            with path.open("wb") as log:
                process = start(command, log, dict(os.environ))
        except OSError as error:
            raise BenchError(f"{program} cannot be started: {error.strerror}") from None
        try:
            url = f"amqp://guest:guest@127.0.0.1:{port}"
            wait_until_ready("LavinMQ", url, process, path)
            yield url, f"amqps://guest:guest@127.0.0.1:{tls_port}"
        finally:
            stop(process)


_CONFIG: Final = "rabbitmq.conf"
_PLUGINS: Final = "enabled_plugins"


@dataclass(frozen=True)
class Installation:
    """Where the programs are."""

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
    """A node without plugins, on free loopback ports."""

    def __init__(self, installation: Installation, directory: Path) -> None:
        port, tls_port, distribution, mapper = free_ports(4)
        self._installation, self._directory, self._mapper = installation, directory, mapper
        self._environment = _environment(directory, port, distribution, mapper)
        _configure(directory, port, tls_port)
        self._running: list[subprocess.Popen[bytes]] = []
        self.url = f"amqp://guest:guest@127.0.0.1:{port}"
        self.tls_url = f"amqps://guest:guest@127.0.0.1:{tls_port}"

    def start(self) -> None:
        """Start it, with the data that are there."""
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
        """What `rabbitmqctl list_queues` says of a queue: messages, messages_ram, memory."""
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
    """Start a node with data of its own; stop it at the end."""
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
