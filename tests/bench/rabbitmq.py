"""A RabbitMQ node of the benchmark's own, where `rabbitmq-server` is installed."""

from __future__ import annotations

import os
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
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped

_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 20.0


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


@contextmanager
def running_node(installation: Installation) -> Iterator[str]:
    """Start a node without plugins, on free loopback ports and with data of its own; stop it at the end.

    Yields:
        Its AMQP URL.

    Raises:
        BenchError: it did not start within 90 s.
    """
    port, distribution, mapper = _free_ports(3)
    with tempfile.TemporaryDirectory(prefix="bench-rabbitmq-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        environment = _environment(directory, port, distribution, mapper)
        with (directory / "node.log").open("wb") as log:
            epmd = _start([str(installation.epmd), "-port", str(mapper), "-address", "127.0.0.1"], log, environment)
            node = _start([str(installation.server)], log, environment)
        try:
            url = f"amqp://guest:guest@127.0.0.1:{port}"
            _wait_until_ready(url, node, directory / "node.log")
            yield url
        finally:
            _stop(node)
            _stop(epmd)


def _environment(directory: Path, port: int, distribution: int, mapper: int) -> dict[str, str]:
    config, plugins = directory / "rabbitmq.conf", directory / "enabled_plugins"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    plugins.write_text("[].\n")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return inherited | {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper),
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _start(command: list[str], log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # A session of its own, so that the whole group can be ended.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _wait_until_ready(url: str, node: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            Connection(url).close()
        except (OSError, ConnectionDropped, ConnectionClosed) as error:
            if node.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                raise BenchError(f"RabbitMQ did not start: {error}\n{text}") from error
            time.sleep(0.1)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a program and all of its process group; its data are not wanted any more."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_SECONDS)
